"""The scheduling pass of FCFS and EASY, and backfilling.

EASY backfilling on dedicated and on shared cores: a later job may start if the head starts no later.

Sources: Lifka 1995 and the rules of the golden schedules for dedicated cores; thesis section 5.2.3 for shared
ones. EASY with a second choice gives a job that would delay the head other nodes (``aside``).

Trying who waits behind the queue's head: a job may start now if the head starts no later for it.
"""

from __future__ import annotations

from simulator.cores.core_slots import link, unlink
from simulator.cores.node_classes import undo_divide
from simulator.jit.compilation import kernel
from simulator.lifecycle.job_progress import start
from simulator.lifecycle.segments import asks_us
from simulator.model.system import FAR_US
from simulator.placement import place
from simulator.policies.easy import backfill_trial as shared
from simulator.policies.easy import reservation as dedicated
from simulator.policies.easy.backfill_state import (
    BackfillState,
    HeadNodes,
    bar,
    choose_for_head,
    count_used,
    unbar,
)
from simulator.policies.easy.backfill_trial import RowMirror, show_rows, take_head
from simulator.policies.easy.ncs import (
    Ncs,
    bar_refused,
    enter_plan,
    forget_bounds,
    has_plan,
    is_out_of_bounds,
    plan_start,
    raises_victim,
)
from simulator.policies.easy.reservation import (
    ReservationProjection,
    Shadow,
    drop_shadow,
    end_first,
    launch,
    note_end,
    note_start,
    release_cores,
    show_cluster,
    speed_up,
)
from simulator.policies.easy.waiting_shapes import (
    Refusals,
    ShapeLanes,
    are_kept,
    forget_refusals,
    is_hopeless,
    leave_lane,
    next_lane,
    note_refusal,
    seek,
    seek_all,
)
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.event_queue import first_waiting


@kernel
def may_be_tried(state: EngineState, refusals: Refusals, job: int) -> bool:
    """Return whether ``job`` fits now, and give it pieces, unless it is known that it would be refused."""
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
    head: int,
    job: int,
) -> bool:
    """Return whether ``job``, on the cores of its pieces, would delay the head on shared cores."""
    if ahead.head[0].known == 0 or _is_past(state, ahead, mirror):
        find_start(state, ahead, mirror, head)
    if ahead.head[0].start_us == FAR_US:
        return False
    link(state, state.links, job)
    delayed = shared.delays_head(state, ahead, mirror, head, job)
    unlink(state.links, job)
    return delayed


@kernel
def _delays(
    state: EngineState,
    shadow: Shadow | None,
    ahead: ReservationProjection | None,
    mirror: RowMirror | None,
    head: int,
    job: int,
) -> bool:
    """Return whether ``job``, on the cores of its pieces, would delay the head."""
    delayed = False
    if shadow is not None:
        delayed = dedicated.delays_head(state, shadow, head, job)
    if ahead is not None:
        delayed = _delays_shared(state, ahead, mirror, head, job)
    return delayed


@kernel
def delays_head(state: EngineState, outlook: BackfillState, head: int, job: int) -> bool:
    """Return whether ``job``, on the cores of its pieces, would delay the head; if so, it has none then."""
    delayed = _delays(state, outlook.shadow, outlook.ahead, outlook.mirror, head, job)
    if delayed:
        undo_divide(state, job)
    return delayed


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
        for node_class in range(state.clock[0].classes):
            one = state.classes[node_class]
            one.then_used = state.rules[0].cores - one.then_free
        choose_for_head(state, aside, head)
    if ahead is not None:
        _find_with_rows(state, ahead, mirror, head)
        count_used(state)
        choose_for_head(state, aside, head)


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
    """Start ``job``, which has its pieces, unless it delays the head."""
    if delays_head(state, outlook, head, job) and _delays_elsewhere(state, outlook, outlook.aside, head, job):
        note_refusal(state, outlook.refusals, job, asks_us(state, state.lifecycles, job))
        return False
    refused = state.runs[job].queue_prev != head
    start(state, job)
    note_backfilled(state, outlook.shadow, job, refused)
    leave_lane(state, outlook.lanes, job)
    forget_refusals(outlook.refusals)
    return True


@kernel
def _start_by_plan(
    state: EngineState,
    outlook: BackfillState,
    ahead: ReservationProjection | None,
    aside: HeadNodes | None,
    ncs: Ncs | None,
    head: int,
    job: int,
) -> None:
    """Start ``job`` as NCS does, on nodes that the plan does not refuse it."""
    if ahead is None:
        return
    if aside is None:
        return
    if ncs is None:
        return
    if is_out_of_bounds(state, ncs, job) or is_hopeless(state, outlook.refusals, job):
        return
    if state.open_nodes[state.jobs[job].cores] < state.jobs[job].nodes:
        return
    if aside.known[0] == 0:
        plan_start(state, ahead, head)
        count_used(state)
        choose_for_head(state, aside, head)
    bar_refused(state, ahead, aside.nodes, head, job)
    placed = place(state, job)
    unbar(state)
    if placed and raises_victim(state, ahead, ncs, job):
        undo_divide(state, job)
        placed = False
    if not placed:
        note_refusal(state, outlook.refusals, job, asks_us(state, state.lifecycles, job))
        return
    enter_plan(state, ahead, head, job)
    count_used(state)
    start(state, job)
    forget_refusals(outlook.refusals)


