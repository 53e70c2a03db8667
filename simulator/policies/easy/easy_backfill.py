"""Trying who waits behind the queue's head: a job may start now if the head starts no later for it."""

from __future__ import annotations

from simulator.cores.core_slots import link, list_parts, unlink, unlist_parts
from simulator.jit.compilation import kernel
from simulator.lifecycle.job_progress import start
from simulator.lifecycle.segments import asks_us
from simulator.placement import place
from simulator.policies.easy import backfill_trial as shared
from simulator.policies.easy import shadow as dedicated
from simulator.policies.easy.backfill_state import BackfillState
from simulator.policies.easy.head_nodes import HeadNodes, bar, choose_for_head, count_used, unbar
from simulator.policies.easy.ncs import Ncs, forget_bounds, is_out_of_bounds, raises_victim
from simulator.policies.easy.refusals import Refusals, forget_refusals, is_hopeless, note_refusal
from simulator.policies.easy.reservation_projection import (
    ReservationProjection,
    end_first,
    release_cores,
    show_cluster,
    speed_up,
)
from simulator.policies.easy.row_mirror import RowMirror, show_rows, take_head
from simulator.policies.easy.shadow import Shadow, note_start
from simulator.policies.easy.shape_lanes import ShapeLanes, are_kept, leave_lane, next_lane, seek, seek_all
from simulator.state.engine_state import FAR_US, NEVER, EngineState


@kernel
def may_be_tried(state: EngineState, refusals: Refusals, job: int) -> bool:
    """Return whether ``job`` fits now, and name its cores, unless it is known that it would be refused."""
    if state.open_nodes[state.jobs[job].cores] < state.jobs[job].nodes or is_hopeless(state, refusals, job):
        return False
    fits = place(state, job)
    if not fits:
        note_refusal(state, refusals, job, 0)
    return fits


@kernel
def _is_past(state: EngineState, ahead: ReservationProjection, mirror: RowMirror | None) -> bool:
    """Return whether rows took the head at an instant that is over, and do no longer."""
    if mirror is None:
        return False
    return ahead.head[0].start_us < state.clock[0].now_us


@kernel
def _delays_shared(
    state: EngineState,
    ahead: ReservationProjection,
    mirror: RowMirror | None,
    ncs: Ncs | None,
    head: int,
    job: int,
) -> bool:
    """Return whether ``job``, on the cores that its parts name, would delay the head on shared cores."""
    if ahead.head[0].known == 0 or _is_past(state, ahead, mirror):
        find_start(state, ahead, mirror, head)
    if ahead.head[0].start_us == FAR_US:
        return False
    if raises_victim(state, ahead, mirror, ncs, job):
        return True
    link(state, state.links, job)
    list_parts(state, job)
    delayed = shared.delays_head(state, ahead, mirror, head, job)
    unlist_parts(state, job)
    unlink(state.links, job)
    return delayed


@kernel
def _delays(
    state: EngineState,
    shadow: Shadow | None,
    ahead: ReservationProjection | None,
    mirror: RowMirror | None,
    ncs: Ncs | None,
    head: int,
    job: int,
) -> bool:
    """Return whether ``job``, on the cores that its parts name, would delay the head."""
    delayed = False
    if shadow is not None:
        delayed = dedicated.delays_head(state, shadow, head, job)
    if ahead is not None:
        delayed = _delays_shared(state, ahead, mirror, ncs, head, job)
    return delayed


@kernel
def delays_head(state: EngineState, outlook: BackfillState, head: int, job: int) -> bool:
    """Return whether ``job``, on the cores that its parts name, would delay the head."""
    return _delays(state, outlook.shadow, outlook.ahead, outlook.mirror, outlook.ncs, head, job)


@kernel
def _find_with_rows(
    state: EngineState, ahead: ReservationProjection, mirror: RowMirror | None, head: int
) -> None:
    """Find the head's start again where it hangs on rows, which a placement may have sorted meanwhile."""
    if mirror is not None:
        find_start(state, ahead, mirror, head)


@kernel
def _find_aside(
    state: EngineState,
    shadow: Shadow | None,
    ahead: ReservationProjection | None,
    mirror: RowMirror | None,
    aside: HeadNodes,
    head: int,
) -> None:
    """Find the nodes that the head would take."""
    if shadow is not None:
        for node in range(state.rules[0].nodes):
            shadow.nodes_then[node].used = state.rules[0].cores - shadow.nodes_then[node].free
        choose_for_head(state, aside, shadow.nodes_then, head)
    if ahead is not None:
        _find_with_rows(state, ahead, mirror, head)
        count_used(ahead.nodes_then, ahead.base_stack)
        choose_for_head(state, aside, ahead.nodes_then, head)


