"""Figures 7.1 and 7.5 to 7.11, ours next to the thesis's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log10
from statistics import mean

import plotly.graph_objects as go

from analysis.charts import GRID, INK, MUTED, arrange, run_style
from osub.physical import published
from osub.physical.folder import Results
from osub.physical.layouts import GANGD
from osub.physical.outcome import (
    SHARES,
    ReplayOutcome,
    Value,
    case_of,
    largest_slowdown,
    longest_wait,
    percentile,
)
from osub.physical.plan import DAY, FIRST
from osub.physical.tables import KINDS
from simulator.experiment_page import Drawing
from workloads.swf import SwfTrace
from workloads.trace.scaling import INTERACTIVE_QUEUE, JOB_OF_FIGURE_7_8

_HOUR_S = 3600.0
_HEIGHT = 400
PAIR_TITLE = "Table 7.4: speed of two coupled jobs together, of that of one alone"


def drawings(results: Results, day: SwfTrace) -> list[Drawing]:
    """Return every figure; ``day`` is the whole day at the thesis's size."""
    keys = results.replayed()
    here = f"N{results.plan.nodes}C{results.plan.cores}"
    pair = (PAIR_TITLE, pairs(results))
    rest = [
        ("Figure 7.1: phases, and cores asked for on N12C12", phases(day)),
        (
            f"Figure 7.5: longest wait on {here}, real",
            by_layout(results, keys, longest_wait, "longest wait [s]"),
        ),
        (f"Figure 7.6: jobs done over time on {here}, real", done_over_time(results, keys)),
        (
            f"Figure 7.7: largest slowdown on {here}, real",
            by_layout(results, keys, largest_slowdown, "(wait + run)/dedicated", log=True),
        ),
        (f"Figure 7.8: job {JOB_OF_FIGURE_7_8}, busy and idle", use_of(day)),
        (
            f"Figure 7.9: distribution of slowdowns on {here}, real",
            distribution(results, keys, "slowdown_osub", "(wait + run)/dedicated"),
        ),
        (
            f"Figure 7.10: distribution of degradation on {here}, real",
            distribution(results, keys, "degradation", "run/dedicated"),
        ),
        (f"Figure 7.11: simulated and real under gangd on {here}", simulated_and_real(results)),
        ("Table 7.6 at the thesis's size, simulated", full_size(results)),
    ]
    # The first one is the page's picture: what gang scheduling is for, where that was measured.
    return [pair, *rest] if results.pairs else [*rest, pair]


def phases(day: SwfTrace) -> go.Figure:
    """Draw how many cores both kinds ask for, if all started at once, and where the phases lie."""
    figure = go.Figure()
    sessions = [job for job in day.jobs if job.queue == INTERACTIVE_QUEUE]
    begin_s = min(job.submit_s for job in sessions)
    end_s = max(job.submit_s + (job.run_s or 0) for job in sessions)
    for number, (name, jobs) in enumerate(
        (("interactive", sessions), ("batch", [job for job in day.jobs if job.queue != INTERACTIVE_QUEUE]))
    ):
        changes = sorted(
            change
            for job in jobs
            for change in (
                (job.submit_s, job.procs or 0),
                (job.submit_s + (job.run_s or 0), -(job.procs or 0)),
            )
        )
        x, y, level = [0.0], [0], 0
        for at_s, step in changes:
            level += step
            x.append(at_s / _HOUR_S)
            y.append(level)
        figure.add_scatter(
            x=x, y=y, name=name, line={**run_style(number), "shape": "hv"}, fill="tozeroy", mode="lines"
        )
    for name, left_s, right_s in (
        ("warm-up", 0.0, begin_s),
        ("active", begin_s, end_s),
        ("cool-down", end_s, max(job.submit_s + (job.run_s or 0) for job in day.jobs)),
    ):
        if right_s <= left_s:
            continue
        figure.add_vline(x=right_s / _HOUR_S, line={"color": MUTED, "dash": "dot", "width": 1})
        figure.add_annotation(
            x=(left_s + right_s) / 2 / _HOUR_S,
            y=1.06,
            yref="paper",
            text=name,
            showarrow=False,
            font={"color": MUTED},
        )
    arrange(figure, _HEIGHT, legend={"y": 1.12})
    figure.update_xaxes(title="from the first arrival [h]", rangemode="tozero")
    figure.update_yaxes(title="cores asked for", rangemode="tozero")
    return figure


