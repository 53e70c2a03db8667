"""The study of malleable jobs, from the request to the findings: tables, and figures 6 to 9 again.

The tables have every strategy at every share, ranges, and other settings of the model; the figures every
measure over the share of malleable jobs, a bar a strategy.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import fmean

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.charts import MUTED, arrange, run_style
from analysis.claims import estimate
from analysis.quantiles import quantiles
from foundation.units import US_PER_S, counted
from simulator.experiment_page import ABSENT, Drawing, ExperimentTable
from simulator.experiments.claim_study import StudyFindings, StudyRequest, WorldFigure
from simulator.experiments.job_windows import RECIPES, JobWindow, Recipe, made_window, trace_window
from simulator.experiments.malleable_claims import (
    ALL,
    NAMES,
    OPERATIONS,
    RIGID_SHARE,
    THETA,
    best,
    change_text,
    claim_rows,
    claims_on,
    value_text,
)
from simulator.experiments.malleable_survey import (
    RIGID,
    SHARES,
    STRATEGIES,
    MalleableCase,
    Outcomes,
    cases_of,
    run_cases,
)
from simulator.policies.policy_family import Value

DAYS = 28
QUICK_SHARE = 0.25
"""How much of a made window will do for a quick study."""

FIGURES = {"HASWELL": "Figure 6", "KNL": "Figure 7", "EAGLE": "Figure 8", "THETA": "Figure 9"}
COLUMNS = ("turnaround_s", "wait_s", "run_s", "utilisation", "expansions", "shrinks")

Options = tuple[tuple[str, Value], ...]
VARIANTS: dict[str, Options] = {
    "as above": (),
    "passes every 10 s": (("tick", 10.0),),
    "a resize costs 2 s and 0.25 s a node": (("cost", 2.0), ("cost_a_node", 0.25)),
    "nodes are taken only while one idles": (("shrink_needs_idle", "yes"),),
    "the head of the queue is not protected": (("protect_head", "no"),),
    "speed-up by Downey, sigma 1": (("conversion", "downey"),),
    "half to twice the request": (("conversion", "fractions"),),
}
"""Readings of the model that the paper leaves open."""
VARIANT_SEEDS = 3
_UNPROTECTED = MalleableCase(policy=STRATEGIES[0], options=VARIANTS["the head of the queue is not protected"])

PANELS = (
    ("turnaround_s", "turnaround [s]"),
    ("run_s", "run [s]"),
    ("wait_s", "wait [s]"),
    ("utilisation", "utilisation [%]"),
    ("expansions", "expansions a job"),
    ("shrinks", "shrinks a job"),
)
_COLUMNS = 3


def examine(request: StudyRequest) -> StudyFindings:
    """Run the study and judge every claim."""
    windows = _windows(request)
    cases = {system: cases_of(request.seeds) for system in windows}
    if THETA in cases and not request.quick:
        cases[THETA] += variant_cases(request.seeds)
    step = request.steps(sum(map(len, cases.values())))
    found = {
        system: Outcomes(window, run_cases(window, cases[system], step), request.seeds)
        for system, window in windows.items()
    }

    tables = [share_table(system, one) for system, one in found.items()]
    if THETA in found and not request.quick:
        tables.append(variant_table(THETA, found[THETA]))
    about = [window.about for window in windows.values()]
    return StudyFindings(
        title="Malleable strategies over EASY again",
        facts=[*learnt(found), f"Evidence: {about[0]}", *about[1:], *_facts(request)],
        claims=claim_rows(found),
        tables=tables,
        figures=lambda: drawings(found),
        world=[figure for recipe in RECIPES if recipe.name in found for figure in _world(recipe, found)],
    )


def learnt(found: Mapping[str, Outcomes]) -> list[str]:
    """Return what the best strategy makes of the mean turnaround in each window."""
    changes = "; ".join(
        f"{system}, {change_text(one, 'turnaround_s', best(one, 'turnaround_s'))}"
        for system, one in found.items()
    )
    return [f"The best strategy for all jobs changes the mean turnaround of rigid jobs so: {changes}."]


def _world(recipe: Recipe, outcomes: Mapping[str, Outcomes]) -> list[WorldFigure]:
    name, found = recipe.name, outcomes[recipe.name]
    jobs = found.window.workload
    used = fmean(found.values("utilisation", STRATEGIES[0], RIGID_SHARE))
    rows = [
        ("utilisation with rigid jobs", 100 * recipe.utilisation, 100 * used, "%"),
        ("nodes", recipe.nodes, found.window.system.nodes, ""),
    ]
    if recipe.mean_run_s is not None:
        rows.append(("mean run of rigid jobs", recipe.mean_run_s, float(jobs.run_us.mean()) / US_PER_S, "s"))
    for first, last, share in recipe.sizes:
        if first == last:
            rows.append(
                (
                    f"jobs of {counted(first, 'node')}",
                    100 * share,
                    100 * float((jobs.nodes == first).mean()),
                    "%",
                )
            )
    most_s, share = recipe.runs_s[-1]
    short = float((jobs.run_us <= most_s * US_PER_S).mean())
    rows.append((f"runs up to {most_s:,} s", 100 * share, 100 * short, "%"))
    claims = claims_on(name)
    return [WorldFigure(f"{name}: {row}", paper, ours, unit, claims) for row, paper, ours, unit in rows]


def _windows(request: StudyRequest) -> dict[str, JobWindow]:
    """Return the windows by system: all made, or a trace that replaces THETA."""
    if request.traces:
        return {THETA: trace_window(request.traces[0], DAYS)}
    share = QUICK_SHARE if request.quick else 1.0
    return {recipe.name: made_window(recipe, share=share) for recipe in RECIPES}


def _facts(request: StudyRequest) -> list[str]:
    sentences = [
        (
            "Jobs submitted in the first 12 hours are not counted, nor is the use of nodes after the last "
            "submission. Sizes and speed-up by Amdahl's law with efficiencies 0.95, 0.8 and 0.5; a pass at "
            f"every event; a resize costs nothing. {counted(request.seeds, 'seed')} choose the "
            "malleable jobs."
        )
    ]
    if request.traces:
        sentences.append("The trace replaces THETA; it is not the paper's, so directions are judged.")
    else:
        sentences.append(
            "The windows are made from the figures that the paper prints, with the mean run of rigid jobs "
            "and the node time that they used; how long jobs wait is not fitted. So directions are judged."
        )
    return sentences


def share_table(system: str, found: Outcomes) -> ExperimentTable:
    """Return the means of every measure at every share, and ranges (Figures 6 to 9)."""
    cases = [("EASY, all rigid", STRATEGIES[0], RIGID_SHARE)]
    cases += [(f"{NAMES[policy]}, {share}%", policy, share) for policy in STRATEGIES for share in SHARES]
    return ExperimentTable(
        name=FIGURES.get(system, system),
        title=f"{found.window.name}, means over the seeds with 95% intervals; quartiles of the turnaround "
        "over seeds, over jobs",
        columns=("strategy, malleable jobs", *(name.removesuffix("_s") for name in COLUMNS), "seeds", "jobs"),
        rows=[
            (
                label,
                *(
                    estimate(found.values(metric, policy, share)).brief(partial(value_text, metric))
                    for metric in COLUMNS
                ),
                _between(*quantiles(found.values("turnaround_s", policy, share), (0.25, 0.75))),
                _between(
                    fmean(found.values("turnaround_low_s", policy, share)),
                    fmean(found.values("turnaround_high_s", policy, share)),
                ),
            )
            for label, policy, share in cases
        ],
        notes=("Expansions and shrinks are those of a malleable job.",),
    )


def _between(low: float, high: float) -> str:
    return f"{low:,.0f} to {high:,.0f} s"


def variant_cases(seeds: int) -> list[MalleableCase]:
    """Return the cases of other settings: all jobs malleable, and rigid ones where it concerns them."""
    return [
        *(
            MalleableCase(policy=policy, share=ALL, seed=seed, options=options)
            for options in VARIANTS.values()
            if options
            for policy in STRATEGIES
            for seed in range(1, min(seeds, VARIANT_SEEDS) + 1)
        ),
        _UNPROTECTED,
    ]


def variant_table(system: str, found: Outcomes) -> ExperimentTable:
    """Return how the turnaround changes under other settings."""
    rigid = found.by_case[RIGID].turnaround_s
    rows = []
    for label, options in VARIANTS.items():
        easy = ABSENT
        if options == _UNPROTECTED.options:
            easy = f"{100 * (found.by_case[_UNPROTECTED].turnaround_s / rigid - 1):+.0f}%"
        cells = []
        for policy in STRATEGIES:
            cases = [
                MalleableCase(policy=policy, share=ALL, seed=seed, options=options)
                for seed in range(1, min(found.seeds, VARIANT_SEEDS) + 1)
            ]
            changes = [100 * (found.by_case[case].turnaround_s / rigid - 1) for case in cases]
            cells.append(estimate(changes).text("%"))
        rows.append((label, easy, *cells))
    return ExperimentTable(
        name="Readings",
        title=f"{system}: mean turnaround against EASY, all jobs malleable",
        columns=("setting", "EASY", *NAMES.values()),
        rows=rows,
        notes=(f"{min(found.seeds, VARIANT_SEEDS)} seeds; with all jobs malleable nothing is drawn.",),
    )


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
