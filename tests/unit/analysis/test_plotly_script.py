"""Plotly's script comes out of a page as it went in."""

from __future__ import annotations

import base64
import gzip
from importlib.resources import files

from plotly.offline import get_plotlyjs

from analysis.pages.plotly_script import LETTERS, packed_plotly


def test_what_is_packed_is_plotlys_script_and_no_markup_begins_in_it() -> None:
    packed = packed_plotly()
    assert "<" not in packed.text
    content = base64.b85decode(packed.text.replace(".", "<"))
    assert gzip.decompress(content[: packed.length]).decode() == get_plotlyjs()
    assert len(packed.text) < 0.4 * len(get_plotlyjs())


def test_the_page_unpacks_with_the_same_letters() -> None:
    assert (len(LETTERS), len(set(LETTERS))) == (85, 85)
    script = (files("analysis.pages") / "assets" / "figures.js").read_text(encoding="utf-8")
    assert f'const letters = "{LETTERS}";' in script
