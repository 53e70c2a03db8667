"""Shapes of waiting jobs: which are refused, and the jobs of each shape in order.

Refusals remembered: a job like one that was just refused, and no shorter, need not be tried.

As long as nothing starts or ends it would get the same cores and stay there at least as long, so it would
delay the queue's head as well.

Waiting jobs by shape, for a queue that is long: who may be tried is found without going through all.

A shape is refused as a whole while it does not fit, and a job of it while one no longer was refused. So in
each *lane*, the waiting jobs of one shape in the order of the queue, the next to be tried is the first with a
request below some bound. A tree of least requests finds it: its leaves are all jobs of the run by shape and
arrival, and those that do not wait ask for ever. The lanes are kept only while they pay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simulator.jit.compilation import kernel, kernel_state
from simulator.jit.field_records import IntegerRow, RecordTable, Short, StateAllocator, column
from simulator.lifecycle.segments import asks_us
from simulator.model.system import FAR_US
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.event_queue import first_waiting


@dataclass(slots=True, eq=False)
class RefusalRecord:
    """For a shape: the series in which one was refused last, and the shortest request refused in it."""

    series: int = 0
    shortest_us: int = 0


@kernel_state
class Refusals(NamedTuple):
    """What was refused; ``series[0]`` counts up whenever earlier refusals lose their force."""

    series: IntegerRow
    by_shape: RecordTable[RefusalRecord]


@kernel
def forget_refusals(refusals: Refusals) -> None:
    """Begin a new series: something has started or ended, or time has passed."""
    refusals.series[0] += 1


@kernel
def is_hopeless(state: EngineState, refusals: Refusals, job: int) -> bool:
    """Return whether a job like this one, but no longer, was refused in this series."""
    refused = refusals.by_shape[state.jobs[job].shape]
    return refused.series == refusals.series[0] and refused.shortest_us <= asks_us(
        state, state.lifecycles, job
    )


@kernel
def note_refusal(state: EngineState, refusals: Refusals, job: int, request_us: int) -> None:
    """Remember that a job of the shape of ``job`` was refused, with a shorter request than any before."""
    refused = refusals.by_shape[state.jobs[job].shape]
    refused.series = refusals.series[0]
    refused.shortest_us = request_us


@dataclass(slots=True, eq=False)
class LanesRecord:
    """Whether the lanes are kept, how many there are, and how many leaves the tree has.

    They pay if ``fewest`` jobs wait, and ``fewest_a_lane`` in each of them on average; it is looked at when
    ``worth_from`` jobs wait.
    """

    kept: int = 0
    count: int = 0
    leaves: int = 0
    fewest: int = 32
    fewest_a_lane: int = 16
    worth_from: int = 64


@dataclass(slots=True, eq=False)
class LaneRecord:
    """The lane of a shape: how many wait in it, its place among the lanes, its first leaf."""

    waiting: Short = 0
    place: Short = 0
    first: Short = 0


@dataclass(slots=True, eq=False)
class OpenRecord:
    """For a place among the lanes: the shape, and the leaf of the next to be tried (``NEVER``: none)."""

    shape: Short = 0
    leaf: Short = 0


@dataclass(slots=True, eq=False)
class LeafRecord:
    """For a leaf: its job. For a job: its leaf, and how many arrive before it."""

    job: int = 0
    leaf: int = 0
    rank: Short = 0


@kernel_state
class ShapeLanes(NamedTuple):
    """The lanes; ``least`` is the tree: its root is 1, the children of ``i`` are ``2 i`` and ``2 i + 1``."""

    head: RecordTable[LanesRecord]
    of_shape: RecordTable[LaneRecord]
    open: RecordTable[OpenRecord]
    leaf: RecordTable[LeafRecord]
    least: IntegerRow


def new_lanes(make: StateAllocator, state: EngineState, shapes: int) -> ShapeLanes:
    """Return lanes that are not kept yet, for jobs of so many shapes."""
    shape = column(state.jobs, "shape")[:-1]
    arrival = column(state.lists, "arrival")[:-1]
    jobs = len(shape)
    rank = np.empty(jobs, dtype=np.int64)
    rank[arrival] = np.arange(jobs)
    by_leaf = np.lexsort((rank, shape))
    leaf = np.empty(jobs, dtype=np.int64)
    leaf[by_leaf] = np.arange(jobs)
    leaves = 1 << max(0, jobs - 1).bit_length()
    return ShapeLanes(
        head=make.table(LanesRecord, 1, leaves=leaves),
        of_shape=make.table(
            LaneRecord, shapes + 1, first=np.searchsorted(shape[by_leaf], np.arange(shapes + 1))
        ),
        open=make.table(OpenRecord, shapes + 1),
        leaf=make.table(LeafRecord, jobs, job=by_leaf, leaf=leaf, rank=rank),
        least=make.row(np.full(2 * leaves, FAR_US, dtype=np.int64)),
    )


@kernel
def _ask(lanes: ShapeLanes, job: int, request_us: int) -> None:
    """Let the leaf of ``job`` ask for so long."""
    least = lanes.least
    node = lanes.head[0].leaves + lanes.leaf[job].leaf
    least[node] = request_us
    node //= 2
    while node > 0:
        below = min(least[2 * node], least[2 * node + 1])
        if least[node] == below:
            return
        least[node] = below
        node //= 2


@kernel
def _enter(state: EngineState, lanes: ShapeLanes, job: int) -> None:
    head, lane = lanes.head[0], lanes.of_shape[state.jobs[job].shape]
    if lane.waiting == 0:
        lane.place = head.count
        lanes.open[head.count].shape = state.jobs[job].shape
        head.count += 1
    lane.waiting += 1
    _ask(lanes, job, state.jobs[job].request_us)


@kernel
def _leave(state: EngineState, lanes: ShapeLanes, job: int) -> None:
    head, lane = lanes.head[0], lanes.of_shape[state.jobs[job].shape]
    lane.waiting -= 1
    if lane.waiting == 0:
        head.count -= 1
        lanes.open[lane.place].shape = lanes.open[head.count].shape
        lanes.of_shape[lanes.open[head.count].shape].place = lane.place
    _ask(lanes, job, FAR_US)


@kernel
def enter_lane(state: EngineState, lanes: ShapeLanes | None, job: int) -> None:
    """Note that ``job`` waits, if lanes are kept."""
    if lanes is not None and lanes.head[0].kept:
        _enter(state, lanes, job)


@kernel
def leave_lane(state: EngineState, lanes: ShapeLanes | None, job: int) -> None:
    """Note that ``job`` waits no longer, if lanes are kept."""
    if lanes is not None and lanes.head[0].kept:
        _leave(state, lanes, job)


@kernel
def _change_all(state: EngineState, lanes: ShapeLanes, kept: int) -> None:
    """Begin to keep the lanes of all who wait (1), or cease to (0)."""
    job = first_waiting(state)
    while job != state.rules[0].jobs:
        if kept:
            _enter(state, lanes, job)
        else:
            _leave(state, lanes, job)
        job = state.runs[job].queue_next
    lanes.head[0].kept = kept


@kernel
def are_kept(state: EngineState, lanes: ShapeLanes) -> bool:
    """Return whether lanes are kept, having begun to, or ceased, as it pays."""
    head, waiting = lanes.head[0], state.clock[0].waiting
    if not head.kept:
        if waiting < head.worth_from:
            return False
        _change_all(state, lanes, 1)
    if waiting < head.fewest or waiting < head.fewest_a_lane * head.count:
        _change_all(state, lanes, 0)
        head.worth_from = 2 * max(head.fewest, waiting)
        return False
    return True


@kernel
def _first_below(lanes: ShapeLanes, start: int, end: int, request_us: int) -> int:
    """Return the first leaf from ``start`` up to ``end`` that asks for less; or ``NEVER``."""
    least, leaves = lanes.least, lanes.head[0].leaves
    if start >= end:
        return NEVER
    node = leaves + start
    while least[node] >= request_us:
        while node & 1:  # a right child, or the root: what follows is next to a parent
            node //= 2
        if node == 0:
            return NEVER
        node += 1
    while node < leaves:
        node *= 2
        if least[node] >= request_us:
            node += 1
    return node - leaves if node - leaves < end else NEVER


@kernel
def seek(state: EngineState, lanes: ShapeLanes, refusals: Refusals, place: int, start: int) -> None:
    """Find who is to be tried next in a lane, from the leaf ``start`` on."""
    lane = lanes.open[place]
    shape = lanes.of_shape[lane.shape]
    asked, refused = state.jobs[lanes.leaf[shape.first].job], refusals.by_shape[lane.shape]
    lane.leaf = NEVER
    if state.open_nodes[asked.cores] >= asked.nodes:
        below_us = refused.shortest_us if refused.series == refusals.series[0] else FAR_US
        lane.leaf = _first_below(lanes, start, lanes.of_shape[lane.shape + 1].first, below_us)


@kernel
def _first_after(lanes: ShapeLanes, shape: int, rank: int) -> int:
    """Return the first leaf of a shape whose job arrives after so many others."""
    low = lanes.of_shape[shape].first
    high = lanes.of_shape[shape + 1].first
    while low < high:
        middle = (low + high) // 2
        if lanes.leaf[lanes.leaf[middle].job].rank > rank:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def seek_all(state: EngineState, lanes: ShapeLanes, refusals: Refusals, job: int) -> None:
    """Find who is to be tried next in each lane, behind ``job`` in the queue."""
    rank = lanes.leaf[job].rank
    for place in range(lanes.head[0].count):
        seek(state, lanes, refusals, place, _first_after(lanes, lanes.open[place].shape, rank))


@kernel
def next_lane(lanes: ShapeLanes) -> int:
    """Return the lane whose next to be tried comes first in the queue; ``NEVER`` if there is none."""
    best = NEVER
    first = 0
    for place in range(lanes.head[0].count):
        leaf = lanes.open[place].leaf
        if leaf != NEVER:
            rank = lanes.leaf[lanes.leaf[leaf].job].rank
            if best == NEVER or rank < first:
                best = place
                first = rank
    return best
