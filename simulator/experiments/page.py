"""The page of an experiment, complete in itself: what was simulated, claims, tables, figures."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from osub.analysis.charts import fragment
from osub.analysis.plotly_script import plotly_script
from osub.claims.page import STYLE as CLAIMS_STYLE
from osub.claims.page import claims_fragment
from osub.claims.row import Row
from osub.whole_file import write_whole
from simulator.experiments.tables import ExperimentTable

Drawing = tuple[str, go.Figure]
"""A figure under its title."""

_STYLE = """
body{font-family:system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;color:#1F2933}
table{border-collapse:collapse;margin:.5rem 0 1rem}
td,th{padding:.2rem .8rem;border-bottom:1px solid #E3E8EC;text-align:right}
td:first-child,th:first-child{text-align:left}
p.note{color:#5F6B73;margin:.2rem 0}h1{font-size:1.6rem}h2{margin-top:2rem;font-size:1.15rem}
td.off{background:#FFF1E0}th{font-weight:600;vertical-align:bottom}.wide{overflow-x:auto}td{white-space:nowrap}
"""


def write_page(
    path: Path,
    title: str,
    facts: Sequence[str],
    tables: Sequence[ExperimentTable],
    figures: Sequence[Drawing],
    claims: Sequence[Row] = (),
) -> None:
    """Write the page, whole or not at all; texts are escaped.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    parts = [f"<h1>{html.escape(title)}</h1>", *(f"<p>{html.escape(fact)}</p>" for fact in facts)]
    if claims:
        parts.append(f'<h2>Claims</h2><div class="wide">{claims_fragment(claims)}</div>')
    for table in tables:
        parts.append(f"<h2>{html.escape(table.name)}: {html.escape(table.title)}</h2>")
        parts.append(_grid(table))
        parts += [f'<p class="note">{html.escape(note)}</p>' for note in table.notes]
    for number, (name, figure) in enumerate(figures):
        parts.append(f"<h2>{html.escape(name)}</h2>{fragment(figure, f'figure-{number}')}")
    page = (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        f"<style>{_STYLE}{CLAIMS_STYLE}</style><script>{plotly_script()}</script></head>"
        f"<body>{''.join(parts)}</body></html>"
    )
    write_whole(path, page)


def _grid(table: ExperimentTable) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td{_mark(cell)}>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _mark(cell: str) -> str:
    return ' class="off"' if "*" in cell else ""
