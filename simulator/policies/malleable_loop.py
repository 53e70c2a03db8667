"""The malleable strategies as kernels: passes, and the event loop. ``malleable`` tells what they do.

A pass starts jobs by EASY, then takes nodes from running jobs for those that still wait, then hands out idle
nodes. Who gives or takes is on a heap by priority. ``target`` is the size that a job is to have; sizes are
planned first and changed then, once a job for each that is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.cores.node_fitting import count_fitting, count_idle
from simulator.jit.compilation import kernel, kernel_state
from simulator.jit.field_records import RecordTable
from simulator.lifecycle.events import CHANGED, NOTHING, RANG, happen, log_is_full
from simulator.lifecycle.job_progress import start
from simulator.lifecycle.lifecycle_actions import resize, set_size
from simulator.lifecycle.segments import asks_us
from simulator.placement import place as place_builtin
from simulator.policies.easy.backfill_state import BackfillState
from simulator.policies.easy.easy_pass import (
    delays_head,
    forget_future,
    may_be_tried,
    note_backfilled,
    note_head,
)
from simulator.policies.easy.waiting_shapes import forget_refusals, note_refusal
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.event_queue import TICK, first_waiting, set_timer
from simulator.state.lifecycle_state import BY_RESIZE, LifecycleTables

LEAST, PREFERRED, MOST = range(3)
"""Where a job's size is bounded."""

GIVE, TAKE = -1, 1
"""What a job on the heap does: gives nodes, from the highest priority on, or takes, from the lowest."""


@dataclass(slots=True, eq=False)
class StrategyRecord:
    """What the strategy is, see ``malleable.Strategy``; ``ticking`` says whether a tick is to come."""

    prefers: int = 0
    yields: int = 0
    evenly: int = 0
    needs_idle: int = 0
    unprotected: int = 0
    tick_us: int = 0
    cost_us: int = 0
    cost_a_node_us: int = 0
    ticking: int = 0
    touched: int = 0


@dataclass(slots=True, eq=False)
class SizeRecord:
    """Sizes of a job, and those at which it starts and is to be; a rigid job's are all the same.

    Its priority is ``(nodes - base) / span``. While nodes change hands it gives or takes down or up to
    ``bound``.
    """

    least: int = 0
    preferred: int = 0
    most: int = 0
    start: int = 0
    base: int = 0
    span: int = 1
    bound: int = 0
    target: int = 0


@dataclass(slots=True, eq=False)
class PlaceRecord:
    """The job at this place of the heap, and of the list of those whose target was moved, in that order."""

    job: int = 0
    touched: int = 0


@dataclass(slots=True, eq=False)
class FreedRecord:
    """What a node will have free beyond what it has, if targets are met."""

    cores: int = 0
    kib: int = 0


@kernel_state
class MalleablePlan(NamedTuple):
    """A strategy and what it works on."""

    strategy: RecordTable[StrategyRecord]
    sizes: RecordTable[SizeRecord]
    places: RecordTable[PlaceRecord]
    freed: RecordTable[FreedRecord]


@kernel
def _comes_first(state: EngineState, plan: MalleablePlan, a: int, b: int, sign: int) -> bool:
    """Return whether ``a`` gives, or takes, before ``b``."""
    one, other = plan.sizes[a], plan.sizes[b]
    left = (one.target - one.base) * other.span
    right = (other.target - other.base) * one.span
    if left != right:
        return (right - left) * sign > 0
    if state.jobs[a].submit_us != state.jobs[b].submit_us:
        return (state.jobs[b].submit_us - state.jobs[a].submit_us) * sign > 0
    return (b - a) * sign > 0


@kernel
def _sink(state: EngineState, plan: MalleablePlan, place: int, count: int, sign: int) -> None:
    """Move the job at a place of the heap down to where it belongs."""
    places = plan.places
    job = places[place].job
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        if child + 1 < count and _comes_first(state, plan, places[child + 1].job, places[child].job, sign):
            child += 1
        if not _comes_first(state, plan, places[child].job, job, sign):
            break
        places[place].job = places[child].job
        place = child
    places[place].job = job


