"""What EASY keeps of the future, and of the queue."""

from __future__ import annotations

from typing import NamedTuple

from simulator.jit.field_records import StateAllocator, column, only_record
from simulator.policies.easy.head_nodes import HeadNodes
from simulator.policies.easy.ncs import Ncs
from simulator.policies.easy.refusals import Refusals, no_refusals
from simulator.policies.easy.reservation_projection import ReservationProjection, new_ahead
from simulator.policies.easy.row_mirror import RowMirror, new_mirror
from simulator.policies.easy.shadow import Shadow, new_shadow
from simulator.policies.easy.shape_lanes import ShapeLanes, new_lanes
from simulator.state.engine_state import NEVER, EngineRulesRecord, EngineState


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
    steady = rules.slots == 1 and not rules.nodes_differ and not _have_checkpoints(state)
    return BackfillState(
        shadow=new_shadow(make, rules.nodes, min(rules.jobs, rules.nodes * rules.cores)) if steady else None,
        ahead=None if steady else new_ahead(make, state, rules.jobs),
        mirror=None if state.rows is None else new_mirror(make, state),
        refusals=no_refusals(make, shapes),
        lanes=new_lanes(make, state, shapes) if state.lives is None and ncs is None else None,
        aside=HeadNodes(make.zeros(len(state.barred)), make.zeros(1)) if elsewhere else None,
        ncs=ncs,
    )


def shapes_of(state: EngineState) -> int:
    """Return how many different shapes the jobs of a run have."""
    return int(column(state.jobs, "shape").max()) + 1


def _have_checkpoints(state: EngineState) -> bool:
    """Return whether a job may go on for longer than it asked when it started."""
    if state.lives is None:
        return False
    return bool((column(state.lives.jobs, "every_us") != NEVER).any())
