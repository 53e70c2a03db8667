"""Plotly's script comes out of a page as it went in, in a browser as on paper."""

from __future__ import annotations

import base64
import gzip
import re
import shutil
import subprocess
from pathlib import Path

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from osub.analysis.charts import fragment
from osub.analysis.plotly_script import plotly_script

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def test_what_is_packed_is_plotlys_script_and_nothing_in_it_ends_the_element() -> None:
    text = plotly_script()
    assert "</" not in text.replace("</p>", "")
    packed = re.search(r'unpack\("([^"]+)", (\d+)\)', text)
    assert packed is not None
    letters = re.search(r'const letters = "([^"]+)"', text)
    assert letters is not None
    assert (len(letters[1]), len(set(letters[1]))) == (85, 85)
    # As the page does it: each five letters a word, first letter first.
    place = {letter: number for number, letter in enumerate(letters[1])}
    first = [place[letter] for letter in packed[1][:5]]
    word = 0
    for number in first:
        word = word * 85 + number
    content = base64.b85decode(packed[1].replace(".", "<"))
    assert content[:4] == word.to_bytes(4, "big")
    assert gzip.decompress(content[: int(packed[2])]).decode() == get_plotlyjs()
    assert len(text) < 0.4 * len(get_plotlyjs())
    assert plotly_script() == text


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this host: install the package chromium")
def test_a_browser_draws_figures_that_were_asked_for_before_the_script_was_there(tmp_path: Path) -> None:
    figure = fragment(go.Figure(go.Scatter(x=[1, 2], y=[1, 2])), "drawing")
    page = tmp_path / "page.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><script>{plotly_script()}</script>{figure}", encoding="utf-8"
    )
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            *(
                CHROMIUM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={tmp_path / 'own'}",
            ),
            *("--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert 'data-drawn="yes"' in done.stdout
    assert 'class="main-svg"' in done.stdout
    assert "CONSOLE" not in done.stderr
