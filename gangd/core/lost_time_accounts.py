"""Lost time of all gangs (see ``lost``), looked at in turns, so that no slice pays for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangd.core.jobs.gang import Gang
from gangd.core.jobs.wall_clock_limits import Limits
from gangd.core.slices.rotation import Rotation
from gangd.core.terms.gang_settings import SECOND, Settings
from gangd.core.terms.scheduler_commands import MoveEnd
from gangd.core.terms.states import GangState

LOOK_EVERY_NS = 10 * SECOND
NEAR_EVERY_NS = SECOND


class Accounts:
    """Asks which gangs have lost time and whose end is to be moved: in turns, and often near an end."""

    def __init__(self, rotation: Rotation, limits: Limits, now_ns: int) -> None:
        self._rotation = rotation
        self._limits = limits
        self._turns: list[Gang] = []
        self._near: dict[int, Gang] = {}
        self._near_ns = 0
        self._looked_ns = now_ns

    def look(
        self, gangs: Mapping[int, Gang], number: int, now_ns: int, wall_s: float, settings: Settings
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
        """Bring what was planned for these gangs up to date."""
        groups = {id(group): group for gang in turn if (group := self._rotation.groups[gang.slot])}
        self._rotation.settle([group for group in groups.values() if group.settled < number], number)
        for gang in turn:
            if gang.state is not GangState.GONE:  # its slot may be another's by now
                gang.lost.plan(int(self._rotation.held_ns[gang.slot]))
                self._rotation.held_ns[gang.slot] = 0

    def _account(self, gang: Gang, now_ns: int, wall_s: float, settings: Settings) -> list[MoveEnd]:
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
        if near and self._rotation.groups[gang.slot] is not None:
            self._near[id(gang)] = gang
        else:
            self._near.pop(id(gang), None)
        return moves
