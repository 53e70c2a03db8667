"""Charts with a line for each run: completion, waiting times, slowdown, use of the system; and the load map.

The map is the Gantt chart of a run that is too large for a bar a job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from analysis.charts.chart_style import KIND_NAMES, MUTED, Chart, arrange, run_style, safe, time_unit
from analysis.metrics import MetricOptions, completion_by_cpu_time, completion_by_jobs, origin_s, spans

POINTS = 1_000
DOTS = 1_500
WAIT_FLOOR_S = 0.1
RATIO_FLOOR = 0.01
"""Least slowdown that is drawn: a job that failed at once has one of nearly zero, which no logarithm has."""
FAR = 1e9
"""Where curves that have reached 100% go on to, beyond every axis."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ChartedRun:
    """A run as the charts need it.

    Parameters
    ----------
    label
        Its name.
    jobs
        Its jobs with their derived columns.
    number
        Its place among the runs, which decides its colour.
    simulated
        Whether it was simulated; its lines are dotted then.
    """

    label: str
    jobs: pl.DataFrame
    number: int
    simulated: bool


def completion_chart(runs: Sequence[ChartedRun]) -> Chart:
    """Draw what share of the jobs, and of their CPU time, was done at what time (thesis, Figure 7.6)."""
    unit = time_unit(_largest(runs, "end_s"))
    figure = make_subplots(
        cols=2,
        shared_yaxes=True,
        subplot_titles=("by number of jobs", "by CPU time"),
        horizontal_spacing=0.04,
    )
    for run in runs:
        origin = origin_s(run.jobs)
        for column, done in enumerate(
            (completion_by_jobs(run.jobs, origin), completion_by_cpu_time(run.jobs, origin)), start=1
        ):
            thin = done.thinned(POINTS)
            time = np.concatenate(([0.0], thin.time_s / unit.seconds))
            _add_steps(figure, run, time, np.concatenate(([0.0], 100 * thin.share)), 1, column)
    _finish(figure, 400, "share done [%]")
    figure.update_xaxes(title=unit.title, rangemode="tozero")
    for percent in (90, 95):
        figure.add_hline(y=percent, line={"color": MUTED, "width": 1, "dash": "dot"})
    return Chart(figure, "A job counts when it ends. The dotted lines are at 90% and 95%." + _thinned(runs))


def wait_chart(runs: Sequence[ChartedRun], options: MetricOptions) -> Chart:
    """Draw the distribution of waiting times by kind of job."""
    kinds = _kinds(runs)
    figure = make_subplots(
        cols=len(kinds),
        shared_yaxes=True,
        subplot_titles=[f"{KIND_NAMES[kind]} jobs" for kind in kinds],
        horizontal_spacing=0.04,
    )
    for run in runs:
        for column, kind in enumerate(kinds, start=1):
            waits = _values(run.jobs.filter(pl.col("kind") == kind), "wait_s")
            _add_distribution(figure, run, np.maximum(waits, WAIT_FLOOR_S), 1, column)
    _finish(figure, 380, "share of the jobs [%]")
    longest = max(_largest(runs, "wait_s"), 10 * WAIT_FLOOR_S)
    figure.update_xaxes(title="wait [s]", **scale(WAIT_FLOOR_S, longest))
    figure.add_vline(x=options.wait_threshold_s, line={"color": MUTED, "width": 1, "dash": "dot"})
    return Chart(
        figure,
        f"How many jobs waited no longer than so many seconds. Waits under {WAIT_FLOOR_S:g} s are drawn at"
        f" {WAIT_FLOOR_S:g} s; the dotted line is at {options.wait_threshold_s:g} s." + _thinned(runs),
    )


