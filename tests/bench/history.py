"""A file of all runs of ``make bench`` on a host, a line of JSON each, by default in the user's folder."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.figures import Row


@dataclass(frozen=True, slots=True)
class Run:
    """A run: when, of which version and commit, on which host, at which load when it began, how large."""

    at: str
    version: str
    commit: str
    host: str
    cpus: int
    load: float
    size: str
    rows: tuple[Row, ...]


def default_file() -> Path:
    """Return the history in the user's folder for state."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "osub" / "bench.jsonl"


def this_run(version: str, commit: str, size: str, load: float, rows: Sequence[Row]) -> Run:
    """Return a run that ends now, on this host."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    cpus = len(os.sched_getaffinity(0))
    return Run(at, version, commit, platform.node(), cpus, load, size, tuple(rows))


def append(file: Path, run: Run) -> None:
    """Add a run; what a kill leaves of a line is passed over when the file is read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(run)) + "\n")


def read(file: Path) -> list[Run]:
    """Return the runs of a history, the oldest first; lines that are none are left out."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            document = json.loads(line)
            rows = tuple(Row(**{**row, **_pairs(row)}) for row in document.pop("rows"))
            found.append(Run(rows=rows, **document))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return found


def _pairs(row: dict[str, object]) -> dict[str, object]:
    """Return the intervals as the pairs that they were before JSON made lists of them."""
    found: dict[str, object] = {}
    for name in ("interval", "ratio_interval"):
        value = row.get(name)
        found[name] = tuple(value) if isinstance(value, list) else None
    return found
