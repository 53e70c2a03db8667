"""Pages and tables of studies and of answers.

The page of an experiment: what was simulated, claims, one picture, tables, figures.

Tables of an experiment, ours next to the thesis's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import plotly.graph_objects as go

from analysis.charts import Chart, arrange
from analysis.claims import ClaimRow, ClaimVerdict
from analysis.claims_table import TONES, claims_grid
from analysis.pages import Page, PageBlock, PageTable, Section, TableCell, VerdictParagraph
from analysis.pages import write_page as write_framed

ABSENT = "-"
NOTABLE = 0.2
"""Differences beyond this share of the thesis's number are marked."""


class ExperimentTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table with its name, such as ``Table 5.3(a)``, what it shows, columns, rows of texts, and notes."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()


def percent(share: float) -> str:
    """Return a share as the thesis prints it."""
    return f"{100 * share:.2g}%" if share < 0.1 else f"{100 * share:.0f}%"


def hours(value: float) -> str:
    """Return hours, whole."""
    return f"{value:.0f}"


def number(value: float) -> str:
    """Return a number with three digits at least."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def against(ours: float, thesis: float | None) -> str:
    """Return how far ours is from the thesis's number, marked if that is much."""
    if thesis is None:
        return ABSENT
    if ours == thesis:
        return "="
    if thesis == 0:
        return f"{ours:+.2g} *"
    off = ours / thesis - 1
    return f"{off:+.0%}" + (" *" if abs(off) > NOTABLE else "")


Drawing = tuple[str, go.Figure]
"""A figure under its title."""
_MARKED = "*"
_AGAINST = re.compile(r"=|[+-][\d.e+-]+%?( \*)?")
"""What ``tables.against`` returns."""
_WORDS = {
    ClaimVerdict.HOLDS: "hold",
    ClaimVerdict.FAILS: "fail",
    ClaimVerdict.TIE: "tie",
    ClaimVerdict.NOT_COMPARABLE: "cannot be compared",
}


_EVIDENCE = "Evidence:"
"""Prefix of a fact with the evidence of a study's figures."""


def write_page(
    path: Path,
    title: str,
    facts: Sequence[str],
    tables: Sequence[ExperimentTable],
    figures: Sequence[Drawing],
    claims: Sequence[ClaimRow] = (),
) -> None:
    """Write the page, whole or not at all.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    spoken = _spoken(facts)
    drawn = [PageBlock(name, "", chart=Chart(_arranged(figure), "")) for name, figure in figures]
    sections = [
        Section("picture", "Picture", drawn[:1]),
        Section("claims", "Claims", [PageBlock("", "", grid=claims_grid(claims))] if claims else []),
        Section("tables", "Tables", [_table(table) for table in tables]),
        Section("figures", "Figures", drawn[1:]),
        Section("how", "How it was found", [PageBlock("", "", notes=facts)] if facts else []),
    ]
    page = Page(
        title=title,
        subtitle="" if spoken else " · ".join(facts[:1]),
        verdict=[*spoken, *_verdict(claims, tables)],
        sections=[section for section in sections if section.blocks],
    )
    write_framed(path, page)


def _verdict(claims: Sequence[ClaimRow], tables: Sequence[ExperimentTable]) -> list[VerdictParagraph]:
    """Return how many claims hold, and which; without claims, how many numbers are far from the published."""
    paragraphs = []
    for verdict, words in _WORDS.items():
        some = [row for row in claims if row.verdict is verdict]
        if some:
            named = ", ".join(row.id for row in some)
            paragraphs.append(
                VerdictParagraph(f"{len(some)} of {len(claims)} {words}:", f"{named}.", TONES[verdict])
            )
    cells = [cell for table in tables for row in table.rows for cell in row if _AGAINST.fullmatch(cell)]
    if cells and not claims:
        far = sum(cell.endswith(_MARKED) for cell in cells)
        share = f"{NOTABLE:.0%}"
        words = (
            f"{far} of {len(cells)} numbers are more than {share} from the published ones; they are marked."
        )
        paragraphs.append(VerdictParagraph("", words, "unclear" if far else "good"))
    return paragraphs


def _spoken(facts: Sequence[str]) -> list[VerdictParagraph]:
    """Return a study's findings in its own sentences and their evidence; nothing if it has none.

    A reader must know both before the claims, whose numbers mean something to few.
    """
    ends = [at for at, fact in enumerate(facts) if fact.startswith(_EVIDENCE)]
    if not ends:
        return []
    evidence = facts[ends[0]].removeprefix(_EVIDENCE).strip()
    paragraphs = [_sentence(fact) for fact in facts[: ends[0]]]
    return [*paragraphs, VerdictParagraph(_EVIDENCE, evidence, "unclear")]


def _sentence(fact: str) -> VerdictParagraph:
    """Return a fact; the text before a colon is its heading."""
    head, colon, rest = fact.partition(": ")
    return VerdictParagraph(f"{head}:", rest) if colon and len(head) < 20 else VerdictParagraph("", fact)


def _table(table: ExperimentTable) -> PageBlock:
    rows = [
        [TableCell(text, tone="mark") if _MARKED in text and at else text for at, text in enumerate(row)]
        for row in table.rows
    ]
    grid = PageTable(columns=table.columns, rows=rows, texts=1, heads=True)
    return PageBlock(f"{table.name}: {table.title}", "", grid=grid, notes=table.notes)


def _arranged(figure: go.Figure) -> go.Figure:
    """Return a figure in the common look; its own layout is kept."""
    own = figure.to_plotly_json()["layout"]
    own.pop("template", None)
    arrange(figure, figure.layout.height or 420)
    return figure.update_layout(own)
