"""A table of claims, in the terminal and for a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from analysis.claims.claim_row import Row, Verdict
from analysis.claims.claim_rules import LEAST_SEEDS
from analysis.pages.page_content import Cell, Grid, Tone
from foundation.units import counted

COLOURS = {
    Verdict.HOLDS: "bold green",
    Verdict.FAILS: "bold red",
    Verdict.TIE: "bold yellow",
    Verdict.NOT_COMPARABLE: "dim",
}
COLUMNS = ("claim", "setting", "quantity", "paper", "ours", "verdict")

TONES: dict[Verdict, Tone] = {
    Verdict.HOLDS: "good",
    Verdict.FAILS: "bad",
    Verdict.TIE: "unclear",
    Verdict.NOT_COMPARABLE: "muted",
}


def claims_table(rows: Sequence[Row]) -> Table:
    """Return the claims; the note of a row stands below its verdict's line."""
    table = Table(title_justify="left", header_style="bold", pad_edge=False, show_lines=True)
    for name in COLUMNS:
        table.add_column(Text(name), no_wrap=name == "claim", overflow="fold")
    for row in rows:
        verdict = Text(row.verdict.value, style=COLOURS[row.verdict])
        if row.note:
            verdict.append(f"\n{row.note}", style="not bold default")
        table.add_row(
            Text(f"{row.id}\n{row.where}"),
            *(Text(text) for text in (row.setting, row.quantity, row.paper, row.ours)),
            verdict,
        )
    return table


def tally(rows: Sequence[Row], seeds: int) -> str:
    """Return how many claims hold, fail, tie or cannot be compared, and whether that is provisional."""
    often = Counter(row.verdict for row in rows)
    counts = ", ".join(f"{often[verdict]} {verdict.value}" for verdict in Verdict)
    few = (
        f" {counted(seeds, 'seed')}, fewer than {LEAST_SEEDS}: the verdicts are provisional."
        if seeds < LEAST_SEEDS
        else ""
    )
    return f"{counted(len(rows), 'claim')}: {counts}.{few}"


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
