"""Two runs of the same trace, job by job: when and where each ran, how far apart that is, and tables of it.

Source: thesis section 7.5.5 and Table 7.8, which does this for the first jobs of a simulated and a physical
run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
import polars as pl
from rich.table import Table
from rich.text import Text

from analysis.metrics import LEAST_JOBS, pace_of, stretches, with_derived
from analysis.quantiles import quantile
from analysis.tables import ABSENT, FRAME, column_width, fitting, run_table
from foundation.records import PLACEMENT_DTYPE, Run

MOVED = " > "
_DESCRIBED = ("kind", "nodes", "cores", "dedicated_s")
_MEASURED = ("submit_s", "start_s", "end_s", "state", "place", "run_s", "wait_s", "lives", "pace")


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """How far a quantity of one run is from that of the reference, over ``jobs`` jobs; null without any.

    Absolute values of the differences; ``bias`` is the median of the differences themselves.
    """

    jobs: int
    median: float | None
    p95: float | None
    max: float | None
    bias: float | None


class RunErrors(msgspec.Struct, frozen=True, kw_only=True):
    """A run against the reference.

    Parameters
    ----------
    label, reference
        The runs.
    jobs
        Jobs that both have.
    missing
        Jobs that only one of them has.
    compared
        Jobs that completed in both and ran at least as long as was asked for.
    start_s
        First starts, in seconds.
    wait_s
        Waits, in seconds, all of a job together.
    run_time
        Times on cores, all attempts of a job together, as a share of the reference's.
    run_time_at_pace
        The same at the host's pace: both times divided by the job's pace in that run. Only the number of jobs
        is known unless five jobs, and half of those compared, have a pace: fewer say nothing of the run.
    same_place
        Share of the jobs with known places in both that held the same nodes and cores, one after the other.
    same_nodes
        The same for nodes alone.
    alike, same_place_alike
        Jobs that found the same jobs running at the same places in both when they first started, and
        ``same_place`` of these: what the placement has of it, whatever run times and order did.
    """

    label: str
    reference: str
    jobs: int
    missing: int
    compared: int
    start_s: Errors
    wait_s: Errors
    run_time: Errors
    run_time_at_pace: Errors
    same_place: float | None
    same_nodes: float | None
    alike: int
    same_place_alike: float | None


def places(run: Run) -> pl.DataFrame:
    """Return ``trace_job``, ``place`` and ``at_nodes``.

    A place is such as ``0(0-1) 3(0-11)``: nodes by their place in the system, with core ids; ``MOVED`` is
    between the places of a job that was resized or began again.
    """
    return _places(run, stretches(run.jobs, run.allocations))


def _places(run: Run, held: pl.DataFrame) -> pl.DataFrame:
    names = _node_names(run, held)
    numbers = pl.DataFrame(
        {"node": names, "number": range(len(names))}, {"node": pl.String, "number": pl.Int64}
    )
    stops = (
        held.select("row", "placement")
        .with_row_index("stretch")
        .explode("placement", empty_as_null=True)
        .cast({"placement": PLACEMENT_DTYPE.inner})
        .unnest("placement")
        .join(numbers, on="node", how="left")
        .sort("stretch", "number")
        .with_columns(place=pl.format("{}({})", "number", "cores"), at_nodes=pl.col("number").cast(pl.String))
    )
    for keys, between in ((("row", "stretch"), " "), (("row",), MOVED)):
        joined = pl.col("place", "at_nodes").str.join(between, ignore_nulls=False)
        stops = stops.group_by(keys, maintain_order=True).agg(joined)
    known = run.jobs.select("trace_job").with_row_index("row")
    return known.join(stops, on="row", how="left", maintain_order="left").drop("row")


def _node_names(run: Run, held: pl.DataFrame) -> list[str]:
    """Return the nodes in the system's order; without a record of it, in the order that people count."""
    if run.info.node_names is not None:
        return list(run.info.node_names)
    places = held.get_column("placement").cast(PLACEMENT_DTYPE).drop_nulls()
    used = places.explode(empty_as_null=True).struct.field("node").drop_nulls().unique().to_list()
    return sorted(
        used, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
    )


def pair(reference: Run, other: Run) -> pl.DataFrame:
    """Return one row for each job of either run, by job number.

    The columns ``submit_s``, ``start_s`` (of its first life), ``end_s``, ``run_s`` (on cores, all attempts,
    ``lives`` of them, together), ``wait_s`` (all waits), ``state`` and ``place`` are the reference's, with
    ``_other`` those of the other run. ``same_place`` and ``same_nodes`` are null where a place is not known;
    ``alike`` is null where a job did not start, and says whether both runs had the same jobs at the same
    places when it did. ``start_error_s``,
    ``wait_error_s`` and ``run_error`` (a share) are the other run's minus the reference's; in
    ``run_error_at_pace`` each time is divided by the job's ``pace`` (``host_use.pace_of``).
    """
    left, right = _measured(reference), _measured(other)
    run_s, run_other_s = pl.col("run_s"), pl.col("run_s_other")
    drift = pl.col("pace") / pl.col("pace_other")
    return (
        left.join(right, on="trace_job", how="full", suffix="_other", coalesce=True)
        .with_columns(pl.coalesce(name, f"{name}_other").alias(name) for name in _DESCRIBED)
        .with_columns(
            same_place=pl.col("place") == pl.col("place_other"),
            same_nodes=pl.col("at_nodes") == pl.col("at_nodes_other"),
            alike=pl.col("found") == pl.col("found_other"),
            start_error_s=pl.col("start_s_other") - pl.col("start_s"),
            wait_error_s=pl.col("wait_s_other") - pl.col("wait_s"),
            run_error=pl.when(run_s > 0).then(run_other_s / run_s - 1),
            run_error_at_pace=pl.when(run_s > 0).then(run_other_s * drift / run_s - 1),
        )
        .drop(*(f"{name}_other" for name in _DESCRIBED), "at_nodes", "at_nodes_other", "found", "found_other")
        .sort("trace_job")
    )


