"""The page of `osub predict evaluate`: verdict, judges, losses, map, calibration, mispredictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from analysis.charts import GRID, INK, JOB_COLOURS, Chart, arrange
from analysis.pages import Page, PageBlock, PageTable, Section, VerdictParagraph
from analysis.pages import write_page as framed
from foundation.units import counted, counted_of
from predictor.dataset import About
from predictor.model.linear_models import Clustering
from predictor.model.model_judges import Accuracy, CurveReport, KindReport
from predictor.model.pair_records import Floats, Records

SCHEMES = {
    "random": "records drawn at random (the thesis's)",
    "pair": "both orders of a pair on one side",
    "application": "victims never seen",
    "family": "victims' families never seen",
}


def json_of(report: KindReport) -> dict[str, Any]:
    """Return what ``osub predict evaluate --json`` says of a kind."""
    return {
        "records": len(report.records),
        "applications": len(report.records.places),
        "threshold": report.records.threshold,
        "excluded": report.excluded,
        "without_interval": report.single,
        "left_out": dict(report.records.features.left_out),
        "majority": report.majority,
        "twins": report.twins.accuracy,
        **{name: asdict(found) for name, found in report.accuracies.items()},
        "stepwise": {name: asdict(found) for name, found in report.stepwise.items()},
        "nearest": asdict(report.nearest),
        "curves": None if report.curves is None else _curves(report.curves),
        "with_excluded": asdict(report.included),
        "without_dangerous": {
            "records": report.clear_records,
            "majority": report.clear_majority,
            **{name: asdict(found) for name, found in report.clear.items()},
        },
        "cut": report.cut,
        "false_negatives": report.false_negatives,
        "rank_correlation": report.rank_correlation,
        "rank_interval": list(report.rank_interval),
        "mean_error": report.mean_error,
        "half_width": report.half_width,
        "coverage": report.coverage,
        "counters_kept": report.kept,
        "weights": report.weights,
        "separated": report.separated,
        "clusters": _clusters(report.records, report.clusters),
        "mispredictions": [asdict(one) for one in report.mispredictions],
        "calibration": [
            {"predicted": likely, "observed": seen, "records": count}
            for likely, seen, count in report.calibration
        ],
    }


def curves_sentence(report: KindReport) -> str | None:
    """Compare stressor curves with the model of counters; None where there are none."""
    found = report.curves
    if found is None:
        return None
    return (
        f"Stressor curves predict the loss of {counted(found.records, 'pair')} of victims never seen with a "
        f"mean error of {found.mean_error:.3f} and a rank correlation of {found.rank_correlation:.2f} "
        f"({found.rank_interval[0]:.2f} to {found.rank_interval[1]:.2f}); counters with "
        f"{found.model_mean_error:.3f} and {found.model_rank_correlation:.2f}."
    )


def _curves(found: CurveReport) -> dict[str, Any]:
    figures = asdict(found)
    del figures["curves"]
    return figures | {
        "stressors": list(found.curves.stressors),
        "sensitivity": {name: levels.tolist() for name, levels in found.curves.sensitivity.items()},
        "pressure": {name: levels.tolist() for name, levels in found.curves.pressure.items()},
    }


def _clusters(records: Records, groups: Clustering) -> list[dict[str, Any]]:
    names = records.features.applications
    return [
        {
            "applications": [names[place] for place in groups.members(number).tolist()],
            "median_loss": None
            if groups.median_loss[number] != groups.median_loss[number]
            else float(groups.median_loss[number]),
            "dangerous": bool(groups.dangerous[number]),
        }
        for number in range(len(groups.centres))
    ]


def share(found: Accuracy) -> str:
    """Return an accuracy with its interval: ``64% (56 to 72)``."""
    return f"{found.accuracy:.0%} ({100 * found.low:.0f} to {100 * found.high:.0f})"


def margin(found: Accuracy) -> str:
    """Return by how much an accuracy beats the majority, in points, with its interval."""
    return f"{100 * found.margin:+.0f} ({100 * found.margin_low:+.0f} to {100 * found.margin_high:+.0f})"


def rows_of(report: KindReport) -> list[tuple[str, str, str]]:
    """Return the row of a kind: judge, accuracy, points above the majority."""
    rows = [("majority", f"{report.majority:.0%}", "")]
    rows.append(("no twins", share(report.twins), margin(report.twins)))
    rows.append(("nearest measured pair, victims never seen", share(report.nearest), margin(report.nearest)))
    if report.curves is not None:
        found = report.curves.accuracy
        what = (
            ""
            if report.curves.records == len(report.records)
            else f" ({counted(report.curves.records, 'pair')})"
        )
        rows.append((f"stressor curves, victims never seen{what}", share(found), margin(found)))
    for name, found in report.accuracies.items():
        rows.append((f"penalised, {SCHEMES[name]}", share(found), margin(found)))
    for name, found in report.stepwise.items():
        rows.append((f"stepwise, {SCHEMES[name]}", share(found), margin(found)))
    for name, found in report.clear.items():
        rows.append((f"without dangerous clusters, {SCHEMES[name]}", share(found), margin(found)))
    rows.append(("victims never seen, uncertain pairs too", share(report.included), margin(report.included)))
    return rows


def sentence_of(report: KindReport) -> str:
    """Return what a user should conclude, in one or two sentences."""
    found = report.accuracies["application"]
    if found.margin_low > 0:
        start = (
            "The model tells dangerous pairs of an application it has not seen better than the majority does"
        )
    elif found.margin_high < 0:
        start = "For an application it has not seen the model is worse than saying the same of all pairs"
    else:
        start = "Whether the model says more of an application it has not seen than the majority does is open"
    return (
        f"{start}: right in {share(found)} of pairs, against {report.majority:.0%}. Predicted and "
        f"measured losses rank alike at {report.rank_correlation:.2f} ({report.rank_interval[0]:.2f} to "
        f"{report.rank_interval[1]:.2f}); a predicted loss is off by {report.mean_error:.2f} on average."
    )


_MOST_WRONG = 20


def write_page(target: Path, about: About, reports: Mapping[str, KindReport]) -> None:
    """Write the page, complete in itself; raises OutputError."""
    where = (
        f"Measured on {about.host.cpu_model} ({counted(about.host.cpus, 'CPU')}), "
        f"{about.started:%Y-%m-%d %H:%M} to {about.ended:%Y-%m-%d %H:%M} UTC."
    )
    drawn = {
        name: [PageBlock(f"{name}: {title}", chart.caption, chart=chart) for title, chart in _charts(report)]
        for name, report in reports.items()
    }
    page = Page(
        title="Which applications may share a core",
        subtitle=where,
        verdict=[VerdictParagraph(f"{name}:", sentence_of(report)) for name, report in reports.items()],
        sections=[
            Section("losses", "What victims lose", [blocks[0] for blocks in drawn.values()]),
            *(_judged(number, name, report) for number, (name, report) in enumerate(reports.items())),
            *(
                Section(f"figures-{number}", f"Figures: {name}", blocks[1:])
                for number, (name, blocks) in enumerate(drawn.items())
            ),
            Section("where", "Where", [PageBlock("", where, notes=about.notes)]),
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
        PageBlock(
            "Who judges how well",
            "",
            grid=PageTable(columns=judges, rows=rows_of(report), texts=3, heads=True),
            notes=[curves] if curves else (),
        ),
        PageBlock(
            "Judged wrong",
            f"{counted_of(len(report.mispredictions), len(report.records), 'pair')} of victims never seen; "
            f"the {len(wrong)} that are furthest off (the thesis's Table 4.11).",
            grid=PageTable(columns=columns, rows=wrong, texts=2) if wrong else None,
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
    figure = _heatmap(shown, labels, labels, centre, "%{y} with %{x}")
    arrange(figure, 180 + 20 * len(labels), xaxis_title="opponent", yaxis_title="victim")
    caption = (
        f"E_v of each victim (row) with each opponent (column): red is above {centre:g}. Blank: not "
        "measured, or not certain."
    )
    return Chart(figure, caption)


def _heatmap(
    losses: Floats, columns: Sequence[str], rows: Sequence[str], centre: float, names: str
) -> go.Figure:
    """Return losses as colours, white at a centre; ``names`` is how a cell is named."""
    reach = float(np.nanmax(np.abs(losses - centre)))
    return go.Figure(
        go.Heatmap(
            z=losses,
            x=columns,
            y=rows,
            colorscale="RdBu_r",
            zmin=centre - reach,
            zmax=centre + reach,
            colorbar={"title": "E_v"},
            hovertemplate=f"{names}: %{{z:.2f}}<extra></extra>",
        )
    )


def _levels(stressors: Sequence[str], levels: Mapping[str, Floats], centre: float, *, pressed: bool) -> Chart:
    """Return applications by stressors: what they lose to these, or (``pressed``) what these lose."""
    names = sorted(levels, key=lambda name: float(levels[name].mean()))
    shown = np.array([levels[name] for name in names])
    columns = [name.removeprefix("stress.") for name in stressors]
    figure = _heatmap(shown, columns, names, centre, "%{y}, %{x}")
    arrange(figure, 180 + 20 * len(names), xaxis_title="stressor and its dial", yaxis_title="application")
    what = "What each stressor loses to each application" if pressed else "What each application loses"
    return Chart(figure, f"{what} to each stressor." if not pressed else f"{what}.")


def _scatter(report: KindReport) -> Chart:
    records, names = report.records, report.records.features.applications
    texts = [
        f"{names[victim]} with {names[other]}"
        for victim, other in zip(records.victim.tolist(), records.opponent.tolist(), strict=True)
    ]
    both = np.concatenate((report.unseen.loss, records.loss))
    ends = [float(both.min()), float(both.max())]
    figure = go.Figure(
        [
            _diagonal(ends, "the same"),
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


def _diagonal(ends: Sequence[float], name: str) -> go.Scatter:
    return go.Scatter(x=ends, y=ends, mode="lines", line={"color": GRID}, name=name, hoverinfo="skip")


def calibration_chart(report: KindReport) -> Chart:
    """Return how often pairs of a predicted probability were dangerous."""
    likely, seen, counts = zip(*report.calibration, strict=True)
    figure = go.Figure(
        [
            _diagonal([0.0, 1.0], "calibrated"),
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
