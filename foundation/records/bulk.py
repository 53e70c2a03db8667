"""Writes a finished RUN at once, from frames: the simulator's way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import polars as pl

from foundation.records.agreement import check_agreement
from foundation.records.columns import ALLOCATIONS, JOBS, SLICES
from foundation.records.placement import PlacementArrays
from foundation.records.records_folder import LOG_NAME, new_folder, write_start
from foundation.records.run_info import RunInfo
from foundation.records.table_files import complete, write_table


def write_run(
    path: Path,
    info: RunInfo,
    trace: Path,
    jobs: pl.DataFrame,
    *,
    placements: PlacementArrays | None = None,
    allocations: pl.DataFrame | None = None,
    slices: pl.DataFrame | None = None,
    events: Iterable[Mapping[str, object]] = (),
) -> None:
    """Write a finished RUN at once, whole or not at all: the simulator's way.

    Parameters
    ----------
    path
        The RUN to make.
    info
        Its description, with ``wall_s`` and the other times.
    trace
        What was simulated.
    jobs
        One row a job; columns that may be null can be absent.
    placements
        The ``placement`` column of ``jobs`` in compact form, one entry for each row; ``jobs`` then lacks it.
    allocations, slices
        The other tables, or None.
    events
        Lines for ``log.jsonl``.

    Raises
    ------
    InputError
        A row breaks a rule, the allocations contradict the jobs, ``info`` is not valid, or the trace cannot
        be read.
    OutputError
        ``path`` holds something already, cannot be made, or the disk is full.
    """
    with new_folder(path) as made:
        write_table(jobs, JOBS, made, placements=placements)
        for frame, table in ((allocations, ALLOCATIONS), (slices, SLICES)):
            if frame is not None:
                write_table(frame, table, made)
        if allocations is not None:
            sources = str(made / ALLOCATIONS.file_name), str(made / JOBS.file_name)
            whole, held = complete(jobs, JOBS, sources[1]), complete(allocations, ALLOCATIONS, sources[0])
            check_agreement(whole, held, info, *sources)
        lines = [msgspec.json.encode(event) + b"\n" for event in events]
        if lines:
            (made / LOG_NAME).write_bytes(b"".join(lines))
        write_start(made, info, trace)
