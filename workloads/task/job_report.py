"""What an application did, as one line of JSON: to standard output and, atomically, to a file.

One record serves both applications, so that a collector reads one form; what an
application has not is null. ``docs/applications.md`` explains each field.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from foundation.errors import OutputError
from foundation.files import write_whole
from foundation.version import VERSION

COMPLETED = "completed"
TERMINATED = "terminated"
FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """One job's own account of itself; times in the unit that ends the name, null for what is unknown."""

    app: str
    kernel: str
    state: str
    start_ms: int
    end_ms: int
    nodes: int
    tasks: int
    hosts: list[str] = field(default_factory=list)
    affinity: list[list[int]] = field(default_factory=list)
    pinned: bool = False
    cpu_s: float | None = None
    busy_asked_s: float | None = None
    busy_s: float | None = None
    busy_wall_s: float | None = None
    idle_asked_s: float | None = None
    idle_s: float | None = None
    startup_s: float | None = None
    skew_max_s: float | None = None
    memory_mib: int | None = None
    traffic: float | None = None
    periods: int | None = None
    periods_done: int | None = None
    host_type: str | None = None
    target_s: float | None = None
    grid: str | None = None
    steps_asked: int | None = None
    steps: int | None = None
    step_s: float | None = None
    steps_cpu_s: float | None = None
    calibration: str | None = None
    clipped: bool | None = None
    omp_wait_policy: str | None = None
    wait_s: float | None = None
    core_share: float | None = None
    residual: float | None = None
    deviation: float | None = None
    warnings: list[str] = field(default_factory=list)
    failure: str | None = None
    version: str = VERSION

    def line(self) -> str:
        """Return the record as one line of JSON, with its newline."""
        record = {
            # No clock here is finer than a microsecond.
            name: round(value, 6) if name.endswith("_s") and isinstance(value, float) else value
            for name, value in asdict(self).items()
        }
        return json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n"


def check_writable(path: Path | None) -> None:
    """Refuse, before any work is done, a report file that could not be written after it.

    Raises
    ------
    OutputError
        The folder of ``path`` is missing or not writable, or ``path`` is itself a folder.
    """
    if path is None:
        return
    if path.is_dir():
        raise OutputError(f"report {path} is a folder; name a file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write report {path}: {path.parent} is missing or not writable")


def publish(report: JobReport, path: Path | None) -> None:
    """Write ``report`` to ``path``, where one is given, and to standard output.

    Raises
    ------
    OutputError
        One of them cannot be written; no partial file is left.
    """
    line = report.line()
    if path is not None:
        write_whole(path, line, mode=0o644)
    try:
        sys.stdout.write(line)
        sys.stdout.flush()
    except OSError as error:
        raise OutputError(f"cannot write the report to standard output: {error.strerror}") from error
