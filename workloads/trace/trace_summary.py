"""What a person wants to know of a trace before using it, and its interactive and batch jobs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.quantiles import quantiles
from foundation.units import counted, verb
from workloads.swf import SwfColumns, SwfJob, SwfTrace, dependencies_of, procs_column
from workloads.trace.local_clock import DAY_S, HOUR_S, TraceClock
from workloads.trace.models import by_kind

LONG_GAP_DAYS = 14
"""So long without a submission is no holiday: the log has jobs of another time, or a part is missing."""
PERCENTILES = (0, 10, 25, 50, 75, 90, 95, 99, 100)


@dataclass(frozen=True, slots=True)
class QuantitySpread:
    """Percentiles and mean of one quantity over the ``known`` jobs that have it."""

    known: int
    mean: float
    percentiles: dict[int, float]


@dataclass(frozen=True, slots=True)
class QueueShare:
    """One queue: its number (``None`` for unknown), description, jobs and their processor seconds."""

    queue: int | None
    description: str
    jobs: int
    processor_s: float


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A trace in figures.

    Parameters
    ----------
    name, computer, installation, format_version, max_nodes, max_procs
        From the file's name and header.
    jobs, users, queues
        What is in it; ``users`` is ``None`` where the trace names none.
    first_submit, last_submit
        Local dates (ISO 8601) of the first and last submission, ``None`` without dates.
    span_s
        Seconds from the first to the last submission.
    size, run_s, wait_s
        Processors a job, run times and waiting times; ``None`` where no job has them.
    size_counts
        Jobs by size class: "1", "2", "3-4", "5-8", ... processors.
    serial_share, power_of_two_share
        Of the jobs with known size: those with 1 processor, and with 2, 4, 8, ... processors.
    requested_time_share, requested_memory_share, cpu_time_share
        Of all jobs: those with the field.
    interactive_patterns
        Jobs with busy and idle periods in columns 22 and up.
    arrivals_by_hour
        Mean submissions an hour, by hour of the local day (24 values).
    offered_load
        Processor seconds over those that the machine has in the span; ``None`` where not known.
    status_counts
        Jobs by SWF status.
    remarks
        What to clean or to know: sentences with counts.
    """

    name: str
    computer: str | None
    installation: str | None
    format_version: str | None
    acknowledge: tuple[str, ...]
    max_nodes: int | None
    max_procs: int | None
    jobs: int
    users: int | None
    queues: tuple[QueueShare, ...]
    first_submit: str | None
    last_submit: str | None
    span_s: float
    size: QuantitySpread | None
    size_counts: dict[str, int]
    serial_share: float | None
    power_of_two_share: float | None
    run_s: QuantitySpread | None
    wait_s: QuantitySpread | None
    requested_time_share: float
    requested_memory_share: float
    cpu_time_share: float
    interactive_patterns: int
    arrivals_by_hour: tuple[float, ...]
    offered_load: float | None
    status_counts: dict[str, int]
    remarks: tuple[str, ...]


STATUS_NAMES = {
    0: "failed",
    1: "completed",
    2: "partial",
    3: "last part, completed",
    4: "last part, failed",
    5: "cancelled",
}


def summarize(columns: SwfColumns) -> TraceSummary:
    """Return the summary of a trace that ``load_columns`` read."""
    header = columns.header
    frame = columns.frame.with_columns(procs=procs_column()).with_columns(
        work_s=pl.col("procs") * pl.col("run_s")
    )
    submits = frame["submit_s"].to_numpy()
    first_s, last_s = float(submits.min()), float(submits.max())
    clock = TraceClock.of(header, first_s)
    sizes = frame["procs"].drop_nulls().to_numpy()
    serial, power = _shares(sizes)
    first, last = clock.date(first_s), clock.date(last_s)
    return TraceSummary(
        name=columns.name,
        computer=header.computer,
        installation=header.installation,
        format_version=header.version,
        acknowledge=header.acknowledge,
        max_nodes=header.max_nodes,
        max_procs=header.max_procs,
        jobs=frame.height,
        users=frame["user"].drop_nulls().n_unique() or None,
        queues=_queues(frame, header.queues),
        first_submit=first.isoformat(sep=" ") if first else None,
        last_submit=last.isoformat(sep=" ") if last else None,
        span_s=last_s - first_s,
        size=_spread(frame["procs"]),
        size_counts=_size_counts(sizes),
        serial_share=serial,
        power_of_two_share=power,
        run_s=_spread(frame["run_s"]),
        wait_s=_spread(frame["wait_s"]),
        requested_time_share=_known_share(frame["requested_s"]),
        requested_memory_share=_known_share(frame["requested_memory_kib"]),
        cpu_time_share=_known_share(frame["cpu_s"]),
        interactive_patterns=sum(1 for extension in columns.extensions.values() if set(extension[3:]) - {-1}),
        arrivals_by_hour=_arrivals_by_hour(clock, submits),
        offered_load=_offered_load(frame, header.system_procs, last_s - first_s),
        status_counts=_status_counts(frame["status"]),
        remarks=tuple(_remarks(columns, frame)),
    )


