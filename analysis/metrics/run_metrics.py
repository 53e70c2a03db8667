"""The metrics of a run, by kind of job: waiting, slowdowns, completion, use of the system; and as CSV.

Definitions: thesis, section 5.3.2 (waiting time, S, S_OSub, completion percentiles); ``derived`` has the
formulas. A job that lacks a value is counted as missing, never dropped silently.

When how much of a run was done: completion over time, by jobs and by CPU time, and its percentiles.

Thesis, section 5.3.2, Figure 7.6 and Tables 5.5, 6.3 and 7.6. Time counts from the run's first due time. A
job counts at its end, with one (by jobs) or with the work that it represents (by CPU time: ``work_core_s``,
which is the same under every setting). Only jobs that ran and ended count; the others are missing.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.metrics.derived_columns import MetricOptions, stretches, with_derived
from analysis.metrics.fitness import HostUse, host_use, unfit
from analysis.metrics.slice_metrics import Occupancy, SliceMetrics, measure_slices, occupancy
from analysis.quantiles import quantile
from foundation.records import Run, RunInfo


class WorkMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Use of the core seconds that jobs held, over all jobs and all of their attempts.

    Parameters
    ----------
    allocated_core_s
        What they held; a core that two jobs hold counts twice.
    lost_core_s, again_core_s
        The parts of it that were thrown away, and that set up once more.
    useful_core_s
        The rest.
    missing
        Jobs that started, and of which it is not known how long they held what: they are in no sum.
    preemptions, requeues, resumptions, resizes
        How often jobs were preempted; started again after a requeue, and after a preemption or from a
        checkpoint; and went on with other cores.
    jobs_again
        Jobs that started more than once.
    """

    allocated_core_s: float
    useful_core_s: float
    lost_core_s: float
    again_core_s: float
    missing: int
    preemptions: int
    requeues: int
    resumptions: int
    resizes: int
    jobs_again: int


def work_of(ran: pl.DataFrame) -> WorkMetrics:
    """Add up the jobs that started; ``ran`` has their derived columns."""
    known = ran.filter(pl.col("allocated_core_s").is_not_null())
    allocated, lost, again = (
        float(known.get_column(name).sum()) for name in ("allocated_core_s", "lost_core_s", "again_core_s")
    )
    counts = {name: int(ran.get_column(name).sum()) for name in ("requeues", "resumptions", "resizes")}
    return WorkMetrics(
        allocated_core_s=allocated,
        useful_core_s=allocated - lost - again,
        lost_core_s=lost,
        again_core_s=again,
        missing=ran.height - known.height,
        preemptions=int(ran.select(preemptions().sum()).item()),
        jobs_again=ran.filter(pl.col("lives") > 1).height,
        **counts,
    )


def preemptions() -> pl.Expr:
    """Return how often each job was preempted: as it says, and at least as often as it came back."""
    return pl.max_horizontal("preemptions", pl.col("resumptions").fill_null(0))


PERCENTS = (90, 95, 100)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Completion:
    """Completion over time.

    Parameters
    ----------
    time_s
        Shape (n,), ascending: ends of jobs, from the run's first due time.
    share
        Shape (n,), ascending to 1: what is done at that instant.
    missing
        Jobs without an end, or without the weight.
    """

    time_s: Floats
    share: Floats
    missing: int

    def at(self, percent: float) -> float | None:
        """Return the first instant at which ``percent`` of the whole is done; None without any job."""
        if not len(self.time_s):
            return None
        reached = np.searchsorted(self.share, percent / 100 - 1e-12)
        return float(self.time_s[min(int(reached), len(self.time_s) - 1)])

    def thinned(self, points: int) -> Completion:
        """Return at most about ``points`` points of the curve, the last among them."""
        if len(self.time_s) <= points:
            return self
        kept = np.unique(np.linspace(0, len(self.time_s) - 1, points).astype(np.int64))
        return Completion(self.time_s[kept], self.share[kept], self.missing)


def origin_s(jobs: pl.DataFrame) -> float:
    """Return the first due time, from which completion counts (0 for a whole run)."""
    first = jobs.get_column("due_s").min()
    return float(first) if isinstance(first, int | float) else 0.0


