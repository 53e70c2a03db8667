"""What is kept of jobs that do more than run once, and of nodes that fail or are reserved.

The tables exist in runs that need them (``EngineState.lifecycles``). A lifecycle is a row of *segments*: a
job sets up, works, saves, works on, or holds its nodes for a warning. ``runs[job].left`` counts the units
left of the present one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from simulator.jit.compilation import kernel_state
from simulator.jit.field_records import IntegerGrid, IntegerRow, Ints, RecordTable, Short, column

_NEVER = -1

NO_JOB = -2
"""The owner of a node that takes no job."""

FUTURE, WAITING, RUNNING, PARKED, OVER = range(5)
"""``LifecycleRecord.status``: not come yet, waits, holds cores, is suspended, has ended."""

WORKING, SETTING_UP, SAVING, LEAVING = range(4)
"""``LifecycleRecord.doing``."""

CAUSES = ("start", "resize", "requeue", "checkpoint", "preemption")
BY_START, BY_RESIZE, BY_REQUEUE, BY_CHECKPOINT, BY_PREEMPTION = range(5)
"""``LifecycleRecord.why``: what the present stretch began with, or the next will."""

FROM_CHECKPOINT, FROM_SCRATCH, GIVEN_UP = range(3)
"""``LifecycleClock.after_failure``: how a job goes on whose node has failed."""


@dataclass(slots=True, eq=False)
class LifecycleRecord:
    """A job over its attempts.

    What it is: the nodes that it asks for; where its rates begin (``NEVER`` if it is rigid); microseconds of
    set-up, of work between checkpoints (``NEVER``: it has none) and of a checkpoint.

    Where it is: ``status``, ``doing``, its ``rate`` on the nodes that it holds; ``rest``, the units of its
    phase beyond the present segment; ``until_save``, the units that it will have left until a checkpoint when
    the segment is done; ``kept_request``, the units left of its request while it does not work; the units
    left of a pause in which it was suspended; whether it waits ``in_front``; how many nodes are reserved for
    it; when its request is over, as of its start.

    Where it was when it saved last: ``saved_phase``, ``saved_left``, ``saved_request``.

    Its books: ``since_us``, up to when they are kept; microseconds and node microseconds of work that is not
    saved (``fresh``), saved (``useful``), lost, of set-up and of saving; ``why`` and ``stretch_us``, with
    what and when the present stretch began, and set-up and lost time that were logged with earlier ones;
    starts and preemptions.
    """

    asked: int = 0
    rate_at: int = _NEVER
    setup_us: int = 0
    every_us: int = _NEVER
    checkpoint_us: int = 0
    status: int = FUTURE
    doing: int = WORKING
    rate: int = 1
    rest: int = 0
    until_save: int = 0
    kept_request: int = 0
    pause_left: int = 0
    in_front: int = 0
    leased: int = 0
    due_us: int = _NEVER
    saved_phase: int = 0
    saved_left: int = 0
    saved_request: int = 0
    since_us: int = 0
    fresh_us: int = 0
    fresh_node_us: int = 0
    useful_us: int = 0
    useful_node_us: int = 0
    lost_us: int = 0
    lost_node_us: int = 0
    spent_setup_us: int = 0
    setup_node_us: int = 0
    save_node_us: int = 0
    why: int = BY_START
    stretch_us: int = _NEVER
    logged_setup_us: int = 0
    logged_lost_us: int = 0
    starts: int = 0
    preemptions: int = 0
    given_up: int = 0


@dataclass(slots=True, eq=False)
class NodeLifecycleRecord:
    """Whether a node is down or drained, and the job that it is reserved for."""

    down: int = 0
    drained: int = 0
    lease: int = _NEVER


@dataclass(slots=True, eq=False)
class OutageRecord:
    """An instant at which a node goes down or comes back."""

    at_us: int = 0
    node: int = 0
    goes_down: int = 0


@dataclass(slots=True, eq=False)
class TimerRecord:
    """A timer, in a slot of its own; and the slot at this place of the heap, or of the free slots behind it.

    ``number`` counts the timers as they are set, ``heap_at`` is the slot's place in the heap (``NEVER`` while
    it is free).
    """

    at_us: int = 0
    number: int = 0
    kind: int = 0
    about: int = _NEVER
    heap_at: int = _NEVER
    heap: int = 0


@dataclass(slots=True, eq=False)
class IntervalRecord:
    """A stretch of time in which a job held the same cores; its parts begin at ``part_at`` of the log.

    ``setup_us`` of it were spent on set-up. At its end ``lost_us`` of work, of this stretch and of those
    before, were thrown away. A stretch of no nodes tells of the loss alone.
    """

    job: int = 0
    from_us: int = 0
    to_us: int = 0
    why: int = 0
    part_at: int = 0
    nodes: int = 0
    setup_us: int = 0
    lost_us: int = 0


@dataclass(slots=True, eq=False)
class LifecycleClock:
    """How many there are of what: jobs to end, timers that tick and were ever set, outages so far, the log.

    ``subject`` is the job, the node or the timer of the present event.
    """

    unfinished: int = 0
    ticking: int = 0
    timers_set: int = 0
    outages: int = 0
    outages_past: int = 0
    after_failure: int = FROM_CHECKPOINT
    logged: int = 0
    parts_logged: int = 0
    subject: int = _NEVER


@dataclass(slots=True, eq=False)
class LoggedPart:
    """The node of a part of a stretch."""

    node: Short = 0


@kernel_state
class Log(NamedTuple):
    """Allocation intervals that have ended, until they are taken out."""

    stretches: RecordTable[IntervalRecord]
    parts: RecordTable[LoggedPart]
    mask: IntegerGrid


@kernel_state
class LifecycleTables(NamedTuple):
    """All of it. ``rates`` has the rates of all malleable jobs, each on 1, 2, ... nodes."""

    clock: RecordTable[LifecycleClock]
    jobs: RecordTable[LifecycleRecord]
    nodes: RecordTable[NodeLifecycleRecord]
    rates: IntegerRow
    outages: RecordTable[OutageRecord]
    timers: RecordTable[TimerRecord]
    log: Log


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Accounting:
    """Columns of length J; times in microseconds.

    Parameters
    ----------
    preemptions, starts
        How often each job was preempted, and started.
    given_up
        Whether it was given up when a node failed.
    lost_us, spent_setup_us
        Run time that was lost, and spent on set-up.
    useful_node_us, lost_node_us, setup_node_us, save_node_us, fresh_node_us
        Node time by what it was spent on; nothing is fresh any more when a job has ended.
    """

    preemptions: Ints
    starts: Ints
    given_up: Ints
    lost_us: Ints
    spent_setup_us: Ints
    useful_node_us: Ints
    lost_node_us: Ints
    setup_node_us: Ints
    save_node_us: Ints
    fresh_node_us: Ints


def books_of(lifecycles: LifecycleTables) -> Accounting:
    """Return the columns."""
    return Accounting(**{field.name: column(lifecycles.jobs, field.name) for field in fields(Accounting)})
