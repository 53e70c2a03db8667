"""The study of Fan et al. from trace to findings: its jobs, the tables behind the claims, and the figures.

Without a trace of Theta's, one is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.charts import arrange, run_style
from analysis.claims import ClaimVerdict, Estimate, differences, direction, estimate, figures
from analysis.quantiles import quantiles
from foundation.units import US_PER_S, counted
from simulator.experiment_page import Drawing, ExperimentTable
from simulator.experiments.claim_study import StudyFindings, StudyRequest, WorldFigure
from simulator.experiments.hybrid_claims import at_interval, by_mechanism, claim_rows, of_each, spread
from simulator.experiments.hybrid_survey import (
    EVEN,
    MECHANISMS,
    OVERHEAD,
    QUICK,
    WHOLE,
    HybridSurvey,
    MeasuredHybrid,
    steps_of,
    survey,
)
from simulator.hybrid.drawn_jobs import MIXES
from simulator.model.system import System, single_queue
from simulator.simulation import Cleaning, Workload, make_workload
from workloads.swf import SwfColumns, load_columns, procs_column

NODES = 4392
"""Theta's."""
LOAD = 0.8393
"""Utilisation of FCFS/EASY alone in the paper (Table II): the load that a trace is brought to."""
PAPER_JOBS_A_YEAR = 37_298
PAPER_NODE_H = LOAD * NODES * 8760 / PAPER_JOBS_A_YEAR
"""Node-hours of a job in the mean (derived from Tables I and II)."""
_ALIKE = 0.01
"""A log of Theta's may say a few nodes less, which were out of service for all of it."""
MADE_JOBS = 12_000
QUICK_JOBS = 3_000

_DAY_S = 86_400
_LEAST_S = 300
_SIZES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
_OFTEN = (0.45, 0.25, 0.15, 0.09, 0.04, 0.02)
_MOST_BURST = 12

_COLUMNS = (
    ("turnaround h", "turnaround", 1),
    ("rigid h", "rigid", 1),
    ("malleable h", "malleable", 1),
    ("on demand h", "on_demand", 1),
    ("utilisation %", "utilisation", 100),
    ("wasted %", "wasted", 100),
    ("instant %", "instant", 100),
    ("within 0 s %", "at_once", 100),
    ("rigid preempted %", "rigid_preempted", 100),
    ("malleable preempted %", "malleable_preempted", 100),
)
_AGAINST = (
    ("turnaround of all", "turnaround", True),
    ("of rigid jobs", "rigid", True),
    ("of malleable jobs", "malleable", True),
    ("of on-demand jobs", "on_demand", True),
    ("slowdown on demand, up to 1 h", "short", True),
    ("slowdown on demand, over 1 h", "long", True),
    ("instant starts", "instant", False),
    ("starts within 0 s", "at_once", False),
    ("wasted node time", "wasted", True),
)

_KINDS = (("rigid", "rigid"), ("malleable", "malleable"), ("on demand", "on_demand"))


def examine(request: StudyRequest) -> StudyFindings:
    """Run the study and judge every claim."""
    workload, source, nodes = _jobs_of(request)
    workload = at_load(workload, nodes)
    effort = QUICK if request.quick else WHOLE
    found = survey(workload, nodes, request.seeds, effort, request.steps(steps_of(request.seeds, effort)))
    days = float(np.ptp(workload.submit_us)) / 86_400e6
    count = sum(map(len, found.runs.values()))
    cpu_s = sum(one.cpu_s for of in found.runs.values() for one in of)
    facts = [
        *learnt(found),
        (
            f"Evidence: {source}: {counted(workload.count, 'job')} in {days:.0f} days on "
            f"{counted(nodes, 'node')}, each node one job; arrivals are scaled to a load of {LOAD:.1%}, the "
            "paper's."
        ),
        (
            f"{counted(request.seeds, 'seed')} for projects, kinds, set-up and notices; on-demand jobs are "
            f"{figures(100 * estimate(found.traces.shares).mean)}% of the jobs in the mean."
        ),
        (
            f"{counted(count, 'run')} of six mechanisms under five mixes of notices: {found.wall_s:.1f} s on "
            f"two threads, {cpu_s / count:.2f} s of CPU a run in the loop."
        ),
    ]

    return StudyFindings(
        title="Hybrid scheduling again: on-demand, rigid and malleable jobs",
        facts=facts,
        claims=claim_rows(found),
        tables=tables(found),
        figures=lambda: drawings(found),
        world=_world(workload, nodes, found),
    )