def by_layout(
    results: Results, keys: Sequence[str], of_kind: Callable[[str], Value], title: str, *, log: bool = False
) -> go.Figure:
    """Draw a value of each kind for each layout: the mean over the replays."""
    figure = go.Figure()
    for number, kind in enumerate(KINDS):
        value = of_kind(kind)
        heights = [results.values(key, value) for key in keys]
        figure.add_bar(
            x=[results.label(key) for key in keys],
            y=[mean(of) if of else None for of in heights],
            name=kind,
            marker={"color": run_style(number)["color"]},
            offsetgroup=str(number),
            text=[f"{mean(of):.3g}" if of else "" for of in heights],
            textposition="outside",
            cliponaxis=False,
        )
    arrange(figure, _HEIGHT, barmode="group")
    figure.update_yaxes(title=title, type="log" if log else "linear")
    return figure


def done_over_time(results: Results, keys: Sequence[str]) -> go.Figure:
    """Draw the share of the jobs that are done, of the longest workload's first trial."""
    figure = go.Figure()
    workload = DAY if results.plan.draws else FIRST
    for number, key in enumerate(keys):
        outcome = results.real[key].get((workload, 1))
        if outcome is not None:
            _done(figure, outcome, results.label(key), number, simulated=False)
    arrange(figure, _HEIGHT + 40)
    figure.update_xaxes(title="s of the replay, from the first submission", rangemode="tozero")
    figure.update_yaxes(title="jobs done [%]", range=[0, 101])
    return figure


def _done(figure: go.Figure, outcome: ReplayOutcome, name: str, number: int, *, simulated: bool) -> None:
    first_s = outcome.jobs["submit_s"].min()
    ends = sorted((outcome.jobs["end_s"] - first_s).drop_nulls().to_list())
    share = [100 * (place + 1) / len(ends) for place in range(len(ends))]
    style = run_style(number, simulated=simulated)
    figure.add_scatter(x=[0, *ends], y=[0, *share], name=name, mode="lines", line={**style, "shape": "hv"})


def distribution(results: Results, keys: Sequence[str], column: str, title: str) -> go.Figure:
    """Draw a value of every job by layout, all trials; the largest are named."""
    figure = go.Figure()
    for number, key in enumerate(keys):
        rows = [
            (job, kind, value)
            for outcome in results.real[key].values()
            for job, kind, value in outcome.jobs.select("trace_job", "kind", column).iter_rows()
            if value is not None
        ]
        rows.sort(key=lambda row: row[2])
        figure.add_box(
            y=[value for _, _, value in rows],
            name=results.label(key),
            boxpoints="all",
            jitter=0.5,
            pointpos=0,
            marker={"color": run_style(number)["color"], "size": 4, "opacity": 0.6},
            line={"width": 1},
            text=[f"job {job}, {kind}" for job, kind, _ in rows],
            hovertemplate="%{text}: %{y:.2f}<extra></extra>",
            showlegend=False,
        )
        for job, _, value in rows[-1:]:
            figure.add_annotation(
                x=results.label(key),
                y=log10(value) if value > 0 else 0.0,
                text=str(job),
                showarrow=False,
                yshift=10,
                font={"size": 11},
            )
    arrange(figure, _HEIGHT + 40)
    figure.update_yaxes(title=title, type="log")
    return figure


