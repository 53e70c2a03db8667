"""Runs jobs on shared nodes to their end: compiled, or in plain Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foundation.interruption import ShortCalls
from simulator.jit.compilation import Compilation, Compiled, compilation_wanted
from simulator.jit.field_records import Ints, StateAllocator, column, only_record
from simulator.timeshare.step_noise import NO_NOISE_AT_ALL, Noise
from simulator.timeshare.timeshare_build import new_floor, part_at
from simulator.timeshare.timeshare_loop import DONE, NO_NOISE, run_floor
from simulator.timeshare.timeshare_state import (
    SPAN_US,
    WHOLE,
    NoiseRecord,
    SharingConfig,
    TimeshareClockRecord,
    TimeshareDemands,
    TimeshareState,
)

MOST_PLAIN_PARTS = 3_000
"""Jobs times nodes up to which plain Python is quicker than to load a compiler."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TimeshareResult:
    """What became of the jobs.

    Parameters
    ----------
    start_us, end_us
        Shape (jobs,).
    part_at, node
        Nodes of job ``j`` are ``node[part_at[j]:part_at[j + 1]]``.
    delayed
        How many jobs did not start at once.
    most
        Most jobs on a node at a time.
    load, progress
        Mean number of jobs on a node, and mean share of its time that jobs used, by span of six hours.
    events, engine_cpu_s
        Starts and ends, and CPU time of the loop.
    """

    start_us: Ints
    end_us: Ints
    part_at: Ints
    node: npt.NDArray[np.int32]
    delayed: int
    most: int
    load: npt.NDArray[np.float64]
    progress: npt.NDArray[np.float64]
    events: int
    engine_cpu_s: float


def run(
    jobs: TimeshareDemands,
    nodes: int,
    manner: SharingConfig,
    noise: Noise = NO_NOISE_AT_ALL,
    *,
    progress: Callable[[int], None] | None = None,
    after_instant: Callable[[TimeshareState], None] | None = None,
) -> TimeshareResult:
    """Run all jobs to their end.

    Parameters
    ----------
    jobs, nodes, manner, noise
        What runs, on how many nodes, and how.
    progress
        Called now and then with the number of jobs that have arrived.
    after_instant
        Called with the state after each instant at which something happened; the loop runs plain then.
    """
    plain = after_instant is not None or _is_plain(jobs)
    floor = new_floor(jobs, nodes, manner, compiled=not plain)
    step: Callable[[TimeshareState, int], int] = run_floor
    if not plain:
        loop = Compiled(run_floor, (floor, 0))
        loop.prepare()
        step = loop
    began = time.process_time()
    supply = noise.supply(nodes)
    floor = _more_noise(floor, next(supply, None), plain=plain)
    several = ShortCalls(step, None if after_instant is None else 1)
    while (why := several(floor)) != DONE:
        if why == NO_NOISE:
            floor = _more_noise(floor, next(supply, None), plain=plain)
        elif after_instant is not None:
            after_instant(floor)
        if progress is not None:
            progress(int(column(floor.clock, "arrived")[0]))
    return _course(jobs, floor, nodes, time.process_time() - began)


def _is_plain(jobs: TimeshareDemands) -> bool:
    wanted = compilation_wanted()
    return wanted is Compilation.NEVER or (
        wanted is Compilation.WHEN_IT_PAYS and int(jobs.nodes.sum()) <= MOST_PLAIN_PARTS
    )


def _more_noise(
    floor: TimeshareState, piece: tuple[Ints, Ints, Ints] | None, *, plain: bool
) -> TimeshareState:
    if piece is None:
        return floor
    at_us, node, speed = piece
    make = StateAllocator(compiled=not plain)
    return floor._replace(noise=make.table(NoiseRecord, len(at_us), at_us=at_us, node=node, speed=speed))


def _course(
    jobs: TimeshareDemands, floor: TimeshareState, nodes: int, engine_cpu_s: float
) -> TimeshareResult:
    clock = only_record(TimeshareClockRecord, floor.clock)
    part = floor.part
    spans = clock.now // SPAN_US
    return TimeshareResult(
        start_us=column(floor.jobs, "start_us")[:-1],
        end_us=column(floor.jobs, "end_us")[:-1],
        part_at=part_at(jobs),
        node=part
        if isinstance(part, np.ndarray)
        else np.array([part[place] for place in range(len(part))], dtype=np.int32),
        delayed=clock.delayed,
        most=clock.most,
        load=column(floor.spans, "load_us")[:spans] / (nodes * SPAN_US),
        progress=column(floor.spans, "progress_us")[:spans] / (WHOLE * SPAN_US),
        events=clock.events,
        engine_cpu_s=engine_cpu_s,
    )
