"""The page of a history: the newest table, and each figure over the runs of this host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from analysis.charts import RUN_COLOURS, Chart, arrange
from analysis.pages import Page, PageBlock, PageTable, Section, VerdictParagraph, write_page
from tests.bench.figures import Row
from tests.bench.history import Run

_HEAD = ("figure", "value", "95% interval", "unit", "baseline", "ratio", "load")


def draw(target: Path, runs: Sequence[Run]) -> None:
    """Write the page of runs of one host, the oldest first; raises OutputError."""
    newest = runs[-1]
    areas = list(dict.fromkeys(row.area for run in runs for row in run.rows))
    page = Page(
        title="Figures of all areas",
        subtitle=(
            f"{newest.host}, {newest.cpus} CPUs; {len(runs)} runs, the newest {newest.at} "
            f"of {newest.version} ({newest.commit}), begun at a load of {newest.load:.1f}."
        ),
        verdict=[_verdict(newest)],
        sections=[
            Section("newest", "The newest run", [PageBlock("", "", grid=_grid(newest))]),
            *(Section(f"area-{area}", area.capitalize(), [_chart(area, runs)]) for area in areas),
        ],
    )
    write_page(target, page)


def _verdict(run: Run) -> VerdictParagraph:
    if run.load > run.cpus / 2:
        return VerdictParagraph(
            "", f"The host was not calm (load {run.load:.1f}): ratios tell more than times.", "unclear"
        )
    return VerdictParagraph("", f"{len(run.rows)} figures, measured on a calm host.", "good")


def _grid(run: Run) -> PageTable:
    rows = [
        [
            f"{row.area}: {row.figure}",
            f"{row.value:.4g}",
            "" if row.interval is None else f"{row.interval[0]:.4g} to {row.interval[1]:.4g}",
            row.unit,
            row.baseline or "",
            "" if row.ratio is None else f"{row.ratio:.4g}",
            f"{row.load:.1f}",
        ]
        for row in run.rows
    ]
    return PageTable(columns=_HEAD, rows=rows, texts=1)


def _chart(area: str, runs: Sequence[Run]) -> PageBlock:
    figure = go.Figure()
    names = list(dict.fromkeys(row.figure for run in runs for row in run.rows if row.area == area))
    for name, colour in zip(names, RUN_COLOURS * len(names), strict=False):
        found = [(run, row) for run in runs for row in run.rows if (row.area, row.figure) == (area, name)]
        first = _drawn(found[0][1])
        figure.add_scatter(
            x=[run.at for run, _ in found],
            y=[_drawn(row) / first if first else None for _, row in found],
            text=[f"{row.value:.4g} {row.unit}, {run.commit}, load {row.load:.1f}" for run, row in found],
            mode="lines+markers",
            name=name,
            line={"color": colour},
        )
    arrange(figure, 360, showlegend=True)
    figure.update_yaxes(title="over the first run", rangemode="tozero")
    caption = (
        "Each figure over that of the first run: its ratio to the baseline where it has one, else its value."
    )
    return PageBlock("", caption, chart=Chart(figure, caption))


def _drawn(row: Row) -> float:
    return row.value if row.ratio is None else row.ratio
