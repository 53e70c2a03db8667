"""A RUN as ``jobs.csv``: what Batsim writes of its jobs, and evalys reads.

Source: Batsim's documentation, "Jobs" (columns and their meaning) and "Interval set". What a RUN knows beyond
these columns is in ``metadata``, so that nothing is lost.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from foundation.errors import InputError
from foundation.id_list import spans_of
from foundation.one_line import one_line
from foundation.records import JOBS, Run, parse_cores
from foundation.records.record_checks import check_placements
from foundation.records.table_files import ROWS_A_GROUP
from workloads.exchange.fields import Machines, Unit, compact, shown
from workloads.swf.swf_job import format_number


def format_intervals(intervals: Iterable[tuple[int, int]]) -> str:
    """Return intervals (first, last), ascending, in canonical form: those that touch become one."""
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in _merged(intervals))


def parse_intervals(text: str) -> list[tuple[int, int]]:
    """Return the intervals of a text, ascending and apart, whatever their order in it.

    Raises
    ------
    ValueError
        The text is no such set.
    """
    return _merged(sorted(_each(text)))


def _merged(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in intervals:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _each(text: str) -> Iterator[tuple[int, int]]:
    for part in text.replace(",", " ").split():
        try:
            (span,) = spans_of(part)
        except ValueError as error:
            raise ValueError(f"{part[:40]!r} is no interval such as 0-3: {error}") from error
        yield span[0], span[-1]


COLUMNS = (
    "job_id",
    "workload_name",
    "profile",
    "submission_time",
    "requested_number_of_resources",
    "requested_time",
    "success",
    "final_state",
    "starting_time",
    "execution_time",
    "finish_time",
    "waiting_time",
    "turnaround_time",
    "stretch",
    "allocated_resources",
    "consumed_energy",
    "metadata",
)
FINAL_STATES = {
    "COMPLETED": "COMPLETED_SUCCESSFULLY",
    "FAILED": "COMPLETED_FAILED",
    "TIMEOUT": "COMPLETED_WALLTIME_REACHED",
    "CANCELLED": "COMPLETED_KILLED",
    "NODE_FAIL": "COMPLETED_KILLED",
    "REFUSED": "REJECTED",
    "LOST": "",
}
CORE_COLUMNS = frozenset({"trace_job", "job_id", "submit_s", "start_s", "end_s", "placement"})
"""Columns of a RUN that other columns of the file tell exactly."""


def jobs_csv_pieces(run: Run, machines: Machines) -> Iterator[bytes]:
    """Yield the file piece by piece, a row a job in the order of the RUN, which is loaded without placements.

    Raises
    ------
    InputError
        A job was placed where the system has no node or core.
    """
    yield _rows([COLUMNS])
    places = {name: place for place, name in enumerate(node_names_of(run))}
    for first, placement in _placements(run):
        piece = run.jobs.slice(first, len(placement)).with_columns(placement)
        yield _rows([_row(job, run, machines, places) for job in piece.iter_rows(named=True)])


def node_names_of(run: Run) -> tuple[str, ...]:
    """Return the nodes of a RUN in their order; where it names none, those that jobs were on, by name."""
    if run.info.node_names:
        return run.info.node_names
    names: set[str] = set()
    for _, placement in _placements(run):
        entries = placement.drop_nulls().explode(empty_as_null=False)
        names |= set(entries.struct.field("node").unique().to_list()) if len(entries) else set()
    return tuple(sorted(names, key=lambda name: (len(name), name)))


def _placements(run: Run) -> Iterator[tuple[int, pl.Series]]:
    """Yield the placements of a RUN in pieces, each with the place of its first job: all take much memory."""
    path = run.path / JOBS.file_name
    lazy = pl.scan_parquet(path).select(pl.col("placement"))
    for first in range(0, run.jobs.height, ROWS_A_GROUP):
        column = lazy.slice(first, ROWS_A_GROUP).collect().get_column("placement")
        check_placements(column, str(path), "placement")
        yield first, column


def node_name(place: int) -> str:
    """Return the name of a node by its place, as simulated runs have it."""
    return f"n{place + 1}"


def _rows(rows: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _row(job: Mapping[str, Any], run: Run, machines: Machines, places: dict[str, int]) -> list[object]:
    submit_s = job["due_s"] if job["submit_s"] is None else job["submit_s"]
    start_s, end_s = job["start_s"], job["end_s"]
    ran_s = None if start_s is None or end_s is None else end_s - start_s
    turnaround_s = None if end_s is None else end_s - submit_s
    success = job["state"] == "COMPLETED" and not job["exit_code"]
    dedicated_s = ran_s if job["dedicated_s"] is None else job["dedicated_s"]
    return [
        job["trace_job"],
        one_line(run.info.trace_name),
        "" if dedicated_s is None else f"delay{_number(dedicated_s)}",
        _number(submit_s),
        machines.asked(job["cores"]) if machines.unit is Unit.CORE else job["nodes"],
        "-1" if job["requested_s"] is None else _number(job["requested_s"]),
        int(success),
        FINAL_STATES.get(job["state"] or "", "")
        if success or job["state"] != "COMPLETED"
        else "COMPLETED_FAILED",
        _number(start_s),
        _number(ran_s),
        _number(end_s),
        "" if start_s is None else _number(start_s - submit_s),
        _number(turnaround_s),
        _number(turnaround_s / ran_s) if ran_s and turnaround_s is not None else "",
        _allocated(job, machines, places),
        "",
        _metadata(job, submit_s, places),
    ]


def _number(value: float | None) -> str:
    return "" if value is None else format_number(value).decode()


def _allocated(job: Mapping[str, Any], machines: Machines, places: dict[str, int]) -> str:
    intervals: list[tuple[int, int]] = []
    for entry in job["placement"] or ():
        place = places.get(entry["node"], machines.nodes)
        cores = parse_cores(entry["cores"])
        if place >= machines.nodes or cores[-1] >= machines.cores:
            raise InputError(
                f"job {job['trace_job']}: placement: node {shown(entry['node'])}, core {cores[-1]} are not "
                f"in {machines.system}"
            )
        if machines.unit is Unit.NODE:
            intervals.append((place, place))
        else:
            intervals += [(place * machines.cores + core,) * 2 for core in cores]
    return format_intervals(sorted(intervals))


def _metadata(job: Mapping[str, Any], submit_s: float, places: dict[str, int]) -> str:
    known = {name: value for name, value in job.items() if name not in CORE_COLUMNS and value is not None}
    if job["submit_s"] is None:
        known["submit_s"] = None
    elif known.get("due_s") == submit_s:
        del known["due_s"]
    if job["job_id"] != job["trace_job"]:
        known["job_id"] = job["job_id"]
    nodes = sorted({entry["node"] for entry in job["placement"] or ()}, key=lambda name: places[name])
    on = {} if all(name == node_name(places[name]) for name in nodes) else {"on": nodes}
    return compact({"osub": known, **on})