def use_of(day: SwfTrace) -> go.Figure:
    """Draw when a job of the thesis's is busy."""
    figure = go.Figure()
    job = next((job for job in day.jobs if job.job_number == JOB_OF_FIGURE_7_8), None)
    pattern = None if job is None else job.pattern
    x, y, at_s = [0.0], [0], 0.0
    for place, period_s in enumerate(pattern.periods_s if pattern else ()):
        busy = place % 2
        x += [at_s / _HOUR_S, (at_s + period_s) / _HOUR_S]
        y += [busy, busy]
        at_s += period_s
    figure.add_scatter(
        x=x, y=y, mode="lines", line={"color": run_style(0)["color"]}, fill="tozeroy", name="busy"
    )
    arrange(figure, 240, showlegend=False)
    figure.update_xaxes(title="from its start [h]", rangemode="tozero")
    figure.update_yaxes(tickvals=[0, 1], ticktext=["idle", "busy"], range=[-0.05, 1.2])
    return figure


def simulated_and_real(results: Results) -> go.Figure:
    """Draw jobs done over time, of the gangd replay and its simulation."""
    figure = go.Figure()
    workload = DAY if results.plan.draws else FIRST
    key = workload, 1
    for found, name, is_simulated in ((results.real, "real", False), (results.simulated, "simulated", True)):
        outcome = found.get(GANGD.key, {}).get(key)
        if outcome is not None:
            _done(figure, outcome, name, 1 if is_simulated else 0, simulated=is_simulated)
    arrange(figure, _HEIGHT)
    figure.update_xaxes(title="s of the replay, from the first submission", rangemode="tozero")
    figure.update_yaxes(title="jobs done [%]", range=[0, 101])
    return figure


def full_size(results: Results) -> go.Figure:
    """Draw when jobs are done at the thesis's size, simulated, and what the thesis measured."""
    figure = go.Figure()
    labels = list(published.PERCENTILES_S)
    for number, share in enumerate(SHARES):
        colour = run_style(number)["color"]
        values = [
            [end_s / _HOUR_S for end_s in results.full.values(case_of(label), percentile(number))]
            for label in labels
        ]
        figure.add_scatter(
            x=labels,
            y=[mean(of) for of in values],
            error_y={
                "array": [max(of) - mean(of) for of in values],
                "arrayminus": [mean(of) - min(of) for of in values],
                "color": GRID,
            },
            name=f"{share}%, simulated",
            mode="markers",
            marker={"color": colour, "size": 9},
        )
        published_s = [published.PERCENTILES_S[label][number] for label in labels]
        figure.add_scatter(
            x=labels,
            y=[None if value is None else value / _HOUR_S for value in published_s],
            name=f"{share}%, thesis",
            mode="markers",
            marker={"color": colour, "size": 11, "symbol": "diamond-open", "line": {"width": 2}},
        )
    arrange(figure, _HEIGHT + 60, margin={"l": 64, "r": 44, "t": 90, "b": 52})
    figure.update_yaxes(title="jobs done after [h]")
    return figure


def pairs(results: Results) -> go.Figure:
    """Draw the joint speed of the pair over that of one job alone, divided as the two's own speeds are."""
    figure = go.Figure()
    keys = [key for key in results.layouts if key in results.pairs]
    for number, which in enumerate(("first job", "second job")):
        shares = [
            [
                trial.joint / trial.alone * trial.each[number] / sum(trial.each)
                for trial in results.pairs[key].values()
            ]
            for key in keys
        ]
        figure.add_bar(
            x=[results.label(key) for key in keys],
            y=[mean(of) if of else None for of in shares],
            name=which,
            marker={"color": run_style(number)["color"]},
        )
    thesis = {
        label: mean(sum(both) / one for one, both in zip(published.PAIR_SINGLE, of, strict=True))
        for label, of in published.PAIR_SHARED.items()
    }
    in_thesis = [results.label(key) for key in keys if results.label(key) in thesis]
    figure.add_scatter(
        x=in_thesis,
        y=[thesis[label] for label in in_thesis],
        name="thesis, both (12 ranks)",
        mode="markers",
        marker={"symbol": "diamond-open", "size": 11, "color": INK, "line": {"width": 2}},
    )
    figure.add_hline(y=1, line={"color": MUTED, "width": 1, "dash": "dot"})
    arrange(figure, _HEIGHT, barmode="stack")
    figure.update_yaxes(title="speed, of one job alone", rangemode="tozero")
    return figure
