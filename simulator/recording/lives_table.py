"""The columns and the table of a RUN that tell of jobs that did more than run once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from foundation.records import PlacementArrays
from foundation.units import US_PER_S
from simulator.engine.kernels.field_records import Ints
from simulator.engine.state.life_log import Stretches
from simulator.engine.state.life_state import CAUSES
from simulator.recording.core_sets import core_sets
from simulator.simulation import PoolResult, Result
from simulator.world import Life, node_names


def life_columns(result: Result) -> list[pl.Series]:
    """Return the columns of ``jobs`` that tell of lives; none where every job ran once."""
    return [*_told(result.workload.lives or ()), *_spent(result)]


def _told(lives: Sequence[Life]) -> list[pl.Series]:
    """Return what was known beforehand: sizes, notices."""
    found = []
    if any(life.sizes is not None for life in lives):
        sizes = [life.sizes for life in lives]
        found = [
            pl.Series("elasticity", ["rigid" if size is None else "malleable" for size in sizes]),
            pl.Series("min_nodes", [None if size is None else size.least for size in sizes]),
            pl.Series("preferred_nodes", [None if size is None else size.preferred for size in sizes]),
            pl.Series("max_nodes", [None if size is None else size.most for size in sizes]),
        ]
    if any(life.on_demand for life in lives):
        kinds = ["ondemand" if life.on_demand else "batch" for life in lives]
        found.append(pl.Series("kind", kinds, dtype=pl.String))
    for name in ("notice_us", "predicted_us"):
        times = [getattr(life, name) for life in lives]
        if any(time is not None for time in times):
            column = f"{name.removesuffix('_us')}_s"
            found.append(pl.Series(column, [None if time is None else time / US_PER_S for time in times]))
    return found


def _spent(result: Result) -> list[pl.Series]:
    """Return what the lives came to."""
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


def _cpu_s(result: Result, held_more: npt.NDArray[np.bool_]) -> pl.Series:
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


def allocation_frame(result: Result) -> pl.DataFrame | None:
    """Return the stretches of the jobs that held more than one thing; None if there are none."""
    frames = [_allocations(pool, result) for pool in result.pools if pool.run.stretches]
    return pl.concat(frames) if frames else None


def _allocations(pool: PoolResult, result: Result) -> pl.DataFrame:
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


def wasted(held: Stretches, order: Ints) -> Ints:
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
