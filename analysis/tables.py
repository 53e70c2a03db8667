"""The metrics as rows of a table with one column for each run, for the terminal and for pages.

Labels tell the runs of a table apart. In the terminal as many columns stand side by side as fit; those that
don't make several tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
from rich.table import Table
from rich.text import Text

from analysis.metrics import KINDS, HostUse, KindMetrics, KindName, RunMetrics, SliceMetrics, WorkMetrics
from foundation.records import Run
from foundation.units import number

Form = Literal["seconds", "number", "share", "count", "microseconds"]
Better = Literal["low", "high"] | None
Value = float | None

GROUP_NAMES: dict[KindName, str] = {
    "all": "All jobs",
    "batch": "Batch jobs",
    "interactive": "Interactive jobs",
    "ondemand": "On-demand jobs",
}
HOURS_FROM_S = 10_800.0
"""From here on a row of seconds is printed in hours, as in the verdict; rows of the system all alike."""
ABSENT = "-"
WORK_GROUP = "Interruptions"
DETAILS = frozenset(
    {
        "100% of the jobs done",
        "100% of the CPU time done",
        "slowdown S, mean",
        "slowdown S, max",
        "starts after a preemption",
        "S_OSub, 95th percentile",
        "bounded slowdown, mean",
        "length of a slice",
        "lateness of a node, median",
    }
)
"""Rows that a short table leaves out."""

INDENT = "  "
ABREAST, BELOW = " | ", "\n"
TITLES = {ABREAST: "metric, real | simulated", BELOW: "metric, real above simulated"}

FRAME = 3
"""Width that a column takes besides its text: two spaces and a line."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of all runs.

    Parameters
    ----------
    group
        Its heading.
    name
        What it is, with its unit.
    cells
        Its text for each run.
    best
        For each run, whether no run does better; all false where nothing is better or all are alike.
    detail
        Whether a short table leaves it out.
    """

    group: str
    name: str
    cells: tuple[str, ...]
    best: tuple[bool, ...]
    detail: bool


_KIND_LINES: tuple[tuple[str, Callable[[KindMetrics], Value], Form, Better], ...] = (
    ("jobs", lambda kind: kind.jobs, "count", None),
    ("not completed", lambda kind: kind.jobs - kind.states.get("COMPLETED", 0), "count", "low"),
    ("wait, mean", lambda kind: kind.wait_s.mean, "seconds", "low"),
    ("wait, max", lambda kind: kind.wait_s.max, "seconds", "low"),
    (
        "wait to the first start, mean",
        lambda kind: None if kind.first_wait_s == kind.wait_s else kind.first_wait_s.mean,
        "seconds",
        "low",
    ),
    ("preempted", lambda kind: kind.preempted_share or None, "share", "low"),
    ("waited over {threshold:g} s", lambda kind: kind.waited_share, "share", "low"),
    ("slowdown S, mean", lambda kind: kind.slowdown.mean, "number", "low"),
    ("slowdown S, max", lambda kind: kind.slowdown.max, "number", "low"),
    ("S_OSub, mean", lambda kind: kind.slowdown_osub.mean, "number", "low"),
    ("S_OSub, 95th percentile", lambda kind: kind.slowdown_osub.p95, "number", "low"),
    ("S_OSub, max", lambda kind: kind.slowdown_osub.max, "number", "low"),
    ("degradation, mean", lambda kind: kind.degradation.mean, "number", "low"),
    ("degradation, max", lambda kind: kind.degradation.max, "number", "low"),
    ("bounded slowdown, mean", lambda kind: kind.bounded_slowdown.mean, "number", "low"),
    ("wait not known", lambda kind: kind.wait_s.missing or None, "count", "low"),
    ("S_OSub not known", lambda kind: kind.slowdown_osub.missing or None, "count", "low"),
)


def _jobs_done(percentile: str) -> Callable[[RunMetrics], Value]:
    return lambda run: run.kinds["all"].completion_by_jobs_s[percentile]


def _cpu_time_done(percentile: str) -> Callable[[RunMetrics], Value]:
    return lambda run: run.kinds["all"].completion_by_cpu_time_s[percentile]


_SYSTEM_LINES: tuple[tuple[str, Callable[[RunMetrics], Value], Form, Better], ...] = (
    ("makespan", lambda run: run.makespan_s, "seconds", "low"),
    ("90% of the jobs done", _jobs_done("p90"), "seconds", "low"),
    ("95% of the jobs done", _jobs_done("p95"), "seconds", "low"),
    ("100% of the jobs done", _jobs_done("p100"), "seconds", "low"),
    ("90% of the CPU time done", _cpu_time_done("p90"), "seconds", "low"),
    ("95% of the CPU time done", _cpu_time_done("p95"), "seconds", "low"),
    ("100% of the CPU time done", _cpu_time_done("p100"), "seconds", "low"),
    ("cores in use", lambda run: run.utilisation_allocated, "share", None),
    ("cores in useful use", lambda run: run.utilisation_useful if _wastes(run) else None, "share", None),
    ("CPU time used", lambda run: run.cpu_utilisation, "share", None),
    ("time in use that is shared", lambda run: run.shared_share, "share", None),
)
_WORK_LINES: tuple[tuple[str, Callable[[WorkMetrics], Value], Form, Better], ...] = (
    ("preemptions", lambda work: work.preemptions, "count", "low"),
    ("starts after a preemption", lambda work: work.resumptions, "count", None),
    ("starts after a requeue", lambda work: work.requeues, "count", "low"),
    ("resizes", lambda work: work.resizes, "count", None),
    ("held core time lost", lambda work: _part(work.lost_core_s, work), "share", "low"),
    ("held core time that set up again", lambda work: _part(work.again_core_s, work), "share", "low"),
    ("jobs of unknown core time", lambda work: work.missing or None, "count", "low"),
)
_SLICE_LINES: tuple[tuple[str, Callable[[SliceMetrics], Value], Form, Better], ...] = (
    ("slices", lambda slices: slices.slices, "count", None),
    ("length of a slice", lambda slices: slices.length_s, "seconds", None),
    ("usage intervals of 1", lambda slices: _interval_share(slices, 1), "share", None),
    ("usage intervals of 2", lambda slices: _interval_share(slices, 2), "share", None),
    ("usage intervals of 3 or more", lambda slices: _interval_share(slices, None), "share", "low"),
    ("Jain's fairness index", lambda slices: slices.fairness, "number", "high"),
    ("lateness of a node, median", lambda slices: slices.skew_us.p50, "microseconds", "low"),
    ("lateness of a node, 99th percentile", lambda slices: slices.skew_us.p99, "microseconds", "low"),
    ("freezing or thawing, 99th percentile", lambda slices: slices.freeze_us.p99, "microseconds", "low"),
    ("lost to switching", lambda slices: slices.switching_share, "share", "low"),
)

_HOST_LINES: tuple[tuple[str, Callable[[HostUse], Value], Form, Better], ...] = (
    ("CPU time that others used", lambda host: host.foreign_share, "share", None),
    ("CPU time stolen", lambda host: host.steal_share, "share", None),
    ("load, mean", lambda host: host.load, "number", None),
    ("pace of the jobs, median", lambda host: host.pace, "number", None),
    ("pace, slowest over fastest", lambda host: host.pace_spread, "number", None),
)


def metric_rows(runs: Sequence[RunMetrics]) -> list[MetricRow]:
    """Return the rows for these runs; a row that no run has a value for is left out.

    Among real and simulated runs a real one is best only among the real ones, and no simulated one is. None
    is best that is unfit to judge by, or in which jobs were cancelled: it ended early because of that.
    """
    rows = [row for row in _rows(runs) if any(cell != ABSENT for cell in row.cells)]
    real = [run.kind == "real" for run in runs]
    mixed = any(real) and not all(real)
    judged = [
        (is_real or not mixed) and not _is_spoiled(run) for run, is_real in zip(runs, real, strict=True)
    ]
    if all(judged):
        return rows
    fit = [run for run, is_judged in zip(runs, judged, strict=True) if is_judged]
    best = {(row.group, row.name): iter(row.best) for row in (_rows(fit) if fit else ())}
    none = iter(())
    return [
        replace(
            row,
            best=tuple(
                is_judged and next(best.get((row.group, row.name), none), False) for is_judged in judged
            ),
        )
        for row in rows
    ]


def _is_spoiled(run: RunMetrics) -> bool:
    cut = "all" in run.kinds and run.kinds["all"].states.get("CANCELLED", 0) > 0
    return cut or not run.complete or run.unfit is not None


def _rows(runs: Sequence[RunMetrics]) -> Iterator[MetricRow]:
    threshold = runs[0].options.wait_threshold_s
    longest_s = max((run.makespan_s or 0.0 for run in runs), default=0.0)
    for system_name, of_run, form, better in _SYSTEM_LINES:
        yield _row("System", system_name, [of_run(run) for run in runs], form, better, longest_s)
    eventful = any(_is_eventful(run.work) for run in runs)
    for work_name, of_work, form, better in _WORK_LINES if eventful else ():
        yield _row(WORK_GROUP, work_name, [of_work(run.work) for run in runs], form, better)
    for kind in KINDS:
        if not any(kind in run.kinds for run in runs) or _only_kind(runs, kind):
            continue
        for kind_name, of_kind, form, better in _KIND_LINES:
            values = [of_kind(run.kinds[kind]) if kind in run.kinds else None for run in runs]
            # One unit for all kinds of jobs, so that a reader can compare them.
            most = max((of_kind(found) or 0.0 for run in runs for found in run.kinds.values()), default=0.0)
            yield _row(GROUP_NAMES[kind], kind_name.format(threshold=threshold), values, form, better, most)
    for slice_name, of_slices, form, better in _SLICE_LINES:
        values = [None if run.slices is None else of_slices(run.slices) for run in runs]
        yield _row("Time slices", slice_name, values, form, better)
    for host_name, of_host, form, better in _HOST_LINES:
        real = [of_host(run.host) if run.kind == "real" else None for run in runs]
        yield _row("Host", host_name, real, form, better)


def _wastes(run: RunMetrics) -> bool:
    return run.work.lost_core_s + run.work.again_core_s > 0


def _is_eventful(work: WorkMetrics) -> bool:
    """Whether a job was interrupted or went on with other cores."""
    return any((work.preemptions, work.jobs_again, work.resizes, work.requeues, work.resumptions))


def _part(core_s: float, work: WorkMetrics) -> float | None:
    return core_s / work.allocated_core_s if work.allocated_core_s else None


def _only_kind(runs: Sequence[RunMetrics], kind: KindName) -> bool:
    """Whether ``kind`` is the only one in every run, so that its rows would repeat those of all jobs."""
    return kind != "all" and all(set(run.kinds) <= {"all", kind} for run in runs)


def _row(
    group: str, name: str, values: Sequence[Value], form: Form, better: Better, longest_s: float = 0.0
) -> MetricRow:
    known = [value for value in values if value is not None]
    in_hours = form == "seconds" and max(longest_s, *known, 0.0) >= HOURS_FROM_S
    unit = {"seconds": " [h]" if in_hours else " [s]", "microseconds": " [µs]"}.get(form, "")
    cells = tuple(_cell(value, form, in_hours=in_hours) for value in values)
    target = None
    if better is not None and len(known) > 1:
        target = _cell(min(known) if better == "low" else max(known), form, in_hours=in_hours)
    best = tuple(target is not None and cell == target for cell in cells)
    return MetricRow(
        group, name + unit, cells, (False,) * len(cells) if all(best) else best, detail=name in DETAILS
    )


def _cell(value: Value, form: Form, *, in_hours: bool) -> str:
    if value is None:
        return ABSENT
    if form == "count":
        return f"{value:,.0f}"
    if form == "share":
        return f"{100 * value:.1f}%" if value >= 0.001 or value == 0 else f"{100 * value:.3f}%"
    return number(value / 3600 if in_hours else value)


def _interval_share(slices: SliceMetrics, interval: int | None) -> float | None:
    """Return the share of the usage intervals that are ``interval``; None for 3 and above."""
    total = sum(slices.intervals.values())
    if not total:
        return None
    if interval is not None:
        return slices.intervals.get(str(interval), 0) / total
    return sum(count for name, count in slices.intervals.items() if int(name) > 2) / total


def distinctly_labelled(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with different labels: to those that are alike the folder's name is added."""
    labels = [run.info.label for run in runs]
    often = Counter(labels)
    named = [
        f"{label} ({run.path.name})" if often[label] > 1 else label
        for label, run in zip(labels, runs, strict=True)
    ]
    seen: Counter[str] = Counter()
    distinct: list[Run] = []
    for run, label in zip(runs, named, strict=True):
        seen[label] += 1
        text = f"{label} #{seen[label]}" if seen[label] > 1 else label
        distinct.append(replace(run, info=msgspec.structs.replace(run.info, label=text)))
    return distinct


