"""From accounting records to an SWF trace: numbers for names, seconds from the first submission."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from zoneinfo import ZoneInfo

from foundation.errors import InputError, UsageError
from foundation.one_line import LONGEST_MESSAGE, one_line
from foundation.units import counted, verb
from workloads.importers.slurm_words import (
    ENDS_OF_WAITING,
    MOST,
    REQUEUED,
    UNFINISHED,
    AccountingJob,
    AccountingLog,
    swf_status,
)
from workloads.swf import ReadReport, SwfHeader, SwfJob, SwfTrace

INTERACTIVE_QUEUE = 0
INTERACTIVE = ("name=interactive", "name=bash", "name=zsh", "name=tcsh", "name=sys/dashboard/*")
"""How salloc, an interactive srun and web portals name their jobs."""
LATEST_REQUEUE_S = 86_400
"""So long after a run ended, the same number, user and name are the same job; numbers return much later."""
MATCH_FIELDS = ("name", "partition", "qos", "account", "user")


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How to read accounting.

    Parameters
    ----------
    name
        Of the trace.
    interactive
        ``FIELD=PATTERN`` with shell wildcards; a job that fits one is interactive (queue 0). The fields
        are ``MATCH_FIELDS``.
    nodes, procs
        Of the system; ``None`` takes for ``procs`` the most processors that were in use at once.
    zone
        Of the header's dates; ``None`` writes none.
    """

    name: str
    interactive: tuple[str, ...] = INTERACTIVE
    nodes: int | None = None
    procs: int | None = None
    zone: ZoneInfo | None = None


@dataclass(slots=True)
class _Numbers:
    """Numbers for names, in the order of their first appearance."""

    first: int = 1
    known: dict[str, int] = field(default_factory=dict)

    def of(self, name: str | None) -> int | None:
        return None if name is None else self.known.setdefault(name, self.first + len(self.known))


def assemble(log: AccountingLog, options: ImportOptions) -> SwfTrace:
    """Return the trace of the jobs of ``log`` that ran, in the order of submission.

    Left out and counted in the trace's report: jobs that never started, that have not ended, and earlier
    runs of requeued jobs. Users, accounts and job names become numbers, so that the trace names no user;
    partitions keep their names in the header.

    Raises
    ------
    InputError
        No job ran.
    UsageError
        A pattern of ``options.interactive`` is malformed, or is one for a field that no job has.
    """
    patterns = [_pattern(text) for text in options.interactive]
    skipped = Counter(log.omitted.reasons)
    ran = _that_ran(log.jobs, skipped)
    if not ran:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in skipped.items()) or "it has no job"
        raise InputError(f"{options.name}: no job of this log ran: {reasons}")
    if options.interactive != INTERACTIVE:
        _check_fields(patterns, ran, options.name)
    first_s = int(min(job.submit_s or 0 for job in ran))
    users, groups, names, partitions = _Numbers(), _Numbers(), _Numbers(), _Numbers()
    jobs: list[SwfJob] = []
    for number, job in zip(_job_numbers(ran), ran, strict=True):
        partition = partitions.of(job.partition)
        interactive = any(fnmatchcase(getattr(job, name) or "", glob) for name, glob in patterns)
        jobs.append(
            SwfJob(
                job_number=number,
                submit_s=_tidy((job.submit_s or 0) - first_s),
                wait_s=_tidy(max(0.0, (job.start_s or 0) - (job.submit_s or 0))),
                run_s=_run_s(job),
                allocated_procs=job.procs,
                cpu_s=_per_proc(job.cpu_s, job.procs),
                used_memory_kib=_per_proc(job.used_memory_kib, job.procs),
                requested_procs=job.requested_procs,
                requested_s=job.requested_s,
                requested_memory_kib=_per_proc(job.requested_memory_kib, job.requested_procs or job.procs),
                status=swf_status(job.state),
                user=users.of(job.user),
                group=groups.of(job.account),
                executable=names.of(job.name),
                queue=INTERACTIVE_QUEUE if interactive else partition or 1,
                partition=partition,
            )
        )
    header = _header(log, options, ran, jobs, first_s, partitions.known)
    report = ReadReport(len(jobs), dict(skipped), tuple(log.omitted.examples))
    return SwfTrace(header, tuple(jobs), options.name, report)


def _pattern(text: str) -> tuple[str, str]:
    name, equals, glob = text.partition("=")
    if not equals or name not in MATCH_FIELDS or not glob:
        known = ", ".join(MATCH_FIELDS)
        raise UsageError(f"{text!r} does not tell interactive jobs: write FIELD=PATTERN with {known}")
    return name, glob


