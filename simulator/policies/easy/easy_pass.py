"""EASY backfilling on dedicated and on shared cores: a later job may start if the head starts no later.

Sources: Lifka 1995 and the rules of the golden schedules for dedicated cores; thesis section 5.2.3 for shared
ones. EASY with a second choice gives a job that would delay the head other nodes (``aside``).
"""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.lifecycle.job_progress import start
from simulator.placement import place
from simulator.policies.easy.backfill_state import BackfillState
from simulator.policies.easy.easy_backfill import backfill, backfill_all
from simulator.policies.easy.head_nodes import HeadNodes
from simulator.policies.easy.ncs import ends_follow
from simulator.policies.easy.refusals import forget_refusals
from simulator.policies.easy.reservation_projection import ReservationProjection
from simulator.policies.easy.shadow import Shadow, drop_shadow, note_end, note_start
from simulator.policies.easy.shape_lanes import ShapeLanes, enter_lane, leave_lane
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.event_queue import first_waiting


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
def note_arrived(state: EngineState, outlook: BackfillState, job: int) -> None:
    """Note that ``job`` has arrived."""
    enter_lane(state, outlook.lanes, job)


@kernel
def waits_for_ends(state: EngineState, outlook: BackfillState) -> bool:
    """Return whether the policy makes no pass yet, because another job ends at this instant."""
    return ends_follow(state, outlook.ncs)


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
    backfill_all(state, outlook)


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
