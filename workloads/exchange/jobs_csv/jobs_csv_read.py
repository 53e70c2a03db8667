"""``jobs.csv`` of Batsim, or of evalys, as a RUN with a trace of its jobs.

Columns may stand in any order, and others are passed over. Older names of Batsim's, and ``jobID`` of evalys,
are known. A job that completed alone on its hosts is taken to have run as long as it takes.
"""

from __future__ import annotations

import csv
import json
import math
import tempfile
import time
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from foundation.errors import InputError
from foundation.files import write_pieces
from foundation.id_list import write_ids
from foundation.one_line import one_line
from foundation.records import JOBS, JobRecord, Placement, PlacementArrays, RunInfo, utc_now, write_run
from foundation.records.record_checks import check_record
from foundation.records.table_files import ROWS_A_PIECE, frame_of
from foundation.units import counted
from workloads.exchange.fields import Fields, Machines, Numbering, Unit, record, shown, trace_pieces
from workloads.exchange.jobs_csv.jobs_csv_write import CORE_COLUMNS, FINAL_STATES, node_name, parse_intervals
from workloads.exchange.json_stream import no_constant
from workloads.swf import SwfHeader, SwfJob

_SWF_STATUS = {"COMPLETED": 1, "FAILED": 0, "TIMEOUT": 0, "NODE_FAIL": 0, "CANCELLED": 5, "REFUSED": 5}

STATES = {final: state for state, final in FINAL_STATES.items() if final and state != "NODE_FAIL"}
OWN = '{"osub":'
"""What metadata begin with that osub wrote."""
ROUNDING_S = 1e-5
"""Batsim prints millionths of a second, and differences of them may be off by one."""

ALIASES = {
    "jobID": "job_id",
    "requested_number_of_processors": "requested_number_of_resources",
    "allocated_processors": "allocated_resources",
}
NEEDED = ("job_id", "submission_time", "requested_number_of_resources")
LONGEST_FIELD = 1 << 24
_NOTHING = frozenset({"", "nan", "NaN", "None"})


def make_run(
    source: Path, out: Path, machines: Machines, multiplicity: int, policy: str, label: str | None
) -> int:
    """Write the RUN, whole or not at all, and return how many jobs it has.

    Raises
    ------
    InputError
        The file is malformed.
    OutputError
        ``out`` holds something already, or cannot be made.
    """
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    jobs, placements = _tables(csv_jobs(source, machines, multiplicity))
    name = source.name.removesuffix(".csv") or source.name
    info = RunInfo(
        kind="simulated",
        label=label or name,
        trace_name=name,
        system=machines.system,
        queues="sq",
        policy=policy,
        multiplicity=multiplicity,
        started=utc_now(),
        options={"imported": source.name, "unit": str(machines.unit)},
    )
    with tempfile.TemporaryDirectory(prefix="osub-import-") as folder:
        trace = Path(folder) / "trace.swf.gz"
        header = SwfHeader()
        write_pieces(trace, trace_pieces(header, _trace(jobs), jobs.height, machines, "a jobs.csv", ()))
        spent = {"wall_s": time.perf_counter() - began_s, "cpu_s": time.process_time() - began_cpu_s}
        write_run(out, msgspec.structs.replace(info, **spent), trace, jobs, placements=placements)
    return jobs.height


def _tables(records: Iterator[JobRecord]) -> tuple[pl.DataFrame, PlacementArrays]:
    """Return the jobs without their placements, and these in compact form: few are objects at a time."""
    bare = JOBS.without("placement")
    frames = [frame_of([], bare)]
    counts, nodes, cores = array("q", [0]), array("i"), array("i")
    names: dict[str, int] = {}
    sets: dict[tuple[int, ...], int] = {}
    while piece := list(islice(records, ROWS_A_PIECE)):
        for made in piece:
            for entry in made.placement or ():
                nodes.append(names.setdefault(entry.node, len(names)))
                cores.append(sets.setdefault(entry.cores, len(sets)))
            counts.append(len(nodes))
        rows = [[getattr(one, name) for name in bare.schema] for one in piece]
        frames.append(pl.DataFrame(rows, schema=bare.schema, orient="row"))
    placements = PlacementArrays(
        offsets=np.array(counts, dtype=np.int64),
        node=np.array(nodes, dtype=np.int32),
        cores=np.array(cores, dtype=np.int32),
        node_names=tuple(names),
        core_sets=tuple(map(write_ids, sets)),
    )
    return pl.concat(frames), placements


