"""The state of time-shared nodes, and how it begins.

What the loop keeps: tables of whole numbers by job, by slot (a running job) and by node.

A rate is a share of a node's time in units of 1/720,720, a number that 1 to 16 divide, so that equal shares
of up to 16 jobs are exact. Work is rate times microseconds. Memory is in thousandths of a node's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from simulator.jit.compilation import kernel_state
from simulator.jit.field_records import IntegerRow, Ints, LazyTable, RecordTable, Short, StateAllocator
from simulator.state.node_sets import full_set

WHOLE = 720_720
"""The rate of a job alone on its nodes."""
MEMORY = 1000
"""The memory of a node."""
MOST_JOBS = 1000
"""Jobs on a node at most: each has a thousandth of its memory at least."""
NEAR = 32
"""So many jobs of each node are kept close together: few nodes have more, and a cache holds all of them."""
OPEN = 1 << 30
"""Level of a node that has time left over."""
NEVER = 1 << 62
SPAN_US = 6 * 3_600_000_000
"""Means over time are kept for spans of six hours."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TimeshareDemands:
    """The jobs, as arrays by index: times in microseconds, whole nodes, thousandths of a node's memory."""

    submit_us: Ints
    run_us: Ints
    request_us: Ints
    nodes: Ints
    memory: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingConfig:
    """How nodes are shared.

    Parameters
    ----------
    batch
        One job a node, first come first served, whatever its memory.
    cap
        Jobs on a node at most; 0: any number.
    in_order
        A job that does not fit holds up those behind it (always so under ``batch``).
    backfills
        Under ``batch``: a later job starts if it asks for less time than the head must wait.
    spmd
        A job runs at the speed of its slowest node; else at the mean of its nodes.
    overhead
        Share of every job's performance that is lost.
    tick_us
        Jobs end at multiples of it only; 0: whenever they are done.
    """

    batch: bool = False
    cap: int = 0
    in_order: bool = False
    backfills: bool = True
    spmd: bool = True
    overhead: float = 0.0
    tick_us: int = 0


@dataclass(slots=True, eq=False)
class TimeshareRulesRecord:
    """What does not change; see ``SharingConfig``. ``depth`` jobs a node at most, ``words`` a set.

    The first ``near`` of a node's jobs are stored next to those of other nodes.
    """

    nodes: int = 0
    words: int = 0
    depth: int = 0
    near: int = 0
    is_batch: int = 0
    in_order: int = 0
    backfills: int = 0
    is_spmd: int = 0
    tick_us: int = 0
    spans: int = 0
    jobs: int = 0


@dataclass(slots=True, eq=False)
class TimeshareClockRecord:
    """Where the run is.

    ``head`` and ``tail`` bound the queue; ``fresh`` is the first slot that was never used, ``freed`` how many
    are free before it; ``levels``, ``stirred`` and ``touches`` say how much is in the rows of these names.
    ``stamp`` counts settlements of rates, ``theta`` is the level that one has come to, ``open`` counts the
    jobs that it has looked at and not settled. ``progress`` is the
    sum of all jobs' nodes times rates, ``load`` that of their nodes, ``top`` no less than the jobs on any
    node, ``most`` the most ever, ``delayed`` counts the jobs that had to wait.
    ``ends`` counts the jobs in ``ends``, ``shadow_us`` is when the head can start.
    ``noise_at`` is the next of the noise to come, ``noisy`` nodes are slow until ``quiet_us``.
    """

    now: int = 0
    arrived: int = 0
    head: int = 0
    tail: int = 0
    running: int = 0
    events: int = 0
    freed: int = 0
    fresh: int = 0
    levels: int = 0
    stamp: int = 0
    stirred: int = 0
    touches: int = 0
    open: int = 0
    theta: int = 0
    progress: int = 0
    load: int = 0
    top: int = 0
    most: int = 0
    idle: int = 0
    ends: int = 0
    shadow_us: int = NEVER
    noise_at: int = 0
    noisy: int = 0
    quiet_us: int = NEVER
    delayed: int = 0


@dataclass(slots=True, eq=False)
class TimeshareJobRecord:
    """A job; its nodes are ``part[part_at]`` to before the next job's. There is one record more than jobs."""

    submit_us: int = 0
    work: int = 0
    request_us: int = 0
    part_at: int = 0
    start_us: int = -1
    end_us: int = -1
    nodes: Short = 0
    memory: Short = 0


