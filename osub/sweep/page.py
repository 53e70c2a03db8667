"""The page of a sweep: waiting against what sharing costs, and each figure over what was varied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import plotly.express as px
import plotly.graph_objects as go
import polars as pl

from analysis.charts import MUTED, RUN_COLOURS, Chart, arrange
from analysis.pages.page_content import Block, Grid, Page, Section, Told
from analysis.pages.page_frame import write_page as framed
from foundation.units import counted
from osub.sweep.spec import KIND
from osub.sweep.tell import best_rows, pareto

_FIGURES = (
    ("wait_mean_s", "mean wait (s)"),
    ("degradation_mean", "mean degradation"),
    ("slowdown_p95", "slowdown, 95th percentile"),
)
_MOST_VALUES = 12
_REPEATS = frozenset({"seed", "trial"})
"""What makes the same setting run again; it is averaged over before anything else is."""
_FRONT = (
    "Each point is a setting. Left is less waiting, down is less harm to running jobs; along the dotted line "
    "neither is to be had for nothing."
)
_MOST_ROWS = 40
_FEW = f"From little waiting to little harm, {_MOST_ROWS} at most; points.parquet in the folder has all."
_WIDE = 30.0
_LABELS = (("wait_mean_s", "mean wait (s)"), ("degradation_mean", "mean degradation"))


def write_page(target: Path, title: str, table: pl.DataFrame, varied: Sequence[str], failed: int) -> None:
    """Write the page, complete in itself; raises OutputError."""
    drawn = list(_charts(table, varied)) if table.height else []
    blocks = [Block(name, caption, chart=Chart(figure, caption)) for name, caption, figure in drawn]
    head, rows = best_rows(table, varied, _MOST_ROWS)
    grid = Grid(groups=(), columns=tuple(head), rows=rows, texts=0)
    every = [
        Section("picture", "Picture", blocks[:1]),
        Section("best", "Points that none is better than in both", [Block("", _FEW, grid=grid)]),
        Section("figures", "Figure by figure", blocks[1:]),
    ]
    page = Page(
        title=title,
        subtitle=f"{counted(table.height, 'point')}; {failed:,} without a result.",
        verdict=_verdict(rows, head, varied),
        sections=[section for section in every if section.blocks],
    )
    framed(target, page)


def _verdict(rows: Sequence[Sequence[str]], head: Sequence[str], varied: Sequence[str]) -> list[Told]:
    """Return the two ends of the front: least waiting, and least harm to running jobs."""
    if not rows:
        return [Told("", "No point has both a mean wait and a mean degradation.", "unclear")]

    def told(row: Sequence[str]) -> str:
        pairs = [f"{name} {text}" for name, text in zip(head, row, strict=True)]
        return ", ".join(pairs[: len(varied)]) + ": " + ", ".join(pairs[len(varied) :]) + "."

    if len(rows) == 1:
        return [Told("Least waiting and least harm in one:", told(rows[0]), "good")]
    return [
        Told("Least waiting:", told(rows[0]), "good"),
        Told("Least harm to running jobs:", told(rows[-1]), "good"),
    ]


def _charts(table: pl.DataFrame, varied: Sequence[str]) -> list[tuple[str, str, go.Figure]]:
    found = []
    # What only points of the other kind have is a dash; who is real and who is simulated is told apart first,
    # repeats of one setting last.
    varied = sorted(
        (name for name in varied if name in table.columns), key=lambda name: (name != KIND, name in _REPEATS)
    )
    texts = table.with_columns(
        pl.col(name).cast(pl.String).fill_null("-").alias(f"{name} ") for name in varied
    )
    told = [f"{name} " for name in varied]
    if varied[:1] == [KIND]:
        told = [*told[1:2], *told[:1], *told[2:]]
    if {"wait_mean_s", "degradation_mean"} <= set(table.columns):
        figure = px.scatter(
            texts,
            x="wait_mean_s",
            y="degradation_mean",
            color=told[0] if told else None,
            symbol=told[1] if len(told) > 1 and texts[told[1]].n_unique() <= _MOST_VALUES else None,
            hover_data=told,
            log_x=_wide(table["wait_mean_s"]),
            labels=dict(_LABELS),
            color_discrete_sequence=RUN_COLOURS,
        )
        front = pareto(table).sort("wait_mean_s")
        figure.add_scatter(
            x=front["wait_mean_s"].to_list(),
            y=front["degradation_mean"].to_list(),
            mode="lines",
            name="best",
            line={"dash": "dot", "color": MUTED},
        )
        found.append(
            (
                "Waiting against what sharing costs",
                _FRONT,
                figure,
            )
        )
    axes = [name for name in varied if 1 < table[name].n_unique() <= 1000]
    numbers = [name for name in axes if table[name].dtype.is_numeric()] or axes
    if numbers:
        across = numbers[0]
        rest = [name for name in axes if name != across and table[name].n_unique() <= _MOST_VALUES][:2]
        for column, label in _FIGURES:
            if column not in table.columns:
                continue
            keys = [across, *rest]
            means = texts.group_by(keys, maintain_order=True).agg(pl.col(column).mean()).sort(keys)
            drawn = means.with_columns(pl.col(name).cast(pl.String) for name in rest)
            figure = px.line(
                drawn,
                x=across,
                y=column,
                color=rest[0] if rest else None,
                facet_col=rest[1] if len(rest) > 1 else None,
                markers=True,
                log_y=_wide(drawn[column]),
                color_discrete_sequence=RUN_COLOURS,
            )
            figure.update_yaxes(title=label, rangemode="tozero", col=1)
            if table[across].dtype.is_integer() and table[across].n_unique() <= _MOST_VALUES:
                figure.update_xaxes(tickvals=sorted(table[across].drop_nulls().unique()))
            found.append(
                (f"{label} over {across}", "Means over all points that share what is named.", figure)
            )
    return [(name, caption, _styled(figure)) for name, caption, figure in found]


def _wide(values: pl.Series) -> bool:
    """Return whether figures differ so much that a logarithmic axis shows more of them."""
    least, most = values.min(), values.max()
    return isinstance(least, float) and isinstance(most, float) and 0 < _WIDE * least < most


def _styled(figure: go.Figure) -> go.Figure:
    title = figure.layout.legend.title.text
    arrange(figure, 440, showlegend=True, margin={"l": 64, "r": 20, "t": 92, "b": 52})
    figure.update_layout(
        legend={"y": 1.1, "title": {"text": re.sub(r" (,|$)", r"\1", title) if title else ""}}
    )
    return figure.for_each_annotation(lambda note: note.update(text=note.text.replace(" =", " ")))
