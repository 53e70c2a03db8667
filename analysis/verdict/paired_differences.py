"""Differences between two settings over the jobs that completed in both, each with its 95 % interval.

With two runs or more of both settings the unit is a run: means of repetitions, compared as two samples whose
variances may differ (Welch). With one run of each the unit is a batch of consecutive jobs: paired differences
of batch means, because jobs that are submitted one after the other wait for the same jobs. Where the trace is
the same few jobs again and again (``block_jobs`` of a run), a batch is one time of these. Source of the
second: Law, *Simulation Modeling and Analysis*, 5th edition (2015), section 9.5.3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import msgspec
import polars as pl

from analysis.claims import Estimate, estimate, student_t
from analysis.metrics import MetricOptions, stretches, with_derived
from foundation.records import GangSettings, Run, RunInfo


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Repetitions of one setting, at least one; ``label`` is what they have in common, or the first one's."""

    label: str
    runs: tuple[Run, ...]

    @property
    def info(self) -> RunInfo:
        """What the first of them says of itself."""
        return self.runs[0].info

    @property
    def is_shared(self) -> bool:
        """Whether jobs may share cores."""
        return self.info.most_a_core > 1

    @property
    def overhead(self) -> str | None:
        """The C_o that a simulation assumed; None where it plays no part."""
        options, info = self.info.options, self.info
        plain = info.kind == "simulated" and info.gang.kind == "none" and options.get("sharing") is None
        return str(options["overhead"]) if plain and self.is_shared and options.get("overhead") else None

    def at_overhead(self, overhead: str) -> dict[str, float] | None:
        """Return the means of ``RunInfo.other_overheads``, over the runs; None where one has none."""
        each = [run.info.other_overheads.get(overhead) for run in self.runs]
        known = [one for one in each if one]
        if len(known) < len(each):
            return None
        return {name: math.fsum(one[name] for one in known) / len(known) for name in known[0]}


Key = tuple[object, ...]
_DUE_WITHIN_S, _WITHIN = 0.5, 0.01
_ADDED = re.compile(r"( \([^()]*\))?( #\d+)?$")


def layout_key(info: RunInfo) -> Key:
    """Return what two runs of one layout have in common: all but how jobs take turns, and where they ran."""
    return (
        info.trace_sha256 or info.trace_name,
        info.system,
        info.queues,
        info.multiplicity,
        info.multiplicity_interactive,
        info.interactive_nodes,
        info.speedup,
    )


def setting_key(info: RunInfo) -> Key:
    """Return what repetitions have in common; a simulated run is none of a real one."""
    options = tuple(sorted((name, str(value)) for name, value in info.options.items()))
    simulated = (info.policy, options) if info.kind == "simulated" else ()
    return (*layout_key(info), info.kind, turns(info.gang), *simulated)


def turns(gang: GangSettings) -> Key:
    """Return how jobs take turns."""
    return (gang.kind, gang.quantum_ms, gang.hold)


def grouped(runs: Sequence[Run]) -> list[RunGroup]:
    """Return the settings in the order in which the runs name them first."""
    found: dict[Key, list[Run]] = {}
    for run in runs:
        found.setdefault(setting_key(run.info), []).append(run)
    names = _names([[run.info.label for run in members] for members in found.values()])
    return [RunGroup(name, tuple(members)) for name, members in zip(names, found.values(), strict=True)]


def _names(labels: Sequence[Sequence[str]]) -> list[str]:
    """Return a name for each setting: its runs' label, without an added folder where that is unique."""
    stems = [{_ADDED.sub("", label) for label in some} for some in labels]
    common = [
        next(iter(stem)) if len(some) > 1 and len(stem) == 1 else some[0]
        for some, stem in zip(labels, stems, strict=True)
    ]
    return common if len(set(common)) == len(common) else [some[0] for some in labels]


def are_errors(reference: RunInfo, other: RunInfo) -> bool:
    """Whether differences between two runs are errors: of a simulation, or of a repetition."""
    alike = layout_key(reference)[1:] == layout_key(other)[1:]
    if reference.kind != other.kind:
        return alike
    return setting_key(reference) == setting_key(other)


