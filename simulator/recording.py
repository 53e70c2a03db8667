"""A simulated run as a RUN directory, with the columns and the table of jobs that did more than run once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from foundation.id_list import write_ids
from foundation.records import SLICES, PlacementArrays, RunInfo, write_run
from foundation.units import US_PER_S
from simulator.jit.field_records import Ints
from simulator.model.jobs import JobLifecycle
from simulator.model.system import node_names
from simulator.simulation import PoolResult, SimulationResult, Workload
from simulator.state.allocations import AllocationIntervals, members
from simulator.state.lifecycle_state import CAUSES

_KIB_PER_MIB = 1024
_NS_PER_S = 1_000_000_000

_PIECE = 1 << 20


def placement_arrays(result: SimulationResult) -> PlacementArrays:
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


def job_frame(result: SimulationResult) -> pl.DataFrame:
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
            "user": pl.Series(workload.user).replace(-1, None).cast(pl.String),
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
            "state": _states(result),
            **_applications(workload),
        }
    ).with_columns([*_lifecycle_columns(workload.lifecycles or ()), *_spent(result)])


def _states(result: SimulationResult) -> pl.Series:
    ended = _texts(result.workload.timed_out, "TIMEOUT", "COMPLETED")
    failed = result.out_of_memory
    return ended if failed is None else ended.set(pl.Series(failed), "FAILED")


def _applications(workload: Workload) -> dict[str, pl.Series]:
    """Return the column of applications, where they are known."""
    if workload.app is None or not workload.applications:
        return {}
    names = pl.Series(workload.applications, dtype=pl.String)
    return {"app": names.gather(pl.Series(workload.app.astype(np.uint32)))}


def _frozen_s(result: SimulationResult) -> pl.Series:
    """Return how long jobs were held; null where no job is suspended."""
    frozen = np.full(result.workload.count, np.nan)
    for pool in result.pools:
        if pool.run.gang is not None:
            frozen[pool.members] = pool.run.gang.frozen_us / US_PER_S
    return _known(frozen)


def slice_frame(result: SimulationResult) -> pl.DataFrame | None:
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
        "skew_us": [row.skew_us for row in rows],
        "freeze_us": [row.freeze_us for row in rows],
    }
    return pl.DataFrame(columns, schema=SLICES.schema, strict=False)


def _known(values: npt.NDArray[np.float64]) -> pl.Series:
    return pl.Series(values).fill_nan(None)


def _texts(flags: npt.NDArray[np.bool_], yes: str, no: str) -> pl.Series:
    return pl.Series([no, yes], dtype=pl.String).gather(pl.Series(flags.astype(np.uint32)))


def _queue_names(result: SimulationResult) -> pl.Series:
    queues = result.setting.queues
    if not queues.is_mq:
        return pl.Series([queues.batch.name] * result.workload.count, dtype=pl.String)
    return _texts(result.workload.interactive, queues.interactive.name, queues.batch.name)


@dataclass(frozen=True, slots=True, eq=False)
class RunTables:
    """What a RUN holds of a simulation: jobs, where they ran, what they held, exact slices if there were any.

    The result that it is made from takes as much memory again; a caller that writes a large run releases that
    first.
    """

    jobs: pl.DataFrame
    placements: PlacementArrays
    slices: pl.DataFrame | None
    engine_cpu_s: float
    allocations: pl.DataFrame | None = None
    most_jobs: int | None = None


def tables_of(result: SimulationResult) -> RunTables:
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


def _lifecycle_columns(lifecycles: Sequence[JobLifecycle]) -> list[pl.Series]:
    """Return what was known beforehand: sizes, notices."""
    found = []
    if any(life.sizes is not None for life in lifecycles):
        sizes = [life.sizes for life in lifecycles]
        found = [
            pl.Series("elasticity", ["rigid" if size is None else "malleable" for size in sizes]),
            pl.Series("min_nodes", [None if size is None else size.least for size in sizes]),
            pl.Series("preferred_nodes", [None if size is None else size.preferred for size in sizes]),
            pl.Series("max_nodes", [None if size is None else size.most for size in sizes]),
        ]
    if any(life.on_demand for life in lifecycles):
        kinds = ["ondemand" if life.on_demand else "batch" for life in lifecycles]
        found.append(pl.Series("kind", kinds, dtype=pl.String))
    for name in ("notice_us", "predicted_us"):
        times = [getattr(life, name) for life in lifecycles]
        if any(time is not None for time in times):
            column = f"{name.removesuffix('_us')}_s"
            found.append(pl.Series(column, [None if time is None else time / US_PER_S for time in times]))
    return found


def _spent(result: SimulationResult) -> list[pl.Series]:
    """Return the accounting of lifecycles."""
    books = [(pool, pool.run.books) for pool in result.pools]
    if all(entry is None for _, entry in books):
        return []
    columns: dict[str, Ints] = {}
    for pool, entry in books:
        if entry is None:
            continue
        for name in ("preemptions", "given_up", "lost_us", "spent_setup_us", "starts"):
            whole = columns.setdefault(name, np.zeros(result.workload.count, dtype=np.int64))
            whole[pool.members] = getattr(entry, name)
    found = [pl.Series("preemptions", columns["preemptions"])]
    if columns["given_up"].any():
        states = np.where(result.workload.timed_out, "TIMEOUT", "COMPLETED")
        found.append(pl.Series("state", np.where(columns["given_up"], "NODE_FAIL", states).tolist()))
    held_more = np.zeros(result.workload.count, dtype=bool)
    for pool, _ in books:
        held = pool.run.places.nodes
        held_more[pool.members[held != result.workload.nodes[pool.members]]] = True
        if pool.run.stretches is not None:
            held_more[pool.members[pool.run.stretches.job]] = True
    if held_more.any():
        found.append(_cpu_s(result, held_more))
    for name, column in (("wasted_s", "lost_us"), ("setup_s", "spent_setup_us")):
        if columns[column].any():
            found.append(pl.Series(name, columns[column] / US_PER_S))
    return found


def _cpu_s(result: SimulationResult, held_more: npt.NDArray[np.bool_]) -> pl.Series:
    """Return the CPU time of each job; null where a job held more than one thing and shared or idled there.

    On dedicated cores a batch job computes while it works, sets up, or does what will be lost.
    """
    workload = result.workload
    cpu_s = workload.periods.busy_us / US_PER_S * workload.nodes * workload.cores
    cpu_s[held_more] = np.nan
    for pool in result.pools:
        books = pool.run.books
        if books is None or pool.pool.multiplicity > 1:
            continue
        plain = held_more[pool.members] & ~workload.interactive[pool.members] & (books.save_node_us == 0)
        node_us = books.useful_node_us + books.lost_node_us + books.setup_node_us
        own = pool.members[plain]
        cpu_s[own] = node_us[plain] / US_PER_S * workload.cores[own]
    return pl.Series("cpu_s", cpu_s).fill_nan(None)


def allocation_frame(result: SimulationResult) -> pl.DataFrame | None:
    """Return the stretches of the jobs that held more than one thing; None if there are none."""
    frames = [_allocations(pool, result) for pool in result.pools if pool.run.stretches]
    return pl.concat(frames) if frames else None


def _allocations(pool: PoolResult, result: SimulationResult) -> pl.DataFrame:
    """Return the stretches of a pool by job, in order of time."""
    held = pool.run.stretches
    assert held is not None
    order = np.argsort(held.job, kind="stable")
    wasted_us = wasted(held, order)
    order = order[held.nodes[order] > 0]
    names, which = core_sets(held.mask)
    places = PlacementArrays(
        held.part_at,
        held.node + pool.pool.first,
        which,
        node_names(result.setting.system.nodes),
        tuple(names) or ("0",),
    )
    numbers = result.workload.number[pool.members]
    return pl.DataFrame(
        {
            "job": numbers[held.job[order]],
            "from_s": held.from_us[order] / US_PER_S,
            "to_s": held.to_us[order] / US_PER_S,
            "placement": places.reorder(order).column(),
            "why": pl.Series(CAUSES).gather(pl.Series(held.why[order].astype(np.uint32))),
            "setup_s": held.setup_us[order] / US_PER_S,
            "wasted_s": wasted_us[order] / US_PER_S,
        }
    )


def wasted(held: AllocationIntervals, order: Ints) -> Ints:
    """Return what of each stretch was lost; ``order`` has them by job, in order of time.

    Work that is lost at the end of a stretch may have been done in earlier ones; it is taken from the latest.
    """
    lost_us = np.zeros(len(held), dtype=np.int64)
    losers = np.isin(held.job, held.job[held.lost_us > 0])
    own: list[int] = []
    for place in order[losers[order]].tolist():
        if own and held.job[own[-1]] != held.job[place]:
            own.clear()
        own.append(place)
        left_us = int(held.lost_us[place])
        for before in reversed(own):
            room_us = held.to_us[before] - held.from_us[before] - held.setup_us[before] - lost_us[before]
            taken_us = min(left_us, max(int(room_us), 0))
            lost_us[before] += taken_us
            left_us -= taken_us
    return lost_us


def core_sets(mask: Ints) -> tuple[list[str], npt.NDArray[np.integer]]:
    """Return the sets that occur, in Slurm's notation, and for each row of ``mask`` which one it is.

    There are millions of rows and few sets, so a piece at a time is sorted rather than the whole.
    """
    kinds, which = _distinct(mask)
    return [write_ids(members(kind)) for kind in kinds], which


def _distinct(mask: Ints) -> tuple[Ints, npt.NDArray[np.integer]]:
    if mask.shape[1] == 1:
        pieces = [mask[first : first + _PIECE, 0] for first in range(0, max(len(mask), 1), _PIECE)]
        kinds = np.unique(np.concatenate([np.unique(piece) for piece in pieces]))
        which = np.concatenate([np.searchsorted(kinds, piece).astype(np.int32) for piece in pieces])
        return kinds[:, np.newaxis], which
    rows = np.ascontiguousarray(mask).view(np.dtype((np.void, mask.dtype.itemsize * mask.shape[1])))
    _, first, inverse = np.unique(rows[:, 0], return_index=True, return_inverse=True)
    return mask[first], inverse
