"""The page of `osub predict evaluate`: verdict, judges, losses, map, calibration, mispredictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from analysis.charts import GRID, INK, JOB_COLOURS, Chart, arrange
from analysis.pages.page_content import Block, Grid, Page, Section, Told
from analysis.pages.page_frame import write_page as framed
from foundation.units import counted, counted_of
from predictor.dataset import About
from predictor.model.counter_features import Floats
from predictor.model.judges_tables import curves_sentence, rows_of, sentence_of
from predictor.model.model_judges import KindReport

_MOST_WRONG = 20


def write_page(target: Path, about: About, reports: Mapping[str, KindReport]) -> None:
    """Write the page, complete in itself; raises OutputError."""
    where = (
        f"Measured on {about.host.cpu_model} ({counted(about.host.cpus, 'CPU')}), "
        f"{about.started:%Y-%m-%d %H:%M} to {about.ended:%Y-%m-%d %H:%M} UTC."
    )
    drawn = {
        name: [Block(f"{name}: {title}", chart.caption, chart=chart) for title, chart in _charts(report)]
        for name, report in reports.items()
    }
    page = Page(
        title="Which applications may share a core",
        subtitle=where,
        verdict=[Told(f"{name}:", sentence_of(report)) for name, report in reports.items()],
        sections=[
            Section("losses", "What victims lose", [blocks[0] for blocks in drawn.values()]),
            *(_judged(number, name, report) for number, (name, report) in enumerate(reports.items())),
            *(
                Section(f"figures-{number}", f"Figures: {name}", blocks[1:])
                for number, (name, blocks) in enumerate(drawn.items())
            ),
            Section("where", "Where", [Block("", where, notes=about.notes)]),
        ],
    )
    framed(target, page)


def _judged(number: int, name: str, report: KindReport) -> Section:
    """Return how well each judge did, and the pairs that were judged wrong."""
    wrong = [
        (one.victim, one.opponent, f"{one.e_v:.2f}", "yes" if one.dangerous else "no", f"{one.predicted:.2f}")
        for one in report.mispredictions[:_MOST_WRONG]
    ]
    columns = ("victim", "opponent", "E_v", f"above {report.records.threshold:g}", "predicted probability")
    judges = ("judged by", "right (95% interval)", "points above the majority")
    curves = curves_sentence(report)
    blocks = [
        Block(
            "Who judges how well",
            "",
            grid=Grid(groups=(), columns=judges, rows=rows_of(report), texts=3, heads=True),
            notes=[curves] if curves else (),
        ),
        Block(
            "Judged wrong",
            f"{counted_of(len(report.mispredictions), len(report.records), 'pair')} of victims never seen; "
            f"the {len(wrong)} that are furthest off (the thesis's Table 4.11).",
            grid=Grid(groups=(), columns=columns, rows=wrong, texts=2) if wrong else None,
        ),
    ]
    return Section(f"judged-{number}", f"Judgements: {name}", blocks)


def _charts(report: KindReport) -> Iterator[tuple[str, Chart]]:
    yield "What victims lose", _losses(report)
    yield "Predicted and measured", _scatter(report)
    if report.curves is not None:
        curves = report.curves.curves
        yield (
            "Sensitivity",
            _levels(curves.stressors, curves.sensitivity, report.records.threshold, pressed=False),
        )
        yield "Pressure", _levels(curves.stressors, curves.pressure, report.records.threshold, pressed=True)
    yield "Is a probability what it says?", calibration_chart(report)
    yield "Map of the applications", map_chart(report)


def _losses(report: KindReport) -> Chart:
    """Return the matrix of measured losses, victims and opponents in order of what they lose."""
    records = report.records
    names = records.features.applications
    losses = np.full((len(names), len(names)), np.nan)
    losses[records.victim, records.opponent] = records.loss
    means = {
        place: float(records.loss[records.victim == place].mean()) for place in set(records.victim.tolist())
    }
    order = sorted(means, key=lambda place: means[place])
    shown = losses[np.ix_(order, order)]
    labels = [names[place] for place in order]
    centre = records.threshold
    reach = float(np.nanmax(np.abs(shown - centre)))
    figure = go.Figure(
        go.Heatmap(
            z=shown,
            x=labels,
            y=labels,
            colorscale="RdBu_r",
            zmin=centre - reach,
            zmax=centre + reach,
            colorbar={"title": "E_v"},
            hovertemplate="%{y} beside %{x}: %{z:.2f}<extra></extra>",
        )
    )
    arrange(figure, 180 + 20 * len(labels), xaxis_title="opponent", yaxis_title="victim")
    caption = (
        f"E_v of each victim (row) beside each opponent (column): red is above {centre:g}. Blank: not "
        "measured, or not certain."
    )
    return Chart(figure, caption)


def _levels(stressors: Sequence[str], levels: Mapping[str, Floats], centre: float, *, pressed: bool) -> Chart:
    """Return applications by stressors: what they lose beside these, or (``pressed``) what these lose."""
    names = sorted(levels, key=lambda name: float(levels[name].mean()))
    shown = np.array([levels[name] for name in names])
    reach = float(np.abs(shown - centre).max())
    figure = go.Figure(
        go.Heatmap(
            z=shown,
            x=[name.removeprefix("stress.") for name in stressors],
            y=names,
            colorscale="RdBu_r",
            zmin=centre - reach,
            zmax=centre + reach,
            colorbar={"title": "E_v"},
            hovertemplate="%{y}, %{x}: %{z:.2f}<extra></extra>",
        )
    )
    arrange(figure, 180 + 20 * len(names), xaxis_title="stressor and its dial", yaxis_title="application")
    what = "What each stressor loses beside each application" if pressed else "What each application loses"
    return Chart(figure, f"{what} beside each stressor." if not pressed else f"{what}.")


def _scatter(report: KindReport) -> Chart:
    records, names = report.records, report.records.features.applications
    texts = [
        f"{names[victim]} beside {names[other]}"
        for victim, other in zip(records.victim.tolist(), records.opponent.tolist(), strict=True)
    ]
    both = np.concatenate((report.unseen.loss, records.loss))
    ends = [float(both.min()), float(both.max())]
    figure = go.Figure(
        [
            go.Scatter(x=ends, y=ends, mode="lines", line={"color": GRID}, name="the same", hoverinfo="skip"),
            go.Scatter(
                x=report.unseen.loss,
                y=records.loss,
                mode="markers",
                marker={"color": JOB_COLOURS[0], "size": 5, "opacity": 0.6},
                text=texts,
                name="a pair",
            ),
        ]
    )
    arrange(figure, 430, xaxis_title="predicted E_v", yaxis_title="measured E_v")
    caption = (
        "Each pair as predicted by a model that had never seen its victim, and as measured: rank correlation "
        f"{report.rank_correlation:.2f}."
    )
    return Chart(figure, caption)


def calibration_chart(report: KindReport) -> Chart:
    """Return how often pairs of a predicted probability were dangerous."""
    likely, seen, counts = zip(*report.calibration, strict=True)
    figure = go.Figure(
        [
            go.Scatter(
                x=[0, 1], y=[0, 1], mode="lines", line={"color": GRID}, name="calibrated", hoverinfo="skip"
            ),
            go.Scatter(
                x=likely,
                y=seen,
                mode="lines+markers",
                line={"color": JOB_COLOURS[1]},
                text=[f"{counted(count, 'pair')}" for count in counts],
                name="victims never seen",
            ),
        ]
    )
    arrange(
        figure, 380, xaxis_title="predicted probability of danger", yaxis_title="share that was dangerous"
    )
    return Chart(figure, "Pairs in eight groups by predicted probability: a good model lies on the diagonal.")


def map_chart(report: KindReport) -> Chart:
    """Return the map of applications by their counters, in clusters."""
    groups, names = report.clusters, report.records.features.applications
    figure = go.Figure()
    for number in range(len(groups.centres)):
        own = groups.labels == number
        verdict = "dangerous" if groups.dangerous[number] else "may share"
        figure.add_trace(
            go.Scatter(
                x=groups.points[own, 0],
                y=groups.points[own, 1],
                mode="markers+text",
                text=[names[place] for place in groups.places[own].tolist()],
                textposition="top center",
                textfont={"size": 11, "color": INK},
                marker={"size": 10, "color": JOB_COLOURS[number % len(JOB_COLOURS)]},
                name=f"{number + 1}: median {groups.median_loss[number]:.2f}, {verdict}",
            )
        )
    first, second = groups.explained
    arrange(
        figure,
        560,
        xaxis_title=f"first component ({first:.0%} of the variance)",
        yaxis_title=f"second ({second:.0%})",
    )
    return Chart(
        figure,
        f"Applications by their counters, in {counted(len(groups.centres), 'cluster')} (k-means, k by "
        "silhouette): the median is of what members lose as victims.",
    )