def are_of_one_trace(reference: Run, other: Run) -> bool:
    """Whether jobs of one number are the same job in two runs.

    Traces of one SHA-256 are one. Else most of the jobs that both have must have been due at the same time,
    or be of the same size and length: a replay writes the trace anew, and arrivals may have been changed on
    purpose. Where no job is in both, nothing speaks against it.
    """
    known = (reference.info.trace_sha256, other.info.trace_sha256)
    if None not in known and known[0] == known[1]:
        return True
    columns = ("trace_job", "due_s", "nodes", "cores", "dedicated_s")
    both = reference.jobs.select(columns).join(other.jobs.select(columns), on="trace_job", suffix="_other")
    due, due_other = (pl.col(name) - pl.col(name).min() for name in ("due_s", "due_s_other"))
    alone, alone_other = pl.col("dedicated_s"), pl.col("dedicated_s_other")
    is_due_then = (due - due_other).abs() <= _DUE_WITHIN_S + _WITHIN * due.abs()
    is_as_large = (pl.col("nodes") == pl.col("nodes_other")) & (pl.col("cores") == pl.col("cores_other"))
    is_as_long = (alone - alone_other).abs() <= _WITHIN * alone
    same = both.select((is_due_then | (is_as_large & is_as_long)).fill_null(value=True).mean()).item()
    return same is None or same > 0.5


MEASURES = ("wait_s", "degradation", "turnaround_s", "slowdown_osub", "bounded_slowdown")
NEGLIGIBLE = 0.01
"""A change by less than this share of the reference is called none, however certain it is."""
MOST_BATCHES, LEAST_BATCHES, LEAST_JOBS_A_BATCH = 20, 5, 5
LEAST_BLOCKS = 3

Evidence = Literal["repeats", "blocks", "jobs", "too few jobs"]


class QuantityDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity under two settings.

    Parameters
    ----------
    reference, other
        Its means over the common jobs: seconds, or a quotient.
    change
        Other minus reference, with its interval; the bounds are null where the evidence allows none.
    """

    reference: float
    other: float
    change: Estimate

    @property
    def clear(self) -> bool:
        """Whether the interval leaves zero out."""
        low, high = self.change.low, self.change.high
        return low is not None and high is not None and (low > 0 or high < 0)

    @property
    def way(self) -> int | None:
        """Return -1 or 1 where it is clear that the quantity fell or rose, None otherwise."""
        share = self.share
        if not self.clear or (share is not None and abs(share) < NEGLIGIBLE):
            return None
        return 1 if self.change.mean > 0 else -1

    @property
    def share(self) -> float | None:
        """The change as a share of the reference; None of nothing."""
        return self.change.mean / self.reference if self.reference > 0 else None


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """Two settings side by side.

    Parameters
    ----------
    jobs
        Jobs that completed in every run of both.
    evidence
        What the intervals are of.
    runs
        Repetitions of the reference and of the other.
    differences
        By name of ``MEASURES``; one that no job has is absent.
    """

    jobs: int
    evidence: Evidence
    runs: tuple[int, int]
    differences: dict[str, QuantityDifference]


def paired(reference: RunGroup, other: RunGroup, options: MetricOptions = MetricOptions()) -> Paired:
    """Compare two settings; ``options`` has the least time of the bounded slowdown."""
    frames = [[_measured(run, options) for run in group.runs] for group in (reference, other)]
    common = _common([frame for group in frames for frame in group])
    held = [[common.join(frame, on="trace_job", how="left") for frame in group] for group in frames]
    counts = len(held[0]), len(held[1])
    batches = min(MOST_BATCHES, common.height // LEAST_JOBS_A_BATCH)
    blocks = _blocks((*reference.runs, *other.runs), common.height)
    evidence: Evidence
    if min(counts) > 1:
        evidence = "repeats"
    elif blocks >= LEAST_BLOCKS:
        evidence, batches = "blocks", blocks
    else:
        evidence = "jobs" if batches >= LEAST_BATCHES else "too few jobs"
    found = {
        name: difference
        for name in MEASURES
        if (difference := _difference(name, held[0], held[1], evidence, batches)) is not None
    }
    return Paired(jobs=common.height, evidence=evidence, runs=counts, differences=found)


def _blocks(runs: Sequence[Run], jobs: int) -> int:
    """Return how often all runs had the same block of jobs, 0 where they had none or a job is missing."""
    sizes = {run.info.options.get("block_jobs") for run in runs}
    size = sizes.pop() if len(sizes) == 1 else None
    return jobs // size if isinstance(size, int) and size > 0 and jobs % size == 0 else 0


def _measured(run: Run, options: MetricOptions) -> pl.DataFrame:
    jobs = with_derived(run.jobs, options, stretches(run.jobs, run.allocations))
    return jobs.filter(pl.col("state") == "COMPLETED").select(
        "trace_job",
        "due_s",
        "wait_s",
        "degradation",
        "slowdown_osub",
        "bounded_slowdown",
        turnaround_s=pl.col("end_s") - pl.col("submit_s"),
    )


def _common(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the jobs that all of them have, in the order of their submission."""
    jobs = frames[0].select("trace_job", "due_s")
    for frame in frames[1:]:
        jobs = jobs.join(frame.select("trace_job"), on="trace_job", how="semi")
    return jobs.sort("due_s", "trace_job").select("trace_job")


