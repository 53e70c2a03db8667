"""EASY backfilling on dedicated and on shared cores: a later job may start if the head starts no later.

Sources: Lifka 1995 and the rules of the golden schedules for dedicated cores; thesis section 5.2.3 for shared
ones. EASY with a second choice gives a job that would delay the head other nodes (``aside``).
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.engine.agenda import first_waiting
from simulator.engine.compile import kernel
from simulator.engine.links import link, unlink
from simulator.engine.occupancy import free_slots, take_slots
from simulator.engine.progress import start
from simulator.engine.records import Maker, column, only_record
from simulator.engine.segments import asks_us
from simulator.engine.state import FAR_US, NEVER, RulesRecord, State
from simulator.placement.builtin import place
from simulator.policies import shadow as dedicated
from simulator.policies import trial as shared
from simulator.policies.ahead import Ahead, new_ahead
from simulator.policies.aside import Aside, bar, choose_for_head, count_used, unbar
from simulator.policies.earliest import find_start
from simulator.policies.mirror import Mirror, new_mirror
from simulator.policies.ncs import Ncs, ends_follow, forget_bounds, is_out_of_bounds, raises_victim
from simulator.policies.refusals import Refusals, forget_refusals, is_hopeless, no_refusals, note_refusal
from simulator.policies.shadow import Shadow, drop_shadow, new_shadow, note_end, note_start


class Outlook(NamedTuple):
    """What EASY keeps of the future.

    Where a job's requested end is known when it starts (one slot a core, and nodes alike) ``shadow`` is a
    list of ends; elsewhere ``ahead`` holds two projections, and ``mirror`` Slurm's rows for them, where they
    are kept. ``aside`` is for EASY with a second choice.
    """

    shadow: Shadow | None
    ahead: Ahead | None
    mirror: Mirror | None
    refusals: Refusals
    aside: Aside | None
    ncs: Ncs | None = None


def new_outlook(
    make: Maker, state: State, shapes: int, *, elsewhere: bool, ncs: Ncs | None = None
) -> Outlook:
    """Return the outlook of an idle cluster, for jobs of so many different shapes."""
    rules = only_record(RulesRecord, state.rules)
    steady = rules.slots == 1 and not rules.nodes_differ and not _have_checkpoints(state)
    return Outlook(
        shadow=new_shadow(make, rules.nodes, min(rules.jobs, rules.nodes * rules.cores)) if steady else None,
        ahead=None if steady else new_ahead(make, state, rules.jobs),
        mirror=None if state.rows is None else new_mirror(make, state),
        refusals=no_refusals(make, shapes),
        aside=Aside(make.zeros(len(state.barred)), make.zeros(1)) if elsewhere else None,
        ncs=ncs,
    )


def shapes_of(state: State) -> int:
    """Return how many different shapes the jobs of a run have."""
    return int(column(state.jobs, "shape").max()) + 1


def _have_checkpoints(state: State) -> bool:
    """Return whether a job may go on for longer than it asked when it started."""
    if state.lives is None:
        return False
    return bool((column(state.lives.jobs, "every_us") != NEVER).any())


@kernel
def note_head(state: State, shadow: Shadow | None, job: int) -> None:
    """Note that a head has started: another is the head now."""
    if shadow is None:
        return
    note_start(state, shadow, job)
    shadow.head[0].known = 0


@kernel
def start_heads(state: State, shadow: Shadow | None) -> None:
    """Start queue heads while they fit: the whole of FCFS, and the beginning of a pass of EASY."""
    while state.clock[0].waiting > 0:
        head = first_waiting(state)
        if not place(state, head):
            return
        start(state, head)
        note_head(state, shadow, head)


@kernel
def may_be_tried(state: State, refusals: Refusals, job: int) -> bool:
    """Return whether ``job`` fits now, and name its cores, unless it is known that it would be refused."""
    if state.roomy[state.jobs[job].cores] < state.jobs[job].nodes or is_hopeless(state, refusals, job):
        return False
    fits = place(state, job)
    if not fits:
        note_refusal(state, refusals, job, 0)
    return fits


@kernel
def _is_past(state: State, ahead: Ahead, mirror: Mirror | None) -> bool:
    """Return whether rows took the head at an instant that is over, and do no longer."""
    if mirror is None:
        return False
    return ahead.head[0].start_us < state.clock[0].now_us


@kernel
def _delays_shared(
    state: State, ahead: Ahead, mirror: Mirror | None, ncs: Ncs | None, head: int, job: int
) -> bool:
    """Return whether ``job``, on the cores that its parts name, would delay the head on shared cores."""
    if ahead.head[0].known == 0 or _is_past(state, ahead, mirror):
        find_start(state, ahead, mirror, head)
    if ahead.head[0].start_us == FAR_US:
        return False
    if raises_victim(state, ahead, mirror, ncs, job):
        return True
    link(state, state.links, job)
    take_slots(state, job)
    delayed = shared.delays_head(state, ahead, mirror, head, job)
    free_slots(state, job)
    unlink(state.links, job)
    return delayed


@kernel
def _delays(
    state: State,
    shadow: Shadow | None,
    ahead: Ahead | None,
    mirror: Mirror | None,
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
def delays_head(state: State, outlook: Outlook, head: int, job: int) -> bool:
    """Return whether ``job``, on the cores that its parts name, would delay the head."""
    return _delays(state, outlook.shadow, outlook.ahead, outlook.mirror, outlook.ncs, head, job)


@kernel
def _find_with_rows(state: State, ahead: Ahead, mirror: Mirror | None, head: int) -> None:
    """Find the head's start again where it hangs on rows, which a placement may have sorted meanwhile."""
    if mirror is not None:
        find_start(state, ahead, mirror, head)


