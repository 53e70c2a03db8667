"""A table of claims for a page."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.claims.claim_row import Row, Verdict
from analysis.claims.claims_table import COLUMNS
from analysis.pages.page_content import Cell, Grid, Tone

TONES: dict[Verdict, Tone] = {
    Verdict.HOLDS: "good",
    Verdict.FAILS: "bad",
    Verdict.TIE: "unclear",
    Verdict.NOT_COMPARABLE: "muted",
}


def claims_grid(rows: Sequence[Row]) -> Grid:
    """Return the claims, a row each; the verdict has its note below it."""
    cells = [
        (
            Cell(row.id, row.where),
            Cell(row.verdict.value, row.note, TONES[row.verdict]),
            row.setting,
            row.quantity,
            row.paper,
            row.ours,
        )
        for row in rows
    ]
    return Grid(
        groups=(),
        columns=(COLUMNS[0], COLUMNS[-1], *COLUMNS[1:-1]),
        rows=cells,
        texts=len(COLUMNS),
        heads=True,
    )
