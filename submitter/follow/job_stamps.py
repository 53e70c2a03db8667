"""What a job's own wrapper and application left in the RUN's ``jobs`` folder: stamps and a report.

A file may be missing, for a job that was killed leaves no end, and on a network file system it may be seen
late; one that cannot be read counts as missing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

_T = TypeVar("_T")
_MS = Annotated[int, msgspec.Meta(ge=0, le=10**14)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=10**11)]
_MOST_BYTES = 1 << 20
JOBS_FOLDER = "jobs"


class _Start(msgspec.Struct):
    slurm_job: Annotated[int, msgspec.Meta(ge=0)]
    ms: _MS


class _End(msgspec.Struct):
    ms: _MS
    exit_code: Annotated[int, msgspec.Meta(ge=0)]


class _Report(msgspec.Struct):
    cpu_s: _Seconds | None = None
    steps: Annotated[int, msgspec.Meta(ge=0)] | None = None
    step_s: _Seconds | None = None
    steps_cpu_s: _Seconds | None = None
    state: str | None = None
    end_ms: _MS | None = None
    busy_s: _Seconds | None = None

    @property
    def first_step_ms(self) -> int | None:
        """When a job that made all of its steps made the first one."""
        last_ms = self.last_step_ms
        return None if last_ms is None or self.busy_s is None else round(last_ms - 1000 * self.busy_s)

    @property
    def last_step_ms(self) -> int | None:
        """When it had made the last one; it reports at once."""
        return self.end_ms if self.steps is not None and self.state == "completed" else None


@dataclass(frozen=True, slots=True)
class Stamps:
    """Epoch milliseconds of start, end, first and last step; exit code, CPU seconds, steps as in `JobRecord`.

    None for what is not known.
    """

    slurm_job: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    exit_code: int | None = None
    cpu_s: float | None = None
    steps: int | None = None
    step_s: float | None = None
    steps_cpu_s: float | None = None
    first_step_ms: int | None = None
    last_step_ms: int | None = None

    @property
    def are_whole(self) -> bool:
        """Whether both start and end are known."""
        return self.start_ms is not None and self.end_ms is not None


def read_stamps(folder: Path, trace_job: int, life: int = 0) -> Stamps:
    """Return what is known of a job from its files in ``folder``, of its first life or a later one."""
    stem = f"{trace_job}.life{life}" if life else str(trace_job)
    start = _read(folder / f"{stem}.start", _Start)
    end = _read(folder / f"{stem}.end", _End)
    # The application does not know of lives; what it reports last belongs to the life that ended last.
    report = _read(folder / f"{trace_job}.report", _Report)
    return Stamps(
        slurm_job=start.slurm_job if start else None,
        start_ms=start.ms if start else None,
        end_ms=end.ms if end else None,
        exit_code=end.exit_code if end else None,
        cpu_s=report.cpu_s if report else None,
        steps=report.steps if report else None,
        step_s=report.step_s if report else None,
        steps_cpu_s=report.steps_cpu_s if report else None,
        first_step_ms=report.first_step_ms if report else None,
        last_step_ms=report.last_step_ms if report else None,
    )


def look_again(folder: Path) -> None:
    """Make a network file system ask its server what is in the folder now."""
    with suppress(OSError):
        list(folder.iterdir())


def _read(path: Path, kind: type[_T]) -> _T | None:
    try:
        with path.open("rb") as stream:
            return msgspec.json.decode(stream.read(_MOST_BYTES), type=kind)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None
