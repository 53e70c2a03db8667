"""What ``sacct`` prints, as delimited text and as JSON, and CSV exports with similar columns.

Text is that of ``--parsable`` and ``--parsable2``. ``--json`` has the job objects of Slurm's data parsers
from 21.08 on: numbers are plain in older parsers, and objects of ``set``, ``infinite`` and ``number`` in
newer ones; states are a word or a list of words.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path
from typing import Any, TypeVar

from foundation.errors import InputError
from foundation.units import counted
from workloads.importers.slurm_words import (
    MOST,
    AccountingJob,
    AccountingLog,
    LocalClock,
    NotKnownError,
    count,
    is_absent,
    known_text,
    length_s,
    memory_kib,
    resources,
    state_word,
)

_NAMES = {
    "job_id": ("jobid", "job_id", "id"),
    "raw_id": ("jobidraw",),
    "submit": ("submit", "submit_time", "submission"),
    "start": ("start", "start_time"),
    "end": ("end", "end_time"),
    "elapsed": ("elapsedraw", "elapsed", "run_time", "runtime"),
    "limit_min": ("timelimitraw",),
    "limit": ("timelimit", "wallclock_req", "time_limit", "req_time"),
    "procs": ("alloccpus", "ncpus", "processors_alloc", "cpus"),
    "requested_procs": ("reqcpus", "processors_req"),
    "nodes": ("allocnodes", "nnodes", "nodes", "nodes_req"),
    "memory": ("reqmem", "mem_req"),
    "allocated": ("alloctres", "tres_alloc"),
    "requested": ("reqtres", "tres_req"),
    "max_rss": ("maxrss",),
    "tasks": ("ntasks",),
    "cpu": ("totalcpu", "cputimeused"),
    "state": ("state", "jobstate"),
    "user": ("user", "uid"),
    "account": ("account", "group"),
    "partition": ("partition",),
    "qos": ("qos",),
    "name": ("jobname", "name"),
}
ADVICE = (
    "sacct --allusers --parsable2 --format=JobID,JobIDRaw,User,Account,Partition,QOS,State,Submit,Start,End,"
    "ElapsedRaw,TimelimitRaw,NNodes,NCPUS,ReqCPUS,ReqMem,TotalCPU,MaxRSS,NTasks,JobName"
)
"""The command that tells all that a trace can hold. Users choose the name, so it comes last."""

T = TypeVar("T")
_OF_STEPS = ("max_rss", "tasks", "cpu")
_BLANK = " \t\r\n\x1a"
KIB_PER_MIB, BYTES_PER_KIB = 1024, 1024


_WORDS_OF_USERS = frozenset(
    {"jobname", "name", "comment", "extra", "submitline", "workdir", "stdin", "stdout", "stderr"}
)
"""Columns whose text is the users': it may hold the mark between columns, and line breaks."""
_EVIDENCE = ("nodelist", "allocnodes", "alloctres", "alloccpus")
"""Columns that tell whether a job ever had a node, the surest first."""


def delimiter_of(heading: str) -> str | None:
    """Return what parts the columns of a heading that names a job and its submission, else ``None``."""
    other = re.match(r"\w+(\W+)\w", heading)
    for mark in ("|", ",", "\t", ";", *([other[1]] if other and other[1].strip() else [])):
        names = {name.strip().strip('"').lower() for name in heading.split(mark)}
        if names & set(_NAMES["job_id"]) and names & set(_NAMES["submit"]):
            return mark
    return None


def lacks_heading(line: str) -> bool:
    """Return whether ``line``, the first of a file, is a row of accounting rather than its heading."""
    return re.match(r"\s*\d+[^\d\s]", line) is not None and (
        "|" in line or re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d", line) is not None
    )


