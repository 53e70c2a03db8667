"""Charts of distributions: completion over time, waiting times, slowdown and degradation, one line a run."""

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
from analysis.metrics import MetricOptions, completion_by_cpu_time, completion_by_jobs, origin_s

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