def _spread(series: pl.Series) -> QuantitySpread | None:
    values = series.drop_nulls().to_numpy()
    if values.size == 0:
        return None
    found = quantiles(values, [percent / 100 for percent in PERCENTILES])
    return QuantitySpread(
        values.size, float(values.mean()), dict(zip(PERCENTILES, map(float, found), strict=True))
    )


def _known_share(series: pl.Series) -> float:
    return 1 - series.null_count() / len(series)


def _shares(sizes: NDArray[np.int64]) -> tuple[float | None, float | None]:
    if sizes.size == 0:
        return None, None
    power = (sizes > 1) & (sizes & (sizes - 1) == 0)
    return float(np.mean(sizes == 1)), float(np.mean(power))


def _size_counts(sizes: NDArray[np.int64]) -> dict[str, int]:
    counts: dict[str, int] = {}
    powers = np.int64(1) << np.ceil(np.log2(sizes[sizes > 0])).astype(np.int64)
    for upper, count in zip(*np.unique(powers, return_counts=True), strict=True):
        low = int(upper) // 2 + 1
        counts[str(upper) if low >= upper else f"{low}-{upper}"] = int(count)
    return counts


def _queues(frame: pl.DataFrame, descriptions: dict[int, str]) -> tuple[QueueShare, ...]:
    grouped = frame.group_by("queue").agg(pl.len().alias("jobs"), pl.col("work_s").sum()).sort("queue")
    return tuple(
        QueueShare(queue, descriptions.get(queue, "") if queue is not None else "", jobs, work_s)
        for queue, jobs, work_s in grouped.iter_rows()
    )


def _status_counts(series: pl.Series) -> dict[str, int]:
    counts = series.value_counts().sort("status", nulls_last=True)
    return {
        "unknown" if status is None else STATUS_NAMES.get(status, f"status {status}"): count
        for status, count in counts.iter_rows()
    }