def learnt(found: HybridSurvey) -> list[str]:
    """Return what the mechanisms do for on-demand jobs, what all jobs pay for it, and what sharing does."""
    instant, used = (spread(by_mechanism(found, name), "%") for name in ("instant", "utilisation"))
    turnaround = spread(by_mechanism(found, "turnaround"), "h")
    weight, overhead = _shared_setting(found)
    shared = found.shared[weight, overhead]
    starts = (
        f"Of the on-demand jobs {instant} start instantly under the six mechanisms, "
        f"{_mean(found.base, 'instant', 100).text('%')} under FCFS/EASY alone."
    )
    costs = (
        f"The mean turnaround of all jobs is {turnaround} under the six, "
        f"{_mean(found.base, 'turnaround').text('h')} under FCFS/EASY; utilisation is {used} and "
        f"{_mean(found.base, 'utilisation', 100).text('%')}."
    )
    instead = (
        f"Where on-demand jobs share cores instead (weight {weight}, assuming C_o = {float(overhead):g}), "
        f"{_mean(shared, 'at_once', 100).text('%')} of them run at once, and the mean turnaround of all jobs "
        f"is {_mean(shared, 'turnaround').text('h')}."
    )
    return [starts, costs, instead]


def _shared_setting(found: HybridSurvey) -> tuple[int, Fraction]:
    """Return the weight and overhead that stand for sharing: the paper's overhead, weight 4 if it was run."""
    return max(found.shared, key=lambda key: (key[1] == OVERHEAD, key[0] == 4))


def _mean(measured: Sequence[MeasuredHybrid], metric: str, scale: float = 1) -> Estimate:
    return estimate([scale * one for one in of_each(measured, metric)])


def at_load(workload: Workload, nodes: int) -> Workload:
    """Return the jobs with arrivals scaled such that the load is the paper's."""
    since_us = workload.submit_us - workload.submit_us.min()
    node_us = float(workload.run_us @ workload.nodes)
    if not since_us.any() or not node_us:
        return workload
    scale = node_us / float(since_us.max()) / nodes / LOAD
    return replace(workload, submit_us=np.rint(since_us * scale).astype(np.int64))


def _world(workload: Workload, nodes: int, survey: HybridSurvey) -> list[WorldFigure]:
    used = estimate(of_each(survey.base, "utilisation")).mean
    node_h = float(workload.run_us @ workload.nodes) / 3.6e9 / workload.count
    return [
        WorldFigure("utilisation of FCFS/EASY", 100 * LOAD, 100 * used, "%"),
        WorldFigure("nodes", NODES, nodes),
        WorldFigure("node-hours of a job", PAPER_NODE_H, node_h, "h"),
        WorldFigure("smallest job", 128, float(workload.nodes.min()), "nodes"),
        WorldFigure("longest run", 24, float(workload.run_us.max()) / 3.6e9, "h"),
    ]


def _jobs_of(request: StudyRequest) -> tuple[Workload, str, int]:
    """Return the jobs, where they are from, and the nodes of their machine."""
    if not request.traces:
        made = made_workload(QUICK_JOBS if request.quick else MADE_JOBS, NODES)
        return made, "A trace that is made", NODES
    columns = load_columns(request.traces[0])
    nodes = nodes_of(columns)
    if request.quick:
        columns = replace(columns, frame=columns.frame.head(QUICK_JOBS))
    cleaning = Cleaning(interactive_queue=None)
    return make_workload(columns, single_queue(System(nodes, 1), 1), cleaning), columns.name, nodes


def nodes_of(columns: SwfColumns) -> int:
    """Return how many nodes a trace's machine has, where each processor that a job holds is a node.

    As its header says, or else as its widest job needs; Theta's for a log of Theta.
    """
    widest = columns.frame.select(procs_column().max()).item()
    procs = columns.header.system_procs or (widest if isinstance(widest, int) else NODES)
    return NODES if abs(procs - NODES) <= _ALIKE * NODES else procs


