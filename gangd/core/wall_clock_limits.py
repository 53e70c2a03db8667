"""Wall-clock limits: what a job's end is owed for the time that it lost because it was held.

Slurm counts that time as run time. A job's end is therefore moved later by what it has lost, once that is
worth a call. Near its end it is lent what it is going to lose, at its pace of late, until the next move is
allowed: it must not be killed in between. What is lent is used up before more is given. Moves are monotone
and rare, and stop where a reservation of the job's nodes begins. The end that Slurm had before, or that an
operator sets, is the *base*; the credit on top is ours.

Lost time (``gang.LostTime``) is looked at in turns, so that no slice pays for all gangs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import floor

from gangd.core.gang import Gang
from gangd.core.gang_settings import SECOND, CoreSettings
from gangd.core.scheduler_events import JobView, MoveEnd
from gangd.core.slice_scheduler import SliceScheduler
from gangd.core.states import GangState

SLACK_S = 2.0  # Slurm keeps whole seconds; an end that differs by less was not set by another program
LEAST_MOVE_S = 5.0  # well above the slack, so that an end tells whether our move has arrived
WORTH_S = 60.0
WORTH_SHARE = 0.1
MARGIN_S = 15.0  # between two looks at a job

State = dict[str, dict[str, float]]
KEPT = frozenset({"start_s", "base_s", "credit_s", "lost_s"})

LOOK_EVERY_NS = 10 * SECOND
NEAR_EVERY_NS = SECOND


@dataclass(slots=True)
class JobAccount:
    """What one run of a job lost and was credited.

    Attributes
    ----------
    start_s
        Start of the run: another one is another account.
    base_s
        End without our credit (wall clock).
    credit_s
        How much later we made it, as far as Slurm is known to have done so.
    asked_s
        Credit that we asked for last and that Slurm has not shown yet; None if there is none.
    lost_s
        How much time it lost.
    asked_ns
        When we last moved it.
    latest_s
        Where its end must stop, whatever it is owed; None for nowhere.
    """

    start_s: float
    base_s: float
    credit_s: float = 0.0
    asked_s: float | None = None
    lost_s: float = 0.0
    asked_ns: int | None = None
    latest_s: float | None = None

    def see(self, end_s: float) -> None:
        """Take in the end that Slurm has: the old one, the one that we asked for, or another program's."""
        if self.asked_s is not None and abs(end_s - (self.base_s + self.asked_s)) <= SLACK_S:
            self.credit_s, self.asked_s = self.asked_s, None
        elif abs(end_s - (self.base_s + self.credit_s)) > SLACK_S:
            self.base_s, self.asked_s = end_s - self.credit_s, None


