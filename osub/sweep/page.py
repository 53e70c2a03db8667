"""The page of a sweep: waiting against what sharing costs, and each figure over what was varied."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import plotly.express as px
import plotly.graph_objects as go
import polars as pl

from osub.analysis.charts import RUN_COLOURS, fragment
from osub.analysis.plotly_script import plotly_script
from osub.sweep.tell import best_rows, pareto
from osub.whole_file import write_whole

_STYLE = """
body{margin:0 auto;max-width:1100px;padding:0 22px 40px;color:#1f2933;background:#fff}
body{font:15px/1.5 system-ui,sans-serif}h1{font-size:24px}h2{font-size:19px;border-bottom:2px solid #dde3e8}
p.caption{color:#5f6b73;max-width:100ch}div.scroll{overflow-x:auto}table{border-collapse:collapse}
td,th{text-align:left;padding:3px 18px 3px 0;white-space:nowrap}thead th{border-bottom:1px solid #5f6b73}
"""
_FIGURES = (
    ("wait_mean_s", "mean wait (s)"),
    ("degradation_mean", "mean degradation"),
    ("slowdown_p95", "slowdown, 95th percentile"),
)
_MOST_VALUES = 12
_FRONT = (
    "Each point is a setting. Left is less waiting, down is less harm to running jobs; along the dotted line "
    "neither is to be had for nothing."
)
_MOST_ROWS = 40
_WIDE = 30.0
_LABELS = (("wait_mean_s", "mean wait (s)"), ("degradation_mean", "mean degradation"))


def write_page(target: Path, title: str, table: pl.DataFrame, varied: Sequence[str], failed: int) -> None:
    """Write the page, complete in itself; raises OutputError."""
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{table.height:,} points; {failed:,} without a result.</p>",
    ]
    charts = list(_charts(table, varied)) if table.height else []
    for number, (name, caption, figure) in enumerate(charts):
        parts.append(
            f'<h2>{html.escape(name)}</h2><p class="caption">{html.escape(caption)}</p>'
            f'<div class="scroll" role="img" aria-label="{html.escape(caption)}">'
            f"{fragment(figure, f'chart-{number}')}</div>"
        )
    head, rows = best_rows(table, varied, _MOST_ROWS)
    parts.append(f"<h2>Points that none is better than in both</h2>{_table(head, rows)}")
    write_whole(
        target,
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style>"
        f"<script>{plotly_script()}</script></head><body>{''.join(parts)}</body></html>\n",
    )


def _charts(table: pl.DataFrame, varied: Sequence[str]) -> list[tuple[str, str, go.Figure]]:
    found = []
    texts = table.with_columns(pl.col(name).cast(pl.String).alias(f"{name} ") for name in varied)
    told = [f"{name} " for name in varied]
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
            line={"dash": "dot", "color": "#5f6b73"},
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
            found.append(
                (f"{label} over {across}", "Means over all points that share what is named.", figure)
            )
    return [(name, caption, _styled(figure)) for name, caption, figure in found]


def _wide(values: pl.Series) -> bool:
    """Return whether figures differ so much that a logarithmic axis shows more of them."""
    least, most = values.min(), values.max()
    return isinstance(least, float) and isinstance(most, float) and 0 < _WIDE * least < most


def _styled(figure: go.Figure) -> go.Figure:
    figure.update_layout(template="plotly_white", height=420, margin={"l": 60, "r": 20, "t": 40, "b": 50})
    return figure


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f'<div class="scroll"><table><thead>{line(head, "th")}</thead><tbody>{body}</tbody></table></div>'
