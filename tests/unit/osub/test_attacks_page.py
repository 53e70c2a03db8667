"""The page on security lists the attacks that are carried out, all of them and no other."""

from __future__ import annotations

import re
from pathlib import Path

from tests.attacks import ATTACKS

PAGE = Path(__file__).parents[3] / "docs" / "measured" / "security.md"


def test_the_page_lists_every_attack() -> None:
    _, _, listed = PAGE.read_text(encoding="utf-8").partition("| attack | what he does |\n| --- | --- |\n")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", listed.split("\n\n")[0], re.MULTILINE)
    assert rows == [(attack.name, attack.tries) for attack in ATTACKS.values()]
