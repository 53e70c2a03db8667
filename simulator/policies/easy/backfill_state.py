"""What EASY keeps of the future and of the queue, and the nodes that the queue's head would take.

The nodes that the queue's head would take at its earliest start, for candidates that are to keep off them.

That is how NCS, the thesis's simulator, finds nodes for a candidate whose first choice of nodes would delay
the head.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.cores.node_fitting import fits_then
from simulator.jit.compilation import kernel, kernel_state
from simulator.jit.field_records import IntegerRow, StateAllocator, column, only_record
from simulator.policies.easy.backfill_trial import RowMirror, new_mirror
from simulator.policies.easy.ncs import Ncs
from simulator.policies.easy.reservation import (
    EndRecord,
    ReservationProjection,
    Shadow,
    ShadowRecord,
    new_ahead,
)
from simulator.policies.easy.waiting_shapes import RefusalRecord, Refusals, ShapeLanes, new_lanes
from simulator.state.engine_state import NEVER, EngineRulesRecord, EngineState
from simulator.state.node_sets import flip


@kernel_state
class HeadNodes(NamedTuple):
    """The head's nodes as a set, and whether they are known in this pass (``known[0]``)."""

    nodes: IntegerRow
    known: IntegerRow


@kernel
def count_used(state: EngineState) -> None:
    """Note how many slots of each node are occupied at the head's earliest start."""
    stack = state.then_stack
    for node_class in range(state.clock[0].classes):
        used = 0
        for level in range(stack.shape[1]):
            for word in range(stack.shape[2]):
                used += stack[node_class, level, word].bit_count()
        state.classes[node_class].then_used = used


@kernel
def choose_for_head(state: EngineState, aside: HeadNodes, head: int) -> None:
    """Choose the nodes of ``head`` by the thesis's rule on the cluster at its earliest start."""
    asked = state.jobs[head]
    for word in range(len(aside.nodes)):
        aside.nodes[word] = 0
    wanted = asked.nodes
    load = 0
    most = state.listed.shape[1]
    while wanted > 0 and load <= most:
        following = most + 1
        for node in range(state.rules[0].nodes):
            one = state.classes[state.class_of[node]]
            used = one.then_used
            if used < load or not fits_then(asked, one):
                continue
            if used > load:
                following = min(following, used)
            elif wanted > 0:
                flip(aside.nodes, node)
                wanted -= 1
        load = following
    aside.known[0] = 1


@kernel
def bar(state: EngineState, aside: HeadNodes) -> None:
    """Let placements keep off the head's nodes."""
    for word in range(len(state.barred)):
        state.barred[word] = aside.nodes[word]


@kernel
def unbar(state: EngineState) -> None:
    """Let placements use all nodes again."""
    for word in range(len(state.barred)):
        state.barred[word] = 0


@kernel_state
class BackfillState(NamedTuple):
    """What EASY keeps of the future.

    Where a job's requested end is known when it starts (one slot a core, and nodes alike) ``shadow`` is a
    list of ends; elsewhere ``ahead`` holds two projections, and ``mirror`` Slurm's rows for them, where they
    are kept. ``lanes`` are for a long queue of jobs that run once, ``aside`` for EASY with a second
    choice.
    """

    shadow: Shadow | None
    ahead: ReservationProjection | None
    mirror: RowMirror | None
    refusals: Refusals
    lanes: ShapeLanes | None
    aside: HeadNodes | None
    ncs: Ncs | None = None


def new_outlook(
    make: StateAllocator, state: EngineState, shapes: int, *, elsewhere: bool, ncs: Ncs | None = None
) -> BackfillState:
    """Return the outlook of an idle cluster, for jobs of so many different shapes."""
    rules = only_record(EngineRulesRecord, state.rules)
    steady = rules.slots == 1 and not rules.nodes_differ
    if state.lifecycles is not None:  # a job with checkpoints may go on for longer than it asked
        steady = steady and bool((column(state.lifecycles.jobs, "every_us") == NEVER).all())
    steady = steady and ncs is None
    running = min(rules.jobs, rules.nodes * rules.cores)
    return BackfillState(
        shadow=Shadow(make.table(ShadowRecord, 1), make.table(EndRecord, running)) if steady else None,
        ahead=None if steady else new_ahead(make, state, rules.jobs),
        mirror=None if state.rows is None else new_mirror(make, state),
        refusals=Refusals(make.row([1]), make.table(RefusalRecord, shapes)),
        lanes=new_lanes(make, state, shapes) if state.lifecycles is None and ncs is None else None,
        aside=HeadNodes(make.zeros(len(state.barred)), make.zeros(1)) if elsewhere else None,
        ncs=ncs,
    )


def shapes_of(state: EngineState) -> int:
    """Return how many different shapes the jobs of a run have."""
    return int(column(state.jobs, "shape").max()) + 1
