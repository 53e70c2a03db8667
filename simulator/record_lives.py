"""The columns and the table of a RUN that tell of jobs that did more than run once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import polars as pl

from osub.records import format_cores
from osub.units import US_PER_S
from simulator.engine.life_log import Stretch
from simulator.engine.records import Ints
from simulator.job import Life
from simulator.simulate import Result
from simulator.system import node_names


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
        held_more[pool.members[[stretch.job for stretch in pool.run.stretches]]] = True
    if held_more.any():  # how much of its time it computed on how many cores is not added up
        cores = result.workload.nodes * result.workload.cores
        cpu_s = np.where(held_more, np.nan, result.workload.periods.busy_us / US_PER_S * cores)
        found.append(pl.Series("cpu_s", cpu_s).fill_nan(None))
    for name, column in (("wasted_s", "lost_us"), ("setup_s", "spent_setup_us")):
        if columns[column].any():
            found.append(pl.Series(name, columns[column] / US_PER_S))
    return found


def allocation_frame(result: Result) -> pl.DataFrame | None:
    """Return the stretches of the jobs that held more than one thing; None if there are none."""
    names = node_names(result.setting.system.nodes)
    rows = []
    for pool in result.pools:
        numbers = result.workload.number[pool.members]
        stretches = sorted(pool.run.stretches, key=lambda stretch: stretch.job)
        for job, own in groupby(stretches, key=lambda stretch: stretch.job):
            rows += [
                (int(numbers[job]), stretch, wasted_us, pool.pool.first)
                for stretch, wasted_us in wasted(list(own))
            ]
    if not rows:
        return None
    return pl.DataFrame(
        {
            "job": [number for number, *_ in rows],
            "from_s": [stretch.from_us / US_PER_S for _, stretch, *_ in rows],
            "to_s": [stretch.to_us / US_PER_S for _, stretch, *_ in rows],
            "placement": [
                [
                    {"node": names[node + first], "cores": format_cores(stretch.cores[node])}
                    for node in sorted(stretch.cores)
                ]
                for _, stretch, _, first in rows
            ],
            "why": [stretch.why for _, stretch, *_ in rows],
            "setup_s": [stretch.setup_us / US_PER_S for _, stretch, *_ in rows],
            "wasted_s": [wasted_us / US_PER_S for *_, wasted_us, _ in rows],
        }
    )


def wasted(stretches: Sequence[Stretch]) -> list[tuple[Stretch, int]]:
    """Return the stretches of a job that held something, in order, and what of each was lost.

    Work that is lost at the end of a stretch may have been done in earlier ones; it is taken from the latest.
    """
    lost: list[int] = []
    for place, stretch in enumerate(stretches):
        lost.append(0)
        left_us = stretch.lost_us
        for earlier in range(place, -1, -1):
            before = stretches[earlier]
            room_us = before.to_us - before.from_us - before.setup_us - lost[earlier]
            taken_us = min(left_us, max(room_us, 0))
            lost[earlier] += taken_us
            left_us -= taken_us
    return [(stretch, lost_us) for stretch, lost_us in zip(stretches, lost, strict=True) if stretch.cores]
