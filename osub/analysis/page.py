"""What stands on the report's page, in order: sections of charts and tables, without any HTML of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from osub.analysis.charts import Chart
from osub.analysis.curves import (
    Measured,
    completion_chart,
    slowdown_chart,
    wait_chart,
    wait_over_time_chart,
)
from osub.analysis.gantt import gantt
from osub.analysis.metrics import RunMetrics
from osub.analysis.rows import number
from osub.analysis.slice_charts import (
    INTERVAL_COLUMNS,
    excerpt_chart,
    interval_chart,
    interval_rows,
    lateness_chart,
)
from osub.analysis.slice_metrics import SliceMetrics
from osub.analysis.use_chart import use_chart
from osub.analysis.worst_jobs import worst_jobs
from osub.records import Run


@dataclass(frozen=True, slots=True)
class Grid:
    """A plain table: a heading over groups of columns, the columns, and rows of texts.

    Parameters
    ----------
    groups
        (text, number of columns) from the left; empty for none.
    columns
        Names of the columns.
    rows
        Their texts.
    texts
        How many columns from the left are texts and not numbers.
    """

    groups: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    rows: list[list[str]]
    texts: int


@dataclass(frozen=True, slots=True)
class Block:
    """A chart or a table with its title (may be empty) and its caption."""

    title: str
    caption: str
    chart: Chart | None = None
    grid: Grid | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page."""

    name: str
    title: str
    blocks: list[Block]


@dataclass(frozen=True, slots=True)
class Subject:
    """One run of the page with all that was computed from it; ``held`` is what its jobs held."""

    run: Run
    held: pl.DataFrame
    metrics: RunMetrics
    measured: Measured


def sections(subjects: Sequence[Subject]) -> list[Section]:
    """Return the sections that these runs have something for."""
    every = [
        Section("schedule", "Schedule by node and core", list(_schedules(subjects))),
        Section("waiting", "Waiting times", list(_waiting(subjects))),
        Section("slowdown", "Slowdown and degradation", list(_slowdown(subjects))),
        Section("completion", "Completion over time", list(_completion(subjects))),
        Section("slices", "Time slices", list(_slices(subjects))),
    ]
    return [section for section in every if section.blocks]


def _schedules(subjects: Sequence[Subject]) -> Iterator[Block]:
    last_s = max((subject.metrics.makespan_s or 0.0 for subject in subjects), default=0.0)
    for subject in subjects:
        chart = gantt(subject.measured.jobs, subject.run.info, last_s or None, subject.held)
        if chart is not None:
            missing = subject.metrics.placement_missing
            lacking = f" {missing:,} jobs ran at a place that is not known." if missing else ""
            yield Block(subject.measured.label, chart.caption + lacking, chart=chart)
    used = [(subject.measured, subject.held, subject.run.info.capacity_cores) for subject in subjects]
    in_use = use_chart(used, last_s) if last_s else None
    if in_use is not None:
        yield Block("Cores in use over time", in_use.caption, chart=in_use)


def _waiting(subjects: Sequence[Subject]) -> Iterator[Block]:
    runs = [subject.measured for subject in subjects]
    if any(subject.metrics.kinds["all"].wait_s.known for subject in subjects):
        chart = wait_chart(runs, subjects[0].metrics.options)
        yield Block("Distribution", chart.caption, chart=chart)
        chart = wait_over_time_chart(runs)
        yield Block("Over time", chart.caption, chart=chart)


def _slowdown(subjects: Sequence[Subject]) -> Iterator[Block]:
    runs = [subject.measured for subject in subjects]
    if not any(subject.metrics.kinds["all"].degradation.known for subject in subjects):
        return
    chart = slowdown_chart(runs)
    yield Block("Distribution", chart.caption, chart=chart)
    columns, rows = worst_jobs(runs)
    yield Block(
        "The jobs that suffered most",
        "The largest S_OSub under any setting; the wait is in seconds.",
        grid=Grid(
            groups=(("", len(columns)), *((run.label, 3) for run in runs)),
            columns=(*columns, *("wait", "degradation", "S_OSub") * len(runs)),
            rows=rows,
            texts=3,
        ),
    )


def _completion(subjects: Sequence[Subject]) -> Iterator[Block]:
    if any(subject.metrics.makespan_s is not None for subject in subjects):
        chart = completion_chart([subject.measured for subject in subjects])
        yield Block("", chart.caption, chart=chart)


def _slices(subjects: Sequence[Subject]) -> Iterator[Block]:
    sliced: list[tuple[str, SliceMetrics]] = []
    for subject in subjects:
        slices, metrics, label = subject.run.slices, subject.metrics.slices, subject.measured.label
        if slices is None or metrics is None or not slices.height:
            continue
        sliced.append((label, metrics))
        excerpt = excerpt_chart(slices, subject.run.jobs, subject.held)
        if excerpt is not None:
            yield Block(f"{label}: an excerpt", excerpt.caption, chart=excerpt)
        yield Block(
            f"{label}: usage intervals of the most degraded jobs",
            _fairness(metrics),
            grid=Grid(
                groups=(("", 3), ("usage interval", INTERVAL_COLUMNS)),
                columns=(
                    "job",
                    "application, cores",
                    "degradation",
                    *(str(interval) for interval in range(1, INTERVAL_COLUMNS)),
                    f"{INTERVAL_COLUMNS} or more",
                ),
                rows=interval_rows(slices, subject.measured.jobs),
                texts=2,
            ),
        )
        lateness = lateness_chart(slices)
        if lateness is not None:
            yield Block(f"{label}: lateness", lateness.caption, chart=lateness)
    if sliced:
        chart = interval_chart(sliced)
        yield Block("Usage intervals of all jobs", chart.caption, chart=chart)


def _fairness(metrics: SliceMetrics) -> str:
    if metrics.fairness is None:
        return "No two busy jobs shared a core, so there was nothing to divide fairly."
    missing = f" {metrics.fairness_missing:,} jobs lack a known place." if metrics.fairness_missing else ""
    return (
        f"Jain's fairness index is {metrics.fairness:.4f} over {metrics.contended_jobs:,} contended jobs;"
        f" 1 is perfectly fair, {number(1 / metrics.contended_jobs)} is one job served alone.{missing}"
    )