def metrics_tables(
    runs: Sequence[RunMetrics], width: int, *, short: bool = False, simulated: Sequence[RunMetrics] = ()
) -> Iterator[Table]:
    """Yield Rich tables of the metrics, one if it fits; where runs differ the best value is bold.

    Parameters
    ----------
    runs
        At least one run.
    width
        Of the terminal, in characters.
    short
        Leave the details out, for a terminal.
    simulated
        A simulation of each run, printed next to it, or below it where that does not fit; empty for none.
    """
    simulated_cells = (
        {(row.group, row.name): row.cells for row in metric_rows(simulated)} if simulated else {}
    )
    none = ("",) * len(runs)
    rows = [
        (row, simulated_cells.get((row.group, row.name), none))
        for row in metric_rows(runs)
        if not (short and row.detail)
    ]
    names = max(len(INDENT + row.name) for row, _ in rows)
    for between in (ABREAST, BELOW):
        widths = [
            column_width(run.label, [row.cells[at] + _after(others[at], between) for row, others in rows])
            for at, run in enumerate(runs)
        ]
        parts = list(fitting(width, names, widths))
        if not simulated_cells or len(parts) == 1:
            break
    for part in parts:
        table = run_table(TITLES[between] if simulated_cells else "metric", [runs[at].label for at in part])
        _fill(table, rows, part, between)
        yield table


