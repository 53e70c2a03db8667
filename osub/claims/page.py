"""A table of claims as a fragment of HTML, and its style."""

from __future__ import annotations

import html
from collections.abc import Sequence

from osub.claims.row import Row
from osub.claims.table import COLUMNS

STYLE = """
table.claims td,table.claims th{text-align:left;vertical-align:top;white-space:normal;padding:.3rem .7rem}
table.claims td:first-child{white-space:nowrap}
table.claims small{display:block;color:#5F6B73}
td.holds b{color:#00664B}td.fails b{color:#B2433F}td.tie b{color:#8A6100}td.not-comparable b{color:#5F6B73}
"""


def claims_fragment(rows: Sequence[Row]) -> str:
    """Return the claims as a table; every text is escaped."""
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    return f'<table class="claims"><tr>{head}</tr>{"".join(map(_line, rows))}</table>'


def _line(row: Row) -> str:
    cells = "".join(
        f"<td>{html.escape(text)}</td>" for text in (row.setting, row.quantity, row.paper, row.ours)
    )
    kind = row.verdict.value.replace(" ", "-")
    return (
        f'<tr id="{html.escape(row.id)}"><td><b>{html.escape(row.id)}</b>'
        f"<small>{html.escape(row.where)}</small></td>{cells}"
        f'<td class="{kind}"><b>{row.verdict.value}</b><small>{html.escape(row.note)}</small></td></tr>'
    )
