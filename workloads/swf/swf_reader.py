"""A whole SWF trace in memory, and reading it job by job, strictly or leniently.

Joins the lines of one job: the log of a gang-scheduled machine has one for each part between suspensions.

Source: the Parallel Workloads Archive's page on the Standard Workload Format, field 11: status 2 is a part
that goes on, 3 and 4 the last part of a job that completed or failed. A summary line, of any other status,
comes first where there is one, and then only it has a submit time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from foundation.errors import InputError
from foundation.files import write_pieces
from workloads.swf.swf_header import SwfComment, SwfHeader
from workloads.swf.swf_job import (
    LARGEST,
    STREAM_FAULTS,
    LineFaultError,
    SwfJob,
    is_blank,
    open_trace,
    parse_line,
    raw_lines,
    stream_fault,
)

EXAMPLES_KEPT = 5


@dataclass(slots=True)
class Omissions:
    """How many lines or jobs were left out, by reason, and the first few of them."""

    reasons: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def count(self, reason: str, example: str) -> None:
        """Count a line or job."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if len(self.examples) < EXAMPLES_KEPT:
            self.examples.append(example)

    def refuse(self, reason: str, message: str, *, strict: bool, lenient: str = "skips such lines") -> None:
        """Count what cannot be used; with ``strict`` raise ``InputError``, which says what --lenient does."""
        if strict:
            raise InputError(f"{message}; --lenient {lenient}")
        self.count(reason, message)

    def line(self) -> str:
        """Return the counts in words, empty where nothing was left out."""
        return ", ".join(f"{reason} {count:,}" for reason, count in self.reasons.items())


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What a reader met.

    Parameters
    ----------
    jobs
        Jobs that were read.
    skipped
        Lines that were skipped (lenient reading only), by reason.
    examples
        The first few skipped lines, with file, line and field.
    unsorted
        Jobs with an earlier submit time than the job before.
    duplicates
        Jobs whose number an earlier job has.
    joined
        Lines that were joined with another line of their job, since they are parts of it.
    parted
        Jobs that had such lines.
    """

    jobs: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    unsorted: int = 0
    duplicates: int = 0
    joined: int = 0
    parted: int = 0

    @property
    def skipped_lines(self) -> int:
        """Skipped lines of all reasons."""
        return sum(self.skipped.values())


@dataclass(frozen=True, slots=True)
class SwfTrace:
    """A trace: its header and its jobs in the file's order.

    ``name`` is the file's name without its endings; ``report`` is the reader's.
    """

    header: SwfHeader
    jobs: tuple[SwfJob, ...]
    name: str = "trace"
    report: ReadReport = field(default_factory=ReadReport, compare=False)

    def with_jobs(self, jobs: Iterable[SwfJob], note: str) -> SwfTrace:
        """Return a trace with other jobs, and ``note`` in the header to say where they come from.

        MaxJobs and MaxRecords are set to the new count; the reader's report is dropped.
        """
        chosen = tuple(jobs)
        header = self.header.with_note(note)
        for name in ("MaxJobs", "MaxRecords"):
            header = header.with_field(name, len(chosen))
        return replace(self, header=header, jobs=chosen, report=ReadReport(jobs=len(chosen)))


def swf_lines(header: SwfHeader, jobs: Iterable[SwfJob]) -> Iterator[bytes]:
    """Yield the lines of a file: comments at their places, jobs as they were read or else in plain form.

    A job or comment that ended its file without a line end gets one where another line follows.
    """
    previous = b""
    for line in _lines_in_place(header, jobs):
        if previous:
            yield previous if previous.endswith(b"\n") else previous + b"\n"
        previous = line
    yield previous


def _lines_in_place(header: SwfHeader, jobs: Iterable[SwfJob]) -> Iterator[bytes]:
    waiting = deque(sorted(header.comments, key=lambda comment: comment.after_jobs))
    for count, job in enumerate(jobs):
        while waiting and waiting[0].after_jobs <= count:
            yield waiting.popleft().raw
        yield job.line()
    for comment in waiting:
        yield comment.raw


def write_swf(path: Path, trace: SwfTrace, packed: bool | None = None) -> None:
    """Write ``trace`` to ``path``, which then has all of it or, after an error, what it had before.

    Parameters
    ----------
    path
        The file; replaced where it exists.
    trace
        Header and jobs. A job that was read and not changed since is written as the very bytes read.
    packed
        Whether to write gzip (without name and time: the same trace gives the same bytes); by
        default, whether the name ends in ``.gz``.

    Raises
    ------
    OutputError
        The folder is missing or not writable, ``path`` is a folder or a device, or the disk is full.
    """
    write_pieces(path, swf_lines(trace.header, trace.jobs), packed=packed)


PART_STATUSES = frozenset({2, 3, 4})
_GOES_ON = 2
_STATUS_OF_WHOLE = {2: None, 3: 1, 4: 0}


@dataclass(slots=True)
class JoinedParts:
    """What became of lines, by their place: ``dropped`` ones are in another job, ``changed`` have a new job.

    ``jobs`` counts the jobs that had several lines.
    """

    dropped: list[int] = field(default_factory=list)
    changed: dict[int, SwfJob] = field(default_factory=dict)
    jobs: int = 0

    def kept_before(self, place: int) -> int:
        """Return how many of the lines before ``place`` are left."""
        return place - bisect_left(self.dropped, place)

    def comments(self, found: Iterable[SwfComment]) -> list[SwfComment]:
        """Return comments at their places among the lines that are left."""
        return [SwfComment(comment.raw, self.kept_before(comment.after_jobs)) for comment in found]


@dataclass(slots=True)
class _Lines:
    """The lines of one job so far: where its first one is, its summary if it has one, its parts."""

    place: int
    end_s: float
    summary: SwfJob | None = None
    parts: list[SwfJob] = field(default_factory=list)

    def takes(self, part: SwfJob) -> bool:
        """Return whether ``part`` belongs here, rather than to a later job with the same number."""
        goes_on = bool(self.parts) and self.parts[-1].status == _GOES_ON
        return goes_on or part.submit_s < 0 or part.submit_s <= self.end_s

    def add(self, part: SwfJob) -> None:
        self.parts.append(part)
        if part.submit_s >= 0:
            self.end_s = max(self.end_s, end_of(part))


def end_of(job: SwfJob) -> float:
    """Return the second at which ``job`` ended if it was never suspended."""
    return job.submit_s + (job.wait_s or 0) + (job.run_s or 0)


def join_parts(lines: Iterable[tuple[int, SwfJob]], earlier_end_s: Mapping[int, float]) -> JoinedParts:
    """Return how to join ``lines``, jobs with their places in the file's order.

    A part belongs to the line before it with its number. Where that job has had its last part, a part that
    was submitted after its end begins a later job. ``earlier_end_s`` has the ends of jobs without parts that
    come before ``lines``, by number. A part without submit time must have a line before it.
    """
    found = JoinedParts()
    latest: dict[int, _Lines] = {}
    joined: dict[int, _Lines] = {}
    for place, job in lines:
        number = job.job_number
        known = latest.get(number)
        if job.status not in PART_STATUSES:
            if known is None or known.summary is not None or known.parts[0].submit_s != job.submit_s:
                latest[number] = _Lines(place, end_of(job), job)
                continue
            known.summary = job
        else:
            if known is None and number in earlier_end_s:
                known = _Lines(-1, earlier_end_s[number], job)  # its summary is not here, but there is one
            if known is None or not known.takes(job):
                latest[number] = _Lines(place, end_of(job), None, [job])
                continue
            known.add(job)
        latest[number] = joined[id(known)] = known
        found.dropped.append(place)
    for known in joined.values():
        if known.place >= 0:
            found.changed[known.place] = known.summary or _whole(known.parts)
    found.jobs = len(joined)
    return found


def _whole(parts: list[SwfJob]) -> SwfJob:
    """Return the job of ``parts``: run and CPU times added, the status of the last, the rest of the first."""
    runs_s = [part.run_s for part in parts if part.run_s is not None]
    cpu_s = [part.cpu_s for part in parts if part.cpu_s is not None]
    return replace(
        parts[0],
        run_s=min(sum(runs_s), LARGEST) if runs_s else None,
        allocated_procs=max((part.allocated_procs or 0 for part in parts), default=0) or None,
        cpu_s=min(sum(cpu_s), LARGEST) if cpu_s else None,
        status=_STATUS_OF_WHOLE[parts[-1].status or _GOES_ON],
        extension=(),
    )


LONE_PART = (
    "field 2 (submit time): -1 is for a part of a job (status 2 to 4) that an earlier line begins, "
    "and none does"
)


def until_damage(path: Path, pieces: Iterable[bytes], omitted: Omissions, *, strict: bool) -> Iterator[bytes]:
    """Yield pieces of a file; damage ends them, which is an error or (not ``strict``) counted."""
    try:
        yield from pieces
    except STREAM_FAULTS as error:
        fault = stream_fault(path, error)
        if strict:
            raise fault from error
        omitted.count("damaged end of file", str(fault))
    except OSError as error:
        raise InputError(f"cannot read trace {path}: {error.strerror}") from error


class SwfReader(Iterator[SwfJob]):
    """Iterates over the jobs of one file; header and report grow as it goes and are whole at the end.

    Made by ``iter_swf``. At the end of a file without any job it raises ``InputError``.
    """

    def __init__(self, path: Path, strict: bool = True) -> None:
        self.path = path
        self.strict = strict
        self._comments: list[SwfComment] = []
        self._omitted = Omissions()
        self._jobs = 0
        self._unsorted = 0
        self._duplicates = 0
        self._end_s: dict[int, float] = {}
        self._joined = 0
        self._parted = 0
        self._last_submit_s: float = 0
        self._source = self._read()

    def __next__(self) -> SwfJob:
        """Return the next job; ``InputError`` as ``iter_swf`` says."""
        return next(self._source)

    @property
    def header(self) -> SwfHeader:
        """The comment lines met so far."""
        return SwfHeader(tuple(self._comments))

    @property
    def report(self) -> ReadReport:
        """What was met so far."""
        return ReadReport(
            self._jobs,
            dict(self._omitted.reasons),
            tuple(self._omitted.examples),
            self._unsorted,
            self._duplicates,
            self._joined,
            self._parted,
        )

    def close(self) -> None:
        """Close the file before its end."""
        self._source.close()

    def _read(self) -> Generator[SwfJob]:
        held: list[SwfJob] = []
        held_numbers: set[int] = set()
        with open_trace(self.path) as stream:
            lines = until_damage(self.path, raw_lines(stream), self._omitted, strict=self.strict)
            for number, raw in enumerate(lines, start=1):
                if raw[:1] == b";" or raw.isspace():
                    self._comments.append(SwfComment(raw, self._jobs))
                    continue
                try:
                    job = parse_line(raw)
                except LineFaultError as fault:
                    if not is_blank(raw):
                        self._refuse(f"{self.path}:{number}: {fault.detail}", fault.reason)
                    continue
                if job.status not in PART_STATUSES and not held:
                    self._jobs += 1
                    self._count(job)
                    yield job
                    continue
                known = job.submit_s >= 0 or job.job_number in self._end_s or job.job_number in held_numbers
                if not known:
                    self._refuse(f"{self.path}:{number}: {LONE_PART}", "part of an unknown job")
                    continue
                self._jobs += 1
                held.append(job)
                held_numbers.add(job.job_number)
        yield from self._joined_parts(held)
        if not self._jobs:
            raise no_jobs(self.path, self.report, len(self._comments))

    def _joined_parts(self, held: list[SwfJob]) -> Iterator[SwfJob]:
        """Yield the jobs of all lines from the first part of a job on."""
        if not held:
            return
        first = self._jobs - len(held)
        found = join_parts(enumerate(held, start=first), self._end_s)
        self._jobs -= len(found.dropped)
        self._joined, self._parted = len(found.dropped), found.jobs
        self._comments = found.comments(self._comments)
        dropped = set(found.dropped)
        for place, job in enumerate(held, start=first):
            if place not in dropped:
                job = found.changed.get(place, job)
                self._count(job)
                yield job

    def _refuse(self, message: str, reason: str) -> None:
        if self.strict:
            raise refusal(message, self._jobs)
        self._omitted.count(reason, message)

    def _count(self, job: SwfJob) -> None:
        number, submit_s = job.job_number, job.submit_s
        if number in self._end_s:
            self._duplicates += 1
        self._end_s[number] = end_of(job)
        if submit_s < self._last_submit_s:
            self._unsorted += 1
        self._last_submit_s = submit_s


class NoSwfError(InputError):
    """A malformed line before the first job: the file may be of another format.

    ``detail`` is the fault, with file, line and field, and without advice.
    """

    detail = ""


def refusal(message: str, jobs: int) -> InputError:
    """Return the error for a line after so many jobs."""
    if jobs:
        return InputError.naming("{message}; {lenient} passes over malformed lines", message=message)
    error = NoSwfError.naming(
        "{message}; is it SWF? Then {lenient} passes over malformed lines; `osub trace convert` reads "
        "sacct's output and job completion logs",
        message=message,
    )
    error.detail = message
    return error


def no_jobs(path: Path, report: ReadReport, comments: int) -> InputError:
    """Return the error for a file in which no job was found."""
    if report.skipped:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in report.skipped.items())
        return InputError(f"trace {path} has no readable job; skipped: {reasons}; is it an SWF file?")
    if comments:
        return InputError(f"trace {path} has only comments, no job: nothing to do with it")
    return InputError(f"trace {path} is empty: give an SWF file with at least one job")


def iter_swf(path: Path, strict: bool = True) -> SwfReader:
    """Read the jobs of ``path`` one at a time, in constant memory but for the job numbers.

    From the first part of a job on (status 2 to 4) all lines are held in memory, and the parts joined.

    Parameters
    ----------
    path
        An SWF 2.2 file, plain or gzip (known by its first bytes). A pipe will do.
    strict
        Whether a malformed line is an error. Otherwise it is skipped and counted in ``report``.

    Raises
    ------
    InputError
        While iterating: the file is missing, a folder or damaged, has no job, or (strict) a line is
        malformed; the message names file, line and field. Unsorted submissions and repeated job numbers
        are no errors; the report counts them.
    """
    return SwfReader(path, strict)


def trace_name(path: Path) -> str:
    """Return the file's name without ``.swf``, ``.gz`` and ``.txt``; ``?`` for what is no text in it."""
    whole = name = path.name.encode(errors="replace").decode()
    for ending in (".gz", ".txt", ".swf"):
        name = name.removesuffix(ending)
    return name or whole


def read_swf(path: Path, strict: bool = True) -> SwfTrace:
    """Read all of ``path`` into memory; arguments and errors are those of ``iter_swf``.

    For large traces of which only the numbers matter, ``load_columns`` is faster and smaller.
    """
    reader = iter_swf(path, strict)
    jobs = tuple(reader)
    return SwfTrace(reader.header, jobs, trace_name(path), reader.report)
