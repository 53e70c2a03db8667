"""How much of the system was in use over time, and to what effect: one line a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
import polars as pl

from analysis.charts.chart_style import Chart, arrange, run_style, safe, time_unit
from analysis.charts.distribution_curves import Measured
from analysis.charts.load_map import HEAT_COLUMNS, Floats, mean_load
from analysis.metrics import spans


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
        What the jobs held (``lives.stretches``).
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


def use_chart(runs: Sequence[tuple[Measured, pl.DataFrame, int]], last_s: float) -> Chart | None:
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
