"""A page as HTML: complete in itself, with a policy that lets no script run but its own."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from importlib.resources import files
from itertools import count
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from analysis.charts import figure_json
from analysis.pages.page_content import Block, Cell, Page
from analysis.pages.plotly_script import packed_plotly
from foundation.errors import OutputError
from foundation.records.journal import output_error
from foundation.version import VERSION
from foundation.whole_file import write_whole

SCRIPTS = ("scheme.js", "figures.js", "narrow.js", "exports.js", "tables.js", "start.js")


def write_page(target: Path, page: Page, *, makes_folder: bool = False) -> None:
    """Write a page, whole or not at all.

    Parameters
    ----------
    target
        The HTML file; an existing one is replaced.
    page
        What stands on it.
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


def _figure(block: Block) -> Markup:
    assert block.chart is not None
    return Markup(figure_json(block.chart.figure))  # noqa: S704 - JSON without "<"


def _height(block: Block) -> int:
    assert block.chart is not None
    return int(block.chart.figure.layout.height or 420)


def _cell(cell: str | Cell) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)