def _difference(
    name: str,
    reference: Sequence[pl.DataFrame],
    other: Sequence[pl.DataFrame],
    evidence: Evidence,
    batches: int,
) -> QuantityDifference | None:
    values = pl.DataFrame(
        [pl.Series(str(number), frame.get_column(name)) for number, frame in enumerate((*reference, *other))]
    ).drop_nulls()
    if values.is_empty():
        return None
    columns = values.get_columns()
    means = [_mean(column) for column in columns]
    one, two = means[: len(reference)], means[len(reference) :]
    left, right = math.fsum(one) / len(one), math.fsum(two) / len(two)
    if evidence == "repeats":
        change = welch(one, two)
    elif evidence == "blocks" or (evidence == "jobs" and values.height >= LEAST_BATCHES * LEAST_JOBS_A_BATCH):
        apart = _mean_column(columns[len(reference) :]) - _mean_column(columns[: len(reference)])
        most = batches if evidence == "blocks" else values.height // LEAST_JOBS_A_BATCH
        change = batch_means(apart, min(batches, most))
    else:
        change = Estimate(mean=right - left, low=None, high=None, count=1)
    return QuantityDifference(reference=left, other=right, change=change)


def batch_means(values: pl.Series, batches: int) -> Estimate:
    """Return the mean of a series with the interval that means of so many consecutive batches give."""
    edges = [round(number * len(values) / batches) for number in range(batches + 1)]
    means = [_mean(values[low:high]) for low, high in pairwise(edges)]
    spread = estimate(means)
    mean = _mean(values)
    if spread.low is None or spread.high is None:
        return Estimate(mean=mean, low=None, high=None, count=1)
    half = (spread.high - spread.low) / 2
    return Estimate(mean=mean, low=mean - half, high=mean + half, count=batches)


def welch(one: Sequence[float], two: Sequence[float]) -> Estimate:
    """Return the second sample's mean minus the first's, with the interval of Welch's t.

    Both have two values or more.
    """
    sizes, means = (len(one), len(two)), [math.fsum(values) / len(values) for values in (one, two)]
    errors = [
        math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)
        for values, mean in zip((one, two), means, strict=True)
    ]
    difference, error = means[1] - means[0], math.fsum(errors)
    if error == 0:
        return Estimate(mean=difference, low=difference, high=difference, count=min(sizes))
    freedom = error**2 / math.fsum(part**2 / (size - 1) for part, size in zip(errors, sizes, strict=True))
    half = student_t(max(1, math.floor(freedom))) * math.sqrt(error)
    return Estimate(mean=difference, low=difference - half, high=difference + half, count=min(sizes))


def _mean(values: pl.Series) -> float:
    mean = values.mean()
    return float(mean) if isinstance(mean, int | float) else math.nan


def _mean_column(columns: Sequence[pl.Series]) -> pl.Series:
    total = columns[0]
    for column in columns[1:]:
        total = total + column
    return total / len(columns)