def wait_over_time_chart(runs: Sequence[ChartedRun]) -> Chart:
    """Draw each job's wait at the time of its submission: when the queue was long, and for whom."""
    figure = go.Figure()
    sampled = False
    unit = time_unit(_largest(runs, "submit_s"))
    for run in runs:
        known = run.jobs.drop_nulls(["wait_s", "submit_s"]).sort("submit_s")
        if known.height > DOTS:
            sampled = True
            # The longest waits matter most, so half of the dots show them.
            longest = known.top_k(DOTS // 2, by="wait_s")
            known = pl.concat([longest, known.gather_every(-(-known.height // (DOTS // 2)))]).unique(
                "trace_job"
            )
        figure.add_scatter(
            x=_digits(known.get_column("submit_s").to_numpy() / unit.seconds),
            y=_digits(known.get_column("wait_s").to_numpy()),
            mode="markers",
            marker={
                "color": run_style(run.number)["color"],
                "size": 6,
                "opacity": 0.65,
                "symbol": run.number % 8,
            },
            name=safe(run.label),
            customdata=known.get_column("trace_job").to_list(),
            hovertemplate="job %{customdata}: waited %{y:,.4~g} s<extra></extra>",
        )
    arrange(figure, 340)
    figure.update_xaxes(title=f"submission [{unit.symbol}]", rangemode="tozero")
    figure.update_yaxes(title="wait [s]", rangemode="tozero")
    caption = "A dot is a job: when it was submitted and how long it waited."
    if sampled:
        caption += f" Of runs with more than {DOTS:,} jobs: the {DOTS // 2:,} longest waits, and a sample."
    return Chart(figure, caption)


def slowdown_chart(runs: Sequence[ChartedRun]) -> Chart:
    """Draw the distributions of slowdown and degradation by kind (thesis, Figures 6.6c, 7.9 and 7.10)."""
    kinds = _kinds(runs)
    columns = (("slowdown_osub", "slowdown S_OSub"), ("degradation", "degradation"))
    titles = [f"{name}, {KIND_NAMES[kind]} jobs" for kind in kinds for _, name in columns]
    figure = make_subplots(
        rows=len(kinds),
        cols=2,
        shared_yaxes=True,
        subplot_titles=titles,
        horizontal_spacing=0.04,
        vertical_spacing=min(0.18, 0.34 / len(kinds)),
    )
    for run in runs:
        for row, kind in enumerate(kinds, start=1):
            some = run.jobs.filter(pl.col("kind") == kind)
            for column, (name, _) in enumerate(columns, start=1):
                ratios = np.maximum(_values(some, name), RATIO_FLOOR)
                _add_distribution(figure, run, ratios, row, column)
    _finish(figure, 90 + 290 * len(kinds), "share of the jobs [%]")
    for column, (name, title) in enumerate(columns, start=1):
        values = np.concatenate([_values(run.jobs, name) for run in runs])
        if len(values):
            low = max(float(values.min()), RATIO_FLOOR)
            figure.update_xaxes(**scale(low, max(float(values.max()), low)), col=column)
        figure.update_xaxes(title=title, row=len(kinds), col=column)
    return Chart(
        figure,
        "How many jobs had at most this value. S_OSub is (wait + run)/dedicated, degradation is"
        " run/dedicated, both of the run that counted; a job alone on its cores has a degradation of 1."
        + _thinned(runs),
    )


def _kinds(runs: Sequence[ChartedRun]) -> list[str]:
    present = {kind for run in runs for kind in run.jobs.get_column("kind").unique().to_list()}
    return [kind for kind in KIND_NAMES if kind in present] or ["batch"]


def _largest(runs: Sequence[ChartedRun], name: str) -> float:
    """Return the largest known value of a column in any run; 0 without any."""
    return max((float(values[-1]) for run in runs if len(values := _values(run.jobs, name))), default=0.0)


def _values(jobs: pl.DataFrame, name: str) -> Floats:
    return jobs.get_column(name).drop_nulls().sort().to_numpy()


def _add_distribution(figure: go.Figure, run: ChartedRun, values: Floats, row: int, column: int) -> None:
    """Draw the share of values that are at most x, with no more than ``POINTS`` points."""
    share = 100 * np.arange(1, len(values) + 1) / max(len(values), 1)
    if len(values) > POINTS:
        kept = np.unique(np.linspace(0, len(values) - 1, POINTS).astype(np.int64))
        values, share = values[kept], share[kept]
    if len(values):
        values, share = np.concatenate((values[:1], values)), np.concatenate(([0.0], share))
        values, share = np.append(values, max(values[-1], FAR)), np.append(share, 100.0)
    _add_steps(figure, run, values, share, row, column)


def _add_steps(figure: go.Figure, run: ChartedRun, x: Floats, y: Floats, row: int, column: int) -> None:
    figure.add_scatter(
        x=_digits(x),
        y=_digits(y),
        mode="lines",
        line={**run_style(run.number, simulated=run.simulated), "shape": "hv", "width": 2},
        name=safe(run.label),
        legendgroup=safe(run.label),
        showlegend=(row, column) == (1, 1),
        hovertemplate="%{x:,.4~g}: %{y:.1f}%",
        row=row,
        col=column,
    )


def _digits(values: Floats) -> list[float]:
    """Return values with the digits that a chart can show; it halves the size of the page."""
    return [float(f"{value:.5g}") for value in values]


def scale(low: float, high: float) -> dict[str, Any]:
    """Return an axis from ``low`` to ``high`` with round ticks: logarithmic, unless the range is narrow."""
    if high < 3 * low:
        space = 0.04 * (high - low) if high > 1.01 * low else 0.1 * abs(high) or 1.0
        return {"range": [low - space, high + space]}
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0) if high < 12 * low else (1.0, 2.0, 5.0)
    if high >= 1000 * low:
        steps = (1.0,)
    ticks = [float(f"{step * 10.0**decade:.6g}") for decade in decades for step in steps]
    space = 0.02 * math.log10(high / low)
    return {
        "type": "log",
        "tickvals": ticks,
        "ticktext": [f"{tick:,g}" if tick < 1e5 else f"{tick:.0e}" for tick in ticks],
        "range": [math.log10(low) - space, math.log10(high) + space],
    }


def _finish(figure: go.Figure, height_px: int, y_title: str) -> None:
    """Arrange panels; a panel's title keeps clear of the legend above all of them."""
    arrange(figure, height_px)
    figure.update_layout(legend={"y": 1 + 34 / (height_px - 92)}, margin={"t": 70})
    figure.update_annotations(font={"size": 13}, yshift=4)
    figure.update_yaxes(range=[0, 101])
    figure.update_yaxes(title={"text": y_title}, col=1)


def _thinned(runs: Sequence[ChartedRun]) -> str:
    if max(run.jobs.height for run in runs) <= POINTS:
        return ""
    return f" Curves of more than {POINTS:,} jobs are drawn with {POINTS:,} points."


HEAT_ROWS, HEAT_COLUMNS = 120, 300
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Use:
    """Mean shares of a system's cores, shape (HEAT_COLUMNS,) each: held by a job, and to some use."""

    held: Floats
    useful: Floats


def use_over_time(held: pl.DataFrame, cores: int, until_s: float) -> Use | None:
    """Return the use of a system in equal stretches of time; None if the run is too large for it.

    Parameters
    ----------
    held
        The jobs' allocation intervals (``metrics.stretches``).
    cores
        Cores of the system.
    until_s
        Right end of the time axis.
    """
    found = spans(held)
    if found is None:
        return None
    some = found.jobs > 0
    start, jobs = found.start_s[some], found.jobs[some]
    place = np.zeros(len(start), dtype=np.int64), start, start + found.lasting_s[some]
    shares = (np.ones(len(start)), found.useful[some] / jobs)
    return Use(*(mean_load(*place, weight, 1, until_s)[0] / cores for weight in shares))


def use_chart(runs: Sequence[tuple[ChartedRun, pl.DataFrame, int]], last_s: float) -> Chart | None:
    """Draw the share of the cores in use over time; None if no run has one.

    Parameters
    ----------
    runs
        Each with what its jobs held and how many cores it has.
    last_s
        Right end of the time axis.
    """
    figure = go.Figure()
    unit = time_unit(last_s)
    time = (np.arange(HEAT_COLUMNS) * last_s / HEAT_COLUMNS / unit.seconds).tolist()
    is_wasteful = False
    for run, held, cores in runs:
        use = use_over_time(held, cores, last_s)
        if use is None or not use.held.any():
            continue
        lines = [(use.held, run.label, 2.0, 1.0)]
        if not np.allclose(use.held, use.useful):
            is_wasteful = True
            lines.append((use.useful, f"{run.label}, useful", 1.2, 0.55))
        for values, name, width, opacity in lines:
            figure.add_scatter(
                x=time,
                y=np.round(100 * values, 2).tolist(),
                mode="lines",
                line={**run_style(run.number, simulated=run.simulated), "shape": "hv", "width": width},
                opacity=opacity,
                name=safe(name),
                hovertemplate=f"%{{x:,.4~g}} {unit.symbol}: %{{y:.1f}}%",
            )
    if not figure.data:
        return None
    arrange(figure, 320, showlegend=True)
    figure.update_xaxes(title=unit.title, range=[0, last_s / unit.seconds])
    figure.update_yaxes(title="cores in use [%]", range=[0, 102])
    thin = " The thin line leaves out lost work and repeated set-up." if is_wasteful else ""
    return Chart(
        figure,
        f"The share of the cores that at least one job held, in stretches of"
        f" {last_s / HEAT_COLUMNS / unit.seconds:,.3g} {unit.symbol}.{thin}",
    )


def load_map(
    counted: pl.DataFrame, names: Sequence[str], cores: int, most: int, last_s: float | None, most_px: int
) -> Chart:
    """Draw the mean number of jobs on a core, by group of nodes and stretch of time.

    Parameters
    ----------
    counted
        ``start_s``, ``end_s``, ``node`` and ``core`` (a list of ids) of every job on every node.
    names
        The nodes in order.
    cores
        Cores of each node.
    most
        Jobs a core at the upper end of the colours.
    last_s
        Right end of the time axis; None for the last end.
    most_px
        Greatest height.
    """
    start = counted.get_column("start_s").to_numpy()
    end = counted.get_column("end_s").to_numpy()
    weight = counted.get_column("core").list.len().to_numpy().astype(float)
    order = pl.DataFrame({"node": names, "number": np.arange(len(names))})
    node = (
        counted.select("node").join(order, on="node", how="left", maintain_order="left").get_column("number")
    )
    group_size = -(-len(names) // HEAT_ROWS)
    groups = -(-len(names) // group_size)
    until = last_s or float(end.max())
    load = mean_load(node.to_numpy() // group_size, start, end, weight, groups, until)
    members = np.bincount(np.arange(len(names)) // group_size, minlength=groups)
    mean = load / (members[:, None] * cores)
    width, unit = until / HEAT_COLUMNS, time_unit(until)
    firsts = [names[group * group_size] for group in range(groups)]
    lasts = [names[min((group + 1) * group_size, len(names)) - 1] for group in range(groups)]
    labels = [safe(a if a == b else f"{a} to {b}") for a, b in zip(firsts, lasts, strict=True)]
    figure = go.Figure(
        go.Heatmap(
            z=np.round(mean, 3),
            x0=width / unit.seconds / 2,
            dx=width / unit.seconds,
            y0=0.5,
            dy=1,
            colorscale=[
                [0, "#F7F9FA"],
                [0.002, "#DCE9F3"],
                [0.2, "#9CC3E3"],
                [0.5, "#4C8DC6"],
                [1, "#0B3C66"],
            ],
            zmin=0,
            zmax=most,
            colorbar={"title": {"text": "jobs a core", "font": {"size": 12}}, "thickness": 14},
            customdata=np.repeat(np.array(labels)[:, None], HEAT_COLUMNS, axis=1),
            hovertemplate=f"%{{customdata}}<br>%{{x:,.4~g}} {unit.symbol}: %{{z}} jobs a core<extra></extra>",
        )
    )
    arrange(figure, int(min(max(160 + groups * 14, 280), 640, most_px)))
    step = -(-groups // 25)
    figure.update_yaxes(
        tickvals=[group + 0.5 for group in range(0, groups, step)],
        ticktext=[safe(firsts[group]) for group in range(0, groups, step)],
        range=[groups, 0],
        showgrid=False,
    )
    figure.update_xaxes(title=unit.title, range=[0, until / unit.seconds])
    rows = f"{group_size} nodes a row" if group_size > 1 else "a row for each node"
    return Chart(
        figure,
        f"This run is too large to draw each job: the colour is the mean number of jobs on a core,"
        f" with {rows} and {width / unit.seconds:,.4g} {unit.symbol} a column.",
    )


def mean_load(group: Ints, start: Floats, end: Floats, weight: Floats, groups: int, until: float) -> Floats:
    """Return the mean sum of weights in each (group, column), shape (groups, HEAT_COLUMNS).

    Each entry adds its weight to the columns that it covers, partly at its two ends. The integral of its
    load up to a time t is piecewise linear in t, so it is enough to add up where it bends.
    """
    width = until / HEAT_COLUMNS
    change = np.zeros((groups, HEAT_COLUMNS + 2))
    for instants, sign in ((start, 1.0), (end, -1.0)):
        position = np.clip(instants / width, 0, HEAT_COLUMNS)
        column = np.minimum(position.astype(int), HEAT_COLUMNS - 1)
        rest = position - column
        np.add.at(change, (group, column), sign * weight * (1 - rest))
        np.add.at(change, (group, column + 1), sign * weight * rest)
    return np.cumsum(change, axis=1)[:, :HEAT_COLUMNS]