def read_delimited(path: Path, lines: Iterable[str], zone: tzinfo | None, strict: bool) -> AccountingLog:
    """Read delimited accounting, its heading first; steps add their memory and CPU time to their job.

    Raises
    ------
    InputError
        The heading lacks the job's number or submission, or (``strict``) a line is malformed; the
        message names file and line.
    """
    source = enumerate(lines, start=1)
    before, heading = next(((at, line) for at, line in source if line.strip()), (0, ""))
    mark = delimiter_of(heading)
    if mark is None:
        raise InputError(
            f"{path}: no columns JobID and Submit in the first line; ask for them with `{ADVICE}`"
        )
    names = [name.strip().strip('"').lower() for name in heading.rstrip("\r\n").split(mark)]
    width = len(names) - (names[-1] == "")
    # what users write may hold the mark, if it comes last
    most_marks = width - 1 if names[-1] in _WORDS_OF_USERS else -1
    rows = _rows(path, (line for _, line in source), before + 1, mark, most_marks)
    free = next((name for name in reversed(names) if name in _WORDS_OF_USERS), None)
    reader = _RowReader(names, zone)
    log = reader.log
    for number, row in rows:
        if len(row) < width or (len(row) > width and any(cell.strip() for cell in row[width:])):
            if not any(cell.strip(_BLANK) for cell in row):
                continue
            broken = f"; is a line break in {free} of a line before? Leave it out or take `sacct --json`"
            message = f"{path}:{number}: {counted(len(row), 'column')} instead of {width}"
            more = broken if free and len(row) < width else ""
            log.omitted.refuse("number of columns", message + more, strict=strict)
            continue
        try:
            reader.add(row)
        except ValueError as error:
            message = f"{path}:{number}: cannot make sense of {str(error)!r}"
            log.omitted.refuse("malformed value", message, strict=strict)
    reader.finish()
    return log


