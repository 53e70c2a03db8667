"""The documentation as a site: built offline, every link and anchor there, nothing fetched from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.browser import Browser, needs_chromium

PROJECT = Path(__file__).parents[3]
# What a browser would fetch by itself when it opens a page; links that a reader follows are his own choice.
FETCHED = re.compile(
    r'<(?:script|img|iframe|source)\b[^>]*\bsrc="(https?:[^"]+)|<link\b[^>]*\brel="stylesheet"[^>]*href="(https?:[^"]+)'
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(where)],
        cwd=PROJECT,
        env=dict(os.environ, NO_MKDOCS_2_WARNING="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return where


def test_every_link_of_every_page_leads_somewhere(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > 40


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    fetched = [
        f"{page.relative_to(site)}: {found[0]}"
        for page in site.rglob("*.html")
        for found in FETCHED.finditer(page.read_text(encoding="utf-8"))
    ]
    assert not fetched


def test_the_reference_is_made_of_the_sources(site: Path) -> None:
    commands = (site / "reference/commands.html").read_text(encoding="utf-8")
    assert "osub trace convert" in commands
    assert "--multiplicity" in commands
    assert 'id="osub-simulate-policies"' in commands
    assert "--set shrink_needs_idle=no" in commands
    assert not re.search("[╭│]", commands), "a command's help is in another style"
    assert "osub.simulate" in (site / "reference/python.html").read_text(encoding="utf-8")


def test_tables_show_a_bar_in_code_as_it_is(site: Path) -> None:
    assert "AF_(INET|INET6)" in (site / "production.html").read_text(encoding="utf-8")
    shown = [
        page.name
        for page in site.rglob("*.html")
        if r"\|" in re.sub("<pre>.*?</pre>", "", page.read_text(), flags=re.DOTALL)
    ]
    assert not shown


@needs_chromium
def test_pages_that_are_opened_as_files_can_be_searched(site: Path) -> None:
    with Browser() as browser, browser.tab() as tab:
        tab.call("Page.navigate", url=(site / "index.html").as_uri())
        tab.wait_for("document.readyState === 'complete'", "the page")
        tab.run("document.querySelector('[data-md-component=search-query]').focus()")
        tab.call("Input.insertText", text="takeover_ms")
        tab.press("End", 35)
        tab.wait_for(
            "document.querySelector('.md-search-result__link[href*=\"gangd.html\"]')", "what has the word"
        )
        assert not tab.complaints
        assert not [
            address for address in tab.requests if not address.startswith(("file:", "data:", "about:"))
        ]