@kernel
def _delays_elsewhere(
    state: EngineState, outlook: BackfillState, aside: HeadNodes | None, head: int, job: int
) -> bool:
    """Return whether ``job`` has no second choice of nodes, or would delay the head there too."""
    if aside is None:
        return True
    if aside.known[0] == 0:
        _find_aside(state, outlook.shadow, outlook.ahead, outlook.mirror, aside, head)
    bar(state, aside)
    placed = place(state, job)
    unbar(state)
    return not placed or delays_head(state, outlook, head, job)


@kernel
def _forget_aside(aside: HeadNodes | None) -> None:
    if aside is not None:
        aside.known[0] = 0


@kernel
def note_backfilled(state: EngineState, shadow: Shadow | None, job: int, refused: bool) -> None:
    """Note that ``job`` has started, after others that were refused or not."""
    if shadow is not None:
        note_start(state, shadow, job)
        if refused:
            shadow.head[0].moved = 1


@kernel
def _begin(outlook: BackfillState) -> None:
    _forget_aside(outlook.aside)
    forget_bounds(outlook.ncs)
    forget_refusals(outlook.refusals)


@kernel
def _starts(state: EngineState, outlook: BackfillState, head: int, job: int) -> bool:
    """Start ``job``, which fits on the cores that its parts name, unless it delays the head."""
    if delays_head(state, outlook, head, job) and _delays_elsewhere(state, outlook, outlook.aside, head, job):
        note_refusal(state, outlook.refusals, job, asks_us(state, state.lives, job))
        return False
    refused = state.runs[job].queue_prev != head
    start(state, job)
    note_backfilled(state, outlook.shadow, job, refused)
    leave_lane(state, outlook.lanes, job)
    forget_refusals(outlook.refusals)
    return True


@kernel
def backfill(state: EngineState, outlook: BackfillState, first: int) -> None:
    """Go through the queue from ``first`` on and start the jobs that do not delay its head."""
    end = state.rules[0].jobs
    head = state.runs[end].queue_next
    _begin(outlook)
    job = first
    while job != end and state.open_nodes[1] > 0:
        after = state.runs[job].queue_next
        if not is_out_of_bounds(state, outlook.ncs, job) and may_be_tried(state, outlook.refusals, job):
            _starts(state, outlook, head, job)
        job = after


@kernel
def _backfill_lanes(state: EngineState, outlook: BackfillState, lanes: ShapeLanes) -> None:
    """Do the same behind the head, but go to those only who may be tried."""
    head = state.runs[state.rules[0].jobs].queue_next
    _begin(outlook)
    seek_all(state, lanes, outlook.refusals, head)
    lane = next_lane(lanes)
    while lane != NEVER:
        leaf = lanes.open[lane].leaf
        job = lanes.leaf[leaf].job
        if may_be_tried(state, outlook.refusals, job) and _starts(state, outlook, head, job):
            seek_all(state, lanes, outlook.refusals, job)
        else:
            seek(state, lanes, outlook.refusals, lane, leaf + 1)
        lane = next_lane(lanes)


@kernel
def _have_lanes(state: EngineState, lanes: ShapeLanes | None) -> bool:
    if lanes is None:
        return False
    return are_kept(state, lanes)


@kernel
def _go_along_lanes(state: EngineState, outlook: BackfillState, lanes: ShapeLanes | None) -> None:
    if lanes is not None:
        _backfill_lanes(state, outlook, lanes)


@kernel
def backfill_all(state: EngineState, outlook: BackfillState) -> None:
    """Start the jobs behind the head that do not delay it."""
    if _have_lanes(state, outlook.lanes):
        _go_along_lanes(state, outlook, outlook.lanes)
    else:
        backfill(state, outlook, state.runs[state.runs[state.rules[0].jobs].queue_next].queue_next)


@kernel
def find_start(state: EngineState, ahead: ReservationProjection, mirror: RowMirror | None, head: int) -> None:
    """Project all running jobs up to the earliest start of ``head``, all ends at that instant included."""
    known, base, clock = ahead.head[0], ahead.base, ahead.base.clock[0]
    show_cluster(state, ahead, head)
    show_rows(state, mirror)
    known.known = 1
    while True:
        due = clock.agenda > 0 and base.runs[base.lists[0].agenda].next_us == clock.now_us
        head_fits = not due and known.fitting >= state.jobs[head].nodes
        if head_fits and take_head(state, ahead, mirror, ahead.ends, known.ends, head):
            known.start_us = clock.now_us
            return
        if clock.agenda == 0:  # nodes are down
            known.start_us = FAR_US
            return
        job = end_first(state, base)
        ahead.ends[known.ends].us = clock.now_us
        ahead.ends[known.ends].job = job
        known.ends += 1
        release_cores(state, ahead, head, job)
        speed_up(state, base, ahead.base_stack)