def _rows(
    path: Path, lines: Iterable[str], first: int, mark: str, most_marks: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers, from ``first`` on, and cells; only comma-separated files quote."""
    if mark == ",":
        reader = csv.reader(lines)
        try:
            for row in reader:
                yield first - 1 + reader.line_num, row
        except csv.Error as error:
            raise InputError(f"{path}:{first - 1 + reader.line_num}: {error}") from error
        return
    for number, line in enumerate(lines, start=first):
        yield number, line.rstrip("\r\n").split(mark, most_marks)


class _RowReader:
    """Turns rows of accounting into jobs; a job's steps follow its row."""

    def __init__(self, names: Sequence[str], zone: tzinfo | None) -> None:
        self.log = AccountingLog("sacct")
        self._clock = LocalClock(zone)
        self._places = {
            key: place
            for key, aliases in _NAMES.items()
            if (place := next((names.index(alias) for alias in aliases if alias in names), None)) is not None
        }
        self._id_place = self._places["job_id"]
        # an export whose seconds are plain numbers has another name for them than sacct has
        self._limit_unit_s = 60 if "elapsedraw" in names or "jobid" in names else 1
        self._evidence = next((names.index(name) for name in _EVIDENCE if name in names), None)
        self._last_id: str | None = None
        self._used_kib: list[float] = []
        self._cpu_s: list[float] = []
        self._steps = 0

    def add(self, row: Sequence[str]) -> None:
        """Take a job or a step; raise ``ValueError`` for what cannot be understood."""
        job_id = row[self._id_place].strip()
        if "." not in job_id:
            if job_id or any(cell.strip() for cell in row):
                job = self._job({key: row[place].strip() for key, place in self._places.items()}, row)
                self.finish()
                self.log.jobs.append(job)
                self._last_id = job.job_id
        elif job_id.partition(".")[0] == self._last_id:
            cells = {key: row[self._places[key]].strip() for key in _OF_STEPS if key in self._places}
            self._steps += 1
            if (kib := self._resident_kib(cells)) is not None:
                self._used_kib.append(kib)
            if cpu_s := self._known("TotalCPU", length_s, cells.get("cpu", "")):
                self._cpu_s.append(cpu_s)

    def finish(self) -> None:
        """Add the steps to the last job: the largest's memory, and their CPU time if its own is missing."""
        if self._steps:
            job = self.log.jobs[-1]
            if job.used_memory_kib is not None:
                self._used_kib.append(job.used_memory_kib)
            self.log.jobs[-1] = replace(
                job,
                used_memory_kib=max(self._used_kib, default=None),
                cpu_s=job.cpu_s or sum(self._cpu_s) or job.cpu_s,
                had_nodes=True,
            )
        self._last_id, self._steps, self._used_kib, self._cpu_s = None, 0, [], []

    def _known(self, column: str, read: Callable[..., T | None], *cells: Any) -> T | None:
        """Return what ``read`` makes of ``cells``, ``None`` for a value that cannot be, which is counted."""
        try:
            return read(*cells)
        except NotKnownError:
            self.log.not_known[column] += 1
            return None

    def _job(self, cells: Mapping[str, str], row: Sequence[str]) -> AccountingJob:
        allocated, asked = resources(cells.get("allocated", "")), resources(cells.get("requested", ""))
        procs = count(cells.get("procs", "")) or count(allocated.get("cpu", ""))
        requested_procs = self._known("ReqCPUS", count, cells.get("requested_procs", ""))
        requested_procs = requested_procs or count(asked.get("cpu", ""))
        nodes = self._known("NNodes", count, cells.get("nodes", "")) or count(allocated.get("node", ""))
        memory = cells.get("memory") or asked.get("mem", "")
        limit_s = self._known("TimelimitRaw", length_s, cells.get("limit_min", ""), 60)
        if limit_s is None:
            limit_s = self._known("Timelimit", length_s, cells.get("limit", ""), self._limit_unit_s)
        run_s = length_s(cells.get("elapsed", ""))
        (submit_s, start_s, end_s), sure = self._clock.read(
            cells["submit"], cells.get("start", ""), cells.get("end", ""), run_s
        )
        evidence = None if self._evidence is None else row[self._evidence].strip()
        return AccountingJob(
            job_id=cells["job_id"],
            raw_id=self._known("JobIDRaw", count, cells.get("raw_id", "")),
            state=state_word(cells.get("state", "")),
            submit_s=submit_s,
            start_s=start_s,
            end_s=end_s,
            run_s=run_s,
            procs=procs,
            requested_procs=requested_procs,
            nodes=nodes,
            requested_s=limit_s,
            requested_memory_kib=self._known("ReqMem", memory_kib, memory, requested_procs or procs, nodes),
            used_memory_kib=self._resident_kib(cells),
            cpu_s=self._known("TotalCPU", length_s, cells.get("cpu", "")),
            user=known_text(cells.get("user")),
            account=known_text(cells.get("account")),
            partition=known_text(cells.get("partition")),
            qos=known_text(cells.get("qos")),
            name=known_text(cells.get("name")),
            had_nodes=None if evidence is None else evidence != "0" and not is_absent(evidence),
            sure=sure,
        )

    def _resident_kib(self, cells: Mapping[str, str]) -> float | None:
        """Return the memory of all tasks, each counted with the largest's; ``None`` without MaxRSS."""
        kib = self._known("MaxRSS", memory_kib, cells.get("max_rss", ""), None, None, "B")
        if kib is None:
            return None
        return kib * (self._known("NTasks", count, cells.get("tasks", "")) or 1)


def read_json(path: Path, text: str, strict: bool) -> AccountingLog:
    """Read the document that ``sacct --json`` prints.

    Raises
    ------
    InputError
        It is no JSON, has no list of jobs, or (``strict``) a job lacks its number or has another shape.
    """
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path} is no sound JSON ({error}): save what `sacct --json` prints") from error
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise InputError(f"{path} has no list of jobs: save what `sacct --json` prints")
    log = AccountingLog("sacct JSON")
    for place, job in enumerate(jobs):
        try:
            log.jobs.append(_job_of_object(job))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            message = f"{path}: job {place} of the list has another shape than sacct's: {error!r}"
            log.omitted.refuse("malformed job", message, strict=strict, lenient="skips it")
    return log


