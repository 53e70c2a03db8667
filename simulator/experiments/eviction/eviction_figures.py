"""Tables and figures of the study: Figs. 5 to 8, and what the optimum loses."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.charts import arrange, run_style
from analysis.claims.estimate import figures
from simulator.experiments.eviction.eviction_survey import Setting, Survey
from simulator.experiments.eviction.scenarios import JOBS, NEEDS
from simulator.experiments.experiment_page import Drawing


def drawings(survey: Survey) -> list[Drawing]:
    """Return the figures of the page."""
    return [
        ("Figure 8: greedy's loss beyond the optimum, mean over the seeds", _lines(survey, "relative")),
        ("The optimum over the deadline, mean over the seeds", _lines(survey, "optimum")),
        ("Figures 5 to 7: time for all deadlines, mean over the seeds", _times(survey)),
    ]


def _lines(survey: Survey, what: str) -> go.Figure:
    titles = [f"K={need:,}" for need in NEEDS]
    figure = make_subplots(cols=len(NEEDS), subplot_titles=titles, horizontal_spacing=0.07)
    for column, need in enumerate(NEEDS, start=1):
        for scenario in range(len(JOBS)):
            losses = np.mean([getattr(one, what) for one in survey.settings[Setting(scenario, need)]], axis=0)
            line = go.Scatter(
                x=list(range(len(losses))),
                y=losses.tolist(),
                name=f"scenario {scenario + 1}",
                mode="lines+markers",
                line=run_style(scenario),
                showlegend=column == 1,
            )
            figure.add_trace(line, row=1, col=column)
    arrange(figure, 380, margin={"l": 64, "r": 24, "t": 76, "b": 52})
    figure.update_layout(legend={"y": 1.12})
    figure.update_xaxes(title="deadline [min]")
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="loss [node-hours]", col=1)
    return figure


def _times(survey: Survey) -> go.Figure:
    pairs = list(zip(range(len(JOBS)), NEEDS, strict=True))
    titles = [f"scenario {scenario + 1}, K={need:,}" for scenario, need in pairs]
    figure = make_subplots(cols=len(pairs), subplot_titles=titles, horizontal_spacing=0.07)
    for column, (scenario, need) in enumerate(pairs, start=1):
        measured = survey.settings[Setting(scenario, need)]
        for number, (name, attribute) in enumerate(
            (("programme", "table_s"), ("greedy", "greedy_s"), ("backtracking", "backtracking_s"))
        ):
            value_us = 1e6 * float(np.mean([getattr(one, attribute) for one in measured]))
            cut = name == "backtracking" and not all(one.ended for one in measured)
            bar = go.Bar(
                x=[name],
                y=[value_us],
                marker={"color": run_style(number)["color"]},
                text=[f"\N{GREATER-THAN OR EQUAL TO} {figures(value_us)}" if cut else figures(value_us)],
                textposition="outside",
                cliponaxis=False,
                showlegend=False,
            )
            figure.add_trace(bar, row=1, col=column)
    arrange(figure, 380, margin={"l": 64, "r": 24, "t": 60, "b": 52})
    figure.update_yaxes(type="log", dtick=1, exponentformat="power", range=[-1, 8])
    figure.update_yaxes(title="time [\N{MICRO SIGN}s]", col=1)
    return figure