def _check_fields(patterns: Iterable[tuple[str, str]], ran: Sequence[AccountingJob], log: str) -> None:
    """Refuse a user's own pattern for a field that the log does not have: it would find nothing."""
    for name, glob in patterns:
        if not any(getattr(job, name) for job in ran):
            known = [field for field in MATCH_FIELDS if any(getattr(job, field) for job in ran)]
            there = f"it has {', '.join(known)}" if known else "nor any other field to go by"
            raise UsageError(f"--interactive {name}={glob}: no job of {log} has a {name}; {there}")


def _that_ran(jobs: Iterable[AccountingJob], skipped: Counter[str]) -> list[AccountingJob]:
    """Return the jobs that started and ended, by submission; of requeued jobs, the last run.

    One number may also stand for all tasks of an array, so only a run that ended in a requeue gives way.
    """
    ran: list[AccountingJob] = []
    starts_of: dict[tuple[str | None, ...], list[AccountingJob]] = {}
    for job in jobs:
        run_s = _run_s(job)
        if job.submit_s is None:
            skipped["no submission"] += 1
        elif not _waits(job) and (job.state in UNFINISHED or (job.start_s is not None and run_s is None)):
            skipped["not ended"] += 1
        elif (
            job.start_s is None or job.start_s < job.submit_s - 1 or run_s is None or _waited_only(job, run_s)
        ):
            skipped["never started"] += 1
        elif not (job.procs or job.requested_procs):
            skipped["no processors"] += 1
        else:
            ran.append(job)
            if job.state in REQUEUED:
                starts_of[job.job_id, job.user, job.name] = []
    for job in ran if starts_of else ():
        if (runs := starts_of.get((job.job_id, job.user, job.name))) is not None:
            runs.append(job)
    earlier = {id(job) for runs in starts_of.values() for job in _earlier_runs(runs)}
    if earlier:
        skipped["earlier run of a requeued job"] += len(earlier)
        ran = [job for job in ran if id(job) not in earlier]
    return sorted(ran, key=lambda job: (job.submit_s or 0, job.start_s or 0))


def _waits(job: AccountingJob) -> bool:
    """Return whether a job was waiting when the log was made."""
    return job.state == "PENDING" and job.start_s is None


def _waited_only(job: AccountingJob, run_s: float) -> bool:
    """Return whether a job had no node: its log says so, or leaves it open for a cancelled one of 0 s."""
    return not run_s and not job.had_nodes and (job.had_nodes is False or job.state in ENDS_OF_WAITING)


def _earlier_runs(runs: list[AccountingJob]) -> Iterator[AccountingJob]:
    """Yield those of ``runs``, of one number, user and name, that were requeued and ran again.

    A requeue sets the submission to its own instant. Slurm uses numbers again, but years later.
    """
    runs.sort(key=lambda job: job.start_s or 0)
    starts_s = [job.start_s or 0 for job in runs]
    for job, start_s in zip(runs, starts_s, strict=True):
        following = bisect_right(starts_s, start_s)
        if job.state in REQUEUED and following < len(runs):
            late_s = (runs[following].submit_s or 0) - start_s - (_run_s(job) or 0)
            if late_s <= LATEST_REQUEUE_S:
                yield job


def _run_s(job: AccountingJob) -> float | None:
    if job.run_s is not None:
        return job.run_s
    if job.start_s is None or job.end_s is None or job.end_s < job.start_s:
        return None
    return _tidy(job.end_s - job.start_s)


def _job_numbers(jobs: Sequence[AccountingJob]) -> list[int]:
    """Return Slurm's own numbers; jobs without one of their own (array tasks) get those after the largest."""
    own = [job.raw_id if job.raw_id is not None else _plain(job.job_id) for job in jobs]
    following = max((number for number in own if number is not None), default=0) + 1
    taken: set[int] = set()
    numbers: list[int] = []
    for number in own:
        if number is None or number in taken:
            number, following = following, following + 1
        taken.add(number)
        numbers.append(number)
    return numbers


def _plain(job_id: str) -> int | None:
    if not (job_id.isascii() and job_id.isdigit() and len(job_id) <= len(str(MOST))):
        return None
    number = int(job_id)
    return number if number <= MOST else None


def _per_proc(total: float | None, procs: int | None) -> float | None:
    if total is None or not procs or total > MOST * procs:
        return None
    return _tidy(round(total / procs, 3))