@kernel
def _gather(state: EngineState, plan: MalleablePlan, kind: int, sign: int) -> tuple[int, int]:
    """Put on the heap who can give or take down or up to a bound; return how many, and all their nodes."""
    plan.strategy[0].touched = 0
    count = 0
    nodes = 0
    for place in range(state.clock[0].active):
        job = state.lists[place].running
        size = plan.sizes[job]
        size.target = state.jobs[job].nodes
        size.bound = size.least if kind == LEAST else size.preferred if kind == PREFERRED else size.most
        if (size.bound - size.target) * sign > 0:
            plan.places[count].job = job
            nodes += (size.bound - size.target) * sign
            count += 1
    for place in range(count // 2 - 1, -1, -1):
        _sink(state, plan, place, count, sign)
    return count, nodes


@kernel
def _touch(state: EngineState, plan: MalleablePlan, job: int) -> None:
    """Note that the target of ``job`` is about to be moved."""
    if plan.sizes[job].target == state.jobs[job].nodes:
        plan.places[plan.strategy[0].touched].touched = job
        plan.strategy[0].touched += 1


@kernel
def _go_down(state: EngineState, plan: MalleablePlan, count: int, sign: int) -> int:
    """Restore the heap after its first job gave or took; return how many are on it."""
    size = plan.sizes[plan.places[0].job]
    if size.target == size.bound:
        count -= 1
        plan.places[0].job = plan.places[count].job
    _sink(state, plan, 0, count, sign)
    return count


@kernel
def _frees(state: EngineState, plan: MalleablePlan, job: int, head: int) -> int:
    """Let the target of ``job`` be a node less; return 1 if ``head`` fits then, else 0."""
    plan.sizes[job].target -= 1
    index = state.parts[state.jobs[job].part_at + plan.sizes[job].target].node
    node, freed, asked = state.classes[state.class_of[index]], plan.freed[index], state.jobs[head]
    had_space = node.free + freed.cores >= asked.cores and node.free_kib + freed.kib >= asked.memory_kib
    freed.cores += state.jobs[job].cores
    freed.kib += state.jobs[job].memory_kib
    has_space = node.free + freed.cores >= asked.cores and node.free_kib + freed.kib >= asked.memory_kib
    return int(has_space and not had_space)


@kernel
def _forget_freed(state: EngineState, plan: MalleablePlan) -> None:
    for place in range(plan.strategy[0].touched):
        job = plan.places[place].touched
        first = state.jobs[job].part_at
        for part in range(first + plan.sizes[job].target, state.jobs[job].part_end):
            plan.freed[state.parts[part].node].cores = 0
            plan.freed[state.parts[part].node].kib = 0


@kernel
def _plan_givers(state: EngineState, plan: MalleablePlan, head: int, wanted: int, floor: int) -> bool:
    """Plan which jobs give nodes, down to a floor, so that ``head`` fits; return whether it will."""
    have = count_fitting(state, head)
    if plan.strategy[0].needs_idle and count_idle(state) == 0:
        return False
    count, nodes = _gather(state, plan, floor, GIVE)
    if have + nodes < wanted:
        return False
    while have < wanted and count > 0:
        job = plan.places[0].job
        size = plan.sizes[job]
        _touch(state, plan, job)
        have += _frees(state, plan, job, head)
        while not plan.strategy[0].evenly and have < wanted and size.target > size.bound:
            have += _frees(state, plan, job, head)
        count = _go_down(state, plan, count, GIVE)
    _forget_freed(state, plan)
    return have >= wanted


@kernel
def _cost_us(state: EngineState, lifecycles: LifecycleTables, plan: MalleablePlan, job: int) -> int:
    """Return what it costs to bring ``job`` to its target: nothing if it has just started."""
    strategy, life = plan.strategy[0], lifecycles.jobs[job]
    changed = abs(plan.sizes[job].target - state.jobs[job].nodes)
    if life.stretch_us < state.clock[0].now_us:
        return strategy.cost_us + strategy.cost_a_node_us * changed
    return strategy.cost_a_node_us * changed if life.why == BY_RESIZE else 0


@kernel
def _meet_targets(state: EngineState, lifecycles: LifecycleTables, plan: MalleablePlan) -> None:
    for place in range(plan.strategy[0].touched):
        job = plan.places[place].touched
        resize(state, lifecycles, job, plan.sizes[job].target, _cost_us(state, lifecycles, plan, job))


@kernel
def _starts_at(
    state: EngineState, lifecycles: LifecycleTables, plan: MalleablePlan, job: int, wanted: int, floor: int
) -> bool:
    """Start ``job`` on so many nodes if others can give what is missing; return whether it did."""
    if not _plan_givers(state, plan, job, wanted, floor):
        return False
    _meet_targets(state, lifecycles, plan)
    set_size(state, lifecycles, job, wanted)
    if not place_builtin(state, job):
        return False
    start(state, job)
    return True


@kernel
def _free_nodes(state: EngineState, lifecycles: LifecycleTables, plan: MalleablePlan, head: int) -> bool:
    """Start the head of the queue on nodes that running jobs give; return whether it did."""
    size, strategy = plan.sizes[head], plan.strategy[0]
    if not strategy.prefers:
        return _starts_at(state, lifecycles, plan, head, size.start, LEAST)
    if _starts_at(state, lifecycles, plan, head, size.start, PREFERRED):
        return True
    if not strategy.yields:
        return False
    return _starts_at(state, lifecycles, plan, head, size.least, PREFERRED) or _starts_at(
        state, lifecycles, plan, head, size.least, LEAST
    )


@kernel
def _hand_out(state: EngineState, lifecycles: LifecycleTables, plan: MalleablePlan, ceiling: int) -> None:
    """Give idle nodes to running jobs, up to a ceiling."""
    idle = count_idle(state)
    if idle == 0:
        return
    count, _ = _gather(state, plan, ceiling, TAKE)
    while idle > 0 and count > 0:
        job = plan.places[0].job
        size = plan.sizes[job]
        _touch(state, plan, job)
        more = 1 if plan.strategy[0].evenly else min(idle, size.bound - size.target)
        size.target += more
        idle -= more
        count = _go_down(state, plan, count, TAKE)
    _meet_targets(state, lifecycles, plan)


@kernel
def _choose_size(state: EngineState, lifecycles: LifecycleTables, plan: MalleablePlan, job: int) -> None:
    """Give a waiting job the size at which it would start now."""
    size = plan.sizes[job]
    if size.least == size.most:
        return
    nodes = size.start
    if plan.strategy[0].yields:
        nodes = max(size.least, min(nodes, count_fitting(state, job)))
    set_size(state, lifecycles, job, nodes)


@kernel
def _start_heads(
    state: EngineState, lifecycles: LifecycleTables, outlook: BackfillState, plan: MalleablePlan
) -> None:
    """Start queue heads while they fit; give the head that doesn't the size of its reservation."""
    while state.clock[0].waiting > 0:
        head = first_waiting(state)
        _choose_size(state, lifecycles, plan, head)
        if not place_builtin(state, head):
            set_size(state, lifecycles, head, plan.sizes[head].start)
            return
        start(state, head)
        note_head(state, outlook.shadow, head)


@kernel
def _backfill(
    state: EngineState, lifecycles: LifecycleTables, outlook: BackfillState, plan: MalleablePlan
) -> None:
    """Start the jobs behind the head that fit and do not delay it."""
    head = first_waiting(state)
    end = state.rules[0].jobs
    job = state.runs[head].queue_next
    unprotected = plan.strategy[0].unprotected
    refused = False
    while job != end and state.open_nodes[1] > 0:
        after = state.runs[job].queue_next
        _choose_size(state, lifecycles, plan, job)
        if not may_be_tried(state, outlook.refusals, job):
            refused = True
        elif not unprotected and delays_head(state, outlook, head, job):
            note_refusal(state, outlook.refusals, job, asks_us(state, lifecycles, job))
            refused = True
        else:
            start(state, job)
            note_backfilled(state, outlook.shadow, job, refused)
            forget_refusals(outlook.refusals)
        job = after


@kernel
def malleable_pass(
    state: EngineState, lifecycles: LifecycleTables, outlook: BackfillState, plan: MalleablePlan
) -> None:
    """Make a scheduling pass."""
    forget_future(outlook)
    _start_heads(state, lifecycles, outlook, plan)
    if state.clock[0].waiting >= 2:
        _backfill(state, lifecycles, outlook, plan)
    while state.clock[0].waiting > 0 and _free_nodes(state, lifecycles, plan, first_waiting(state)):
        pass
    if plan.strategy[0].prefers and plan.strategy[0].yields:
        _hand_out(state, lifecycles, plan, PREFERRED)
    _hand_out(state, lifecycles, plan, MOST)


@kernel
def _pass_or_tick(
    state: EngineState, lifecycles: LifecycleTables, outlook: BackfillState, plan: MalleablePlan, kind: int
) -> None:
    """Make a pass, or see to it that the next tick makes one."""
    strategy = plan.strategy[0]
    if strategy.tick_us == 0:
        malleable_pass(state, lifecycles, outlook, plan)
    elif kind == RANG:
        strategy.ticking = 0
        malleable_pass(state, lifecycles, outlook, plan)
    elif not strategy.ticking:
        ticks = (state.clock[0].now_us + strategy.tick_us - 1) // strategy.tick_us
        strategy.ticking = 1
        set_timer(lifecycles, ticks * strategy.tick_us, TICK, NEVER)


@kernel
def run_malleable_events(
    state: EngineState, lifecycles: LifecycleTables, outlook: BackfillState, plan: MalleablePlan, most: int
) -> int:
    """Process at most ``most`` events; return how many there were.

    There are fewer, too, where the log has to be emptied.
    """
    for event in range(most):
        if log_is_full(lifecycles):
            return event
        kind = happen(state, lifecycles)
        if kind == NOTHING:
            return event
        if kind != CHANGED:
            _pass_or_tick(state, lifecycles, outlook, plan, kind)
    return most
