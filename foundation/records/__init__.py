"""The RUN directory: what a real and a simulated run leave behind, validated on write and on read.

A replay writes with `RunWriter`, a simulation with `write_run`; everything else reads with `load_run`.
The columns are fixed by the structs in ``row_types.py``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from foundation.records.journal import TRACE_NAME, trace_sha256
from foundation.records.row_types import (
    AllocationCause,
    AllocationRecord,
    GangSettings,
    HostInfo,
    HostRecord,
    JobRecord,
    JobState,
    Placement,
    RunInfo,
    SliceRecord,
    SliceRole,
)

if TYPE_CHECKING:
    from foundation.records.columns import (
        ALLOCATIONS,
        HOST,
        JOBS,
        PLACEMENT_DTYPE,
        SLICES,
        PlacementArrays,
        parse_cores,
    )
    from foundation.records.run_directory import (
        Run,
        RunWriter,
        load_run,
        read_host,
        utc_now,
        write_host,
        write_run,
    )
    from foundation.records.table_files import JobEntry, JobJournal, job_frames, read_entries

_TABLES = {
    **dict.fromkeys(
        ("ALLOCATIONS", "HOST", "JOBS", "PLACEMENT_DTYPE", "SLICES", "PlacementArrays", "parse_cores"),
        "columns",
    ),
    **dict.fromkeys(
        ("Run", "RunWriter", "load_run", "read_host", "utc_now", "write_host", "write_run"), "run_directory"
    ),
    **dict.fromkeys(("JobEntry", "JobJournal", "job_frames", "read_entries"), "table_files"),
}
"""What needs polars, by its module: imported when first used, for gangd writes slices without tables."""


def __getattr__(name: str) -> object:
    """Import what is asked for; AttributeError for any other name."""
    module = _TABLES.get(name)
    if module is None:
        raise AttributeError(f"module 'foundation.records' has no attribute {name!r}")
    found = getattr(import_module(f"foundation.records.{module}"), name)
    globals()[name] = found
    return found
