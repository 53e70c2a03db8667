"""Makes the state before the first job comes."""

from __future__ import annotations

from typing import cast

import numpy as np

from simulator.jit.field_records import IntegerRow, Ints, StateAllocator
from simulator.state.node_sets import full_set
from simulator.timeshare.timeshare_state import (
    MEMORY,
    MOST_JOBS,
    NEAR,
    SPAN_US,
    WHOLE,
    BatchEndRecord,
    NoiseRecord,
    SharingConfig,
    SlotRecord,
    SpanRecord,
    TimeshareClockRecord,
    TimeshareDemands,
    TimeshareJobRecord,
    TimeshareNodeRecord,
    TimeshareRulesRecord,
    TimeshareState,
    TouchRecord,
)

_MOST_WORK = 1 << 62


class PlainRow(dict[int, int]):
    """A long row in plain Python; what was never written is 0."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __missing__(self, index: int) -> int:
        return 0


def new_floor(jobs: TimeshareDemands, nodes: int, manner: SharingConfig, *, compiled: bool) -> TimeshareState:
    """Return the state, for compiled kernels or for plain Python; no job may run for ``longest_us``."""
    make = StateAllocator(compiled=compiled)
    count = len(jobs.submit_us)
    depth = 1 if manner.batch else min(manner.cap or MOST_JOBS, max(count, 1), MOST_JOBS)
    slots = min(count, nodes * depth) + 1
    every = full_set(nodes)
    bucket = np.zeros((depth + 1) * len(every), dtype=np.int64)
    bucket[: len(every)] = every
    open_nodes = np.zeros(MEMORY + 1, dtype=np.int64)
    open_nodes[MEMORY] = nodes
    spans = _spans(jobs)

    def long(size: int) -> IntegerRow:
        return cast("IntegerRow", np.zeros(size, dtype=np.int32)) if compiled else PlainRow(size)

    return TimeshareState(
        rules=make.table(
            TimeshareRulesRecord,
            1,
            nodes=nodes,
            words=len(every),
            depth=depth,
            near=min(depth, NEAR),
            is_batch=int(manner.batch),
            in_order=int(manner.in_order),
            backfills=int(manner.backfills),
            is_spmd=int(manner.spmd),
            tick_us=manner.tick_us,
            spans=spans,
            jobs=count,
        ),
        clock=make.table(TimeshareClockRecord, 1, idle=nodes),
        jobs=make.table(
            TimeshareJobRecord,
            count + 1,
            submit_us=_ended(jobs.submit_us),
            work=_ended(work_of(jobs.run_us, manner.overhead)),
            request_us=_ended(jobs.request_us),
            part_at=part_at(jobs),
            nodes=_ended(jobs.nodes),
            memory=_ended(jobs.memory),
        ),
        slots=make.table(SlotRecord, slots, lazily=True),
        nodes=make.table(TimeshareNodeRecord, nodes),
        order=make.row(np.argsort(jobs.submit_us, kind="stable")),
        queue=make.zeros(count),
        part=long(int(jobs.nodes.sum())),
        freed=make.zeros(slots),
        agenda=make.zeros(slots),
        members=long(nodes * depth),
        bucket=make.row(bucket),
        open_nodes=make.row(open_nodes),
        above=make.zeros(MEMORY + 2),
        levels=make.zeros(nodes + slots),
        stirred=make.zeros(nodes),
        touches=make.table(TouchRecord, nodes * depth, lazily=True),
        ends=make.table(BatchEndRecord, min(slots, nodes) + 1),
        spans=make.table(SpanRecord, spans),
        noise=make.table(NoiseRecord, 0),
        noisy=make.zeros(nodes),
    )


def part_at(jobs: TimeshareDemands) -> Ints:
    """Return where the nodes of each job begin among those of all, and how many there are in all."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(jobs.nodes)))


def work_of(run_us: Ints, overhead: float) -> Ints:
    """Return what jobs of such run times on dedicated nodes have to do, if a share of all is lost."""
    if overhead == 0:
        return run_us * WHOLE
    stretched: Ints = np.rint(run_us / (1 - overhead)).astype(np.int64) * WHOLE
    return stretched


def longest_us(overhead: float) -> int:
    """Return the run time up to which work can be counted: 74 days, less with overhead."""
    return int(_MOST_WORK / WHOLE * (1 - overhead)) - 1


def _ended(values: Ints) -> Ints:
    return np.concatenate((values, np.zeros(1, dtype=np.int64)))


def _spans(jobs: TimeshareDemands) -> int:
    """Return how many spans fit: jobs may wait for long after the last has come."""
    last_us = int(jobs.submit_us.max(initial=0) + jobs.run_us.max(initial=0))
    return 4 * (last_us // SPAN_US) + 64