class WallClockLimits:
    """The accounts of all jobs with a limit; survives a restart through ``state``."""

    def __init__(self, state: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self._accounts: dict[int, JobAccount] = {}
        self._former = {int(job): dict(kept) for job, kept in (state or {}).items()}

    def see(self, view: JobView) -> None:
        """Take in the end that Slurm enforces."""
        account = self._accounts.get(view.job)
        if view.end_s is None:
            self._accounts.pop(view.job, None)
        elif account is None or account.start_s != view.start_s:
            self._accounts[view.job] = self._open(view, view.end_s)
        else:
            account.see(view.end_s)
        if view.job in self._accounts:
            self._accounts[view.job].latest_s = view.latest_s

    def forget(self, job: int) -> None:
        """Close the account of a job that is gone."""
        self._accounts.pop(job, None)

    def look(
        self, job: int, lost_s: float, lost_share: float, now_ns: int, wall_s: float, settings: CoreSettings
    ) -> tuple[bool, MoveEnd | None]:
        """Add time that a job lost; move its end if it is owed something worth a call.

        Returns also whether its end is so near that what it is owed must not wait.

        Parameters
        ----------
        lost_s
            What it lost since it was looked at last.
        lost_share
            Share of its time that it lost lately: a forecast.
        wall_s
            Wall clock at ``now_ns``.
        """
        account = self._accounts.get(job)
        if account is None:
            return False, None
        account.lost_s += lost_s
        due_s = account.base_s + account.credit_s
        near = due_s - wall_s <= settings.move_near_ns / SECOND
        asked_lately = account.asked_ns is not None and now_ns < account.asked_ns + settings.move_interval_ns
        if not account.lost_s or asked_lately:
            return near, None
        lent_s = lost_share * (settings.move_interval_ns / SECOND + MARGIN_S) if near else 0.0
        owed_s = account.lost_s + lent_s - account.credit_s
        if account.latest_s is not None:  # a reservation: the job ends before it, and is owed the rest
            owed_s = min(owed_s, account.latest_s - account.base_s - account.credit_s)
        if owed_s < (LEAST_MOVE_S if near else max(WORTH_S, WORTH_SHARE * (due_s - wall_s))):
            return near, None
        account.asked_s = account.credit_s + floor(owed_s)
        account.asked_ns = now_ns
        return near, MoveEnd(job, account.base_s + account.asked_s, due_s, account.lost_s)

    def state(self) -> State:
        """Return the accounts of jobs that lost or were given something, as ``WallClockLimits`` takes them.

        JSON can hold them. Of others there is nothing to know but the end that Slurm has.
        """
        return {
            str(job): {
                "start_s": account.start_s,
                "base_s": account.base_s,
                "credit_s": account.credit_s,
                "lost_s": account.lost_s,
                **({} if account.asked_s is None else {"asked_s": account.asked_s}),
            }
            for job, account in self._accounts.items()
            if account.lost_s or account.credit_s or account.asked_s is not None
        }

    def _open(self, view: JobView, end_s: float) -> JobAccount:
        former = self._former.pop(view.job, {})
        if former.get("start_s") != view.start_s or not former.keys() >= KEPT:
            return JobAccount(view.start_s, end_s)
        account = JobAccount(
            view.start_s, former["base_s"], former["credit_s"], former.get("asked_s"), former["lost_s"]
        )
        account.see(end_s)
        return account


class Accounts:
    """Asks which gangs have lost time and whose end is to be moved: in turns, and often near an end."""

    def __init__(self, rotation: SliceScheduler, limits: WallClockLimits, now_ns: int) -> None:
        self._rotation = rotation
        self._limits = limits
        self._turns: list[Gang] = []
        self._near: dict[int, Gang] = {}
        self._near_ns = 0
        self._looked_ns = now_ns

    def look(
        self, gangs: Mapping[int, Gang], number: int, now_ns: int, wall_s: float, settings: CoreSettings
    ) -> list[MoveEnd]:
        """Account the slices before ``number`` of those gangs whose turn it is.

        Each has one every 10 s, those whose end is near every second.

        Parameters
        ----------
        gangs
            All gangs.
        wall_s
            Wall clock at ``now_ns``.
        """
        if not self._turns:
            self._turns = list(gangs.values())
        passed_ns, self._looked_ns = min(now_ns - self._looked_ns, LOOK_EVERY_NS), now_ns
        due = -(-len(gangs) * passed_ns // LOOK_EVERY_NS)
        turn = [self._turns.pop() for _ in range(min(len(self._turns), due))]
        if now_ns >= self._near_ns:
            self._near_ns = now_ns + NEAR_EVERY_NS
            turn = list({id(gang): gang for gang in (*turn, *self._near.values())}.values())
        self._settle(turn, number)
        moves = []
        for gang in turn:
            moves += self._account(gang, now_ns, wall_s, settings)
        return moves

    def _settle(self, turn: Iterable[Gang], number: int) -> None:
        groups = {id(group): group for gang in turn if (group := self._rotation.groups[gang.slot])}
        self._rotation.settle([group for group in groups.values() if group.settled < number], number)
        for gang in turn:
            if gang.state is not GangState.GONE:  # its slot may be another's by now
                gang.lost.plan(int(self._rotation.held_ns[gang.slot]))
                self._rotation.held_ns[gang.slot] = 0

    def _account(self, gang: Gang, now_ns: int, wall_s: float, settings: CoreSettings) -> list[MoveEnd]:
        if gang.state is GangState.GONE:
            self._near.pop(id(gang), None)
            return []
        lost_s = gang.lost.take(now_ns) / SECOND
        share = gang.lost.share(now_ns)
        moves = []
        near = False
        for job in gang.views:
            is_near, move = self._limits.look(job, lost_s, share, now_ns, wall_s, settings)
            near = near or is_near
            if move is not None:
                moves.append(move)
        if near and (gang.deferred or self._rotation.groups[gang.slot] is not None):
            self._near[id(gang)] = gang
        else:
            self._near.pop(id(gang), None)
        return moves