def _trace(jobs: pl.DataFrame) -> Iterator[SwfJob]:
    """Yield the jobs as a trace has them, in the order of their numbers."""
    for job in jobs.iter_rows(named=True):
        ran_s = None if job["start_s"] is None or job["end_s"] is None else job["end_s"] - job["start_s"]
        yield SwfJob(
            job_number=job["trace_job"],
            submit_s=job["due_s"],
            wait_s=None if job["start_s"] is None else max(0.0, job["start_s"] - job["due_s"]),
            run_s=ran_s if job["dedicated_s"] is None else job["dedicated_s"],
            allocated_procs=job["cores"],
            requested_procs=job["cores"],
            requested_s=job["requested_s"],
            status=_SWF_STATUS.get(job["state"] or ""),
        )


def look_at_csv(path: Path) -> tuple[Numbering, float]:
    """Return the numbering of the jobs, and the instant that is to be second 0.

    That is the first submission, but second 0 itself of a file that osub wrote. The jobs of a workload must
    have different names.
    """
    numbering, first_s = Numbering(), math.inf
    first = None
    for row in csv_rows(path):
        workload = row.values.get("workload_name", "")
        first = workload if first is None else first
        if not numbering.meet(_name(row, workload, first)):
            raise row.fault("job_id", "is there twice")
        is_ours = row.values.get("metadata", "").startswith(OWN)
        first_s = 0.0 if is_ours else min(first_s, _seconds(row, "submission_time") or 0.0)
    if first is None:
        raise InputError(f"{path}: has no job")
    return numbering, first_s


def csv_jobs(path: Path, machines: Machines, multiplicity: int) -> Iterator[JobRecord]:
    """Yield the jobs of the file.

    Parameters
    ----------
    path
        The file.
    machines
        What its resources are.
    multiplicity
        How many jobs a core may have had: with one, a job that completed took as long as it takes.

    Raises
    ------
    InputError
        A job is malformed or is on what there is not; the message names file, line, job and column.
    """
    numbering, first_s = look_at_csv(path)
    first = None
    for row in csv_rows(path):
        workload = row.values.get("workload_name", "")
        first = workload if first is None else first
        number = numbering.number(_name(row, workload, first), row.where)
        yield _record(row, number, machines, multiplicity, first_s)


def _name(row: Fields, workload: str, first: str) -> str:
    name = row.text("job_id")
    return name if workload == first else f"{workload}!{name}"