def _job_of_object(job: Mapping[str, Any]) -> AccountingJob:
    time, association = job["time"], job.get("association") or {}
    required = job.get("required") or {}
    allocated, requested = (_tres((job.get("tres") or {}).get(key)) for key in ("allocated", "requested"))
    requested_procs = _number(required.get("CPUs")) or requested.get("cpu")
    procs = allocated.get("cpu")
    nodes = _number(job.get("allocation_nodes")) or allocated.get("node")
    limit_min = _number(time.get("limit"))
    steps = job.get("steps") or ()
    cpu_s = _cpu_s(time) or sum(_cpu_s(step.get("time") or {}) for step in steps)
    state = (job.get("state") or {}).get("current")
    array = job.get("array") or {}
    task, of = _number(array.get("task_id")), _number(array.get("job_id"))
    het = job.get("het") or {}
    offset, leader = _number(het.get("job_offset")), _number(het.get("job_id"))
    job_id = _whole(_number(job["job_id"]))
    if job_id is None:
        raise ValueError("job_id")
    text = str(job_id) if task is None or not of else f"{int(of)}_{int(task)}"
    return AccountingJob(
        job_id=f"{int(leader)}+{int(offset)}" if leader and offset is not None else text,
        raw_id=job_id,
        state=_word(state[0] if isinstance(state, list) and state else state),
        submit_s=_number(time["submission"]) or None,
        start_s=_number(time.get("start")) or None,
        end_s=_number(time.get("end")) or None,
        run_s=_number(time.get("elapsed")),
        procs=_whole(procs),
        requested_procs=_whole(requested_procs),
        nodes=_whole(nodes),
        requested_s=None if limit_min is None else 60 * limit_min,
        requested_memory_kib=_requested_kib(required, requested, requested_procs or procs, nodes),
        used_memory_kib=_used_kib(steps),
        cpu_s=cpu_s or None,
        user=_word(job.get("user")) or _word(association.get("user")),
        account=_word(job.get("account")) or _word(association.get("account")),
        partition=_word(job.get("partition")),
        qos=_word(job.get("qos")),
        name=_word(job.get("name")),
        had_nodes=bool(nodes or steps) if "allocation_nodes" in job else None,
    )


def _cpu_s(time: Mapping[str, Any]) -> float:
    """Return the CPU time of a job or step, 0 where it is not known or cannot be."""
    total = time.get("total") or {}
    parts = [_number(total.get(unit), strict=False) or 0 for unit in ("seconds", "microseconds")]
    return parts[0] + parts[1] / 1e6


def _number(value: Any, strict: bool = True) -> float | None:
    """Return a number of either shape; ``None`` where it is not set, infinite or negative.

    One beyond all bounds raises ``ValueError``, or is ``None`` too (not ``strict``).
    """
    if isinstance(value, Mapping):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    if value is None or isinstance(value, bool):
        return None
    number = float(value)
    if strict and not number <= MOST:
        raise ValueError(f"{number:g}")
    if not 0 <= number <= MOST:
        return None
    return int(number) if number.is_integer() else number


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: float | None) -> int | None:
    return int(value) if value else None


def _tres(entries: Sequence[Mapping[str, Any]] | None) -> dict[str, float]:
    counts = ((entry["type"], _number(entry.get("count"), entry["type"] != "mem")) for entry in entries or ())
    return {kind: count for kind, count in counts if count is not None}


def _requested_kib(
    required: Mapping[str, Any], requested: Mapping[str, float], procs: float | None, nodes: float | None
) -> float | None:
    per_cpu, per_node = _number(required.get("memory_per_cpu")), _number(required.get("memory_per_node"))
    if per_cpu and procs:
        return per_cpu * procs * KIB_PER_MIB
    if per_node and nodes:
        return per_node * nodes * KIB_PER_MIB
    total_mib = requested.get("mem")
    return total_mib * KIB_PER_MIB if total_mib else None


def _used_kib(steps: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the largest step's memory: that of its largest task, times its tasks."""
    found = []
    for step in steps:
        largest = _tres(((step.get("tres") or {}).get("requested") or {}).get("max")).get("mem")
        tasks = _number((step.get("tasks") or {}).get("count")) or 1
        if largest:
            found.append(largest / BYTES_PER_KIB * tasks)
    return max(found, default=None)
