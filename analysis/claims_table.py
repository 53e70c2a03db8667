"""A table of claims, in the terminal and for a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from analysis.claims import LEAST_SEEDS, ClaimRow, ClaimVerdict
from analysis.pages import PageTable, TableCell, Tone
from foundation.units import counted

COLOURS = {
    ClaimVerdict.HOLDS: "bold green",
    ClaimVerdict.FAILS: "bold red",
    ClaimVerdict.TIE: "bold yellow",
    ClaimVerdict.NOT_COMPARABLE: "dim",
}
COLUMNS = ("claim", "setting", "quantity", "paper", "ours", "verdict")

TONES: dict[ClaimVerdict, Tone] = {
    ClaimVerdict.HOLDS: "good",
    ClaimVerdict.FAILS: "bad",
    ClaimVerdict.TIE: "unclear",
    ClaimVerdict.NOT_COMPARABLE: "muted",
}


def claims_table(rows: Sequence[ClaimRow]) -> Table:
    """Return the claims; the note of a row is below its verdict's line."""
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


def tally(rows: Sequence[ClaimRow], seeds: int) -> str:
    """Return how many claims hold, fail, tie or cannot be compared, and whether that is provisional."""
    often = Counter(row.verdict for row in rows)
    counts = ", ".join(f"{often[verdict]} {verdict.value}" for verdict in ClaimVerdict)
    few = (
        f" {counted(seeds, 'seed')}, fewer than {LEAST_SEEDS}: the verdicts are provisional."
        if seeds < LEAST_SEEDS
        else ""
    )
    return f"{counted(len(rows), 'claim')}: {counts}.{few}"


def claims_grid(rows: Sequence[ClaimRow]) -> PageTable:
    """Return the claims, a row each; the verdict has its note below it."""
    cells = [
        (
            TableCell(row.id, row.where),
            TableCell(row.verdict.value, row.note, TONES[row.verdict]),
            row.setting,
            row.quantity,
            row.paper,
            row.ours,
        )
        for row in rows
    ]
    return PageTable(
        columns=(COLUMNS[0], COLUMNS[-1], *COLUMNS[1:-1]),
        rows=cells,
        texts=len(COLUMNS),
        heads=True,
    )