def _fill(table: Table, rows: Sequence[tuple[MetricRow, Sequence[str]]], part: range, between: str) -> None:
    group = None
    for row, others in rows:
        if row.group != group:
            if group is not None:
                table.add_section()
            table.add_row(Text(row.group, style="bold"), *("" for _ in part))
            group = row.group
        cells = (
            Text.assemble((row.cells[at], "bold" if row.best[at] else ""), _after(others[at], between))
            for at in part
        )
        table.add_row(Text(INDENT + row.name), *cells)


def _after(other: str, between: str) -> str:
    return f"{between}{other}" if other else ""


def fitting(width: int, first: int, others: Sequence[int]) -> Iterator[range]:
    """Yield the columns of each table, at least one, so that each is at most ``width`` wide.

    Parameters
    ----------
    width
        Of the terminal.
    first
        Text width of the first column, which every table repeats.
    others
        Text widths of the other columns.
    """
    begin, used = 0, first + FRAME
    for place, text in enumerate(others):
        if place > begin and used + text + FRAME > width:
            yield range(begin, place)
            begin, used = place, first + FRAME
        used += text + FRAME
    yield range(begin, len(others))


def column_width(label: str, cells: Sequence[str]) -> int:
    """Return the least text width in which no line of a cell and no word of a label breaks."""
    lines = [line for cell in cells for line in cell.split("\n")]
    return max(map(len, [*label.split(), *lines]), default=0)


def run_table(first: str, labels: Sequence[str]) -> Table:
    """Return a table without rows: a column of names, headed ``first``, and one for each run."""
    table = Table(title_justify="left", header_style="bold", pad_edge=False)
    table.add_column(Text(first), no_wrap=True)
    for label in labels:
        table.add_column(Text(label), justify="right", overflow="fold")
    return table
