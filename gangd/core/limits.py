"""Wall-clock limits: what a job's end is owed for the time in which it was frozen.

Slurm counts frozen time as run time. A job's end is therefore moved later by the time it was frozen, plus
what it will be until the next move is allowed: it must not be killed in between. Moves are monotone and
rare. The end that Slurm had before, or that an operator sets, is the *base*; the credit on top is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from gangd.core.commands import MoveEnd
from gangd.core.events import JobView
from gangd.core.settings import Settings

SECOND_NS = 1_000_000_000
SLACK_S = 2.0  # Slurm keeps whole seconds; an end that differs by less was not set by somebody else
LEAST_MOVE_S = 5.0  # well above the slack, so that an end tells whether our move has arrived
WORTH_S = 60.0
WORTH_SHARE = 0.1
MARGIN_S = 15.0  # between two looks at a job

State = dict[str, dict[str, float]]


@dataclass(slots=True)
class Account:
    """What one run of a job was frozen and credited.

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
    frozen_s
        How long it was frozen.
    asked_ns
        When we last moved it.
    """

    start_s: float
    base_s: float
    credit_s: float = 0.0
    asked_s: float | None = None
    frozen_s: float = 0.0
    asked_ns: int | None = None

    def see(self, end_s: float) -> None:
        """Take in the end that Slurm has: the old one, the one that we asked for, or somebody else's."""
        if self.asked_s is not None and abs(end_s - (self.base_s + self.asked_s)) <= SLACK_S:
            self.credit_s, self.asked_s = self.asked_s, None
        elif abs(end_s - (self.base_s + self.credit_s)) > SLACK_S:
            self.base_s, self.asked_s = end_s - self.credit_s, None


class Limits:
    """The accounts of all jobs with a limit; survives a restart through ``state``."""

    def __init__(self, state: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self._accounts: dict[int, Account] = {}
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

    def forget(self, job: int) -> None:
        """Close the account of a job that is gone."""
        self._accounts.pop(job, None)

    def frozen(self, job: int, seconds: float) -> None:
        """Add frozen time."""
        account = self._accounts.get(job)
        if account is not None:
            account.frozen_s += seconds

    def due(
        self, job: int, held_share: float, now_ns: int, wall_s: float, settings: Settings
    ) -> MoveEnd | None:
        """Move the end of a job if it is owed something worth a call.

        Parameters
        ----------
        held_share
            Share of its time for which it was frozen lately: a forecast.
        wall_s
            Wall clock at ``now_ns``.
        """
        account = self._accounts.get(job)
        if account is None or account.frozen_s == 0:
            return None
        if account.asked_ns is not None and now_ns < account.asked_ns + settings.move_interval_ns:
            return None
        left_s = account.base_s + account.credit_s - wall_s
        forecast_s = held_share * (settings.move_interval_ns / SECOND_NS + MARGIN_S)
        owed_s = account.frozen_s + forecast_s - account.credit_s
        near = left_s <= settings.move_near_ns / SECOND_NS
        if owed_s < (LEAST_MOVE_S if near else max(WORTH_S, WORTH_SHARE * left_s)):
            return None
        account.asked_s = account.credit_s + ceil(owed_s)
        account.asked_ns = now_ns
        return MoveEnd(job, account.base_s + account.asked_s, account.frozen_s)

    def state(self) -> State:
        """Return all accounts, as JSON can hold them, for ``Limits`` of the next controller."""
        return {
            str(job): {
                "start_s": account.start_s,
                "base_s": account.base_s,
                "credit_s": account.credit_s,
                "frozen_s": account.frozen_s,
                **({} if account.asked_s is None else {"asked_s": account.asked_s}),
            }
            for job, account in self._accounts.items()
        }

    def _open(self, view: JobView, end_s: float) -> Account:
        former = self._former.pop(view.job, None)
        if former is None or former.get("start_s") != view.start_s:
            return Account(view.start_s, end_s)
        account = Account(
            view.start_s,
            former["base_s"],
            former["credit_s"],
            former.get("asked_s"),
            former["frozen_s"],
        )
        account.see(end_s)
        return account
