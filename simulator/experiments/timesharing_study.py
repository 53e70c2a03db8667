"""The study of time-sharing, from the request to the findings: tables, heat maps and curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.charts import MUTED, arrange, run_style
from analysis.claims import ClaimVerdict, estimate
from simulator.experiment_page import Drawing, ExperimentTable
from simulator.experiments import edison
from simulator.experiments import timesharing_survey as ts
from simulator.experiments.claim_study import StudyFindings, StudyRequest
from simulator.experiments.timesharing_claims import claim_rows, direction, world_of
from simulator.experiments.timesharing_survey import TimesharingSetting, TimesharingSurvey, survey

DAYS, QUICK_DAYS = 36, 12

_CLASSES = tuple(
    f"{low} to {high - 1}" if high else f"{low} and more"
    for low, high in zip(edison.SIZE_EDGES, (*edison.SIZE_EDGES[1:], 0), strict=True)
)

_WARM = [[0, "#F7F9FA"], [0.25, "#F6D9A8"], [0.5, "#E8A317"], [0.75, "#CC5A06"], [1, "#5A1E00"]]
_APART = [[0, "#0B3C66"], [0.25, "#4C8DC6"], [0.5, "#F7F9FA"], [0.75, "#E8956B"], [1, "#8A2B00"]]
_LENGTHS = ((10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h"), (172_800, "2 d"))
_SIZES = (1, 10, 100, 1000, 5000)


def examine(request: StudyRequest) -> StudyFindings:
    """Run the study and judge every claim."""
    days = QUICK_DAYS if request.quick else DAYS
    world = edison.of_trace(request.traces[0]) if request.traces else edison.generated(days)
    found = survey(world, request.seeds, request.steps(ts.steps_of(request.seeds)))
    facts = [
        *learnt(found),
        f"Evidence: {world.summary}",
        (
            "Time-sharing admits by memory and has max-min fair rates; batch is first come first served with "
            f"backfilling. Noise: each node is slow with p = {ts.NOISE:g} in each step of 10 s."
        ),
    ]

    return StudyFindings(
        title="Time-sharing against batch again",
        facts=facts,
        claims=claim_rows(found),
        tables=tables(found),
        figures=lambda: drawings(found),
        world=world_of(found),
    )


def learnt(survey: TimesharingSurvey) -> list[str]:
    """Return mean slowdowns, and with which memory of the jobs that of time-sharing is the lower."""
    batch, shared = (estimate(survey.by_seed(setting, "mean")).text() for setting in (ts.BATCH, ts.SHARE))
    found: dict[bool, list[str]] = {True: [], False: []}
    for setting in (ts.SHARE, *ts.MEMORY_SETTINGS):
        lower = direction(ts.differences(survey, ts.BATCH, setting, "mean")).verdict is ClaimVerdict.HOLDS
        below, form = setting.memory or (0.99, "hardly any needs more")
        found[lower].append(f"{below:.0%} ({form})")
    slowdown = (
        f"The mean bounded slowdown is {batch} under batch and {shared} under time-sharing where 99% of the "
        f"node-hours need at most 60% of a node's memory; the paper prints {ts.PRINTED_BELOW:.0%}."
    )
    memory = (
        "Time-sharing has the lower mean slowdown where so many need at most 60%: "
        f"{', '.join(found[True]) or 'none of those tried'}; not where: {', '.join(found[False]) or 'none'}."
    )
    return [slowdown, memory]


def tables(survey: TimesharingSurvey) -> list[ExperimentTable]:
    """Return what became of all settings, and of sizes of jobs."""
    return [_settings(survey), _sizes(survey)]


def _settings(survey: TimesharingSurvey) -> ExperimentTable:
    rows = [
        (
            str(setting),
            _brief(survey.by_seed(setting, "mean")),
            *(_brief(of) for of in zip(*(one.quarters for one in survey.outcomes[setting]), strict=True)),
            *(_brief(survey.by_seed(setting, name)) for name in ("largest", "utilisation", "load")),
            _brief([100 * one for one in survey.by_seed(setting, "at_once")]),
        )
        for setting in ts.SETTINGS
    ]
    return ExperimentTable(
        name="Figs. 5 and 10",
        title="bounded slowdown, utilisation and load, mean over the seeds with its 95% interval",
        columns=("setting", "mean", "25%", "median", "75%", "largest", "utilisation", "load", "at once %"),
        rows=rows,
        notes=("Utilisation is progress; load is jobs a node; at once: started when they came.",),
    )


def _sizes(survey: TimesharingSurvey) -> ExperimentTable:
    rows = []
    for setting in (ts.BATCH, ts.SHARE, ts.NOISY_BATCH, ts.NOISY_SHARE):
        means = np.array([one.sizes.means[:, 0] for one in survey.outcomes[setting]])
        known = [column[~np.isnan(column)] for column in means.T]
        rows.append((str(setting), *(_brief(of.tolist()) for of in known)))
    return ExperimentTable(
        name="Slowdown by size",
        title="mean bounded slowdown, mean over the seeds with its 95% interval",
        columns=("setting", *(f"{name} nodes" for name in _CLASSES)),
        rows=rows,
    )


def _brief(values: Sequence[float]) -> str:
    return estimate(values).brief() if len(values) and np.isfinite(values).all() else "-"


def drawings(survey: TimesharingSurvey) -> list[Drawing]:
    """Return the figures of the page."""
    return [
        ("Figure 2: mean slowdown under batch and under time-sharing", _slowdowns(survey)),
        (
            "Figures 7 and 9: batch's mean slowdown over time-sharing's",
            _ratios(survey, {"no noise": (ts.BATCH, ts.SHARE), "noise": (ts.NOISY_BATCH, ts.NOISY_SHARE)}),
        ),
        (
            "The same for jobs that are not SPMD",
            _ratios(
                survey,
                {"no noise": (ts.ANY_BATCH, ts.ANY_SHARE), "noise": (ts.NOISY_ANY_BATCH, ts.NOISY_ANY_SHARE)},
            ),
        ),
        ("Figure 5: what overhead costs", _overheads(survey)),
        ("Figure 6: jobs a node, first seed", _loads(survey)),
        ("Figure 8: turnaround of applications that strong scale", _turnarounds(survey)),
    ]


def _slowdowns(survey: TimesharingSurvey) -> go.Figure:
    figure = make_subplots(cols=2, subplot_titles=("batch", "time-sharing"), horizontal_spacing=0.09)
    for column, setting in enumerate((ts.BATCH, ts.SHARE), start=1):
        sums, counts = ts.sum_of(survey, setting)
        means = np.full(counts.shape, np.nan)
        means[counts > 0] = sums[counts > 0] / counts[counts > 0]
        _add_map(figure, survey, means, counts, column)
    figure.update_layout(coloraxis=_axis(_WARM, 0, 4, "mean<br>slowdown"))
    return _arranged(figure)


def _ratios(
    survey: TimesharingSurvey, pairs: dict[str, tuple[TimesharingSetting, TimesharingSetting]]
) -> go.Figure:
    figure = make_subplots(cols=2, subplot_titles=tuple(pairs), horizontal_spacing=0.09)
    for column, (batch, share) in enumerate(pairs.values(), start=1):
        values = ts.ratios(survey, batch, share, fewest=1)
        _add_map(figure, survey, values, ts.sum_of(survey, batch)[1], column)
    figure.update_layout(coloraxis=_axis(_APART, -3, 3, "batch /<br>time-sharing"))
    return _arranged(figure)


def _axis(scale: list[list[object]], low: int, high: int, title: str) -> dict[str, object]:
    ticks = list(range(low, high + 1))
    names = [f"{10.0**tick:g}" for tick in ticks]
    bar = {
        "title": {"text": title, "font": {"size": 12}},
        "thickness": 14,
        "tickvals": ticks,
        "ticktext": names,
    }
    return {"colorscale": scale, "cmin": low, "cmax": high, "colorbar": bar}


def _add_map(
    figure: go.Figure, survey: TimesharingSurvey, values: edison.Floats, counts: edison.Counts, column: int
) -> None:
    """Add a map of logarithms; bins with fewer than ten jobs have a cross."""
    grid = survey.grids[0]
    logs = np.log10(values, where=values > 0, out=np.full(values.shape, np.nan))
    x, y = np.log10(grid.lengths), np.log10(grid.sizes)
    figure.add_heatmap(
        z=np.round(logs, 3),
        x=x,
        y=y,
        coloraxis="coloraxis",
        customdata=np.dstack([np.round(values, 3), counts]),
        hovertemplate="%{customdata[0]:.3~g}, %{customdata[1]:,} jobs<extra></extra>",
        hoverongaps=False,
        row=1,
        col=column,
    )
    few_y, few_x = np.nonzero((counts > 0) & (counts < edison.FEWEST))
    figure.add_scatter(
        x=((x[:-1] + x[1:]) / 2)[few_x],
        y=((y[:-1] + y[1:]) / 2)[few_y],
        mode="markers",
        marker={"symbol": "x-thin", "size": 5, "line": {"color": MUTED, "width": 1}},
        showlegend=False,
        hoverinfo="skip",
        row=1,
        col=column,
    )


def _arranged(figure: go.Figure) -> go.Figure:
    arrange(figure, 460, margin={"l": 64, "r": 24, "t": 50, "b": 60})
    figure.update_xaxes(
        title="length on dedicated nodes",
        tickvals=[float(np.log10(at)) for at, _ in _LENGTHS],
        ticktext=[name for _, name in _LENGTHS],
        showgrid=False,
    )
    figure.update_yaxes(
        tickvals=[float(np.log10(at)) for at in _SIZES], ticktext=[f"{at:,}" for at in _SIZES], showgrid=False
    )
    figure.update_yaxes(title="nodes", col=1)
    return figure


def _overheads(survey: TimesharingSurvey) -> go.Figure:
    figure = make_subplots(cols=2, subplot_titles=("utilisation", "mean slowdown"), horizontal_spacing=0.12)
    settings = [ts.SHARE, *(TimesharingSetting(overhead=overhead) for overhead in ts.OVERHEADS)]
    x = [100 * setting.overhead for setting in settings]
    lines = (
        [ts.mean(survey, setting, "utilisation") for setting in settings],
        [ts.mean(survey, setting, "mean") for setting in settings],
    )
    for column, y in enumerate(lines, start=1):
        line = go.Scatter(x=x, y=y, mode="lines+markers", line=run_style(0), showlegend=False)
        figure.add_trace(line, row=1, col=column)
    batch = ts.mean(survey, ts.BATCH, "utilisation")
    figure.add_hline(
        y=batch, line={"color": MUTED, "width": 1, "dash": "dot"}, annotation_text="batch", row=1, col=1
    )
    arrange(figure, 380, margin={"l": 64, "r": 24, "t": 50, "b": 52})
    figure.update_xaxes(title="overhead [%]")
    figure.update_yaxes(rangemode="tozero", col=2)
    return figure


def _loads(survey: TimesharingSurvey) -> go.Figure:
    figure = go.Figure()
    days = min(7, max(1, int(survey.world.days // 60)))
    last = int(survey.world.days * ts.SPANS_A_DAY)
    for number, setting in enumerate(
        [ts.SHARE, *(TimesharingSetting(overhead=overhead) for overhead in ts.OVERHEADS)]
    ):
        course = ts.smooth(survey.outcomes[setting][0].course[:last], days)
        figure.add_scatter(
            x=(np.arange(len(course)) / ts.SPANS_A_DAY + days).tolist(),
            y=np.round(course, 3).tolist(),
            name=f"{setting.overhead:.0%}",
            mode="lines",
            line=run_style(number),
        )
    arrange(figure, 380, showlegend=True)
    figure.update_xaxes(title="day")
    figure.update_yaxes(title=f"jobs a node, mean over {days} d", rangemode="tozero")
    return figure


def _turnarounds(survey: TimesharingSurvey) -> go.Figure:
    figure = make_subplots(
        cols=len(edison.APPLICATIONS), subplot_titles=tuple(edison.APPLICATIONS), horizontal_spacing=0.09
    )
    nodes = edison.sizes_to(survey.world.nodes)
    for column, serial in enumerate(edison.APPLICATIONS.values(), start=1):
        for number, setting in enumerate((ts.BATCH, ts.SHARE)):
            curves: Sequence[Sequence[float]] = ts.turnaround_curves(survey, setting, serial)
            line = go.Scatter(
                x=nodes,
                y=(np.mean(curves, axis=0) / 3600).tolist(),
                name=str(setting),
                mode="lines+markers",
                line=run_style(number),
                showlegend=column == 1,
            )
            figure.add_trace(line, row=1, col=column)
    arrange(figure, 400, margin={"l": 64, "r": 24, "t": 76, "b": 52})
    figure.update_layout(legend={"y": 1.12})
    figure.update_xaxes(title="nodes", type="log", tickvals=nodes, ticktext=[str(of) for of in nodes])
    figure.update_yaxes(type="log", dtick=1, exponentformat="power")
    figure.update_yaxes(title="turnaround [h]", col=1)
    return figure