@dataclass(slots=True, eq=False)
class SlotRecord:
    """A running job: ``left`` to do as of ``since_us``, at its rate, on ``nodes`` nodes from ``part_at`` on.

    ``touch`` is the last of the nodes that looked at it in a settlement, ``holder`` the node that holds it at
    its rate, ``total`` the sum of its nodes' shares.
    """

    part_at: int = 0
    holder: Short = 0
    touch: Short = 0
    nodes: Short = 0
    place: Short = 0
    left: int = 0
    since_us: int = 0
    total: int = 0
    job: Short = 0


@dataclass(slots=True, eq=False)
class TimeshareNodeRecord:
    """A node: its jobs, free memory and speed.

    ``stirred`` is a stamp; while it is dirty ``loose`` of its jobs have no rate yet, and the others take
    ``fixed`` of its time; ``looks`` touches from ``touch`` on are its own. ``share`` is an equal share.
    """

    stirred: Short = 0
    fixed: Short = 0
    loose: Short = 0
    touch: Short = 0
    looks: Short = 0
    capacity: Short = WHOLE
    share: Short = WHOLE
    count: Short = 0
    free: Short = MEMORY


@dataclass(slots=True, eq=False)
class TouchRecord:
    """A node that looked at a job in a settlement, and the touch of that job before this one; -1: none."""

    node: Short = 0
    slot: Short = 0
    before: Short = 0


@dataclass(slots=True, eq=False)
class BatchEndRecord:
    """By when a job under ``batch`` has asked to end."""

    end_us: int = 0
    job: int = 0


@dataclass(slots=True, eq=False)
class SpanRecord:
    """Sums over a span: jobs on nodes times time, and mean rate of a node times time."""

    load_us: int = 0
    progress_us: int = 0


@dataclass(slots=True, eq=False)
class NoiseRecord:
    """From an instant a node is slow, for a step."""

    at_us: int = 0
    node: int = 0
    speed: int = 0


@kernel_state
class TimeshareState(NamedTuple):
    """The state of a run.

    ``order`` has the jobs by arrival, ``queue`` those that wait, ``agenda`` the slots by ``due_us``,
    before which a job is not done.
    What is looked at most is kept close together: ``rate`` and ``due_us`` of each slot and when it was
    ``seen`` (twice the stamp of the settlement that looked at it, and one more once its rate is settled); of
    each node the ``level`` of the jobs that it holds, and the stamp ``dirty``.
    ``members`` holds the slots on each node (see ``seat``); ``bucket`` the nodes with each number of jobs,
    as sets of ``words`` words. Of the nodes that may take one more job ``open_nodes[m]`` have ``m``
    thousandths of memory free, ``above[m]`` at least so much.
    """

    rules: RecordTable[TimeshareRulesRecord]
    clock: RecordTable[TimeshareClockRecord]
    jobs: RecordTable[TimeshareJobRecord]
    slots: RecordTable[SlotRecord]
    nodes: RecordTable[TimeshareNodeRecord]
    order: IntegerRow
    queue: IntegerRow
    part: IntegerRow
    freed: IntegerRow
    agenda: IntegerRow
    rate: IntegerRow
    seen: IntegerRow
    due_us: IntegerRow
    level: IntegerRow
    dirty: IntegerRow
    members: IntegerRow
    bucket: IntegerRow
    open_nodes: IntegerRow
    above: IntegerRow
    levels: IntegerRow
    stirred: IntegerRow
    touches: RecordTable[TouchRecord]
    ends: RecordTable[BatchEndRecord]
    spans: RecordTable[SpanRecord]
    noise: RecordTable[NoiseRecord]
    noisy: IntegerRow


_MOST_WORK = 1 << 62


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
        return cast("IntegerRow", np.zeros(size, dtype=np.int32)) if compiled else LazyTable(int, size)

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
        agenda=long(slots),
        rate=long(slots),
        seen=long(slots),
        due_us=make.zeros(slots),
        level=make.row(np.full(nodes, OPEN)),
        dirty=long(nodes),
        members=long(nodes * depth),
        bucket=make.row(bucket),
        open_nodes=make.row(open_nodes),
        above=make.zeros(MEMORY + 2),
        levels=make.zeros(nodes + slots + 1),
        stirred=make.zeros(nodes),
        touches=make.table(TouchRecord, nodes * depth + 1, lazily=True),
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
