"""What ``sacct`` prints, as delimited text and as JSON, and CSV exports with similar columns.

Text is that of ``--parsable`` and ``--parsable2``. ``--json`` has the job objects of Slurm's data parsers
from 21.08 on: numbers are plain in older parsers, and objects of ``set``, ``infinite`` and ``number`` in
newer ones; states are a word or a list of words.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path
from typing import Any

from foundation.errors import InputError
from foundation.units import counted
from workloads.importers.accounting_record import AccountingJob, AccountingLog
from workloads.importers.slurm_words import (
    MOST,
    count,
    instant_s,
    is_absent,
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

KIB_PER_MIB, BYTES_PER_KIB = 1024, 1024


def delimiter_of(heading: str) -> str | None:
    """Return what parts the columns of a heading that names a job and its submission, else ``None``."""
    for mark in ("|", ",", "\t", ";"):
        names = {name.strip().strip('"').lower() for name in heading.split(mark)}
        if names & set(_NAMES["job_id"]) and names & set(_NAMES["submit"]):
            return mark
    return None


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
    log = AccountingLog("sacct")
    names = [name.strip().strip('"').lower() for name in heading.rstrip("\r\n").split(mark)]
    width = len(names) - (names[-1] == "")
    # a name that comes last may hold the mark
    most_marks = width - 1 if names[-1] in _NAMES["name"] else -1
    rows = _rows(path, (line for _, line in source), before + 1, mark, most_marks)
    places = {
        key: place
        for key, aliases in _NAMES.items()
        if (place := next((names.index(alias) for alias in aliases if alias in names), None)) is not None
    }
    # an export whose seconds are plain numbers has another name for them than sacct has
    minutes = "elapsedraw" in names or "jobid" in names
    last: AccountingJob | None = None
    for number, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) < width or any(cell.strip() for cell in row[width:]):
            _refuse(
                log,
                strict,
                "number of columns",
                f"{path}:{number}: {counted(len(row), 'column')} instead of {width}",
            )
            continue
        cells = {key: row[place].strip() for key, place in places.items()}
        try:
            if "." in cells["job_id"]:
                if last is not None and cells["job_id"].partition(".")[0] == last.job_id:
                    last = log.jobs[-1] = _with_step(last, cells)
                continue
            last = _job(cells, zone, minutes)
        except ValueError as error:
            _refuse(log, strict, "malformed value", f"{path}:{number}: cannot make sense of {str(error)!r}")
            continue
        log.jobs.append(last)
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


def _refuse(log: AccountingLog, strict: bool, reason: str, message: str) -> None:
    if strict:
        raise InputError(f"{message}; --lenient skips such lines")
    log.skip(reason, message)


def _job(cells: Mapping[str, str], zone: tzinfo | None, minutes: bool) -> AccountingJob:
    allocated, asked = resources(cells.get("allocated", "")), resources(cells.get("requested", ""))
    procs = count(cells.get("procs", "")) or count(allocated.get("cpu", ""))
    requested_procs = count(cells.get("requested_procs", "")) or count(asked.get("cpu", ""))
    nodes = count(cells.get("nodes", "")) or count(allocated.get("node", ""))
    memory = cells.get("memory") or asked.get("mem", "")
    limit_s = length_s(cells.get("limit_min", ""), 60)
    if limit_s is None:
        limit_s = length_s(cells.get("limit", ""), 60 if minutes else 1)
    return AccountingJob(
        job_id=cells["job_id"],
        raw_id=count(cells.get("raw_id", "")),
        state=state_word(cells.get("state", "")),
        submit_s=instant_s(cells["submit"], zone),
        start_s=instant_s(cells.get("start", ""), zone),
        end_s=instant_s(cells.get("end", ""), zone),
        run_s=length_s(cells.get("elapsed", "")),
        procs=procs,
        requested_procs=requested_procs,
        nodes=nodes,
        requested_s=limit_s,
        requested_memory_kib=memory_kib(memory, requested_procs or procs, nodes),
        used_memory_kib=_resident_kib(cells),
        cpu_s=length_s(cells.get("cpu", "")),
        user=_text(cells.get("user")),
        account=_text(cells.get("account")),
        partition=_text(cells.get("partition")),
        qos=_text(cells.get("qos")),
        name=_text(cells.get("name")),
    )


def _with_step(job: AccountingJob, cells: Mapping[str, str]) -> AccountingJob:
    """Return ``job`` with the largest memory of its steps, and their CPU time where its own is missing."""
    used = [kib for kib in (job.used_memory_kib, _resident_kib(cells)) if kib is not None]
    cpu_s = job.cpu_s
    if not cpu_s:
        cpu_s = length_s(cells.get("cpu", ""))
    return replace(job, used_memory_kib=max(used, default=None), cpu_s=cpu_s)


def _resident_kib(cells: Mapping[str, str]) -> float | None:
    """Return the memory of all tasks, each counted with the largest's; ``None`` without MaxRSS."""
    kib = memory_kib(cells.get("max_rss", ""), None, None, plain="B")
    if kib is None:
        return None
    return kib * (count(cells.get("tasks", "")) or 1)


def _text(text: str | None) -> str | None:
    return None if text is None or is_absent(text) else text


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
            if strict:
                raise InputError(f"{message}; --lenient skips it") from error
            log.skip("malformed job", message)
    return log


def _job_of_object(job: Mapping[str, Any]) -> AccountingJob:
    time, association = job["time"], job.get("association") or {}
    required = job.get("required") or {}
    allocated, requested = (_tres((job.get("tres") or {}).get(key)) for key in ("allocated", "requested"))
    requested_procs = _number(required.get("CPUs")) or requested.get("cpu")
    procs = allocated.get("cpu")
    nodes = _number(job.get("allocation_nodes")) or allocated.get("node")
    limit_min = _number(time.get("limit"))
    total = time.get("total") or {}
    cpu_s = (_number(total.get("seconds")) or 0) + (_number(total.get("microseconds")) or 0) / 1e6
    state = (job.get("state") or {}).get("current")
    array = job.get("array") or {}
    task, of = _number(array.get("task_id")), _number(array.get("job_id"))
    job_id = _whole(_number(job["job_id"]))
    if job_id is None:
        raise ValueError("job_id")
    return AccountingJob(
        job_id=str(job_id) if task is None or not of else f"{int(of)}_{int(task)}",
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
        used_memory_kib=_used_kib(job.get("steps") or ()),
        cpu_s=cpu_s or None,
        user=_word(job.get("user")) or _word(association.get("user")),
        account=_word(job.get("account")) or _word(association.get("account")),
        partition=_word(job.get("partition")),
        qos=_word(job.get("qos")),
        name=_word(job.get("name")),
    )


def _number(value: Any) -> float | None:
    """Return a number of either shape; ``None`` where it is not set, infinite or negative."""
    if isinstance(value, Mapping):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    if value is None or isinstance(value, bool):
        return None
    number = float(value)
    if not number <= MOST:
        raise ValueError(f"{number:g}")
    if number < 0:
        return None
    return int(number) if number.is_integer() else number


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: float | None) -> int | None:
    return int(value) if value else None


def _tres(entries: Sequence[Mapping[str, Any]] | None) -> dict[str, float]:
    counts = ((entry["type"], _number(entry.get("count"))) for entry in entries or ())
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