def _measured(run: Run) -> pl.DataFrame:
    held = stretches(run.jobs, run.allocations)
    jobs = with_derived(run.jobs, held=held).with_columns(pace_of(run), start_s=pl.col("first_start_s"))
    at = jobs.join(_places(run, held), on="trace_job", how="left", maintain_order="left")
    return at.with_columns(found=_found(at)).select("trace_job", *_DESCRIBED, *_MEASURED, "at_nodes", "found")


def _found(jobs: pl.DataFrame) -> pl.Series:
    """Return a number for the jobs and places that each job found when it started; null if it never did.

    Ends come before starts at one instant. A job that moved or began again counts with all of its places.
    """
    code = jobs.select(pl.struct("trace_job", "place").hash()).to_series()
    changes = pl.concat(
        [
            pl.DataFrame({"at_s": jobs[column], "starts": starts, "row": range(jobs.height), "code": code})
            for column, starts in (("start_s", True), ("end_s", False))
        ]
    ).filter(pl.col("at_s").is_not_null() & pl.Series([*jobs["start_s"].is_not_null()] * 2))
    changes = changes.sort("at_s", "starts", "row")
    running = np.bitwise_xor.accumulate(changes["code"].to_numpy()) if changes.height else np.array([])
    before = changes.with_columns(found=pl.Series(running, dtype=pl.UInt64) ^ pl.col("code"))
    first = before.filter("starts").select("row", "found")
    rows = pl.DataFrame({"row": range(jobs.height)}, {"row": pl.Int64})
    return rows.join(first, on="row", how="left", maintain_order="left")["found"]


def run_errors(reference: Run, other: Run, least_run_s: float = 0.0) -> RunErrors:
    """Measure how far ``other`` is from ``reference``.

    Parameters
    ----------
    reference, other
        Runs of the same trace.
    least_run_s
        Jobs that ran shorter in the reference do not count in the errors (they do for the places).
    """
    paired = pair(reference, other)
    both = paired.filter(pl.col("state").is_not_null() & pl.col("state_other").is_not_null())
    completed = (pl.col("state") == "COMPLETED") & (pl.col("state_other") == "COMPLETED")
    alike = both.filter(pl.col("alike").fill_null(value=False))
    compared = both.filter(completed & (pl.col("run_s") >= least_run_s))
    return RunErrors(
        label=other.info.label,
        reference=reference.info.label,
        jobs=both.height,
        missing=paired.height - both.height,
        compared=compared.height,
        start_s=_errors(compared["start_error_s"]),
        wait_s=_errors(compared["wait_error_s"]),
        run_time=_errors(compared["run_error"]),
        run_time_at_pace=_of_enough(_errors(compared["run_error_at_pace"]), compared.height),
        same_place=_share_of_true(both["same_place"]),
        same_nodes=_share_of_true(both["same_nodes"]),
        alike=alike["same_place"].drop_nulls().len(),
        same_place_alike=_share_of_true(alike["same_place"]),
    )


def _errors(differences: pl.Series) -> Errors:
    known = differences.drop_nulls()
    sizes = known.abs()
    return Errors(
        jobs=known.len(),
        median=quantile(sizes, 0.5),
        p95=quantile(sizes, 0.95),
        max=quantile(sizes, 1.0),
        bias=quantile(known, 0.5),
    )


def _of_enough(errors: Errors, compared: int) -> Errors:
    """Leave out the figures where too few of the compared jobs are in them."""
    if errors.jobs >= max(LEAST_JOBS, compared / 2):
        return errors
    return Errors(jobs=errors.jobs, median=None, p95=None, max=None, bias=None)


def _share_of_true(flags: pl.Series) -> float | None:
    mean = flags.drop_nulls().mean()
    return float(mean) if isinstance(mean, int | float) else None


_MOST_STOPS = 3
_ERROR_CELLS: tuple[tuple[str, Callable[[RunErrors], str]], ...] = (
    ("jobs in both", lambda one: f"{one.jobs:,}"),
    ("compared", lambda one: f"{one.compared:,}"),
    ("start error, median [s]", lambda one: _seconds(one.start_s.median)),
    ("p95 [s]", lambda one: _seconds(one.start_s.p95)),
    ("run-time error, median", lambda one: _share(one.run_time.median)),
    ("p95", lambda one: _share(one.run_time.p95)),
    ("bias", lambda one: _share(one.run_time.bias, signed=True)),
    ("at the host's pace, median", lambda one: _share(one.run_time_at_pace.median)),
    ("p95", lambda one: _share(one.run_time_at_pace.p95)),
    ("bias", lambda one: _share(one.run_time_at_pace.bias, signed=True)),
    ("same place", lambda one: _share(one.same_place)),
    ("same nodes", lambda one: _share(one.same_nodes)),
    ("jobs that found the same jobs", lambda one: f"{one.alike:,}"),
    ("same place, of these", lambda one: _share(one.same_place_alike)),
)
ERROR_COLUMNS = tuple(name for name, _ in _ERROR_CELLS)
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
    return [[cell(one) for _, cell in _ERROR_CELLS] for one in errors]


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