def _record(row: Fields, number: int, machines: Machines, multiplicity: int, first_s: float) -> JobRecord:
    own = _metadata(row)
    submit_s = _seconds(row, "submission_time")
    if submit_s is None:
        raise row.fault("submission_time", "is missing")
    start_s, end_s = _run(row, submit_s)
    submit_s, start_s, end_s = (None if at is None else at - first_s for at in (submit_s, start_s, end_s))
    asked = _whole(row, "requested_number_of_resources")
    limit_s = (
        None
        if row.values.get("requested_time", "-1").strip() in _NO_LIMIT
        else _seconds(row, "requested_time")
    )
    placement = _placement(row, machines, own.pop("on", None))
    cores = asked * machines.cores_of_host
    state = _state(row, start_s, end_s, limit_s)
    alone = multiplicity == 1 and state == "COMPLETED" and start_s is not None and end_s is not None
    found: dict[str, Any] = {
        "kind": "batch",
        "nodes": len(placement) if placement else -(-cores // machines.cores),
        "cores": cores,
        "due_s": submit_s,
        "requested_s": limit_s,
        "dedicated_s": (end_s or 0.0) - (start_s or 0.0) if alone else None,
        "state": state,
        "job_id": number,
        "submit_s": submit_s,
        **({} if not own else {"dedicated_s": None, "requested_s": None}),
        **own,
        "trace_job": number,
        "start_s": start_s,
        "end_s": end_s,
    }
    if found["state"] is None:
        raise row.fault("metadata", "state: is missing")
    if found["state"] == "REFUSED" and not own:
        found |= {"start_s": None, "end_s": None}
        placement = ()
    try:
        made = msgspec.convert(found, JobRecord)
        return check_record(msgspec.structs.replace(made, placement=placement or None), row.where)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InputError(f"{row.where}: {'metadata: ' if own else ''}{error}") from error


_NO_LIMIT = frozenset({"-1", "-1.0", "-1.000000", "inf"})


def _seconds(row: Fields, key: str) -> float | None:
    text = row.values.get(key)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        raise row.fault(key, f"{shown(text)} is no number") from None
    if -ROUNDING_S < value < 0:
        value = 0.0
    return float(Fields(row.where, {key: value}).number(key))


def _whole(row: Fields, key: str) -> int:
    value = _seconds(row, key)
    if value is None:
        raise row.fault(key, "is missing")
    return Fields(row.where, {key: value}).whole(key, least=1)


def _run(row: Fields, submit_s: float) -> tuple[float | None, float | None]:
    """Return start and end, from whichever columns tell them."""
    start_s, wait_s = _seconds(row, "starting_time"), _seconds(row, "waiting_time")
    if start_s is None and wait_s is not None:
        start_s = submit_s + wait_s
    end_s, run_s = _seconds(row, "finish_time"), _seconds(row, "execution_time")
    if end_s is None and run_s is not None and start_s is not None:
        end_s = start_s + run_s
    start_s = _not_before(row, "starting_time", start_s, submit_s, "submission_time")
    least_s = submit_s if start_s is None else start_s
    name = "submission_time" if start_s is None else "starting_time"
    return start_s, _not_before(row, "finish_time", end_s, least_s, name)


def _not_before(row: Fields, key: str, value: float | None, least: float, name: str) -> float | None:
    if value is None or value >= least:
        return value
    if least - value > ROUNDING_S:
        raise row.fault(key, f"{value:g} is before {name}, {least:g}")
    return least


def _state(row: Fields, start_s: float | None, end_s: float | None, limit_s: float | None) -> str:
    state = row.values.get("final_state")
    if state is not None:
        if state not in STATES:
            raise row.fault("final_state", f"{shown(state)} is none of {', '.join(STATES)}")
        return STATES[state]
    if start_s is None or end_s is None:
        return "REFUSED" if start_s is None and end_s is None else "LOST"
    if row.values.get("success", "1").strip().lower() in ("1", "true", "1.0"):
        return "COMPLETED"
    return "TIMEOUT" if limit_s is not None and end_s - start_s >= limit_s - ROUNDING_S else "FAILED"


def _placement(row: Fields, machines: Machines, names: object) -> tuple[Placement, ...]:
    key = "allocated_resources"
    try:
        intervals = parse_intervals(row.values.get(key, ""))
    except ValueError as error:
        raise row.fault(key, str(error)) from error
    if intervals and intervals[-1][1] >= machines.hosts:
        raise row.fault(
            key,
            f"{intervals[-1][1]:,} is none of the {counted(machines.hosts, 'host')} of {machines.system} by "
            f"{machines.unit}",
        )
    cores: dict[int, list[int]] = {}
    for first, last in intervals:
        for host in range(first, last + 1):
            if machines.unit is Unit.NODE:
                cores[host] = list(range(machines.cores))
            else:
                cores.setdefault(host // machines.cores, []).append(host % machines.cores)
    if names is None:
        names = [node_name(place) for place in cores]
    if (
        not isinstance(names, list)
        or len(names) != len(cores)
        or not all(isinstance(one, str) for one in names)
    ):
        raise row.fault("metadata", "on: does not name the nodes that the job had")
    return tuple(Placement(name, tuple(cores[place])) for name, place in zip(names, cores, strict=True))


def _metadata(row: Fields) -> dict[str, Any]:
    """Return what osub carried along; of anybody else's metadata nothing is known."""
    text = row.values.get("metadata")
    if text is None or not text.startswith(OWN):
        return {}
    try:
        values = json.loads(text, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise row.fault("metadata", "is no JSON") from error
    found: Mapping[str, Any] = record(f"{row.where}: metadata", values).mapping("osub")
    for name in found:
        if name not in JobRecord.__struct_fields__ or name in CORE_COLUMNS - {"submit_s", "job_id"}:
            raise row.fault("metadata", f"{shown(name)} is no column of a RUN")
    on = {} if "on" not in values else {"on": values["on"]}
    return {**found, **on}


@contextmanager
def _wide_fields() -> Iterator[None]:
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def csv_rows(path: Path) -> Iterator[Fields]:
    """Yield the rows of the file by column; each names file, line and job in its errors.

    Raises
    ------
    InputError
        The file cannot be read, lacks a column, or a row is malformed.
    """
    try:
        with _wide_fields(), path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file, strict=True)
            names = [ALIASES.get(name.strip(), name.strip()) for name in next(rows, [])]
            _check_columns(path, names)
            for row in rows:
                if not row:
                    continue
                where = f"{path}:{rows.line_num}"
                if len(row) != len(names):
                    raise InputError(
                        f"{where}: has {counted(len(row), 'column')}, and the first line {len(names)}"
                    )
                values = {name: text for name, text in zip(names, row, strict=True) if text not in _NOTHING}
                yield Fields(f"{where}: job {shown(values.get('job_id', '?'))}", values)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no CSV file: {error}") from error


def _check_columns(path: Path, names: list[str]) -> None:
    missing = [name for name in NEEDED if name not in names]
    if not missing and "starting_time" not in names and "waiting_time" not in names:
        missing = ["starting_time"]
    if not missing and "finish_time" not in names and "execution_time" not in names:
        missing = ["finish_time"]
    if missing:
        raise InputError(
            f"{path}: {missing[0]}: there is no such column: is this a jobs.csv of Batsim or evalys?"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: {one_line(twice, 60)}: the column is there twice")
