"""A file's name says what it is without its folder (docs/map.md): in these rooms no two files share one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("analysis", "predictor", "simulator", "submitter", "workloads")
BY_CUSTOM = {"__init__.py", "__main__.py", "main.py"}
MOST_FILES = 20


def sources() -> list[str]:
    return [
        path.relative_to(ROOT).as_posix() for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))
    ]


def test_no_two_files_share_a_name() -> None:
    found = defaultdict(list)
    for path in sources():
        name = path.rpartition("/")[2]
        if name not in BY_CUSTOM:
            found[name].append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_a_folder_of_twenty_files_is_parted() -> None:
    counts: defaultdict[str, int] = defaultdict(int)
    for path in sources():
        counts[path.rpartition("/")[0]] += not path.endswith("__init__.py")
    assert {folder: count for folder, count in counts.items() if count >= MOST_FILES} == {}
