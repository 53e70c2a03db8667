"""The drawn pictures of the documentation: told in words, readable in dark, each of them shown."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PICTURES = sorted((DOCS / "pictures").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
GREY = "#6b7280"
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]*pictures/[^)]+)\)")


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_says_what_it_shows(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    named = {
        one.get("id"): one.text
        for one in (root.find(f"{SVG}title"), root.find(f"{SVG}desc"))
        if one is not None
    }
    assert root.get("role") == "img"
    assert all(named.get(word) for word in str(root.get("aria-labelledby")).split())


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_grey_words_and_lines_are_light_on_a_dark_page(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    dark = re.search(r"@media \(prefers-color-scheme: dark\) \{(.*)\}</style>", text)
    for kind in ("fill", "stroke"):
        if f'{kind}="{GREY}"' in text:
            assert dark is not None
            assert f'[{kind}="{GREY}"]' in dark[1]


def test_every_picture_is_shown_with_words() -> None:
    shown = {
        (page.parent / where).resolve(): words
        for page in DOCS.rglob("*.md")
        for words, where in SHOWN.findall(page.read_text(encoding="utf-8"))
    }
    assert set(PICTURES) <= set(shown)
    assert all(len(words) > 20 for words in shown.values())
