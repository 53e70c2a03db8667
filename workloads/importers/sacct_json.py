"""``sacct --json``: the job objects of Slurm's data parsers from 21.08 on.

Numbers are plain in older parsers, and objects of ``set``, ``infinite`` and ``number`` in newer
ones; states are a word or a list of words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foundation.errors import InputError
from workloads.importers.accounting_record import AccountingJob, AccountingLog

KIB_PER_MIB, BYTES_PER_KIB = 1024, 1024


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
            log.jobs.append(_job(job))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{path}: job {place} of the list has another shape than sacct's: {error!r}"
            if strict:
                raise InputError(f"{message}; --lenient skips it") from error
            log.skip("malformed job", message)
    return log


def _job(job: Mapping[str, Any]) -> AccountingJob:
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
    job_id = int(job["job_id"])
    return AccountingJob(
        job_id=str(job_id) if task is None or not of else f"{int(of)}_{int(task)}",
        raw_id=job_id,
        state=(state[0] if isinstance(state, list) and state else state) or None,
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
        user=job.get("user") or association.get("user") or None,
        account=job.get("account") or association.get("account") or None,
        partition=job.get("partition") or None,
        qos=job.get("qos") or None,
        name=job.get("name") or None,
    )


def _number(value: Any) -> float | None:
    """Return a number of either shape; ``None`` where it is not set or infinite."""
    if isinstance(value, Mapping):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    if value is None or isinstance(value, bool):
        return None
    number = float(value)
    return int(number) if number.is_integer() else number


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
