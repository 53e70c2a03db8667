"""Writes ``docs/records.md``: ``python -m foundation.records.reference > docs/records.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import msgspec
import polars as pl

from foundation.records.columns import TABLES, Column, Table, columns_of
from foundation.records.placement import PLACEMENT_DTYPE
from foundation.records.run_info import SCHEMA_VERSION, GangSettings, HostInfo, RunInfo

_INTRODUCTION = f"""# Record reference

A run, real or simulated, leaves one folder, the RUN. Everything that osub prints or draws about a run is
computed from it; derived values (waiting time, slowdown, ...) are never stored.

This page is generated from the code: `python -m foundation.records.reference > docs/records.md`.
Schema version {SCHEMA_VERSION}.

| file | what it holds |
| --- | --- |
| `run.json` | what ran where |
| `trace.swf.gz` | the trace that was replayed or simulated, after every transformation |
| `jobs.parquet` | one row a job, ordered by `trace_job` |
| `allocations.parquet` | who held what, and when; simulated: only where that changes while a job lives |
| `slices.parquet` | time slices, long form; only under a gang scheduler whose slices are known |
| `host.parquet` | who used the CPUs of an embedded cluster's host, a row a second; else none |
| `log.jsonl` | events, one JSON object a line: `at` (UTC), `kind`, and what belongs to the kind |

Rules for all of them:

* Seconds count from the run's first due time, in the run's own time (`speedup` divides the trace's).
* What is not known is null. No number stands for it; -1 is refused.
* Numbers are finite. Types are exact. A column that is not listed here is an error, on write and on read.
* While a run goes on, rows are in `jobs.journal` (a job and its allocations are one entry, of which the last
  counts), `slices.journal` and `host.journal`. A killed run keeps them, and `--resume` goes on from
  there. `jobs.parquet` appears last: a RUN that has it is finished.
* The same rows give the same bytes of `jobs.parquet`.
"""

_TYPES = {pl.Int64: "int64", pl.Float64: "float64", pl.String: "string"}


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
    yield f"{_summary(struct)}\n"
    yield "| field | unit | null | meaning |"
    yield "| --- | --- | --- | --- |"
    for column in columns_of(struct):
        yield f"| `{column.name}` | {_unit(column)} | {_null(column)} | {_meaning(column)} |"
    yield ""


def _table(table: Table) -> Iterator[str]:
    yield f"## `{table.file_name}`\n"
    yield f"{_summary(table.row)}\n"
    yield "| column | type | unit | null | meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for column in table.columns:
        kind = "list of (`node`, `cores`)" if column.dtype == PLACEMENT_DTYPE else _TYPES[column.dtype]  # type: ignore[index]
        yield f"| `{column.name}` | {kind} | {_unit(column)} | {_null(column)} | {_meaning(column)} |"
    yield ""


def _summary(struct: type[msgspec.Struct]) -> str:
    paragraphs = (struct.__doc__ or "").strip().split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in paragraphs).replace("``", "`")


def _unit(column: Column) -> str:
    if column.unit is not None:
        return column.unit
    return next((unit for suffix, unit in _SUFFIXES if column.name.endswith(suffix)), "")


_SUFFIXES = (("_mib", "MiB"), ("_ms", "ms"), ("_us", "µs"), ("_s", "s"))


def _null(column: Column) -> str:
    if column.nullable:
        return "yes"
    return "never" if column.default is None else f"never; default {_value(column.default)}"


def _value(default: object) -> str:
    if isinstance(default, msgspec.Struct):
        return "see below"
    return f"`{msgspec.json.encode(default).decode()}`"


def _meaning(column: Column) -> str:
    if column.values is None:
        return column.meaning
    return f"{column.meaning} One of {_listed(column.values)}."


def _listed(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


if __name__ == "__main__":
    sys.stdout.write(reference())
