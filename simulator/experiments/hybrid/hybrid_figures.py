"""Figures of the study: bars with intervals, intervals of checkpoints, decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.charts import arrange, run_style
from analysis.claims import estimate
from analysis.quantiles import quantiles
from simulator.experiments.experiment_page import Drawing
from simulator.experiments.hybrid.hybrid_measures import Measured
from simulator.experiments.hybrid.hybrid_survey import EVEN, MECHANISMS, OVERHEAD, Survey
from simulator.hybrid.drawn_jobs import MIXES

_KINDS: tuple[tuple[str, Callable[[Measured], float]], ...] = (
    ("rigid", lambda one: one.rigid),
    ("malleable", lambda one: one.malleable),
    ("on demand", lambda one: one.on_demand),
)


def drawings(survey: Survey) -> list[Drawing]:
    """Return the figures of the page."""
    return [
        ("Turnaround by kind, with 95% intervals over the seeds", _turnaround(survey)),
        ("Turnaround by mix of notices, with 95% intervals", _mixes(survey)),
        ("Figure 7: rigid turnaround over the interval between checkpoints", _intervals(survey)),
        ("Time of one event with its pass", _decisions(survey)),
    ]


def _bars(
    figure: go.Figure, names: Sequence[str], lists: Mapping[str, Sequence[float]], told: str, number: int
) -> None:
    found = [estimate(lists[name]) for name in names]
    half = [0.0 if one.high is None else one.high - one.mean for one in found]
    bar = go.Bar(
        x=list(names),
        y=[one.mean for one in found],
        error_y={"type": "data", "array": half},
        name=told,
        marker={"color": run_style(number)["color"]},
    )
    figure.add_trace(bar)


def _turnaround(survey: Survey) -> go.Figure:
    weights = [key for key in survey.shared if key[1] == OVERHEAD]
    runs = {"FCFS/EASY": survey.base, **{name: survey.runs[name, EVEN] for name in MECHANISMS}}
    runs |= {f"sharing {weight}:1": survey.shared[weight, overhead] for weight, overhead in weights}
    figure = go.Figure()
    for number, (told, value) in enumerate(_KINDS):
        lists = {name: [value(one) for one in of] for name, of in runs.items()}
        _bars(figure, list(runs), lists, told, number)
    arrange(figure, 420)
    figure.update_yaxes(title="mean turnaround [h]", rangemode="tozero")
    return figure


def _mixes(survey: Survey) -> go.Figure:
    figure = go.Figure()
    for number, mix in enumerate(MIXES):
        lists = {name: [one.turnaround for one in survey.runs[name, mix]] for name in MECHANISMS}
        _bars(figure, list(MECHANISMS), lists, mix, number)
    arrange(figure, 420)
    figure.update_yaxes(title="mean turnaround [h]", rangemode="tozero")
    return figure


def _intervals(survey: Survey) -> go.Figure:
    percents = sorted({100, *(percent for _, percent in survey.intervals)})
    figure = go.Figure()
    for number, name in enumerate(MECHANISMS):
        means = [
            float(
                np.mean(
                    [
                        one.rigid
                        for one in (
                            survey.runs[name, EVEN] if percent == 100 else survey.intervals[name, percent]
                        )
                    ]
                )
            )
            for percent in percents
        ]
        figure.add_trace(
            go.Scatter(x=percents, y=means, name=name, mode="lines+markers", line=run_style(number))
        )
    arrange(figure, 420)
    figure.update_xaxes(title="interval [% of Daly's]")
    figure.update_yaxes(title="mean turnaround of rigid jobs [h]")
    return figure


def _decisions(survey: Survey) -> go.Figure:
    figure = make_subplots()
    shares = np.linspace(0, 100, 201)
    for number, (name, of) in enumerate(survey.decisions_s.items()):
        line = go.Scatter(
            x=(1e6 * quantiles(of, shares / 100)).tolist(),
            y=shares.tolist(),
            name=name,
            line=run_style(number),
        )
        figure.add_trace(line)
    arrange(figure, 380)
    figure.update_xaxes(title="time [\N{MICRO SIGN}s]", type="log")
    figure.update_yaxes(title="share of the events [%]")
    return figure
