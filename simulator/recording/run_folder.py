"""Writes a simulated run as a RUN directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from foundation.id_list import write_ids
from foundation.records import SLICES, PlacementArrays, RunInfo, write_run
from foundation.units import US_PER_S
from simulator.engine.kernels.field_records import Ints
from simulator.engine.state.cluster_view import members
from simulator.recording.lives_table import allocation_frame, life_columns
from simulator.simulation import Result, Workload
from simulator.world import node_names

_KIB_PER_MIB = 1024
_NS_PER_S = 1_000_000_000


def placement_arrays(result: Result) -> PlacementArrays:
    """Return where every job of the workload ran last, in the workload's order."""
    ranges = np.zeros(result.workload.count, dtype=np.int64)
    for pool in result.pools:
        ranges[pool.members] = np.diff(pool.run.places.offsets)
    offsets = np.concatenate(([0], np.cumsum(ranges)))
    node, count, cores = (np.empty(offsets[-1], dtype=np.int32) for _ in range(3))
    texts: dict[str, int] = {}
    for pool in result.pools:
        places = pool.run.places
        held = np.diff(places.offsets)
        target = np.repeat(offsets[:-1][pool.members] - places.offsets[:-1], held) + np.arange(held.sum())
        node[target] = places.first + pool.pool.first
        count[target] = places.count
        cores[target] = _numbered(places.sets, texts)[places.cores]
    names = node_names(result.setting.system.nodes)
    return PlacementArrays(offsets, node, cores, names, tuple(texts) or ("0",), count)


def _numbered(sets: Ints, texts: dict[str, int]) -> npt.NDArray[np.int32]:
    """Return the number of each set of cores in ``texts``, which gets those that it has not."""
    names = [write_ids(members(cores)) for cores in sets]
    return np.array([texts.setdefault(name, len(texts)) for name in names], dtype=np.int32)


def job_frame(result: Result) -> pl.DataFrame:
    """Return one row a job, without the placement."""
    workload = result.workload
    cores = workload.nodes * workload.cores
    submit_s = result.submit_us / US_PER_S
    busy_s = workload.periods.busy_us / US_PER_S
    return pl.DataFrame(
        {
            "job_id": workload.number,
            "trace_job": workload.number,
            "kind": _texts(workload.interactive, "interactive", "batch"),
            "user": _number_texts(workload.user),
            "queue": _queue_names(result),
            "nodes": workload.nodes,
            "cores": cores,
            "memory_mib": _known(np.ceil(workload.memory_kib / _KIB_PER_MIB)),
            "due_s": workload.submit_us / US_PER_S,
            "submitted_s": submit_s,
            "submit_s": submit_s,
            "start_s": result.start_us / US_PER_S,
            "end_s": result.end_us / US_PER_S,
            "requested_s": _known(np.where(workload.asked_us > 0, workload.requested_us / US_PER_S, np.nan)),
            "dedicated_s": workload.run_us / US_PER_S,
            "busy_s": busy_s,
            "cpu_s": busy_s * cores,
            "frozen_s": _frozen_s(result),
            "state": _texts(workload.timed_out, "TIMEOUT", "COMPLETED"),
            **_applications(workload),
        }
    ).with_columns(life_columns(result))


def _applications(workload: Workload) -> dict[str, pl.Series]:
    """Return the column of applications, where they are known."""
    if workload.app is None:
        return {}
    names = pl.Series(workload.applications, dtype=pl.String)
    return {"app": names.gather(pl.Series(workload.app.astype(np.uint32)))}


def _frozen_s(result: Result) -> pl.Series:
    """Return how long jobs were held; null where nobody holds jobs."""
    frozen = np.full(result.workload.count, np.nan)
    for pool in result.pools:
        if pool.run.gang is not None:
            frozen[pool.members] = pool.run.gang.frozen_us / US_PER_S
    return _known(frozen)


def slice_frame(result: Result) -> pl.DataFrame | None:
    """Return the record of exact slices, or None if there were none."""
    rows = [row for pool in result.pools if pool.run.gang is not None for row in pool.run.gang.rows]
    if not any(pool.run.gang is not None for pool in result.pools):
        return None
    columns = {
        "slice": [row.number for row in rows],
        "start_s": [row.start_ns / _NS_PER_S for row in rows],
        "length_s": [row.length_ns / _NS_PER_S for row in rows],
        "job": [row.job for row in rows],
        "node": [row.node for row in rows],
        "role": [row.role for row in rows],
        "cpu_s": [None if row.cpu_us is None else row.cpu_us / US_PER_S for row in rows],
        "skew_us": [float(row.skew_us) for row in rows],
        "freeze_us": [float(row.freeze_us) for row in rows],
    }
    return pl.DataFrame(columns, schema=SLICES.schema)


def _known(values: npt.NDArray[np.float64]) -> pl.Series:
    return pl.Series(values).fill_nan(None)


def _texts(flags: npt.NDArray[np.bool_], yes: str, no: str) -> pl.Series:
    return pl.Series([no, yes], dtype=pl.String).gather(pl.Series(flags.astype(np.uint32)))


def _number_texts(values: Ints) -> pl.Series:
    return pl.Series(values).replace(-1, None).cast(pl.String)


def _queue_names(result: Result) -> pl.Series:
    queues = result.setting.queues
    if not queues.is_mq:
        return pl.Series([queues.batch.name] * result.workload.count, dtype=pl.String)
    return _texts(result.workload.interactive, queues.interactive.name, queues.batch.name)


@dataclass(frozen=True, slots=True, eq=False)
class RunTables:
    """What a RUN holds of a simulation: jobs, where they ran, what they held, exact slices if there were any.

    The result that it is made from takes as much memory again; whoever writes a large run lets go of that
    first.
    """

    jobs: pl.DataFrame
    placements: PlacementArrays
    slices: pl.DataFrame | None
    engine_cpu_s: float
    allocations: pl.DataFrame | None = None
    most_jobs: int | None = None


def tables_of(result: Result) -> RunTables:
    """Return the tables of a result."""
    jobs = job_frame(result).with_columns(pl.col("memory_mib").cast(pl.Int64))
    return RunTables(
        jobs,
        placement_arrays(result),
        slice_frame(result),
        result.engine_cpu_s,
        allocation_frame(result),
        result.pools[0].run.most_jobs,
    )


def write_tables(tables: RunTables, path: Path, info: RunInfo, trace: Path) -> None:
    """Write the RUN in ``path``.

    Raises
    ------
    OutputError
        ``path`` holds something already, or cannot be written.
    """
    write_run(
        path,
        info,
        trace,
        tables.jobs,
        placements=tables.placements,
        allocations=tables.allocations,
        slices=tables.slices,
    )
