"""Switches ahead of time: which ones, what came of them, and the part of it that native code makes.

``switches_to_look`` lists those from a slice on to the next look, and one more. Each freezes and thaws the
difference to the one before, as if all before it had been made; the gate keeps off what must not be frozen by
then. ``NativeSwitches`` lists the writes of switches to come for native code and tells which it has made; all
of it is called under the gate's lock, which is native code's own.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gangd.agent.decide import HoldLimits, Situation, decide
from gangd.agent.native import MOST_ACCOUNTS, NativeSwitch, SwitchInstants
from gangd.freezer.holder import CpuTimeFile, Holder, HoldOutcome, StepKey, Write
from gangd.wire.slice_schedule import SliceSchedule, is_look, looks_a_calm_look, slices_a_look


@dataclass(frozen=True, slots=True)
class PreparedSwitch:
    """A switch to come: slice ``number`` of plan ``epoch`` begins at ``instant_ns`` (agent's clock)."""

    number: int
    epoch: int
    instant_ns: int
    freeze: tuple[StepKey, ...]
    thaw: tuple[StepKey, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """One pass through the gate: its instants (agent's clock), and every outcome but ``NOTHING``.

    ``begin_ns`` before the first write, ``frozen_ns`` after the last freeze, ``end_ns`` after the last thaw.
    ``refused`` if the lease did not allow the freezes. ``used_ns`` is what the jobs that were held or let go
    had used by the end, where there is an account of it.
    """

    begin_ns: int
    frozen_ns: int
    end_ns: int
    outcomes: tuple[HoldOutcome, ...]
    refused: bool
    used_ns: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Switched:
    """A switch that was made, the jobs that are held since, and the gate's turn that it began.

    Of one that native code made no outcomes are listed: all was written.
    """

    prepared: PreparedSwitch
    applied: Applied
    held: frozenset[int]
    turn: int

    @property
    def late_ns(self) -> int:
        """How long after its instant the switch began."""
        return self.applied.begin_ns - self.prepared.instant_ns


@dataclass(frozen=True, slots=True)
class Planned:
    """What native code is to make: steps that are not barred, their writes, and accounts by job."""

    prepared: PreparedSwitch
    freeze: tuple[StepKey, ...]
    writes: tuple[Write, ...]
    accounts: tuple[tuple[int, CpuTimeFile], ...]

    def applied(self, done: SwitchInstants) -> Applied:
        """Return what came of it."""
        read = zip(self.accounts, done.used_ns, strict=True)
        used = {job: used_ns for (job, _), used_ns in read if used_ns is not None}
        return Applied(done.begin_ns, done.frozen_ns, done.end_ns, (), refused=False, used_ns=used)


class NativeSwitches:
    """What is with native code.

    Parameters
    ----------
    native
        What makes it.
    holder
        Lists the writes.
    """

    def __init__(self, native: NativeSwitch, holder: Holder) -> None:
        self.native = native
        self._holder = holder
        self._planned: collections.deque[Planned] = collections.deque()
        self._noted = 0

    @property
    def is_ahead(self) -> bool:
        """Whether native code has made something that was not noted yet."""
        return self.native.made != self._noted

    @property
    def has_begun(self) -> bool:
        """Whether native code has written a part of a switch, which Python has to finish."""
        return self.native.partial() > 0

    def clear(self) -> None:
        """Drop what was not made."""
        self.native.clear()
        self._planned.clear()

    def push(
        self,
        prepared: PreparedSwitch,
        freeze: tuple[StepKey, ...],
        following_ns: int,
        ours: dict[int, bool],
        *,
        held_after: bool,
    ) -> bool:
        """Add a switch to those that native code is to make; False if it is more than writes, or too much.

        Parameters
        ----------
        prepared
            The switch.
        freeze
            Those of its steps that may be frozen.
        following_ns
            When something is to happen after it, by whomever; 0 for never.
        ours
            As of ``Holder.plan``.
        held_after
            Whether anything is held then.
        """
        writes: list[Write] = []
        for keys, holds in ((freeze, True), (prepared.thaw, False)):
            for key in keys:
                planned = self._holder.plan(key, ours, holds=holds)
                if planned is None:
                    return False
                writes += planned
        accounts = self._accounts(writes)
        read = [account for _, account in accounts]
        if not self.native.push(prepared.instant_ns, following_ns, writes, read, held_after=held_after):
            return False
        self._planned.append(Planned(prepared, freeze, tuple(writes), accounts))
        return True

    def made(self) -> Iterator[tuple[Planned, SwitchInstants]]:
        """Yield what was made since the last call, oldest first."""
        while self.is_ahead:
            planned = self._planned.popleft()
            done = self.native.done(self._noted, len(planned.accounts))
            self._noted += 1
            yield planned, done

    def begun(self) -> tuple[Write, ...]:
        """Return the writes that were made of a switch which Python has to finish."""
        part = self.native.partial()
        return self._planned[0].writes[:part] if part else ()

    def _accounts(self, writes: Iterable[Write]) -> tuple[tuple[int, CpuTimeFile], ...]:
        """List what is read after these writes: of all jobs that yield, of others while there is room."""
        yielding = dict.fromkeys(write.key.job for write in writes if write.yields)
        jobs = yielding | dict.fromkeys(write.key.job for write in writes)
        found = ((job, self._holder.account(job)) for job in jobs)
        accounts = [(job, account) for job, account in found if account is not None]
        return tuple(accounts[: max(MOST_ACCOUNTS, len(yielding))])


def switches_to_look(
    timeline: SliceSchedule,
    number: int,
    offset_ns: int,
    situation: Situation,
    limits: HoldLimits,
    *,
    calm: bool = False,
) -> tuple[PreparedSwitch, ...]:
    """Return the switches that begin slice ``number`` and those after it.

    Parameters
    ----------
    timeline
        The schedule, with slice ``number``.
    number
        The slice after the one that runs.
    offset_ns
        The controller's clock minus ours.
    situation
        As it is now; ``planned`` is not looked at.
    limits
        Of the site.
    calm
        Whether the next look is one of a calm node.
    """
    spacing = slices_a_look(timeline.length_ns(number) or 1)
    if calm:
        spacing *= looks_a_calm_look(timeline.length_ns(number) or 1)
    queue: list[PreparedSwitch] = []
    while (start_ns := timeline.start_ns(number)) is not None:
        instant_ns, ours = start_ns - offset_ns, situation.ours
        situation = replace(
            situation,
            now_ns=max(situation.now_ns, instant_ns),
            planned=timeline.held(number, situation.yielding),
        )
        hold = decide(situation, limits).hold
        freeze = tuple(key for key in hold if key not in ours)
        thaw = tuple(key for key in ours if key not in hold)
        queue.append(PreparedSwitch(number, timeline.epoch_of(number) or 0, instant_ns, freeze, thaw))
        # One more than to the look, for a loop that comes late; a long slice leaves it time enough.
        if spacing == 1 or (
            len(queue) > 1 and is_look(number - 1, timeline.length_ns(number) or 1, calm=calm)
        ):
            break
        situation = replace(situation, ours={key: ours.get(key, instant_ns) for key in hold})
        number += 1
    return tuple(queue)
