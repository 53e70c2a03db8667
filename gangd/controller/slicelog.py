"""The slice record of a controller, and CPU-hours that are summed from it.

The slice record of a controller: ``slices.jsonl``, and its way into the RUN of a replay.

The controller does not know of runs, and a replay does not know when slices began. So the controller
writes rows in its own time, CLOCK_MONOTONIC, after a line that says which wall clock that is; a replay
imports those of its own time afterwards. Each start of a controller appends such a line, and each new file
begins with one (``slicefiles``). A line that a kill tore is skipped.

CPU-hours that jobs ran and were held for, summed from the slice record: by job, by user, by account.

Slurm bills the time from a job's start to its end, held or not. The record has a row for each job, node and
slice, and says once whose a job is and how many cores it has there; a slice of a row is so many CPU-seconds.
What a job that yields got of its slice while it was held was left to it by the owners: it counts as run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec

from foundation.errors import InputError, OutputError
from foundation.records import SliceRecord, SliceRole
from foundation.slurm import JobSnapshot, SlurmJob
from foundation.trust import make_folder, open_own
from gangd.controller.slicefiles import NAME, Retention, open_record, prune, rotate, size_of_parts
from gangd.core.scheduler_events import NodeReport, SliceRow

SECOND_NS = 1_000_000_000
_NEVER = -1


class Anchor(msgspec.Struct, frozen=True, tag_field="type", tag="anchor", kw_only=True):
    """Which wall clock (ms since the epoch) the instant ``monotonic_ns`` was, for the rows that follow."""

    version: int = 1
    wall_ms: float
    monotonic_ns: int


class Whose(msgspec.Struct, frozen=True, tag_field="type", tag="job", kw_only=True):
    """Whose a job is, and how many cores it has on which node: written in each file before its first row.

    ``account`` may be anything that a user writes where Slurm has no accounting.
    """

    job: int
    start_s: int | None
    user: str
    account: str | None
    partition: str
    cores: dict[str, int]


class PeakMemory(msgspec.Struct, frozen=True, tag_field="type", tag="peak", kw_only=True):
    """The largest memory that agents measured of a job that has ended, all of its nodes together."""

    job: int
    start_s: int | None
    peak_kib: int


class WrittenSlice(msgspec.Struct, frozen=True, array_like=True):
    """A ``SliceRow`` as it is written."""

    number: int
    start_ns: int
    length_ns: int
    job: int
    node: str
    role: SliceRole
    cpu_us: int | None
    skew_us: int | None
    freeze_us: int | None


class SliceLog:
    """Appends rows; what was written is on disk soon after ``flush``.

    Parameters
    ----------
    folder
        Of the user's own, and closed to others.
    wall_ms, monotonic_ns
        One instant by the two clocks.
    mode
        Of the files: they tell which jobs ran where.
    retention
        When a file is closed, and how many are kept.
    clock, wall
        The two clocks (ns), for the files that follow.
    """

    def __init__(
        self,
        folder: Path,
        wall_ms: float,
        monotonic_ns: int,
        mode: int = 0o600,
        retention: Retention | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._path = folder / NAME
        self._mode = mode
        self._retention = retention or Retention()
        self._clock, self._wall = clock, wall
        self._encoder = msgspec.json.Encoder()
        self._jobs: dict[int, SlurmJob] = {}
        self._written: dict[int, int | None] = {}
        self._number: int | None = None
        self._peaks: dict[int, dict[str, int]] = {}
        self._ended: list[PeakMemory] = []
        self._torn = False
        try:
            self._folder_fd, _ = make_folder(folder, 0o755)
            try:
                self._file = self._open()
                prune(self._folder_fd, self._retention)
                self._closed_bytes = size_of_parts(self._folder_fd)
            except BaseException:
                os.close(self._folder_fd)
                raise
        except OSError as error:
            raise OutputError(f"cannot record slices in {folder}: {error.strerror}") from error
        with suppress(OutputError):  # ``flush`` says so again; scheduling begins all the same
            self._begin(wall_ms, monotonic_ns)

    @property
    def folder(self) -> Path:
        """The folder of the record."""
        return self._path.parent

    @property
    def size_bytes(self) -> int:
        """Size of the record, with its closed files."""
        return self._file.tell() + self._closed_bytes

    def append(self, rows: Iterable[SliceRow]) -> None:
        """Append rows, and begin a new file where this one is large or old enough by then.

        Raises
        ------
        OutputError
            The disk is full, or no new file can be begun; this one is written on then.
        """
        encode = self._encoder.encode
        rows = tuple(rows)
        lines = [encode(whose) for whose in self._untold({row.job for row in rows})]
        self._write(lines + [encode(row) for row in rows])
        self._rotate()

    def know(self, snapshot: JobSnapshot) -> None:
        """Take in the jobs that hold cores: owner and cores are written before the first row of each run."""
        before = {job: self._jobs[job].start_time for job in self._peaks if job in self._jobs}
        self._know(snapshot)
        for number, start_s in before.items():
            now = self._jobs.get(number)
            if now is None or now.start_time != start_s or now.state.is_over:
                peak_kib = sum(self._peaks.pop(number).values())
                self._ended.append(PeakMemory(job=number, start_s=start_s, peak_kib=peak_kib))

    def on_report(self, report: NodeReport) -> None:
        """Take in the memory of jobs on a node; of those that have ended a line is written."""
        for one in report.memory.jobs if report.memory is not None else ():
            job = self._jobs.get(one.job)
            if job is not None and not job.state.is_over:
                self._peaks.setdefault(one.job, {})[report.node] = one.peak_kib

    def _know(self, snapshot: JobSnapshot) -> None:
        difference = snapshot.difference
        if difference is None or difference.since != self._number:
            self._jobs = {job.job_id: job for job in snapshot.jobs if job.cores}
            self._written = {
                number: start_s for number, start_s in self._written.items() if number in self._jobs
            }
        else:
            for job in difference.changed:
                if job.cores:
                    self._jobs[job.job_id] = job
            gone = [job.job_id for job in difference.changed if not job.cores]
            for number in (*gone, *difference.gone):
                self._jobs.pop(number, None)
                self._written.pop(number, None)
        self._number = None if difference is None else difference.number

    def _untold(self, numbers: Iterable[int]) -> Iterator[Whose]:
        for number in sorted(numbers):
            job = self._jobs.get(number)
            if job is None or self._written.get(number, _NEVER) == job.start_time:
                continue
            self._written[number] = job.start_time
            yield Whose(
                job=number,
                start_s=job.start_time,
                user=job.user,
                account=job.account,
                partition=job.partition,
                cores={held.node: len(held.cores) for held in job.cores},
            )

    def flush(self) -> None:
        """Hand everything to the operating system."""
        ended, self._ended = self._ended, []
        if ended:
            self._write([self._encoder.encode(one) for one in ended])
        try:
            self._file.flush()
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Flush and close; raises OutputError if what was left could not be written."""
        self.flush()
        try:
            self._file.close()
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {error.strerror}") from error
        finally:
            os.close(self._folder_fd)

    def _open(self) -> IO[bytes]:
        fd = open_own(self._folder_fd, NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, self._mode)
        os.fchmod(fd, self._mode)
        return os.fdopen(fd, "ab")

    def _begin(self, wall_ms: float, monotonic_ns: int) -> None:
        """Begin with an anchor, after the end of a line that a kill may have torn."""
        self._since_ns = monotonic_ns
        self._written.clear()
        anchor = self._encoder.encode(Anchor(wall_ms=wall_ms, monotonic_ns=monotonic_ns))
        self._write([b"", anchor] if self._file.tell() else [anchor])
        self.flush()

    def _rotate(self) -> None:
        now_ns = self._clock()
        is_old = now_ns - self._since_ns >= self._retention.age_ns
        if not is_old and self._file.tell() < self._retention.bytes:
            return
        self.flush()
        try:
            rotate(self._folder_fd, self._retention)
            former, self._file = self._file, self._open()
            former.close()
            self._closed_bytes = size_of_parts(self._folder_fd)
        except OSError as error:
            self._since_ns = now_ns  # not at each row again
            raise OutputError(f"cannot begin a new file in {self.folder}: {error.strerror}") from error
        self._begin(self._wall() / 1e6, now_ns)

    def _write(self, lines: list[bytes]) -> None:
        if self._torn:  # the end of a line may be missing
            lines = [b"", *lines]
        try:
            self._file.write(b"".join(line + b"\n" for line in lines))
            self._torn = False
        except OSError as error:
            self._torn = True
            self._written.clear()
            raise OutputError(f"cannot write {self._path}: {error.strerror}") from error