def made_workload(jobs: int, nodes: int, load: float = LOAD) -> Workload:
    """Return jobs like Theta's, always the same: bursts of alike ones, mostly small, of minutes to a day.

    Parameters
    ----------
    jobs, nodes
        How many there are.
    load
        Share of the node time that they take until the last one comes.
    """
    dice = np.random.default_rng([1, jobs, nodes])
    bursts = 1 + dice.geometric(0.4, jobs).clip(max=_MOST_BURST)
    burst = np.repeat(np.arange(jobs), bursts)[:jobs]
    size = np.maximum(1, (np.array(_SIZES) * nodes).astype(np.int64))[
        dice.choice(len(_SIZES), jobs, p=_OFTEN)
    ]
    asked_s = 900 * np.ceil(np.exp(dice.normal(9.0, 1.1, jobs)).clip(_LEAST_S, _DAY_S) / 900)
    used = dice.uniform(0.15, 1.0, jobs)
    run_s = np.maximum(60, (asked_s[burst] * used).astype(np.int64))
    apart = dice.exponential(1.0, jobs) * np.where(np.diff(burst, prepend=-1) > 0, 1.0, 0.02)
    submit = np.cumsum(apart)
    span_s = float((run_s * size[burst]).sum()) / nodes / load
    submit_us = np.floor((submit - submit[0]) / max(submit[-1], 1e-9) * span_s).astype(np.int64) * US_PER_S
    run_us, asked_us = run_s * US_PER_S, asked_s[burst].astype(np.int64) * US_PER_S
    return Workload.of_batch(submit_us, run_us, size[burst], np.maximum(asked_us, run_us), asked_us)


def tables(survey: HybridSurvey) -> list[ExperimentTable]:
    """Return mechanisms, mixes, sharing, and sharing against the six."""
    return [_mechanisms(survey), _mixes(survey), _sharing(survey), _against(survey)]


def _row(name: str, measured: Sequence[MeasuredHybrid]) -> tuple[str, ...]:
    return name, *(_mean(measured, metric, scale).brief() for _, metric, scale in _COLUMNS)


def _mechanisms(survey: HybridSurvey) -> ExperimentTable:
    rows = [_row("FCFS/EASY", survey.base)]
    rows += [_row(name, survey.runs[name, EVEN]) for name in MECHANISMS]
    chosen = _shared_setting(survey)
    rows.append(_row(f"sharing, weight {chosen[0]}", survey.shared[chosen]))
    return ExperimentTable(
        name="Mechanisms",
        title=f"notices of all kinds alike ({EVEN}), mean over the seeds with its 95% interval",
        columns=("mechanism", *(name for name, _, _ in _COLUMNS)),
        rows=rows,
        notes=("Wasted: lost, repeated set-up and warnings, over the node time that jobs held.",),
    )


def _mixes(survey: HybridSurvey) -> ExperimentTable:
    rows = [
        (name, *(_mean(survey.runs[name, mix], "turnaround").brief() for mix in MIXES)) for name in MECHANISMS
    ]
    return ExperimentTable(
        name="Notices",
        title="mean turnaround in hours by mix, mean over the seeds with its 95% interval",
        columns=("mechanism", *MIXES),
        rows=rows,
        notes=("Mostly no notice, accurate, early, late; a quarter each.",),
    )


def _sharing(survey: HybridSurvey) -> ExperimentTable:
    rows = [
        _row(f"weight {weight}, C_o {float(overhead):g}", measured)
        for (weight, overhead), measured in survey.shared.items()
    ]
    return ExperimentTable(
        name="Sharing",
        title="on-demand jobs that share cores, by their weight and what sharing costs, with 95% intervals",
        columns=("setting", *(name for name, _, _ in _COLUMNS)),
        rows=rows,
    )