def _arrivals_by_hour(clock: TraceClock, submits: NDArray[np.float64]) -> tuple[float, ...]:
    local = clock.local(submits)
    counts = np.bincount(local.second_of_day // HOUR_S, minlength=24)
    days = max(1.0, float(submits.max() - submits.min()) / DAY_S)
    return tuple(float(count / days) for count in counts)


def _offered_load(frame: pl.DataFrame, system_procs: int | None, span_s: float) -> float | None:
    if system_procs is None or span_s <= 0 or frame["work_s"].null_count() == frame.height:
        return None
    return float(frame["work_s"].sum()) / (system_procs * span_s)


def _remarks(columns: SwfColumns, frame: pl.DataFrame) -> list[str]:
    report, system_procs = columns.report, columns.header.system_procs
    dependencies = dependencies_of(frame)
    over_size = int((frame["procs"] > system_procs).sum()) if system_procs else 0
    over_time = int((frame["run_s"] > frame["requested_s"]).sum())
    wider = (
        (frame["allocated_procs"] > system_procs) & (frame["procs"] <= system_procs) if system_procs else None
    )
    # the CPU time of a job is rounded another way than its run time
    over_cpu = int((frame["cpu_s"] > frame["run_s"] * 1.01 + 1).sum())
    findings = (
        ("run time is 0", int((frame["run_s"] == 0).sum())),
        ("run time is not known", frame["run_s"].null_count()),
        ("number of processors is 0", int((frame["procs"] == 0).sum())),
        ("number of processors is not known", frame["procs"].null_count()),
        (f"larger than the machine ({counted(system_procs or 0, 'processor')})", over_size),
        ("ran with more processors than the machine has", 0 if wider is None else int(wider.sum())),
        ("ran longer than asked for", over_time),
        ("used more CPU time than its processors had while it ran", over_cpu),
        ("submitted earlier than the job before", report.unsorted),
        ("has the number of an earlier job", report.duplicates),
        ("submitted after the end of a preceding job (fields 17 and 18)", dependencies.count),
        *((f"to be submitted {reason}", count) for reason, count in dependencies.ignored.items()),
    )
    remarks = [f"{what}: {counted(count, 'job')}" for what, count in findings if count]
    if report.joined:
        parts = (
            f"{counted(report.joined, 'line')} {verb(report.joined)} part of {counted(report.parted, 'job')}"
        )
        remarks.append(f"{parts}: joined, so that the load counts once")
    remarks += _gap_remarks(frame, system_procs)
    remarks += [
        f"the header's {name} does not begin with a whole number, so it is not known: {text}"
        for name, text in columns.header.unreadable_numbers.items()
    ]
    remarks += [f"skipped, {reason}: {count:,}" for reason, count in report.skipped.items()]
    remarks += [f"skipped, for example: {example}" for example in report.examples]
    announced = columns.header.max_records
    # A log that was cleaned keeps the header of the whole one.
    lines = frame.height + report.joined
    if announced is not None and announced not in (frame.height, lines) and not columns.name.endswith("-cln"):
        remarks.append(f"the header announces {counted(announced, 'record')}, the file has {lines:,}")
    return remarks


def _gap_remarks(frame: pl.DataFrame, system_procs: int | None) -> list[str]:
    """Return what to know of long times without submissions: they make the span long and the load small."""
    submits = np.sort(frame["submit_s"].to_numpy())
    gaps_s = np.diff(submits)
    long = gaps_s[gaps_s >= LONG_GAP_DAYS * DAY_S]
    if long.size == 0:
        return []
    before = int(np.argmax(gaps_s)) + 1
    after = len(submits) - before
    span_s = float(submits[-1] - submits[0] - long.sum())
    load = _offered_load(frame, system_procs, span_s)
    more = f" (and in {counted(long.size - 1, 'gap')} more)" if long.size > 1 else ""
    if before <= after:
        cut, kept = f"--start {submits[before]:.0f}", f"last {after:,}"
    else:
        cut, kept = f"--length {submits[before - 1] - submits[0] + 1:.0f}", f"first {before:,}"
    findings = (
        f"no job was submitted for {gaps_s.max() / DAY_S:,.1f} days, between the first "
        f"{counted(before, 'job')} and the last {after:,}{more}: without that the span is "
        f"{span_s / DAY_S:,.1f} days{'' if load is None else f' and the offered load {load:.1%}'}; "
        f"`osub trace convert {cut}` keeps the {kept}"
    )
    return [findings]


@dataclass(frozen=True, slots=True)
class JobKindSummary:
    """One kind of jobs: how many, the widest, run times, and times busy (a batch job is busy all along).

    Figures are ``None`` where no job of the kind has them.
    """

    jobs: int
    max_procs: int | None
    max_run_s: float | None
    mean_run_s: float | None
    max_busy_s: float | None
    mean_busy_s: float | None


THESIS_TABLE_7_2 = {
    "interactive": JobKindSummary(14, 12, 43_209, 8_566, 7_299, 1_123),
    "batch": JobKindSummary(68, 25, 14_410, 5_968, 14_410, 5_968),
}


def summarize_kinds(trace: SwfTrace, interactive_queue: int | None = 0) -> dict[str, JobKindSummary]:
    """Return the summaries of ``interactive`` and ``batch`` jobs."""
    interactive, batch = by_kind(trace, interactive_queue)
    busy_s = [pattern.busy_s for job in interactive if (pattern := job.pattern) is not None]
    return {
        "interactive": _of_kind(interactive, busy_s),
        "batch": _of_kind(batch, [job.run_s for job in batch if job.run_s is not None]),
    }


def _of_kind(jobs: Sequence[SwfJob], busy_s: Sequence[float]) -> JobKindSummary:
    runs_s = [job.run_s for job in jobs if job.run_s is not None]
    return JobKindSummary(
        jobs=len(jobs),
        max_procs=max((job.procs for job in jobs if job.procs is not None), default=None),
        max_run_s=max(runs_s, default=None),
        mean_run_s=sum(runs_s) / len(runs_s) if runs_s else None,
        max_busy_s=max(busy_s, default=None),
        mean_busy_s=sum(busy_s) / len(busy_s) if busy_s else None,
    )