def read_slices(path: Path, t0_epoch_s: float, jobs: Container[int] | None = None) -> Iterator[SliceRecord]:
    """Yield the rows of slices that began at ``t0_epoch_s`` or later, their starts counted from there.

    Parameters
    ----------
    path
        The folder of the record, or one of its files.
    t0_epoch_s
        Wall clock, seconds since the epoch: the run's first due time.
    jobs
        Slurm's ids of the jobs that are wanted; None for all.

    Raises
    ------
    InputError
        The record cannot be read, or a file of it does not begin with an anchor.
    """
    return (row for row, _ in read_rows(path, t0_epoch_s, jobs))


def read_peaks(path: Path) -> dict[tuple[int, int], int]:
    """Return the memory peak (KiB) of each job that has ended, by its id and start (seconds since the epoch).

    Raises
    ------
    InputError
        As ``read_slices``.
    """
    decoder, found = msgspec.json.Decoder(PeakMemory), {}
    for stream in open_record(path) if path.is_dir() else _one(path):
        for line in stream:
            if line.startswith(b"{"):
                with suppress(msgspec.DecodeError):  # another line, or a torn one
                    one = decoder.decode(line)
                    found[one.job, one.start_s or 0] = one.peak_kib
    return found


def read_rows(
    path: Path, t0_epoch_s: float, jobs: Container[int] | None = None
) -> Iterator[tuple[SliceRecord, Whose | None]]:
    """Yield rows as ``read_slices`` does, each with whose its job is, where the record tells.

    Raises
    ------
    InputError
        As ``read_slices``.
    """
    for stream in open_record(path) if path.is_dir() else _one(path):
        lines = SliceLines(str(path))
        for line in stream:
            found = lines.take(line)
            if found is None or (jobs is not None and found[0].job not in jobs):
                continue
            row, wall_s = found
            if wall_s >= t0_epoch_s:
                yield _record(row, wall_s - t0_epoch_s), lines.whose.get(row.job)


