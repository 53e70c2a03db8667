"""The page of `osub predict evaluate`: verdict, judges, losses, map, calibration, mispredictions."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from osub.analysis.charts import GRID, INK, JOB_COLOURS, Chart, arrange, fragment
from osub.analysis.plotly_script import plotly_script
from osub.whole_file import write_whole
from predictor.dataset import About
from predictor.model.evaluate import KindReport
from predictor.model.features import Floats
from predictor.model.told import curves_sentence, rows_of, sentence_of

_STYLE = """
body{margin:0 auto;max-width:1100px;padding:0 22px 40px;color:#1f2933;background:#fff}
body{font:15px/1.5 system-ui,sans-serif}
h1{font-size:24px}h2{font-size:19px;border-bottom:2px solid #dde3e8}p.caption{color:#5f6b73;max-width:110ch}
p.verdict{padding-left:12px;border-left:4px solid #0072b2;max-width:100ch}div.scroll{overflow-x:auto}
table{border-collapse:collapse}td,th{text-align:left;padding:3px 18px 3px 0}
thead th{border-bottom:1px solid #5f6b73}
"""
_MOST_WRONG = 20


def write_page(target: Path, about: About, reports: Mapping[str, KindReport]) -> None:
    """Write the page, complete in itself; raises OutputError."""
    body = "".join(_kind(name, report) for name, report in reports.items())
    where = (
        f"Measured on {about.host.cpu_model} ({about.host.cpus} CPUs), {about.started:%Y-%m-%d %H:%M} to "
        f"{about.ended:%Y-%m-%d %H:%M} UTC. {' '.join(about.notes)}"
    )
    write_whole(
        target,
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>Which applications may share a core</title>"
        f"<style>{_STYLE}</style><script>{plotly_script()}</script></head><body>"
        f'<h1>Which applications may share a core</h1>{body}<h2>Where</h2><p class="caption">'
        f"{html.escape(where)}</p></body></html>\n",
    )


def _kind(name: str, report: KindReport) -> str:
    parts = [f'<h2>{html.escape(name)}</h2><p class="verdict">{html.escape(sentence_of(report))}</p>']
    rows = rows_of(report)
    parts.append(_table(("judged by", "right (95% interval)", "points above the majority"), rows))
    if told := curves_sentence(report):
        parts.append(f"<p>{html.escape(told)}</p>")
    for number, (title, chart) in enumerate(_charts(report)):
        parts.append(
            f'<h2>{html.escape(title)}</h2><p class="caption">{html.escape(chart.caption)}</p>'
            f'<div class="scroll" role="img" aria-label="{html.escape(chart.caption)}">'
            f"{fragment(chart.figure, f'{name}-{number}')}</div>"
        )
    wrong = [
        (one.victim, one.opponent, f"{one.e_v:.2f}", "yes" if one.dangerous else "no", f"{one.predicted:.2f}")
        for one in report.mispredictions[:_MOST_WRONG]
    ]
    parts.append(
        f'<h2>Judged wrong</h2><p class="caption">{len(report.mispredictions)} of {len(report.records)} '
        f"pairs of victims never seen; the {len(wrong)} that are furthest off (the thesis's Table 4.11).</p>"
    )
    columns = ("victim", "opponent", "E_v", f"above {report.records.threshold:g}", "predicted probability")
    parts.append(_table(columns, wrong))
    return "".join(parts)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


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
                text=[f"{count} pairs" for count in counts],
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
        f"Applications by their counters, in {len(groups.centres)} clusters (k-means, k by silhouette): the "
        "median is of what members lose as victims.",
    )
