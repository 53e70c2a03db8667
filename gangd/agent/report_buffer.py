"""The agent's record of what it did, until reported: slices, samples, faults, external changes, ended jobs.

A slice is reported when it is over, with the samples of the jobs that were not held in it. Faults of one
kind and job are counted together. Nothing here grows without bound while the controller is away. ``Tally`` is
the same since the agent began, added up for monitoring; the loop alone fills it.

What the controller cannot know is news: faults, and a job whose demand is not what it was (``has_news``). Of
slices that were kept back for want of news, what jobs used is added up, so that a report has few samples.
"""

from __future__ import annotations

import collections
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from gangd.agent.planned_switches import Switched
from gangd.monitor.metrics_table import SWITCH_S, Histogram
from gangd.wire.messages import AgentFault, FoundState, JobSample, Leak, Report, ReportedMemory, SliceReport

MAX_SLICES = 64
MAX_FAULTS = 128
MAX_FOUND = 256

SAME_CORES, SAME_SHARE = 0.05, 0.25
"""A job demands the same as long as it differs by no more than so much of a core, and this share of what it
demanded: where it demands little the controller looks closely, and what spins is never as steady."""
SAME_SAMPLES = 8
"""So many samples alike are no news any more; the controller wants to see six."""

MOST_KINDS = 64
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Sender:
    """What each report says of its sender."""

    node: str
    incarnation: bytes
    follows: bytes | None
    offset_ns: int
    rtt_ns: int


