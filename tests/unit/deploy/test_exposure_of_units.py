"""What the units leave open, as `systemd-analyze` reads it from the files, is what the page explains."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.exposure import UNITS, exposures, page_exposures, page_score, score

FOLDER = Path(__file__).parents[3] / "deploy/systemd"
VERSION = 252
"""Whose scores the page has."""


def version() -> int | None:
    if shutil.which("systemd-analyze") is None:
        return None
    told = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True)
    return int(told.stdout.split()[1])


@pytest.mark.skipif(version() != VERSION, reason=f"needs systemd-analyze {VERSION}: apt-get install systemd")
@pytest.mark.parametrize("unit", UNITS)
def test_the_page_explains_what_a_unit_leaves_open(unit: str, tmp_path: Path) -> None:
    text = (FOLDER / f"{unit}.service").read_text()
    # Programs need not be there; and a private mount namespace, which all of the rest implies, is named.
    text = re.sub(r"(?m)^(Exec\w+)=\S+", r"\1=/bin/true", text)
    text = text.replace("[Service]\n", "[Service]\nPrivateMounts=yes\n")
    file = tmp_path / f"{unit}.service"
    file.write_text(text)
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(file)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"},
        check=True,
    ).stdout
    assert score(told) == page_score(unit)
    assert exposures(told) == page_exposures(unit)