def _tidy(value: float) -> float:
    return int(value) if float(value).is_integer() else round(value, 3)


def _header(
    log: AccountingLog,
    options: ImportOptions,
    ran: Sequence[AccountingJob],
    jobs: Sequence[SwfJob],
    first_s: int,
    partitions: dict[str, int],
) -> SwfHeader:
    peak = most_in_use(jobs)
    # on shared nodes jobs have a part of the cores, under hardware threads a multiple of them
    widths: Counter[int] = Counter()
    for record in ran:
        if record.procs and record.nodes:
            widths[-(-record.procs // record.nodes)] += record.nodes if record.nodes > 1 else 0
    width = max(widths, key=lambda one: (widths[one], one), default=None)
    nodes = options.nodes or (-(-peak // width) if width and not options.procs else None)
    lines = [
        "Version: 2.2",
        "Computer: Slurm cluster",
        f"Conversion: osub trace convert, from {log.kind}",
        f"MaxJobs: {len(jobs)}",
        f"MaxRecords: {len(jobs)}",
        f"UnixStartTime: {first_s}",
        *([f"TimeZoneString: {options.zone.key}"] if options.zone else []),
        *([f"MaxNodes: {nodes}"] if nodes else []),
        f"MaxProcs: {options.procs or peak}",
        *(f"Queue: {number} {name}" for name, number in partitions.items()),
        *([f"Queue: {INTERACTIVE_QUEUE} interactive"] if any(job.queue == 0 for job in jobs) else []),
        *(f"Partition: {number} {name}" for name, number in partitions.items()),
    ]
    if not options.procs:
        lines.append(
            f"Note: MaxProcs is not known; at most {counted(peak, 'processor')} {verb(peak, 'was', 'were')} "
            "in use at once" + (f"; jobs mostly have {width:,} a node" if nodes else "")
        )
    anew: Counter[str] = Counter()
    submissions: set[tuple[str, float | None]] = set()
    for job, record in zip(jobs, ran, strict=True):
        if job.job_number not in (record.raw_id, _plain(record.job_id)):
            task = "_" in record.job_id or (record.job_id, record.submit_s) in submissions
            anew["component" if "+" in record.job_id else "array task" if task else "job"] += 1
        submissions.add((record.job_id, record.submit_s))
    for kind, number in anew.items():
        why = "with the number of an earlier one" if kind == "job" else "without own numbers"
        lines.append(f"Note: {counted(number, kind)} {why}: numbered after the largest")
    components = Counter(record.job_id.partition("+")[0] for record in ran if "+" in record.job_id)
    if components:
        parts = counted(components.total(), "component")
        lines.append(
            f"Note: {counted(len(components), 'heterogeneous job')}: {parts} became jobs of their own; "
            "a scheduler may start them apart"
        )
    if unsure := sum(not record.sure for record in ran):
        lines.append(
            f"Note: {counted(unsure, 'job')} of the hour that autumn repeats may be an hour later or longer: "
            "TZ=UTC sacct leaves no doubt, with --time-zone UTC"
        )
    if log.not_known:
        values = ", ".join(f"{column} {number:,}" for column, number in log.not_known.items())
        lines.append(f"Note: values that cannot be, taken as not known: {values}")
    lines.append("Note: interactive jobs (queue 0) are those with " + " or ".join(options.interactive))
    return SwfHeader.of_lines(one_line(" ".join(line.split()), LONGEST_MESSAGE) for line in lines)


def beyond_system(trace: SwfTrace, procs: int) -> str | None:
    """Return how much more a log had in use at once than a system of ``procs`` has; None where it fits."""
    peak = most_in_use(trace.jobs)
    if peak <= procs:
        return None
    used = f"{counted(peak, 'processor')} {verb(peak, 'was', 'were')} in use at once"
    return f"{used}, the system has {procs:,}"


def most_in_use(jobs: Sequence[SwfJob]) -> int:
    """Return the most processors in use at any instant, by the log's own starts and ends."""
    ends: list[tuple[float, int]] = []
    used = most = 0
    for job in sorted(jobs, key=lambda job: job.submit_s + (job.wait_s or 0)):
        start_s = job.submit_s + (job.wait_s or 0)
        while ends and ends[0][0] <= start_s:
            used -= heapq.heappop(ends)[1]
        procs = job.allocated_procs or job.procs or 0
        heapq.heappush(ends, (start_s + (job.run_s or 0), procs))
        used += procs
        most = max(most, used)
    return most
