"""What a job held in each of its attempts: the allocations of an entry of the journal.

A job has as many *attempts* as Slurm starts it: attempt 0, and one more each time that it is put back to the
queue (``scontrol requeue``, a failed node, a preemption). An attempt that passed unobserved, because the
replay was killed or Slurm was silent, is known from the job's own stamps; its placement is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from foundation.records import AllocationCause, AllocationRecord, JobEntry, Placement
from foundation.slurm import SlurmJob

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
    # The application does not know of attempts; its last report belongs to the attempt that ended last.
    report = _read(folder / f"{trace_job}.report", _Report) or _Report()
    return Stamps(
        slurm_job=start.slurm_job if start else None,
        start_ms=start.ms if start else None,
        end_ms=end.ms if end else None,
        exit_code=end.exit_code if end else None,
        cpu_s=report.cpu_s,
        steps=report.steps,
        step_s=report.step_s,
        steps_cpu_s=report.steps_cpu_s,
        first_step_ms=report.first_step_ms,
        last_step_ms=report.last_step_ms,
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


StampsOf = Callable[[int], Stamps]
"""What a job's life, from 0, stamped."""


def put_back(entry: JobEntry, job: SlurmJob | None, stamps_of: StampsOf, origin: float) -> JobEntry:
    """Return the entry with its open allocation closed, as it is when a job goes back to the queue.

    All of that life was for nothing: Slurm starts a job that it puts back from its beginning.
    """
    if not entry.allocations or entry.allocations[-1].to_s is not None:
        return entry
    last = entry.allocations[-1]
    # Slurm stamps a job that it puts back as submitted anew; by then it may have begun once more already.
    back = instant(stamps_of(entry.restarts).end_ms, job.submit_time if job else None, origin)
    again = instant(stamps_of(entry.restarts + 1).start_ms, None, origin)
    ends = [at for at in (back, again) if at is not None]
    to_s = max(min(ends), last.from_s) if ends else None
    return _with_rows(entry, (*entry.allocations[:-1], _thrown_away(last, to_s)))


def with_life(
    entry: JobEntry,
    placement: tuple[Placement, ...] | None,
    life: int,
    start: float,
    end: float | None,
    stamps_of: StampsOf,
    origin: float,
) -> JobEntry:
    """Return the entry with the allocation of a life, instead of what was known of that life.

    Parameters
    ----------
    entry
        What is recorded; its allocations of earlier attempts are closed.
    placement
        Where Slurm says that the life is or was; None where it does not say.
    life, start, end
        The life's number and times, in the run's seconds; ``end`` is None while it lasts.
    stamps_of, origin
        The job's own files, and the epoch second of the run's second 0.
    """
    row, known = entry.job, entry.allocations or ()
    is_recorded = bool(known) and entry.restarts == life
    if placement is None and entry.restarts == life:
        placement = known[-1].placement if is_recorded else row.placement
    earlier = known[:-1] if is_recorded else known
    first_missed = entry.restarts + 1 if known else 0
    if not is_recorded:
        earlier += tuple(_missed(entry, range(first_missed, life), start, stamps_of, origin))
    from_s = max(start, _earliest(entry, earlier))
    to_s = None if end is None else max(end, from_s)
    row = msgspec.structs.replace(row, start_s=from_s, placement=placement)
    if row.end_s is not None:
        row = msgspec.structs.replace(row, end_s=max(row.end_s, from_s))
    entry = msgspec.structs.replace(entry, job=row)
    if row.job_id is None or (placement is None and not life):
        return entry  # the row tells all that is known
    held = AllocationRecord(
        job=row.job_id,
        from_s=from_s,
        to_s=to_s,
        placement=placement,
        why=known[-1].why if is_recorded else _cause(life, row.preemptions, earlier),
    )
    return msgspec.structs.replace(_with_rows(entry, (*earlier, held)), restarts=life)


def _cause(life: int, preemptions: int, earlier: tuple[AllocationRecord, ...]) -> AllocationCause:
    if not life:
        return "start"
    return "preemption" if preemptions > sum(one.why == "preemption" for one in earlier) else "requeue"


def _missed(
    entry: JobEntry, attempts: range, before_s: float, stamps_of: StampsOf, origin: float
) -> Iterator[AllocationRecord]:
    """Yield the attempts, all before ``before_s``, that left stamps and were not observed."""
    assert entry.job.job_id is not None
    least = _earliest(entry, entry.allocations or ())
    for life in attempts:
        stamps = stamps_of(life)
        start = instant(stamps.start_ms, None, origin)
        if start is None:
            continue
        from_s = max(start, least)
        end = instant(stamps.end_ms, None, origin)
        to_s = None if end is None else max(from_s, min(end, before_s))
        least = from_s if to_s is None else to_s
        held = AllocationRecord(
            job=entry.job.job_id, from_s=from_s, placement=None, why="requeue" if life else "start"
        )
        yield _thrown_away(held, to_s)


def _earliest(entry: JobEntry, earlier: tuple[AllocationRecord, ...]) -> float:
    """Return when a life can have begun: not before the submission, nor before the life before it ended."""
    return max([entry.job.submit_s or 0.0, *(held.to_s or held.from_s for held in earlier[-1:])])


def _thrown_away(held: AllocationRecord, to_s: float | None) -> AllocationRecord:
    wasted_s = None if to_s is None else round(to_s - held.from_s, 3)
    return msgspec.structs.replace(held, to_s=to_s, wasted_s=wasted_s)


def _with_rows(entry: JobEntry, rows: tuple[AllocationRecord, ...]) -> JobEntry:
    """Return the entry with these allocations, and the sum of what they wasted."""
    wasted = [one.wasted_s for one in rows if one.wasted_s is not None]
    wasted_s = round(sum(wasted), 3) if wasted else None
    return msgspec.structs.replace(
        entry, job=msgspec.structs.replace(entry.job, wasted_s=wasted_s), allocations=rows
    )


def instant(ms: int | None, whole_seconds: int | None, origin: float) -> float | None:
    """Return the stamp of the job itself, else Slurm's, in the run's seconds."""
    if ms is not None:
        return since(origin, ms / 1000)
    return None if whole_seconds is None else since(origin, whole_seconds)


def since(origin: float, epoch: float) -> float:
    """Return an instant in the run's seconds, never before second 0."""
    return max(0.0, round(epoch - origin, 3))
