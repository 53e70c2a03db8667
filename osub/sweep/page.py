"""The page of a sweep: waiting against what sharing costs, and each figure over what was varied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import plotly.express as px
import plotly.graph_objects as go
import polars as pl

from analysis.charts import MUTED, RUN_COLOURS, Chart, arrange
from analysis.pages import Page, PageBlock, PageTable, Section, VerdictParagraph
from analysis.pages import write_page as framed
from foundation.units import counted
from osub.sweep.spec import KIND, REPEATS, is_choice
from osub.sweep.tell import answers, averaged, pareto, scenarios

_FIGURES = (
    ("wait_mean_s", "mean wait (s)"),
    ("degradation_mean", "mean degradation"),
    ("slowdown_p95", "slowdown, 95th percentile"),
)
_MOST_VALUES = 12
_FRONT = (
    "Each point is a choice under a scenario, the mean over its repeats with its 95% interval. Left is less "
    "waiting, down is less harm to running jobs; along the dotted line of a scenario less of one is more of "
    "the other."
)
_MOST_ROWS = 40
_FEW = (
    f"From little waiting to little harm, {_MOST_ROWS} at most, with 95% intervals over repeats; "
    "points.parquet in the folder has all."
)
_MOST_SCENARIOS = 12
_WIDE = 30.0
_LABELS = (("wait_mean_s", "mean wait (s)"), ("degradation_mean", "mean degradation"))


def write_page(
    target: Path,
    title: str,
    table: pl.DataFrame,
    varied: Sequence[str],
    failed: int,
    repeats: Sequence[str] = REPEATS,
) -> None:
    """Write the page, complete in itself; raises OutputError."""
    found = scenarios(table, varied, repeats)
    drawn = _charts(table, varied, repeats) if table.height else []
    blocks = [PageBlock(name, caption, chart=Chart(figure, caption)) for name, caption, figure in drawn]
    best = []
    for one in found[:_MOST_SCENARIOS]:
        head, rows = one.rows(_MOST_ROWS)
        best.append(PageBlock(one.name, _FEW, grid=PageTable(columns=tuple(head), rows=rows, texts=0)))
    every = [
        Section("picture", "Picture", blocks[:1]),
        Section("best", "Choices that none is better than in both", best),
        Section("figures", "Figure by figure", blocks[1:]),
    ]
    page = Page(
        title=title,
        subtitle=f"{counted(table.height, 'point')}; {failed:,} without a result.",
        verdict=[VerdictParagraph(heading, words, "muted") for heading, words in answers(found)][
            :_MOST_SCENARIOS
        ],
        sections=[section for section in every if section.blocks],
    )
    framed(target, page)


def _charts(
    table: pl.DataFrame, varied: Sequence[str], repeats: Sequence[str] = REPEATS
) -> list[tuple[str, str, go.Figure]]:
    found = []
    # What only points of the other kind have is a dash; real and simulated points are distinguished first,
    # scenarios after choices.
    names = sorted(
        (name for name in varied if name in table.columns and name not in repeats),
        key=lambda name: (name != KIND, not is_choice(name)),
    )
    means = averaged(table, names)
    texts = means.with_columns(
        pl.col(name).cast(pl.String).fill_null("-").alias(f"{name} ") for name in names
    )
    differing = [f"{name} " for name in names]
    if names[:1] == [KIND]:
        differing = [*differing[1:2], *differing[:1], *differing[2:]]
    if {"wait_mean_s", "degradation_mean"} <= set(table.columns):
        ends = [f"{name}_high" for name in ("wait_mean_s", "degradation_mean")]
        figure = px.scatter(
            texts.with_columns(pl.col(name) - pl.col(name.removesuffix("_high")) for name in ends),
            x="wait_mean_s",
            y="degradation_mean",
            error_x=ends[0],
            error_y=ends[1],
            color=differing[0] if differing else None,
            symbol=differing[1]
            if len(differing) > 1 and texts[differing[1]].n_unique() <= _MOST_VALUES
            else None,
            hover_data=differing,
            log_x=_wide(means["wait_mean_s"]),
            labels=dict(_LABELS),
            color_discrete_sequence=RUN_COLOURS,
        )
        for one in scenarios(table, varied, repeats)[:_MOST_SCENARIOS]:
            front = pareto(one.table).sort("wait_mean_s")
            figure.add_scatter(
                x=front["wait_mean_s"].to_list(),
                y=front["degradation_mean"].to_list(),
                mode="lines",
                name=f"best, {one.name}" if one.name else "best",
                line={"dash": "dot", "color": MUTED},
            )
        found.append(("Waiting against what sharing costs", _FRONT, figure))
    axes = [name for name in names if 1 < means[name].n_unique() <= 1000]
    numbers = [name for name in axes if means[name].dtype.is_numeric()] or axes
    if numbers:
        across = numbers[0]
        rest = [name for name in axes if name != across and means[name].n_unique() <= _MOST_VALUES][:2]
        for column, label in _FIGURES:
            if column not in means.columns:
                continue
            keys = [across, *rest]
            drawn = texts.group_by(keys, maintain_order=True).agg(pl.col(column).mean()).sort(keys)
            figure = px.line(
                drawn.with_columns(pl.col(name).cast(pl.String) for name in rest),
                x=across,
                y=column,
                color=rest[0] if rest else None,
                facet_col=rest[1] if len(rest) > 1 else None,
                markers=True,
                log_y=_wide(drawn[column]),
                color_discrete_sequence=RUN_COLOURS,
            )
            figure.update_yaxes(title=label, rangemode="tozero", col=1)
            if means[across].dtype.is_integer() and means[across].n_unique() <= _MOST_VALUES:
                figure.update_xaxes(tickvals=sorted(means[across].drop_nulls().unique()))
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
