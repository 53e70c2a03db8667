"""What a job's own wrapper and application left in the RUN's ``jobs`` folder.

A file may be missing, for a job that was killed leaves no end; one that cannot be read counts as missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

_T = TypeVar("_T")


class _Start(msgspec.Struct):
    slurm_job: int
    ms: int


class _End(msgspec.Struct):
    ms: int
    exit_code: int


class _Report(msgspec.Struct):
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stamps:
    """Epoch milliseconds of real start and end, exit code, CPU seconds; None for what is not known."""

    slurm_job: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    exit_code: int | None = None
    cpu_s: float | None = None


def read_stamps(folder: Path, trace_job: int) -> Stamps:
    """Return what is known of a job from its files in ``folder``."""
    start = _read(folder / f"{trace_job}.start", _Start)
    end = _read(folder / f"{trace_job}.end", _End)
    report = _read(folder / f"{trace_job}.report", _Report)
    return Stamps(
        slurm_job=start.slurm_job if start else None,
        start_ms=start.ms if start else None,
        end_ms=end.ms if end else None,
        exit_code=end.exit_code if end else None,
        cpu_s=report.cpu_s if report else None,
    )


def _read(path: Path, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None
