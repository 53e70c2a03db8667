"""Figures 6 to 9 again: every measure over the share of malleable jobs, a bar a strategy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.charts import MUTED, arrange, run_style
from analysis.quantiles import quantiles
from simulator.experiments.experiment_page import Drawing
from simulator.experiments.malleable.malleable_judging import NAMES, OPERATIONS, RIGID_SHARE
from simulator.experiments.malleable.malleable_survey import SHARES, STRATEGIES, Outcomes
from simulator.experiments.malleable.malleable_tables import FIGURES

PANELS = (
    ("turnaround_s", "turnaround [s]"),
    ("run_s", "run [s]"),
    ("wait_s", "wait [s]"),
    ("utilisation", "utilisation [%]"),
    ("expansions", "expansions a job"),
    ("shrinks", "shrinks a job"),
)
_COLUMNS = 3


def drawings(found: Mapping[str, Outcomes]) -> list[Drawing]:
    """Return a figure for each window; error bars are quartiles over the seeds, the dashed line is EASY."""
    return [
        (f"{FIGURES.get(system, system)}: {one.window.name}", _panels(one)) for system, one in found.items()
    ]


def _panels(found: Outcomes) -> go.Figure:
    rows = -(-len(PANELS) // _COLUMNS)
    figure = make_subplots(rows=rows, cols=_COLUMNS, subplot_titles=[title for _, title in PANELS])
    for place, (metric, _) in enumerate(PANELS):
        where = {"row": place // _COLUMNS + 1, "col": place % _COLUMNS + 1}
        for number, policy in enumerate(STRATEGIES):
            _add_strategy(figure, found, metric, policy, run_style(number)["color"], where)
        if metric not in OPERATIONS:
            rigid = _scale(metric) * found.values(metric, STRATEGIES[0], RIGID_SHARE)[0]
            figure.add_hline(rigid, line={"color": MUTED, "dash": "dash", "width": 1}, **where)
    figure.add_scatter(
        x=[None], y=[None], name="EASY", mode="lines", line={"color": MUTED, "dash": "dash", "width": 1}
    )
    arrange(figure, 620, margin={"l": 64, "r": 24, "t": 80, "b": 52})
    figure.update_layout(legend={"y": 1.08}, barmode="group", bargap=0.25)
    figure.update_xaxes(type="category")
    figure.update_xaxes(title="malleable jobs [%]", row=rows)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _add_strategy(
    figure: go.Figure, found: Outcomes, metric: str, policy: str, colour: object, where: dict[str, int]
) -> None:
    """Add the bars of a strategy, one a share, with the quartiles over the seeds."""
    values = [np.multiply(found.values(metric, policy, share), _scale(metric)) for share in SHARES]
    means = np.array([of.mean() for of in values])
    low, high = np.array([quantiles(of, (0.25, 0.75)) for of in values]).T
    figure.add_bar(
        x=[str(share) for share in SHARES],
        y=means,
        name=NAMES[policy],
        legendgroup=policy,
        showlegend=where == {"row": 1, "col": 1},
        marker={"color": colour},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": np.maximum(0.0, high - means),
            "arrayminus": np.maximum(0.0, means - low),
            "thickness": 1,
            "width": 2,
        },
        **where,
    )


def _scale(metric: str) -> float:
    return 100.0 if metric == "utilisation" else 1.0
