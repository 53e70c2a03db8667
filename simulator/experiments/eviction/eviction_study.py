"""CoSim's study, from the request to the findings: tables, and Figs. 5 to 8 again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.charts import arrange, run_style
from analysis.claims import ClaimVerdict, direction, estimate, figures
from foundation.units import counted
from simulator.experiment_page import Drawing, ExperimentTable
from simulator.experiments.claim_study import StudyFindings, StudyRequest
from simulator.experiments.eviction.eviction_claims import claim_rows
from simulator.experiments.eviction.eviction_survey import (
    QUICK,
    SETTINGS,
    WHOLE,
    EvictionSetting,
    EvictionSurvey,
    MeasuredEviction,
    steps_of,
    survey,
)
from simulator.experiments.eviction.scenarios import JOBS, NEEDS, Theta, facts_of
from workloads.swf import load_columns

_SHOWN_MIN = (0, 5, 10, 15)


def examine(request: StudyRequest) -> StudyFindings:
    """Run the study and judge every claim."""
    theta = Theta(load_columns(request.traces[0])) if request.traces else None
    effort = QUICK if request.quick else WHOLE
    found = survey(theta, request.seeds, effort, request.steps(steps_of(request.seeds)))
    source = (
        "no trace: the jobs of all scenarios are generated"
        if theta is None
        else f"{theta.name}: scenarios 1 and 2 are instants of it, scenario 3 is generated from its sizes"
    )
    facts = [
        f"Eviction of K of about 4,352 nodes within 0 to 15 minutes; {source}.",
        (
            f"Memory, times and instants are drawn anew for each of the {counted(request.seeds, 'seed')}; "
            f"B_a = 250 GB/s, B_c = 1 GB/s. Backtracking has {effort.limit_s:g} s a question, "
            f"{effort.hardest_s:g} s for the first of the hardest."
        ),
    ]

    return StudyFindings(
        title="CoSim again: eviction for an on-demand job",
        facts=facts,
        claims=claim_rows(found, None if theta is None else facts_of(theta)),
        tables=tables(found),
        figures=lambda: drawings(found),
    )


def tables(survey: EvictionSurvey) -> list[ExperimentTable]:
    """Return what is lost, how long it takes, and what the bandwidth of a node does."""
    return [_losses(survey), _times(survey), _bandwidths(survey), _slopes(survey)]


def _losses(survey: EvictionSurvey) -> ExperimentTable:
    rows = [
        (str(setting), *(_three(survey.settings[setting], at) for at in _SHOWN_MIN)) for setting in SETTINGS
    ]
    return ExperimentTable(
        name="Loss",
        title="optimum / greedy / greedy that skips, node-hours, mean over the seeds",
        columns=("setting", *(f"{at} min" for at in _SHOWN_MIN)),
        rows=rows,
        notes=("Greedy that skips passes over a job whose checkpoint does not fit, and tries the next.",),
    )


def _three(measured: Sequence[MeasuredEviction], at: int) -> str:
    losses = (
        _mean(measured, lambda one: one.optimum[at]),
        _mean(measured, lambda one: one.greedy[at]),
        _mean(measured, lambda one: one.skipping[at]),
    )
    return " / ".join(map(figures, losses))


def _times(survey: EvictionSurvey) -> ExperimentTable:
    rows = []
    for setting in SETTINGS:
        of = survey.settings[setting]
        ended = sum(one.ended for one in of)
        rows.append(
            (
                str(setting),
                figures(1e3 * _mean(of, lambda one: one.table_s)),
                figures(1e3 * _mean(of, lambda one: one.printed_s)),
                figures(1e3 * _mean(of, lambda one: one.whole_s)),
                figures(1e3 * _mean(of, lambda one: one.greedy_s)),
                figures(1e3 * _mean(of, lambda one: one.backtracking_s)),
                f"{ended} of {len(of)}",
            )
        )
    return ExperimentTable(
        name="Time",
        title="ms for all deadlines, mean over the seeds",
        columns=(
            "setting",
            "programme",
            "as printed",
            "whole answer",
            "greedy",
            "backtracking",
            "which ended",
        ),
        rows=rows,
        notes=(
            "As printed: the table for all nodes, one by one, as Algorithm 1 has it.",
            "Whole answer: with choices, in Python.",
        ),
    )


def _bandwidths(survey: EvictionSurvey) -> ExperimentTable:
    rows = []
    for width, pairs in survey.bandwidths.items():
        name = "unlimited" if width is None else f"{width:g} GB/s"
        best, more = ([pair[place] for pair in pairs] for place in (0, 1))
        rows.append((name, estimate(best).text(), estimate(more).text()))
    return ExperimentTable(
        name="Bandwidth of a node",
        title="node-hours at 15 min, mean over the nine settings",
        columns=("B_c", "optimum", "greedy beyond it"),
        rows=rows,
    )


def _slopes(survey: EvictionSurvey) -> ExperimentTable:
    rows = []
    for width, of in survey.slopes.items():
        verdicts = [direction(slopes).verdict for slopes in of.values()]
        means = [estimate(slopes).mean for slopes in of.values()]
        rows.append(
            (
                f"{width:g} GB/s",
                f"{figures(min(means))} to {figures(max(means))}",
                *(
                    str(verdicts.count(verdict))
                    for verdict in (ClaimVerdict.HOLDS, ClaimVerdict.TIE, ClaimVerdict.FAILS)
                ),
            )
        )
    return ExperimentTable(
        name="Bandwidth of the file system",
        title="by how much greedy's relative loss rises a minute, node-hours; in how many settings it rises",
        columns=("B_a", "means", "rises", "not clear", "falls"),
        rows=rows,
    )


def _mean(measured: Sequence[MeasuredEviction], value: Callable[[MeasuredEviction], float]) -> float:
    return estimate([value(one) for one in measured]).mean


def drawings(survey: EvictionSurvey) -> list[Drawing]:
    """Return the figures of the page."""
    return [
        ("Figure 8: greedy's loss beyond the optimum, mean over the seeds", _lines(survey, "relative")),
        ("The optimum over the deadline, mean over the seeds", _lines(survey, "optimum")),
        ("Figures 5 to 7: time for all deadlines, mean over the seeds", _times_figure(survey)),
    ]


def _lines(survey: EvictionSurvey, what: str) -> go.Figure:
    titles = [f"K={need:,}" for need in NEEDS]
    figure = make_subplots(cols=len(NEEDS), subplot_titles=titles, horizontal_spacing=0.07)
    for column, need in enumerate(NEEDS, start=1):
        for scenario in range(len(JOBS)):
            losses = np.mean(
                [getattr(one, what) for one in survey.settings[EvictionSetting(scenario, need)]], axis=0
            )
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


def _times_figure(survey: EvictionSurvey) -> go.Figure:
    pairs = list(zip(range(len(JOBS)), NEEDS, strict=True))
    titles = [f"scenario {scenario + 1}, K={need:,}" for scenario, need in pairs]
    figure = make_subplots(cols=len(pairs), subplot_titles=titles, horizontal_spacing=0.07)
    for column, (scenario, need) in enumerate(pairs, start=1):
        measured = survey.settings[EvictionSetting(scenario, need)]
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