class SliceBook:
    """Collects, and turns into a ``Report``.

    Attributes
    ----------
    tally
        What was collected since the agent began, for monitoring.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self._seq = 0
        self._current: Switched | None = None
        self._yielding: frozenset[int] = frozenset()
        self._alone: dict[int, JobSample] = {}
        self._slices: collections.deque[SliceReport] = collections.deque(maxlen=MAX_SLICES)
        self._samples: dict[int, JobSample] = {}
        self._faults: dict[tuple[str, int | None], AgentFault] = {}
        self._found: dict[int, FoundState] = {}
        self._leaks: dict[int, int] = {}
        self._born: set[int] = set()
        self._launched: set[int] = set()
        self._ended: set[int] = set()
        self._dying: set[int] = set()
        self._demand: dict[int, tuple[float, int]] = {}
        self._moving: set[int] = set()
        self._memory: ReportedMemory | msgspec.UnsetType = msgspec.UNSET
        self._short = False

    @property
    def current(self) -> Switched | None:
        """The switch that began the slice that runs now."""
        return self._current

    def on_switch(self, switched: Switched, yielding: frozenset[int], offset_ns: int) -> None:
        """Begin a slice, in which held jobs that are ``yielding`` yield; the one before is complete then."""
        self._add_up(switched.applied.begin_ns)
        self.end_slice(offset_ns)
        self._current, self._yielding = switched, yielding

    def _add_up(self, until_ns: int) -> None:
        """Add the slice that ran until an instant to what jobs were held for in all."""
        ended = self._current
        if ended is not None:
            yielding = len(ended.held & self._yielding)
            self.tally.on_held(len(ended.held) - yielding, yielding, until_ns - ended.applied.end_ns)

    def end_slice(self, offset_ns: int) -> None:
        """Complete the slice that runs, if there is one."""
        switched, self._current = self._current, None
        if switched is None:
            return
        applied = switched.applied
        self.tally.on_switch(switched.late_ns, applied.end_ns - switched.prepared.instant_ns)
        self._slices.append(
            SliceReport(
                number=switched.prepared.number,
                epoch=switched.prepared.epoch,
                applied_ns=max(0, applied.end_ns + offset_ns),
                skew_us=switched.late_ns // 1000,
                freeze_us=max(0, applied.end_ns - switched.prepared.instant_ns) // 1000,
                held=tuple(sorted(switched.held - self._yielding)),
                samples=tuple(self._samples.values()),
                yielding=tuple(sorted(switched.held & self._yielding)),
            )
        )
        self._samples = {}

    def on_sample(self, sample: JobSample) -> None:
        """Note what a job used in the slice that is about to end."""
        self._samples[sample.job] = sample
        self._compare(sample)

    def on_alone(self, sample: JobSample) -> None:
        """Note what a job did that no slice names."""
        before = self._alone.get(sample.job)
        self._alone[sample.job] = sample if before is None else _sum(before, sample)
        self._compare(sample)

    def _compare(self, sample: JobSample) -> None:
        if not sample.span_us:
            return
        share = (sample.cpu_us + sample.delay_us) / sample.span_us
        before, alike = self._demand.get(sample.job, (share, -1))
        same = abs(share - before) <= SAME_CORES + SAME_SHARE * max(share, before)
        alike = min(alike + 1, SAME_SAMPLES) if same else 0
        self._demand[sample.job] = (before if same else share, alike)
        if alike < SAME_SAMPLES:
            self._moving.add(sample.job)
        else:
            self._moving.discard(sample.job)

    def on_fault(self, kind: str, text: str, job: int | None = None) -> None:
        """Count an error."""
        self.tally.on_fault(kind)
        key = (kind[:64] or "fault", job)
        known = self._faults.get(key)
        if known is not None or len(self._faults) < MAX_FAULTS:
            self._faults[key] = AgentFault(key[0], 1 + (0 if known is None else known.count), text[:512], job)

    def on_found(self, job: int, left: str, found: str) -> None:
        """Note that another process changed a job's state."""
        if len(self._found) < MAX_FOUND:
            self._found[job] = FoundState(job, left, found)

    def on_leak(self, job: int, cpu_ns: int) -> None:
        """Add CPU time that a held job used."""
        self._leaks[job] = self._leaks.get(job, 0) + cpu_ns
        self.tally.leaked_s += cpu_ns / 1e9

    def on_born(self, jobs: frozenset[int]) -> None:
        """Note jobs whose first process was found."""
        self._born |= jobs

    def on_launched(self, jobs: frozenset[int]) -> None:
        """Note jobs whose tasks have begun to run."""
        self._launched |= jobs

    def on_ended(self, jobs: frozenset[int]) -> None:
        """Note jobs whose last process is gone."""
        self._ended |= jobs
        self._moving -= jobs
        for job in jobs:
            self._demand.pop(job, None)

    def on_dying(self, jobs: frozenset[int]) -> None:
        """Note jobs that were found to be dying."""
        self._dying |= jobs

    def on_memory(self, memory: ReportedMemory, *, short: bool) -> None:
        """Note the memory of the node, and whether it is short of it."""
        self._memory, self._short = memory, short

    def has_urgent(self) -> bool:
        """Whether something waits that the controller should know before the next slice ends."""
        return self._short or bool(self._found or self._born or self._launched or self._ended or self._dying)

    @property
    def has_moved(self) -> bool:
        """Whether a job's demand is not what it was, or has not been it for long."""
        return bool(self._moving)

    @property
    def has_news(self) -> bool:
        """Whether something waits that the controller cannot know; faults can wait for a second."""
        return bool(self._faults or self._moving or self.has_urgent())

    def report(self, sender: Sender, foreign: int, *, brief: bool = False) -> Report:
        """Make a report of everything collected, and begin anew; a ``brief`` one has few samples of a job."""
        slices = added_up(self._slices, 1 if self._moving else 0) if brief else tuple(self._slices)
        self._seq += 1
        self.tally.reports += 1
        report = Report(
            node=sender.node,
            incarnation=sender.incarnation,
            follows=sender.follows,
            seq=self._seq,
            offset_ns=sender.offset_ns,
            rtt_us=sender.rtt_ns // 1000,
            slices=slices,
            born=tuple(sorted(self._born)),
            launched=tuple(sorted(self._launched)),
            ended=tuple(sorted(self._ended)),
            dying=tuple(sorted(self._dying)),
            alone=tuple(self._alone.values()),
            found=tuple(self._found.values()),
            leaks=tuple(Leak(job, cpu_ns // 1000) for job, cpu_ns in self._leaks.items()),
            faults=tuple(self._faults.values()),
            foreign_controllers=foreign,
            memory=self._memory,
        )
        self._memory, self._short = msgspec.UNSET, False
        self._slices.clear()
        self._alone = {}
        self._faults, self._found, self._leaks = {}, {}, {}
        self._born, self._launched, self._ended, self._dying = set(), set(), set(), set()
        return report


def added_up(slices: Sequence[SliceReport], apart: int) -> tuple[SliceReport, ...]:
    """Return slices in which each job has one sample, and as many more as are kept ``apart``.

    What a job used in a slice before these goes to the next one that has a sample of it.
    """
    left = {job: -1 - apart for one in slices for job in {sample.job for sample in one.samples}}
    for one in slices:
        for sample in one.samples:
            left[sample.job] += 1
    carried: dict[int, JobSample] = {}
    merged = []
    for one in slices:
        samples = []
        for sample in one.samples:
            before = carried.pop(sample.job, None)
            both = sample if before is None else _sum(before, sample)
            if left[sample.job] > 0:
                carried[sample.job] = both
                left[sample.job] -= 1
            else:
                samples.append(both)
        merged.append(msgspec.structs.replace(one, samples=tuple(samples)))
    return tuple(merged)


def _sum(older: JobSample, newer: JobSample) -> JobSample:
    return JobSample(
        newer.job,
        older.cpu_us + newer.cpu_us,
        older.delay_us + newer.delay_us,
        older.span_us + newer.span_us,
        newer.tasks,
        older.held_us + newer.held_us,
    )


@dataclass(slots=True)
class Tally:
    """Counts that only grow.

    Attributes
    ----------
    late, switched
        How long after its instant each switch began, and had made its last write.
    frozen_s, yielded_s
        Time for which jobs were held, all added up.
    leaked_s
        CPU time that frozen jobs used.
    faults
        By kind.
    reports
        Reports made.
    """

    late: Histogram = field(default_factory=lambda: Histogram(SWITCH_S))
    switched: Histogram = field(default_factory=lambda: Histogram(SWITCH_S))
    frozen_s: float = 0.0
    yielded_s: float = 0.0
    leaked_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    reports: int = 0

    def on_switch(self, late_ns: int, took_ns: int) -> None:
        """Count a switch."""
        self.late.add(max(0, late_ns) / 1e9)
        self.switched.add(max(0, took_ns) / 1e9)

    def on_held(self, frozen: int, yielding: int, for_ns: int) -> None:
        """Add a stretch of time in which so many jobs were held."""
        self.frozen_s += frozen * max(0, for_ns) / 1e9
        self.yielded_s += yielding * max(0, for_ns) / 1e9

    def on_fault(self, kind: str) -> None:
        """Count a fault."""
        self.faults[kind if kind in self.faults or len(self.faults) < MOST_KINDS else OTHER] += 1
