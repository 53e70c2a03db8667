"""A RUN of the jobs in a ``jobs.csv``, with a trace of them."""

from __future__ import annotations

import tempfile
import time
from array import array
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from foundation.id_list import write_ids
from foundation.records import JOBS, JobRecord, PlacementArrays, RunInfo, utc_now, write_run
from foundation.records.table_files import ROWS_A_PIECE, frame_of
from foundation.whole_file import write_pieces
from workloads.exchange.carried import trace_pieces
from workloads.exchange.jobs_csv.jobs_csv_read import csv_jobs
from workloads.exchange.machines import Machines
from workloads.swf import SwfHeader, SwfJob

_STATUS = {"COMPLETED": 1, "FAILED": 0, "TIMEOUT": 0, "NODE_FAIL": 0, "CANCELLED": 5, "REFUSED": 5}


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
        for record in piece:
            for entry in record.placement or ():
                nodes.append(names.setdefault(entry.node, len(names)))
                cores.append(sets.setdefault(entry.cores, len(sets)))
            counts.append(len(nodes))
        rows = [[getattr(record, name) for name in bare.schema] for record in piece]
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
            status=_STATUS.get(job["state"] or ""),
        )
