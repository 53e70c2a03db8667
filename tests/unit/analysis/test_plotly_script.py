"""Plotly's script comes out of a page as it went in."""

from __future__ import annotations

import base64
import gzip
from importlib.resources import files

from plotly.offline import get_plotlyjs

from analysis.pages import LETTERS, packed_plotly, unwrapped


def test_what_is_packed_is_plotlys_script_and_no_markup_begins_in_it() -> None:
    packed = packed_plotly()
    assert "<" not in packed.text
    content = base64.b85decode(packed.text.replace(".", "<"))
    assert gzip.decompress(content[: packed.length]).decode() == unwrapped(get_plotlyjs())
    assert len(packed.text) < 0.4 * len(get_plotlyjs())


def test_the_page_unpacks_with_the_same_letters() -> None:
    assert (len(LETTERS), len(set(LETTERS))) == (85, 85)
    script = (files("analysis.pages") / "assets" / "figures.js").read_text(encoding="utf-8")
    assert f'const letters = "{LETTERS}";' in script


def test_the_functions_around_the_script_are_left_out_and_nothing_else() -> None:
    script = get_plotlyjs()
    bare = unwrapped(script)
    licence, begin, rest = bare.partition('"use strict";var Plotly=')
    assert begin
    assert "MIT license" in licence
    assert bare.endswith("\nwindow.Plotly = Plotly;\n")
    assert "root.moduleName" not in bare
    assert rest.removesuffix("\nwindow.Plotly = Plotly;\n") in script
    assert len(script) - len(bare) < 400


def test_a_script_that_is_wrapped_otherwise_stays_as_it_is() -> None:
    for script in ("", "var Plotly = {};", get_plotlyjs()[:-5], get_plotlyjs()[7:]):
        assert unwrapped(script) == script