class SliceLines:
    """Lines of one file of a record, in their order; a torn one is nothing.

    Parameters
    ----------
    name
        What the file is called in an error.

    Attributes
    ----------
    whose
        Whose the jobs are of the rows so far, as far as the file says.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.whose: dict[int, Whose] = {}
        self._heads, self._rows = msgspec.json.Decoder(Anchor | Whose), msgspec.json.Decoder(WrittenSlice)
        self._anchor: Anchor | None = None

    def take(self, line: bytes) -> tuple[WrittenSlice, float] | None:
        """Return a row and when its slice began, seconds since the epoch; None for what is no row.

        Raises
        ------
        InputError
            A row comes before the first anchor.
        """
        try:
            if line.startswith(b"{"):
                head = self._heads.decode(line)
                if isinstance(head, Anchor):
                    self._anchor = head
                else:
                    self.whose[head.job] = head
                return None
            row = self._rows.decode(line)
        except msgspec.DecodeError:
            return None  # torn by a kill
        if self._anchor is None:
            raise InputError(f"{self._name} does not begin with an anchor; is it a slice record of gangd?")
        since_ns = row.start_ns - self._anchor.monotonic_ns
        return row, self._anchor.wall_ms / 1000 + since_ns / SECOND_NS


def _one(path: Path) -> Iterator[IO[bytes]]:
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise InputError(f"cannot read slice record {path}: {error.strerror}") from error


def _record(row: WrittenSlice, start_s: float) -> SliceRecord:
    return SliceRecord(
        slice=row.number,
        start_s=start_s,
        length_s=row.length_ns / SECOND_NS,
        job=row.job,
        node=row.node,
        role=row.role,
        cpu_s=None if row.cpu_us is None else row.cpu_us / 1e6,
        skew_us=None if row.skew_us is None else float(row.skew_us),
        freeze_us=None if row.freeze_us is None else float(row.freeze_us),
    )


_HELD = ("held", "leftover")


@dataclass(slots=True)
class Hours:
    """A sum, in CPU-seconds.

    Attributes
    ----------
    name
        A job's id, a user's or an account's name; None for an account that Slurm does not tell.
    jobs
        Jobs in it.
    ran_s
        Cores times the time for which they were the job's.
    held_s
        Cores times the time for which it was held, less what it got of them nevertheless.
    """

    name: int | str | None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    jobs: set[int] = field(default_factory=set)
    ran_s: float = 0.0
    held_s: float = 0.0

    @property
    def held_share(self) -> float:
        """Share of the time in turns for which it was held."""
        whole_s = self.ran_s + self.held_s
        return self.held_s / whole_s if whole_s else 0.0


def hours_by_job(rows: Iterable[tuple[SliceRecord, Whose | None]]) -> tuple[dict[int, Hours], frozenset[int]]:
    """Return the sums by job, and the jobs of which the record does not say whose they are: these have none.

    Parameters
    ----------
    rows
        Rows of the slice record, each with what the record says of its job.
    """
    found: dict[int, Hours] = {}
    unknown: set[int] = set()
    for row, whose in rows:
        cores = None if whose is None else whose.cores.get(row.node)
        if whose is None or cores is None:
            unknown.add(row.job)
            continue
        sum_ = found.get(row.job)
        if sum_ is None:
            sum_ = Hours(row.job, whose.user, whose.account, whose.partition, {row.job})
            found[row.job] = sum_
        whole_s = cores * row.length_s
        got_s = whole_s
        if row.role in _HELD:
            got_s = min(row.cpu_s or 0.0, whole_s) if row.role == "leftover" else 0.0
        sum_.ran_s += got_s
        sum_.held_s += whole_s - got_s
    return found, frozenset(unknown - found.keys())


def summed(jobs: Iterable[Hours], name: Callable[[Hours], str | None]) -> list[Hours]:
    """Return sums of jobs by another name, those who were held most first."""
    found: dict[str | None, Hours] = {}
    for one in jobs:
        sum_ = found.setdefault(name(one), Hours(name(one)))
        sum_.jobs |= one.jobs
        sum_.ran_s += one.ran_s
        sum_.held_s += one.held_s
    return sorted(found.values(), key=lambda sum_: -sum_.held_s)
