"""The slices of this node as they pass: which one runs, what was switched, which switches come.

Slices that are over are closed here, with samples of what jobs did in them (``sample_slices``); those to come
are prepared up to the next look, and one more (``prepare``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gangd.agent.agenda import Agenda, AgendaItem
from gangd.agent.conversation import Conversation
from gangd.agent.decide import HoldLimits, Situation
from gangd.agent.freeze_verifier import Checks
from gangd.agent.job_meters import JobMeters, SliceDebts
from gangd.agent.planned_switches import Applied, Switched, switches_to_look
from gangd.agent.report_buffer import SliceBook
from gangd.agent.steps import HoldModes, StepTable
from gangd.agent.switch_thread import Switch
from gangd.freezer.holder import Did
from gangd.freezer.procfs import WORK
from gangd.wire.messages import JobSample
from gangd.wire.slice_schedule import SliceSchedule, next_look

LOOK_AFTER_NS = 8_000_000
"""Looks begin so long after a switch: a frozen task needs its core once more to stand still."""
AGAIN_NS = 1_000_000
LATE_NS = 10_000_000
"""A switch that begins later than this is counted as late; half of the shortest slice."""


class SliceTracker:
    """What this node knows of the slices around now.

    Attributes
    ----------
    current
        The slice that runs, as far as one was switched to.
    turn
        The gate's count of switches, as of the last one that was taken in.
    debts
        What jobs owe for what they used in others' slices.
    """

    def __init__(
        self,
        talk: Conversation,
        switch: Switch,
        table: StepTable,
        checks: Checks,
        book: SliceBook,
        meters: JobMeters,
        agenda: Agenda,
    ) -> None:
        self.current: int | None = None
        self.turn = 0
        self.debts = SliceDebts()
        self._instead: dict[int, frozenset[int]] = {}
        self._talk = talk
        self._switch = switch
        self._table = table
        self._checks = checks
        self._book = book
        self._meters = meters
        self._agenda = agenda

    def number(self, now_ns: int) -> int | None:
        """Slice that runs, or the next one if none does."""
        if self.current is not None:
            return self.current
        offset = self._talk.offset(now_ns)
        return None if offset is None else self._next_number(now_ns + offset.offset_ns, now_ns)

    def jobs(self, now_ns: int) -> frozenset[int]:
        """Jobs that the schedule names around now."""
        number, timeline = self.number(now_ns), self._talk.timeline
        return frozenset() if number is None else timeline.jobs(number) | timeline.jobs(number + 1)

    def planned(self) -> frozenset[int]:
        """Jobs that the schedule holds in the slice that runs."""
        if self.current is None:
            return frozenset()
        return self._talk.timeline.held(self.current, self._table.gate.yielding, self._instead)

    def pay(self, now_ns: int) -> int | None:
        """Let slices of debtors end early; returns when the next of them does."""
        offset = self._talk.offset(now_ns)
        end_ns = None if self.current is None else self._talk.timeline.start_ns(self.current + 1)
        if not self.debts or self.current is None or offset is None or end_ns is None:
            return None
        left_ns = end_ns - offset.offset_ns - now_ns
        length_ns = self._talk.timeline.length_ns(self.current) or 1
        times = []
        for name, (run, held) in self._talk.timeline.sets(self.current).items():
            pays = name not in self._instead and (held or run <= self._table.gate.yielding)
            due = self.debts.due(run, length_ns) if pays else None
            if due is None:
                continue
            held, owed_ns = due
            if left_ns > owed_ns:
                times.append(now_ns + left_ns - owed_ns)
            elif left_ns > AGAIN_NS:
                self._instead[name] = held
                self.debts.pay(run, held, left_ns)
        return min(times, default=None)

    def begin_anew(self, now_ns: int) -> None:
        """Drop what was prepared: another controller counts its slices anew, and one of them may run."""
        self._switch.prepare()
        self.debts, self._instead = SliceDebts(), {}
        offset = self._talk.offset(now_ns)
        timeline = self._talk.timeline
        self.current = None if offset is None else timeline.slice_at(now_ns + offset.offset_ns)

    def take(self, ways: HoldModes, now_ns: int) -> None:
        """Take in the switches that were made, and close the slices that they have ended."""
        self._agenda.strike(AgendaItem.COLLECT)
        made, yielding = self._switch.collect(), ways.yielding
        # First who was held when, then the samples: what a held job uses after its sample has leaked.
        for switched in made:
            applied = switched.applied
            self._meters.on_held(switched.held, yielding, applied.frozen_ns, applied.used_ns)
        ended = [self._book.current, *made[:-1]]
        samples = self._sample(ended, yielding, now_ns, made[-1].applied.begin_ns) if made else {}
        if made:
            self._charge(ended)
            self._instead.clear()
        for place, switched in enumerate(made):
            for sample in samples.get(place, ()):
                self._book.on_sample(sample)
            self._on_switched(switched, yielding, now_ns)
        while self._switch.expired:
            self.on_applied(self._switch.expired.popleft(), yielding)

    def prepare(
        self,
        situate: Callable[[], Situation],
        limits: HoldLimits,
        is_calm: Callable[[frozenset[int]], bool],
        now_ns: int,
    ) -> None:
        """Prepare the switches from the slice after the one that runs to the next look, and one more.

        Parameters
        ----------
        situate
            Tells what is known now.
        limits
            How holding is bounded.
        is_calm
            Whether these jobs, and all else here, go on as they have.
        now_ns
            The time.
        """
        timeline = self._talk.timeline
        self._agenda.strike(AgendaItem.SLICE)
        following = self._following(now_ns)
        if following is None:
            self._switch.prepare()
            return
        number, instant_ns, offset_ns = following
        if not timeline.jobs(number) and not self._table.gate.held:
            self._switch.prepare()
            self._close(self._table.gate.yielding, now_ns, offset_ns)
            self._agenda.set(AgendaItem.SLICE, max(instant_ns, now_ns + AGAIN_NS))
            return
        situation, calm = situate(), is_calm(timeline.jobs(number))
        queue = switches_to_look(timeline, number, offset_ns, situation, limits, calm=calm)
        if queue != self._switch.queue() or not self._switch.is_planned:
            self._switch.prepare(*queue)
        if self._agenda.at(AgendaItem.COLLECT) is None:
            look = next_look(number, timeline.length_ns(number) or 1, calm=calm)
            look = number if self.debts else look  # a debtor pays in each of its slices
            look_ns = next((each.instant_ns for each in queue if each.number >= look), queue[-1].instant_ns)
            self._agenda.set(AgendaItem.COLLECT, max(look_ns, now_ns) + LOOK_AFTER_NS)

    def on_applied(self, applied: Applied, yielding: frozenset[int]) -> None:
        """Note what was held and let go outside of a switch."""
        held = frozenset(key.job for key in self._table.gate.held)
        self._meters.on_held(held, yielding, applied.end_ns, applied.used_ns)
        self._note_outcomes(applied)

    def _charge(self, ended: Iterable[Switched | None]) -> None:
        """Charge jobs for what they used in slices of others that have ended."""
        for switched in ended:
            sets = {} if switched is None else self._talk.timeline.sets(switched.prepared.number)
            for run, held in sets.values():
                if held:
                    self.debts.owe(held, self._meters.charge(run, held))
                    self.debts.level(run | held)
                else:
                    for job, owed_ns in self._meters.charge_launches(run).items():
                        self.debts.owe(frozenset({job}), {job: owed_ns})

    def _following(self, now_ns: int) -> tuple[int, int, int] | None:
        """Return the slice after the one that runs, its instant on our clock, and the controller's offset."""
        offset = self._talk.offset(now_ns)
        if offset is None:
            return None
        number = self._next_number(now_ns + offset.offset_ns, now_ns)
        start_ns = None if number is None else self._talk.timeline.start_ns(number)
        if number is None or start_ns is None:
            return None
        return number, start_ns - offset.offset_ns, offset.offset_ns

    def _next_number(self, controller_ns: int, now_ns: int) -> int | None:
        pending = self._switch.prepared()
        if pending is not None and pending.instant_ns <= now_ns:
            return pending.number  # its instant has come, and the switch thread is about to act on it
        running = self._talk.timeline.slice_at(controller_ns)
        if running is None:
            return self._talk.timeline.first_slice()
        return running + 1 if self.current is None else max(running, self.current) + 1

    def _on_switched(self, switched: Switched, yielding: frozenset[int], now_ns: int) -> None:
        offset = self._talk.offset(now_ns)
        self._book.on_switch(switched, yielding, 0 if offset is None else offset.offset_ns)
        if switched.late_ns > LATE_NS:
            late_ms = switched.late_ns / 1e6
            self._book.on_fault(
                "late_switch", f"slice {switched.prepared.number} began {late_ms:.0f} ms after its instant"
            )
        self.current = switched.prepared.number
        self.turn = switched.turn
        self._talk.timeline.prune(self.current)
        self.debts.keep(self._talk.timeline.ahead(self.current))
        self._checks.begin_slice(switched.prepared.thaw)
        self._note_outcomes(switched.applied)

    def _close(self, yielding: frozenset[int], now_ns: int, offset_ns: int) -> None:
        if self._book.current is not None:
            for sample in self._sample([self._book.current], yielding, now_ns).get(0, ()):
                self._book.on_sample(sample)
            self._book.end_slice(offset_ns)

    def _sample(
        self, ended: list[Switched | None], yielding: frozenset[int], now_ns: int, begun_ns: int | None = None
    ) -> dict[int, list[JobSample]]:
        timeline, read = self._talk.timeline, self._table.used_ns
        return sample_slices(ended, timeline, yielding, self._meters, read, now_ns, begun_ns)

    def _note_outcomes(self, applied: Applied) -> None:
        if applied.refused:
            self._book.on_fault("lease_over", "the lease did not allow to hold: everything was thawed")
        for outcome in applied.outcomes:
            if outcome.did is Did.FAILED:
                self._book.on_fault("write_failed", f"step {outcome.key}: {outcome.text}", outcome.key.job)