def completion_by_jobs(jobs: pl.DataFrame, origin: float) -> Completion:
    """Return the share of jobs that are done over time."""
    return _completion(jobs.with_columns(weight=pl.lit(1.0)), origin)


def completion_by_cpu_time(jobs: pl.DataFrame, origin: float) -> Completion:
    """Return the share of the work that is done over time; ``jobs`` has the derived columns."""
    return _completion(jobs.with_columns(weight=pl.col("work_core_s")), origin)


def _completion(jobs: pl.DataFrame, origin: float) -> Completion:
    ended = jobs.filter(pl.all_horizontal(pl.col("start_s", "end_s", "weight").is_not_null()))
    steps = ended.group_by("end_s").agg(pl.col("weight").sum()).sort("end_s")
    weights = steps.get_column("weight").to_numpy()
    total = weights.sum()
    share = np.cumsum(weights) / total if total > 0 else np.ones(len(weights))
    return Completion(
        time_s=steps.get_column("end_s").to_numpy() - origin,
        share=np.minimum(share, 1.0),
        missing=jobs.height - ended.height,
    )


KindName = Literal["all", "batch", "interactive", "ondemand"]
KINDS: tuple[KindName, ...] = ("all", "batch", "interactive", "ondemand")

FORMULA = ("=", "+", "-", "@")
"""What a spreadsheet takes for the beginning of a formula; a label that begins so gets an apostrophe."""
NOTABLE = 1.1
"""A mean degradation from which it is worth a word."""


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity over some jobs: ``known`` jobs have it, ``missing`` lack it; null without any."""

    known: int
    missing: int
    mean: float | None
    median: float | None
    p95: float | None
    max: float | None


class KindMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of the jobs of one kind.

    Parameters
    ----------
    jobs
        How many there are.
    states
        How many ended in each state; ``unfinished`` counts those without one.
    wait_s, first_wait_s, slowdown, slowdown_osub, degradation, bounded_slowdown
        See ``derived.with_derived``.
    preempted_share
        Share of the jobs that were preempted at least once.
    waited_share
        Share of the jobs with a known wait that waited longer than the threshold.
    completion_by_jobs_s, completion_by_cpu_time_s
        When 90, 95 and 100% were done, from the run's first due time.
    completion_missing, completion_cpu_time_missing
        Jobs that these lack.
    """

    jobs: int
    states: dict[str, int]
    wait_s: Quantity
    first_wait_s: Quantity
    preempted_share: float | None
    waited_share: float | None
    slowdown: Quantity
    slowdown_osub: Quantity
    degradation: Quantity
    bounded_slowdown: Quantity
    completion_by_jobs_s: dict[str, float | None]
    completion_by_cpu_time_s: dict[str, float | None]
    completion_missing: int
    completion_cpu_time_missing: int


class RunMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of a run.

    Parameters
    ----------
    label, kind, complete
        Which run it is, and whether it is finished.
    makespan_s
        From the first due time to the last end of a job that ran.
    utilisation_allocated
        Core seconds in which a job held the core, over the cores' seconds in the makespan.
    utilisation_useful
        The same without lost work and repeated set-up; of a second that k jobs hold a core, 1/k is each
        one's.
    cpu_utilisation
        CPU time used by the jobs, over the same; null if no job's is known.
    cpu_missing
        Jobs that ran and whose CPU time is not known.
    shared_share
        Of the core seconds in use, the share in which two jobs or more held the core.
    placement_missing
        Jobs that ran and whose placement or end, in some life, is not known.
    work
        What became of the time that jobs held cores.
    kinds
        The metrics by kind of job; ``all`` first, then the kinds that occur.
    slices
        The metrics of its time slices, if it has any.
    host
        Who used its host, and how fast its jobs' cores were.
    unfit
        Why the run is unfit to judge by; null if it is fit.
    notes
        What could not be computed, and why.
    """

    label: str
    kind: str
    complete: bool
    options: MetricOptions
    makespan_s: float | None
    utilisation_allocated: float | None
    utilisation_useful: float | None
    cpu_utilisation: float | None
    cpu_missing: int
    shared_share: float | None
    placement_missing: int
    work: WorkMetrics
    kinds: dict[str, KindMetrics]
    slices: SliceMetrics | None
    host: HostUse
    unfit: str | None
    notes: tuple[str, ...]


def measure(
    run: Run, options: MetricOptions = MetricOptions(), held: pl.DataFrame | None = None
) -> RunMetrics:
    """Compute the metrics of a run that was loaded with its placements.

    Parameters
    ----------
    run
        The run.
    options
        Thresholds.
    held
        Its jobs' allocation intervals, where known already (``stretches``).
    """
    held = stretches(run.jobs, run.allocations) if held is None else held
    jobs = with_derived(run.jobs, options, held)
    origin = origin_s(jobs)
    ran = jobs.filter(pl.col("start_s").is_not_null())
    last_end = ran.get_column("end_s").max()
    makespan_s = float(last_end) - origin if isinstance(last_end, int | float) else None
    notes = [] if run.complete else ["The run is not finished: its figures are of what is known so far."]
    of_host = host_use(run, options.most_taken, options.most_spread)
    slices = None if run.slices is None else measure_slices(run.slices, run.jobs, held)
    unattended_share = None if slices is None else slices.unattended_share
    why_unfit = "; and ".join(one.why for one in unfit(run, options, of_host, unattended_share)) or None
    if why_unfit is not None:
        notes.append(f"Unfit to judge by: {why_unfit}.")
    launched = start_up_note(jobs, run.info)
    if launched is not None and why_unfit is None:  # else it may be the host's others
        notes.append(launched)
    work = work_of(ran)
    used = _use(held, work, run.info)
    if used is None:
        notes.append("The run is too large to add up which cores were in use: no utilisation by allocation.")
    capacity_core_s = run.info.capacity_cores * makespan_s if makespan_s else None
    in_use = capacity_core_s if used is not None and used.occupied_core_s else None
    return RunMetrics(
        label=run.info.label,
        kind=run.info.kind,
        complete=run.complete,
        options=options,
        makespan_s=makespan_s,
        utilisation_allocated=used.occupied_core_s / in_use if used and in_use else None,
        utilisation_useful=used.useful_core_s / in_use if used and in_use else None,
        cpu_utilisation=_cpu_utilisation(ran, capacity_core_s),
        cpu_missing=ran.get_column("cpu_s").null_count(),
        shared_share=used.shared_core_s / used.occupied_core_s if used and used.occupied_core_s else None,
        placement_missing=_misplaced(held),
        work=work,
        kinds=_by_kind(jobs, origin, options),
        slices=slices,
        host=of_host,
        unfit=why_unfit,
        notes=tuple(notes),
    )


def _misplaced(held: pl.DataFrame) -> int:
    unknown = held.filter(pl.any_horizontal(pl.col("placement", "end_s").is_null()))
    return unknown.get_column("row").n_unique()


def _use(held: pl.DataFrame, work: WorkMetrics, info: RunInfo) -> Occupancy | None:
    used = occupancy(held)
    if used is not None or info.most_a_core > 1:
        return used
    # No job shares a core, so what the jobs held is what was in use.
    return Occupancy(
        occupied_core_s=work.allocated_core_s,
        allocated_core_s=work.allocated_core_s,
        shared_core_s=0.0,
        again_core_s=work.again_core_s,
        lost_core_s=work.lost_core_s,
    )


def _by_kind(jobs: pl.DataFrame, origin: float, options: MetricOptions) -> dict[str, KindMetrics]:
    kinds: dict[str, KindMetrics] = {}
    for kind in KINDS:
        some = jobs if kind == "all" else jobs.filter(pl.col("kind") == kind)
        if some.height or kind == "all":
            kinds[kind] = _measure_kind(some, origin, options)
    return kinds


def _measure_kind(jobs: pl.DataFrame, origin: float, options: MetricOptions) -> KindMetrics:
    by_jobs = completion_by_jobs(jobs, origin)
    by_cpu_time = completion_by_cpu_time(jobs, origin)
    states = jobs.get_column("state").fill_null("unfinished").value_counts().sort("state")
    waits = jobs.get_column("wait_s").drop_nulls()
    return KindMetrics(
        jobs=jobs.height,
        states=dict(states.iter_rows()),
        wait_s=quantity(jobs.get_column("wait_s")),
        first_wait_s=quantity(jobs.get_column("first_wait_s")),
        preempted_share=jobs.select((preemptions() > 0).mean()).item(),
        waited_share=float((waits > options.wait_threshold_s).sum()) / len(waits) if len(waits) else None,
        slowdown=quantity(jobs.get_column("slowdown")),
        slowdown_osub=quantity(jobs.get_column("slowdown_osub")),
        degradation=quantity(jobs.get_column("degradation")),
        bounded_slowdown=quantity(jobs.get_column("bounded_slowdown")),
        completion_by_jobs_s={f"p{percent}": by_jobs.at(percent) for percent in PERCENTS},
        completion_by_cpu_time_s={f"p{percent}": by_cpu_time.at(percent) for percent in PERCENTS},
        completion_missing=by_jobs.missing,
        completion_cpu_time_missing=by_cpu_time.missing,
    )


def quantity(values: pl.Series) -> Quantity:
    """Summarise a column of the jobs."""
    known = values.drop_nulls()
    frame = known.to_frame("value").select(
        mean=pl.col("value").mean(), median=pl.col("value").median(), max=pl.col("value").max()
    )
    return Quantity(
        known=len(known), missing=values.null_count(), p95=quantile(known, 0.95), **frame.row(0, named=True)
    )


def _cpu_utilisation(ran: pl.DataFrame, capacity_core_s: float | None) -> float | None:
    used = ran.get_column("cpu_s")
    if not capacity_core_s or used.null_count() == len(used):
        return None
    return float(used.sum()) / capacity_core_s


def start_up_note(jobs: pl.DataFrame, info: RunInfo) -> str | None:
    """Return what of the degradation of jobs on cores of their own is start-up, where that is notable.

    No job shares a core there, so the time that a real job takes beyond its dedicated time is being launched
    (Slurm, Python, MPI), or a host at another pace.

    Parameters
    ----------
    jobs
        The run's jobs with their derived columns.
    info
        Of the run.
    """
    if info.kind != "real" or info.most_a_core > 1:
        return None
    known = jobs.filter(pl.col("state") == "COMPLETED").select("useful_s", "dedicated_s", "degradation")
    known = known.drop_nulls()
    beyond_s = quantile(known["useful_s"] - known["dedicated_s"], 0.5)
    work_s, mean = known["dedicated_s"].median(), known["degradation"].mean()
    if beyond_s is None or not isinstance(work_s, float) or not isinstance(mean, float) or mean < NOTABLE:
        return None
    return (
        f"No two jobs share a core: its degradation of {mean:.2f} is start-up (Slurm, Python, MPI), a median "
        f"of {beyond_s:.1f} s against {work_s:.1f} s of work. Longer jobs show less of it."
    )


def metrics_csv(metrics: Sequence[RunMetrics]) -> str:
    """Return the figures of runs, such as ``kinds.batch.wait_s.mean``; empty where one is not known.

    Names are those of ``osub report --json``. Lists, such as notes, are left out.
    """
    columns = [named_figures(run) for run in metrics]
    names = list(dict.fromkeys(name for column in columns for name in column))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["figure", *(f"'{run.label}" if run.label[:1] in FORMULA else run.label for run in metrics)]
    )
    for name in names:
        values = [column.get(name) for column in columns]
        writer.writerow([name, *("" if value is None else value for value in values)])
    return out.getvalue()


def named_figures(metrics: RunMetrics) -> dict[str, object]:
    """Return the figures of a run by name, such as ``kinds.batch.wait_s.mean``: no label, no lists."""
    figures = dict(_named_figures(msgspec.to_builtins(metrics)))
    del figures["label"]
    return figures


def _named_figures(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _named_figures(inner, f"{name}.{key}" if name else str(key))
    elif not isinstance(value, list | tuple):
        yield name, value
