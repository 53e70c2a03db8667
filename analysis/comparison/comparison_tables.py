"""What a comparison shows: errors, jobs as in thesis Table 7.8, and curves of the errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from rich.table import Table
from rich.text import Text

from analysis.comparison.job_by_job import MOVED, RunErrors, pair
from analysis.tables import ABSENT, FRAME, column_width, fitting, run_table
from foundation.records import Run

_MOST_STOPS = 3
ERROR_COLUMNS = (
    "jobs in both",
    "compared",
    "start error, median [s]",
    "p95 [s]",
    "run-time error, median",
    "p95",
    "bias",
    "at the host's pace, median",
    "p95",
    "bias",
    "same place",
    "same nodes",
    "jobs that found the same jobs",
    "same place, of these",
)
JOB_COLUMNS = (
    "job",
    "kind",
    "shape",
    "start [s]",
    "start, other",
    "end [s]",
    "end, other",
    "place",
    "place, other",
    "same",
)


def error_rows(errors: Sequence[RunErrors]) -> list[list[str]]:
    """Return a row of texts for each run, in the order of ``ERROR_COLUMNS``."""
    return [
        [
            f"{one.jobs:,}",
            f"{one.compared:,}",
            _seconds(one.start_s.median),
            _seconds(one.start_s.p95),
            _share(one.run_time.median),
            _share(one.run_time.p95),
            _share(one.run_time.bias, signed=True),
            _share(one.run_time_at_pace.median),
            _share(one.run_time_at_pace.p95),
            _share(one.run_time_at_pace.bias, signed=True),
            _share(one.same_place),
            _share(one.same_nodes),
            f"{one.alike:,}",
            _share(one.same_place_alike),
        ]
        for one in errors
    ]


def error_tables(errors: Sequence[RunErrors], width: int, title: str | None = None) -> Iterator[Table]:
    """Yield the errors for a terminal of ``width`` characters: one column for each run.

    The title, of the first column, says against what; by default against the first's reference.
    """
    first = title or f"against {errors[0].reference}"
    rows = error_rows(errors)
    widths = [column_width(one.label, cells) for one, cells in zip(errors, rows, strict=True)]
    for part in fitting(width, max(map(len, (first, *ERROR_COLUMNS))), widths):
        table = run_table(first, [errors[at].label for at in part])
        for line, name in enumerate(ERROR_COLUMNS):
            table.add_row(name, *(rows[at][line] for at in part))
        yield table


def job_rows(reference: Run, other: Run, most: int | None) -> list[list[str]]:
    """Return a row of texts for each of the first ``most`` jobs, or of all, as in ``JOB_COLUMNS``."""
    paired = pair(reference, other)
    return [_job_cells(row) for row in (paired if most is None else paired.head(most)).iter_rows(named=True)]


def _job_cells(row: dict[str, object]) -> list[str]:
    nodes, cores = row["nodes"], row["cores"]
    shape = f"n{nodes}c{cores // nodes}" if isinstance(nodes, int) and isinstance(cores, int) else ABSENT
    same = row["same_place"]
    return [
        str(row["trace_job"]),
        str(row["kind"]),
        shape,
        *(_seconds(row[name]) for name in ("start_s", "start_s_other", "end_s", "end_s_other")),
        *(short_place(row[name]) for name in ("place", "place_other")),
        ABSENT if same is None else "T" if same else "F",
    ]


def job_table(reference: Run, other: Run, width: int, most: int | None) -> Table:
    """Return the jobs for a terminal of ``width`` characters; where columns don't fit, other below own."""
    rows = job_rows(reference, other, most)
    texts = list(zip(*rows, strict=True)) or [()] * len(JOB_COLUMNS)
    columns = list(zip(JOB_COLUMNS, texts, strict=True))
    title = f"{other.info.label} against {reference.info.label}"
    table = Table(title=Text(title), title_justify="left")
    widths = [max(len(name), column_width("", cells)) for name, cells in columns]
    if sum(widths) + FRAME * len(widths) + 1 > width:
        columns = _stacked(columns)
    for name, _ in columns:
        is_time = name.startswith(("start", "end"))
        table.add_column(name, justify="right" if is_time else "left", overflow="fold", no_wrap=is_time)
    for cells in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table


def _stacked(columns: Sequence[tuple[str, tuple[str, ...]]]) -> list[tuple[str, tuple[str, ...]]]:
    """Put each column "..., other" below the one before it."""
    stacked: list[tuple[str, tuple[str, ...]]] = []
    for name, cells in columns:
        if name.endswith(", other"):
            above, own = stacked.pop()
            both = (f"{one}\n{another}" for one, another in zip(own, cells, strict=True))
            stacked.append((f"{above}\nother", tuple(both)))
        else:
            stacked.append((name, cells))
    return stacked


def short_place(place: object) -> str:
    """Return a placement that merges successive nodes with the same cores: ``7-8(0-8)``.

    Of the placements of a job that moved often it names the first and the last.
    """
    if not isinstance(place, str):
        return ABSENT
    stops = [_short_stop(stop) for stop in place.split(MOVED)]
    if len(stops) > _MOST_STOPS:
        stops = [stops[0], f"{len(stops) - 2} more", stops[-1]]
    return MOVED.join(stops)


def _short_stop(place: str) -> str:
    runs: list[tuple[int, int, str]] = []
    for entry in place.split():
        node, _, cores = entry.partition("(")
        if not node.isdigit():
            return place
        if runs and runs[-1][1] + 1 == int(node) and runs[-1][2] == cores:
            runs[-1] = (runs[-1][0], int(node), cores)
        else:
            runs.append((int(node), int(node), cores))
    return " ".join(
        f"{first}({cores}" if first == last else f"{first}-{last}({cores}" for first, last, cores in runs
    )


def error_curve(errors: pl.Series, points: int = 500) -> tuple[list[float], list[float]]:
    """Return sizes of errors, ascending, and what share of the jobs has one of at most that."""
    sizes = np.sort(errors.drop_nulls().abs().to_numpy())
    if not len(sizes):
        return [], []
    ranks = np.unique(np.linspace(0, len(sizes) - 1, points).astype(np.int64))
    return sizes[ranks].tolist(), ((ranks + 1) / len(sizes)).tolist()


def pairs(runs: Sequence[Run]) -> Iterator[tuple[Run, Run]]:
    """Return the first run, the reference, with each of the others."""
    return ((runs[0], other) for other in runs[1:])


def _seconds(value: object) -> str:
    if not isinstance(value, int | float):
        return ABSENT
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _share(value: float | None, *, signed: bool = False) -> str:
    return ABSENT if value is None else f"{value:+.1%}" if signed else f"{value:.1%}"
