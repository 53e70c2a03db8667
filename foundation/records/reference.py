"""Writes ``docs/records.md``: ``python -m foundation.records.reference > docs/records.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import msgspec
import polars as pl

from foundation.records.columns import PLACEMENT_DTYPE, TABLES, Column, RunTable, columns_of
from foundation.records.row_types import SCHEMA_VERSION, GangSettings, HostInfo, JobRecord, RunInfo

_INTRODUCTION = f"""# Record reference

A run, real or simulated, leaves one folder, the RUN, of which all is computed that osub prints or draws.

`polars.read_parquet("RUN/jobs.parquet")` reads a table; `osub.load("RUN")` reads all, and adds waits,
slowdowns and degradation ([From Python](python.md)).

* [`run.json`](#runjson): what ran where
* `trace.swf.gz`: the trace after every transformation
* [`jobs.parquet`](#jobsparquet): one row a job, ordered by `trace_job`
* [`allocations.parquet`](#allocationsparquet): which job held what, when; simulated: where that changes
* [`slices.parquet`](#slicesparquet): time slices of a gang scheduler
* [`host.parquet`](#hostparquet): use of the host of a cluster on it, a row a second
* `log.jsonl`: events, one JSON object a line: `at` (UTC), `kind`, and what belongs to the kind

## Rules for all of them

* Seconds count from the run's first due time, in the run's own time (`speedup` divides the trace's).
* The end of a name is its unit: `_s` (seconds), `_ms`, `_us`, `_mib` (MiB). Other units follow the type.
* What is not known, or cannot be (Slurm's version of a simulation), is null, never a number such as -1. A `?`
  at the type (in `run.json` at the name) says where.
* Derived values, such as waiting time, are never stored. Numbers are finite; types are exact.
* A column that is not listed here is an error, on write and on read.
* The same rows give the same bytes of `jobs.parquet`.

**While a run goes on**, rows are in `jobs.journal`, `slices.journal` and `host.journal`; of a job's entries,
each with its allocations, the last counts. `--resume` goes on from them after a kill.
`jobs.parquet` appears last: a RUN that has it is finished.

Schema version {SCHEMA_VERSION}. Made of the code: `python -m foundation.records.reference > docs/records.md`.
"""

_TYPES = {pl.Int64: "int64", pl.Float64: "float64", pl.String: "string"}
_TIMES = (
    "![A job is due, enters the queue, waits, runs, is frozen for some stretches, and ends]"
    "(pictures/times.svg)\n"
)
GROUPS = {
    "job_id": "Which job",
    "nodes": "What it asks for",
    "due_s": "When, and how long it should take",
    "cpu_s": "What it had, and how it ended",
    "notice_s": "Notice, set-up and waste",
    "steps": "Its steps",
    "min_nodes": "Its sizes, if it is malleable",
}
"""Headings of the long table, each before the column with which it begins."""


def reference() -> str:
    """Return the whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield from _struct("`run.json`", RunInfo)
    yield from _struct("`gang` in `run.json`", GangSettings)
    yield from _struct("`host` in `run.json`", HostInfo)
    for table in TABLES:
        yield from _table(table)


def _struct(title: str, struct: type[msgspec.Struct]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| field | meaning |"
    yield "| --- | --- |"
    for column in columns_of(struct):
        yield f"| `{column.name}`{_null(column)} | {_meaning(column)}{_default(column)} |"
    yield ""


def _table(table: RunTable) -> Iterator[str]:
    yield f"## `{table.file_name}`\n"
    yield f"{_summary(table.row)}\n"
    is_long = table.row is JobRecord
    if is_long:
        yield _TIMES
    for title, columns in _groups(table.columns) if is_long else (("", table.columns),):
        if title:
            yield f"### {title}\n"
        yield "| column | type | meaning |"
        yield "| --- | --- | --- |"
        yield from map(_row, columns)
        yield ""


def _groups(columns: Iterable[Column]) -> Iterator[tuple[str, list[Column]]]:
    title, group = "", list[Column]()
    for column in columns:
        if column.name in GROUPS:
            if group:
                yield title, group
            title, group = GROUPS[column.name], []
        group.append(column)
    yield title, group


def _row(column: Column) -> str:
    kind = "list of (`node`, `cores`)" if column.dtype == PLACEMENT_DTYPE else _TYPES[column.dtype]  # type: ignore[index]  # a dtype, or its class
    kind = f"{kind}{_null(column)}{_unit(column)}"
    return f"| `{column.name}` | {kind} | {_meaning(column)}{_default(column)} |"


def _summary(struct: type[msgspec.Struct]) -> str:
    paragraphs = (struct.__doc__ or "").strip().split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in paragraphs).replace("``", "`")


def _unit(column: Column) -> str:
    """Return the unit, where the name does not end in it."""
    return "" if column.unit in (None, "s", "µs") else f", {column.unit}"


def _null(column: Column) -> str:
    return "?" if column.nullable else ""


def _default(column: Column) -> str:
    """Return the default of a column that is never null."""
    if column.nullable or column.default is None or isinstance(column.default, msgspec.Struct):
        return ""
    return f" Default: `{msgspec.json.encode(column.default).decode()}`."


def _meaning(column: Column) -> str:
    values = [f"`{value}`" for value in column.values or ()]
    if all(value in column.meaning for value in values):
        return column.meaning
    return f"{column.meaning} One of {', '.join(values)}."


if __name__ == "__main__":
    sys.stdout.write(reference())
