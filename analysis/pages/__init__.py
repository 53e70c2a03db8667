"""The one design of every page: its content, and how it becomes HTML in which only its own script runs.

A page is complete in itself and loads nothing. It opens with the verdict, then one picture, then tables; how
and where it was measured come last. Its script (``assets``) draws the figures in the colours of the
scheme, light or dark, sorts and filters the tables, and gives every figure as PNG, SVG and CSV.

Plotly's script is 4.9 MB of text, 1.5 MB compressed. A page holds it compressed (gzip), as text (base 85
after RFC 1924, with a full stop for ``<``), and ``assets/figures.js`` unpacks it with what browsers have had
since 2023 (``DecompressionStream``). A browser without it shows the page's texts and tables, and says so.

The script comes inside of two functions, for module loaders that a page has none of. A browser reads a
function's text once to skip it and once more to compile it, so each of them costs another reading of 4.9 MB.
They are left out, which takes a third of the time until the first figure is drawn.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from analysis.charts import Chart, figure_json
from foundation.errors import OutputError
from foundation.files import write_whole
from foundation.records.journal import output_error
from foundation.version import VERSION

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
    columns
        Names of the columns.
    rows
        Their cells.
    texts
        How many columns from the left are texts and not numbers.
    groups
        (text, number of columns) from the left; empty for none.
    marks
        Signs of the columns from the right; empty for none.
    heads
        Whether the first cell of a row names it.
    tools
        Whether its rows can be sorted and filtered; not those of a list of facts.
    """

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str | TableCell]]
    texts: int
    groups: tuple[tuple[str, int], ...] = ()
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


SCRIPTS = ("scheme.js", "figures.js", "narrow.js", "exports.js", "tables.js", "start.js")

LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;.=>?@^_`{|}~"
"""Python's alphabet of base 85, but no ``<``: no markup can begin in the text. Known to the page's script."""


_HEAD = re.compile(
    r"\A(?P<licence>/\*.*?\*/\s*)\(\s*function\(root, factory\) \{\s*"
    r"if \(typeof module === .object. && module\.exports\) \{[^{}]*\} else \{[^{}]*\}\s*"
    r"\} \(typeof self !== .undefined. \? self : this, \(\) => \{\s*",
    re.DOTALL,
)
_TAIL = re.compile(r"\s*window\.Plotly = Plotly;\s*return Plotly;\s*\}\)\);\s*\Z")


def write_page(target: Path, page: Page, *, makes_folder: bool = False) -> None:
    """Write a page, whole or not at all.

    Parameters
    ----------
    target
        The HTML file; an existing one is replaced.
    page
        Its content.
    makes_folder
        Whether folders that are missing are made.

    Raises
    ------
    OutputError
        The file cannot be written, or is a folder.
    """
    if target.is_dir():
        raise OutputError(f"{target} is a folder; name a file, such as {target / 'report.html'}")
    if makes_folder:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise output_error("write", target, error) from error
    write_whole(target, render(page))


def render(page: Page) -> str:
    """Return the page as HTML; the same content gives the same bytes."""
    script = f'(() => {{\n"use strict";\n{_asset_texts(SCRIPTS)}}})();'
    charts = any(block.chart for section in page.sections for block in section.blocks)
    packed = packed_plotly() if charts else None
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            style=Markup(_asset_texts(("page.css",))),  # noqa: S704 - our own text
            script=Markup(script),  # noqa: S704 - our own text
            policy=_digest(script),
            plotly=None if packed is None else Markup(packed.text),  # noqa: S704 - letters of base 85, no "<"
            plotly_bytes=0 if packed is None else packed.length,
            figure=_figure,
            height=_height,
            cell=_cell,
            numbers=count(),
            version=VERSION,
        )
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("analysis.pages", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@lru_cache(maxsize=2)
def _asset_texts(names: tuple[str, ...]) -> str:
    folder = files("analysis.pages") / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _digest(script: str) -> str:
    """Return what the page's policy calls the one script that may run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _figure(block: PageBlock) -> Markup:
    assert block.chart is not None
    return Markup(figure_json(block.chart.figure))  # noqa: S704 - JSON without "<"


def _height(block: PageBlock) -> int:
    assert block.chart is not None
    return int(block.chart.figure.layout.height or 420)


def _cell(cell: str | TableCell) -> TableCell:
    return cell if isinstance(cell, TableCell) else TableCell(cell)


@dataclass(frozen=True, slots=True)
class Packed:
    """The packed script: its text, and how many bytes of what it says are the script's."""

    text: str
    length: int


@lru_cache(maxsize=1)
def packed_plotly() -> Packed:
    """Return Plotly's script as a page holds it."""
    packed = gzip.compress(unwrapped(get_plotlyjs()).encode(), 9, mtime=0)
    filled = packed + bytes(-len(packed) % 4)
    return Packed(base64.b85encode(filled).decode("ascii").replace("<", "."), len(packed))


def unwrapped(script: str) -> str:
    """Return Plotly's script without the functions around it, or as it is where it is wrapped otherwise."""
    head, tail = _HEAD.match(script), _TAIL.search(script, max(0, len(script) - 200))
    if head is None or tail is None:
        return script
    return f"{head['licence']}{script[head.end() : tail.start()]}\nwindow.Plotly = Plotly;\n"