def sample_slices(
    ended: Sequence[Switched | None],
    timeline: SliceSchedule,
    yielding: frozenset[int],
    meters: JobMeters,
    read: Callable[[int], int | None],
    now_ns: int,
    begun_ns: int | None = None,
) -> dict[int, list[JobSample]]:
    """Read the jobs that the schedule names and that were not frozen throughout.

    What a job did while it ran goes to the last slice in which it ran, what was left to it while it yielded
    to the last one in which it was held.

    Parameters
    ----------
    ended
        Switches that began the slices, oldest first; None for a slice without a switch.
    timeline
        The schedule.
    yielding
        Jobs that yield when they are held.
    meters, read
        Meters, and what reads the accounting cgroups of a job.
    begun_ns
        When the slice that runs now began; None if none does.

    Returns
    -------
    dict
        Samples by place in ``ended``.
    """
    ran: dict[int, int] = {}
    yielded: dict[int, int] = {}
    for place, switched in enumerate(ended):
        if switched is not None:
            named = timeline.jobs(switched.prepared.number)
            ran |= dict.fromkeys(named - switched.held, place)
            yielded |= dict.fromkeys(named & switched.held & yielding, place)
    samples: dict[int, list[JobSample]] = {}
    for job in sorted(ran.keys() | yielded.keys()):
        WORK.pause_if_spent()
        if not meters.due(job, now_ns):
            continue
        found = meters.sample(job, read(job), now_ns, begun_ns, timeline.cores.get(job, 1))
        if found.own is not None:
            samples.setdefault(ran.get(job, yielded.get(job, 0)), []).append(found.own)
        if found.leftover is not None:
            samples.setdefault(yielded.get(job, ran.get(job, 0)), []).append(found.leftover)
    return samples
