"""How much of the system was in use over time: one line a run, or a map of the nodes.

The map is the Gantt chart of a run that is too large for a bar a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import polars as pl

from analysis.charts.chart_style import Chart, arrange, run_style, safe, time_unit
from analysis.charts.distribution_curves import ChartedRun
from analysis.metrics import spans

HEAT_ROWS, HEAT_COLUMNS = 120, 300
Floats = npt.NDArray[np.float64]
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
