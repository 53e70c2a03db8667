"""Files, tests and modules that a page of the documentation names are there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
PAGES = [
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    *sorted(page for page in (PROJECT / "docs").rglob("*.md") if page.parent.name != "adr"),
]
ROOMS = "osub|simulator|submitter|deploy|predictor|workloads|gangd|analysis|foundation|tests|scripts"
FILE = re.compile(rf"(?<![\w/.-])((?:{ROOMS})/[\w./-]+\.(?:py|c|yaml|json|toml|lua|md|sh))")
TEST = re.compile(r"`[\w/]*\b(test_\w+\.py)`")
NAME = re.compile(rf"`((?:{ROOMS})(?:\.\w+)+)`")
NO_NAME = re.compile(r"\.(?:py|toml|md|service|so|json|yaml)$")
# Names in capitals stand for the reader's own; the two are labels of containers.
STANDS_FOR_ANOTHER = re.compile(r"/[A-Z]+\.py$")
LABELS = {"osub.home", "osub.cluster"}
TESTS = {path.name for path in (PROJECT / "tests").rglob("test_*.py")}


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or leads to something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def missing(text: str) -> list[str]:
    """Return what a page names that is not there."""
    files = [one for one in FILE.findall(text) if not STANDS_FOR_ANOTHER.search(one)]
    names = [one for one in NAME.findall(text) if not NO_NAME.search(one) and one not in LABELS]
    return sorted(
        {one for one in files if not (PROJECT / one).exists()}
        | {one for one in TEST.findall(text) if one not in TESTS}
        | {one for one in names if not is_there(one)}
    )


@pytest.mark.parametrize(
    "text", ["`gangd/agent/node.py`", "`tests/x/test_none.py`", "`test_none.py`", "`gangd.core.nothing`"]
)
def test_what_is_not_there_is_found(text: str) -> None:
    assert missing(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    assert not missing(page.read_text(encoding="utf-8"))
