"""Tables that fit a terminal: columns that don't fit side by side make several tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

FRAME = 3
"""Width that a column takes beside its text: two spaces and a line."""


def fitting(width: int, first: int, others: Sequence[int]) -> Iterator[range]:
    """Yield the columns of each table, at least one, so that each is at most ``width`` wide.

    Parameters
    ----------
    width
        Of the terminal.
    first
        Text width of the first column, which every table repeats.
    others
        Text widths of the other columns.
    """
    begin, used = 0, first + FRAME
    for place, text in enumerate(others):
        if place > begin and used + text + FRAME > width:
            yield range(begin, place)
            begin, used = place, first + FRAME
        used += text + FRAME
    yield range(begin, len(others))


def column_width(label: str, cells: Sequence[str]) -> int:
    """Return the least text width in which no line of a cell and no word of a label breaks."""
    lines = [line for cell in cells for line in cell.split("\n")]
    return max(map(len, [*label.split(), *lines]), default=0)


def run_table(first: str, labels: Sequence[str]) -> Table:
    """Return a table without rows: a column of names, headed ``first``, and one for each run."""
    table = Table(title_justify="left", header_style="bold", pad_edge=False)
    table.add_column(Text(first), no_wrap=True)
    for label in labels:
        table.add_column(Text(label), justify="right", overflow="fold")
    return table
