"""The content of a page, in order: texts, charts and tables, without any HTML of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.charts import Chart

Tone = Literal["", "good", "bad", "unclear", "muted", "mark", "best"]
"""How a text is coloured; never the only sign of what it says. ``best`` is bold without a colour: green and
red are for what an interval supports."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell that is more than a text: a second line below it, or a tone."""

    text: str
    below: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class RunMark:
    """The sign of a run before its name: its colour, hollow for a simulated one."""

    colour: str
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table: a heading over groups of columns, the columns, and rows.

    Parameters
    ----------
    groups
        (text, number of columns) from the left; empty for none.
    columns
        Names of the columns.
    rows
        Their cells.
    texts
        How many columns from the left are texts and not numbers.
    marks
        Signs of the columns from the right; empty for none.
    heads
        Whether the first cell of a row names it.
    tools
        Whether its rows can be sorted and filtered; not those of a list of facts.
    """

    groups: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str | TableCell]]
    texts: int
    marks: tuple[RunMark, ...] = ()
    heads: bool = False
    tools: bool = True

    def mark(self, column: int) -> RunMark | None:
        """Return the sign of a column, if it has one."""
        place = column - len(self.columns) + len(self.marks)
        return self.marks[place] if place >= 0 else None


@dataclass(frozen=True, slots=True)
class PageBlock:
    """A chart, a table or terms, with a title (may be empty) and a caption.

    Parameters
    ----------
    title, caption
        The caption says what is shown, and what is left out.
    chart, grid
        At most one of them.
    notes
        Paragraphs below it.
    terms
        (term, meaning).
    """

    title: str
    caption: str
    chart: Chart | None = None
    grid: PageTable | None = None
    notes: Sequence[str] = ()
    terms: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page.

    Parameters
    ----------
    name, title
        Its anchor and its heading.
    blocks
        Its content, in order.
    abreast
        Least width of a block in pixels where several stand side by side; None: one below the other.
    lead
        A sentence before the blocks.
    """

    name: str
    title: str
    blocks: Sequence[PageBlock]
    abreast: int | None = None
    lead: str = ""


@dataclass(frozen=True, slots=True)
class VerdictParagraph:
    """A paragraph of the verdict: what it is about, in a word or two, and the words."""

    heading: str
    words: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Card:
    """The few figures of a run that a reader looks at first: (name, text, whether none is better)."""

    name: str
    mark: RunMark
    facts: Sequence[tuple[str, str, bool]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Parameters
    ----------
    title, subtitle
        Its heading, and a line below it.
    verdict
        What comes first; empty for a page that judges nothing.
    answer
        The verdict in a sentence or two. Where there is one it comes first, then the picture, and the verdict
        below that is the evidence.
    cards
        Figures below the verdict.
    alerts
        (whom it is about, what a reader must know before the figures).
    sections
        The first of them is the picture; where and how it was measured is the last.
    """

    title: str
    subtitle: str
    sections: Sequence[Section]
    verdict: Sequence[VerdictParagraph] = ()
    answer: Sequence[VerdictParagraph] = ()
    cards: Sequence[Card] = ()
    alerts: Sequence[tuple[str, str]] = ()