@kernel
def _find_aside(
    state: State, shadow: Shadow | None, ahead: Ahead | None, mirror: Mirror | None, aside: Aside, head: int
) -> None:
    """Find the nodes that the head would take."""
    if shadow is not None:
        for node in range(state.rules[0].nodes):
            shadow.room[node].used = state.rules[0].cores - shadow.room[node].free
        choose_for_head(state, aside, shadow.room, head)
    if ahead is not None:
        _find_with_rows(state, ahead, mirror, head)
        count_used(ahead.room, ahead.base_stack)
        choose_for_head(state, aside, ahead.room, head)


@kernel
def _delays_elsewhere(state: State, outlook: Outlook, aside: Aside | None, head: int, job: int) -> bool:
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
def _forget_aside(aside: Aside | None) -> None:
    if aside is not None:
        aside.known[0] = 0


@kernel
def note_backfilled(state: State, shadow: Shadow | None, job: int, refused: bool) -> None:
    """Note that ``job`` has started, after others that were refused or not."""
    if shadow is not None:
        note_start(state, shadow, job)
        if refused:
            shadow.head[0].moved = 1


@kernel
def _backfill(state: State, outlook: Outlook, first: int) -> None:
    """Go through the queue from ``first`` on and start the jobs that do not delay the head."""
    runs, refusals = state.runs, outlook.refusals
    end = state.rules[0].jobs
    head = runs[end].queue_next
    _forget_aside(outlook.aside)
    forget_bounds(outlook.ncs)
    forget_refusals(refusals)
    refused = first != runs[head].queue_next
    job = first
    while job != end and state.roomy[1] > 0:
        after = runs[job].queue_next
        if is_out_of_bounds(state, outlook.ncs, job) or not may_be_tried(state, refusals, job):
            refused = True
        elif delays_head(state, outlook, head, job) and _delays_elsewhere(
            state, outlook, outlook.aside, head, job
        ):
            note_refusal(state, refusals, job, asks_us(state, state.lives, job))
            refused = True
        else:
            start(state, job)
            note_backfilled(state, outlook.shadow, job, refused)
            forget_refusals(refusals)
        job = after


@kernel
def _forget_start(ahead: Ahead | None) -> None:
    """Forget the head's earliest start."""
    if ahead is not None:
        ahead.head[0].known = 0


@kernel
def _note_ended(state: State, shadow: Shadow | None, job: int) -> None:
    if shadow is not None:
        note_end(state, shadow, job)
        shadow.head[0].known = 0


@kernel
def _drop_if_idle(state: State, shadow: Shadow | None) -> None:
    if shadow is not None and state.clock[0].waiting == 0:
        drop_shadow(shadow)


@kernel
def pass_after_end(state: State, outlook: Outlook, job: int) -> None:
    """Make a scheduling pass after ``job`` has ended."""
    _forget_start(outlook.ahead)
    _note_ended(state, outlook.shadow, job)
    if not ends_follow(state, outlook.ncs):
        _pass_over_all(state, outlook)


@kernel
def _forget_ends(shadow: Shadow | None) -> None:
    if shadow is not None:
        drop_shadow(shadow)
        shadow.head[0].known = 0


@kernel
def forget_future(outlook: Outlook) -> None:
    """Forget all that is known of the future: jobs may end at other times than they would have."""
    _forget_start(outlook.ahead)
    _forget_ends(outlook.shadow)
    forget_refusals(outlook.refusals)


@kernel
def pass_after_change(state: State, outlook: Outlook) -> None:
    """Make a scheduling pass after something else: a node went down or came back, a job has left."""
    forget_future(outlook)
    _pass_over_all(state, outlook)


@kernel
def _pass_over_all(state: State, outlook: Outlook) -> None:
    """Start heads while they fit, and look at all others."""
    start_heads(state, outlook.shadow)
    _drop_if_idle(state, outlook.shadow)
    if state.clock[0].waiting >= 2:
        _backfill_all(state, outlook)


@kernel
def _forget_moves(shadow: Shadow | None) -> None:
    if shadow is not None:
        shadow.head[0].moved = 0


@kernel
def _backfill_all(state: State, outlook: Outlook) -> None:
    """Go through the whole queue behind its head."""
    _forget_moves(outlook.shadow)
    if state.clock[0].restless > 0:
        _forget_start(outlook.ahead)
    _backfill(state, outlook, state.runs[first_waiting(state)].queue_next)


@kernel
def _may_look_at_one(shadow: Shadow | None, aside: Aside | None) -> bool:
    """Return whether after an arrival only the job that arrived needs a look."""
    if shadow is None:
        return False
    if aside is not None:
        return False
    return shadow.head[0].moved == 0


@kernel
def pass_after_arrival(state: State, outlook: Outlook, job: int) -> None:
    """Make a scheduling pass after ``job`` has arrived.

    On dedicated cores only ``job`` needs a look: since the last pass no core became free, and a refused job
    that starts later on the same nodes ends later. But once a job behind a refused one has started, placement
    may choose other nodes for the refused one, which the head can spare; then all are tried again. So they
    are where cores are shared, for a refused job may do less harm later, and where a second choice of nodes
    is allowed, for the head's may be others now.
    """
    if state.clock[0].waiting == 1:
        _forget_start(outlook.ahead)
        start_heads(state, outlook.shadow)
    elif _may_look_at_one(outlook.shadow, outlook.aside):
        _backfill(state, outlook, job)
    else:
        _backfill_all(state, outlook)