@kernel
def backfill(state: EngineState, outlook: BackfillState, first: int) -> None:
    """Go through the queue from ``first`` on and start the jobs that do not delay its head."""
    end = state.rules[0].jobs
    head = state.runs[end].queue_next
    _begin(outlook)
    job = first
    while job != end and state.open_nodes[1] > 0:
        after = state.runs[job].queue_next
        if has_plan(outlook.ncs):
            _start_by_plan(state, outlook, outlook.ahead, outlook.aside, outlook.ncs, head, job)
        elif may_be_tried(state, outlook.refusals, job):
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
def find_start(state: EngineState, ahead: ReservationProjection, mirror: RowMirror | None, head: int) -> None:
    """Project all running jobs up to the earliest start of ``head``, all ends at that instant included."""
    known, base, clock = ahead.head[0], ahead.base, ahead.base.clock[0]
    show_cluster(state, ahead, head)
    show_rows(state, mirror)
    for running in range(state.clock[0].active):
        launch(state, base, state.then_stack, state.lists[running].running)
    known.known = 1
    while True:
        due = clock.agenda > 0 and base.runs[base.lists[0].agenda].next_us == clock.now_us
        fitting = known.fitting
        head_fits = not due and fitting >= state.jobs[head].nodes
        if head_fits and take_head(state, mirror, ahead.ends, known.ends, head, fitting):
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
        speed_up(state, base, state.then_stack)


@kernel
def note_head(state: EngineState, shadow: Shadow | None, job: int) -> None:
    """Note that a head has started: another is the head now."""
    if shadow is None:
        return
    note_start(state, shadow, job)
    shadow.head[0].known = 0


@kernel
def start_heads(state: EngineState, shadow: Shadow | None, lanes: ShapeLanes | None) -> None:
    """Start queue heads while they fit: the whole of FCFS, and the beginning of a pass of EASY."""
    while state.clock[0].waiting > 0:
        head = first_waiting(state)
        if not place(state, head):
            return
        start(state, head)
        note_head(state, shadow, head)
        leave_lane(state, lanes, head)


@kernel
def _forget_start(ahead: ReservationProjection | None) -> None:
    """Forget the head's earliest start."""
    if ahead is not None:
        ahead.head[0].known = 0


@kernel
def _drop_end(state: EngineState, shadow: Shadow | None, job: int) -> None:
    if shadow is not None:
        note_end(state, shadow, job)
        shadow.head[0].known = 0


@kernel
def _drop_if_idle(state: EngineState, shadow: Shadow | None) -> None:
    if shadow is not None and state.clock[0].waiting == 0:
        drop_shadow(shadow)


@kernel
def note_ended(state: EngineState, outlook: BackfillState, job: int) -> None:
    """Note that ``job`` has ended."""
    _forget_start(outlook.ahead)
    _drop_end(state, outlook.shadow, job)


@kernel
def _forget_ends(shadow: Shadow | None) -> None:
    if shadow is not None:
        drop_shadow(shadow)
        shadow.head[0].known = 0


@kernel
def forget_future(outlook: BackfillState) -> None:
    """Forget all that is known of the future: jobs may end at other times than they would have."""
    _forget_start(outlook.ahead)
    _forget_ends(outlook.shadow)
    forget_refusals(outlook.refusals)


@kernel
def _pass_over_all(state: EngineState, outlook: BackfillState) -> None:
    """Start heads while they fit, and look at all others."""
    start_heads(state, outlook.shadow, outlook.lanes)
    _drop_if_idle(state, outlook.shadow)
    if state.clock[0].waiting >= 2:
        _backfill_all(state, outlook)


@kernel
def _forget_moves(shadow: Shadow | None) -> None:
    if shadow is not None:
        shadow.head[0].moved = 0


@kernel
def _backfill_all(state: EngineState, outlook: BackfillState) -> None:
    """Go through the whole queue behind its head."""
    _forget_moves(outlook.shadow)
    if state.clock[0].restless > 0:
        _forget_start(outlook.ahead)
    if _have_lanes(state, outlook.lanes):
        _go_along_lanes(state, outlook, outlook.lanes)
    else:
        backfill(state, outlook, state.runs[first_waiting(state)].queue_next)


@kernel
def _may_look_at_arrivals(shadow: Shadow | None, aside: HeadNodes | None) -> bool:
    """Return whether after arrivals only the jobs that arrived need a look."""
    if shadow is None:
        return False
    if aside is not None:
        return False
    return shadow.head[0].moved == 0


@kernel
def make_pass(state: EngineState, outlook: BackfillState, first: int) -> None:
    """Make a scheduling pass after jobs have arrived, ``first`` before all others.

    If something else has happened as well, ``first`` is ``NEVER`` and every waiting job needs a look. After
    arrivals alone, on dedicated cores, only these do: since the last pass no core became free, and a refused
    job that starts later on the same nodes ends later. But once a job behind a refused one has started,
    placement may choose other nodes for the refused one, which the head can spare; then all are tried again.
    So they are where cores are shared, for a refused job may do less harm later, and where a second choice of
    nodes is allowed, for the head's may be others now.
    """
    if first == NEVER or first_waiting(state) == first:
        _forget_start(outlook.ahead)
        _pass_over_all(state, outlook)
    elif _may_look_at_arrivals(outlook.shadow, outlook.aside):
        backfill(state, outlook, first)
    else:
        _backfill_all(state, outlook)