def _against(survey: HybridSurvey) -> ExperimentTable:
    """Return where sharing is better or worse than each mechanism, if the interval says so."""
    chosen = _shared_setting(survey)
    shared = survey.shared[chosen]
    rows = [
        (label, *(_better(shared, survey.runs[name, EVEN], metric, is_lower) for name in MECHANISMS))
        for label, metric, is_lower in _AGAINST
    ]
    return ExperimentTable(
        name="Sharing against",
        title=f"weight {chosen[0]}, C_o {float(chosen[1]):g}: sharing is better, worse, or neither",
        columns=("figure", *MECHANISMS),
        rows=rows,
        notes=("In brackets sharing's mean over the mechanism's.",),
    )


def _better(mine: Sequence[MeasuredHybrid], other: Sequence[MeasuredHybrid], metric: str, lower: bool) -> str:
    ours, theirs = of_each(mine, metric), of_each(other, metric)
    gains = differences(theirs, ours, 1.0 if lower else -1.0)
    verdict = direction(gains).verdict
    word = {ClaimVerdict.HOLDS: "better", ClaimVerdict.FAILS: "worse"}.get(verdict, "neither")
    average, rival = estimate(ours).mean, estimate(theirs).mean
    return f"{word} ({average / rival:.2f})" if rival else word


def drawings(survey: HybridSurvey) -> list[Drawing]:
    """Return the figures of the page."""
    return [
        ("Turnaround by kind, with 95% intervals over the seeds", _turnaround(survey)),
        ("Turnaround by mix of notices, with 95% intervals", _mixes_figure(survey)),
        ("Figure 7: rigid turnaround over the interval between checkpoints", _intervals(survey)),
        ("Time of one event with its pass", _decisions(survey)),
    ]


def _bars(lists: Mapping[str, Mapping[str, Sequence[float]]]) -> go.Figure:
    """Return mean turnarounds with their intervals: bars of a colour by name."""
    figure = go.Figure()
    for number, (label, of) in enumerate(lists.items()):
        found = [estimate(values) for values in of.values()]
        half = [0.0 if one.high is None else one.high - one.mean for one in found]
        figure.add_bar(
            x=list(of),
            y=[one.mean for one in found],
            error_y={"type": "data", "array": half},
            name=label,
            marker={"color": run_style(number)["color"]},
        )
    arrange(figure, 420)
    figure.update_yaxes(title="mean turnaround [h]", rangemode="tozero")
    return figure


def _turnaround(survey: HybridSurvey) -> go.Figure:
    weights = [key for key in survey.shared if key[1] == OVERHEAD]
    runs = {"FCFS/EASY": survey.base, **{name: survey.runs[name, EVEN] for name in MECHANISMS}}
    runs |= {f"sharing {weight}:1": survey.shared[weight, overhead] for weight, overhead in weights}
    return _bars({label: {name: of_each(of, kind) for name, of in runs.items()} for label, kind in _KINDS})


def _mixes_figure(survey: HybridSurvey) -> go.Figure:
    return _bars(
        {mix: {name: of_each(survey.runs[name, mix], "turnaround") for name in MECHANISMS} for mix in MIXES}
    )


def _intervals(survey: HybridSurvey) -> go.Figure:
    percents = sorted({100, *(percent for _, percent in survey.intervals)})
    figure = go.Figure()
    for number, name in enumerate(MECHANISMS):
        means = [float(np.mean(of_each(at_interval(survey, name, percent), "rigid"))) for percent in percents]
        figure.add_trace(
            go.Scatter(x=percents, y=means, name=name, mode="lines+markers", line=run_style(number))
        )
    arrange(figure, 420)
    figure.update_xaxes(title="interval [% of Daly's]")
    figure.update_yaxes(title="mean turnaround of rigid jobs [h]")
    return figure


def _decisions(survey: HybridSurvey) -> go.Figure:
    figure = make_subplots()
    shares = np.linspace(0, 100, 201)
    for number, (name, of) in enumerate(survey.decisions_s.items()):
        figure.add_scatter(
            x=(1e6 * quantiles(of, shares / 100)).tolist(),
            y=shares.tolist(),
            name=name,
            line=run_style(number),
        )
    arrange(figure, 380)
    figure.update_xaxes(title="time [\N{MICRO SIGN}s]", type="log")
    figure.update_yaxes(title="share of the events [%]")
    return figure
