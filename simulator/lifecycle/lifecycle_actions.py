"""What can happen to a job besides running once, and running jobs on other nodes.

What can happen to a job besides running once: the actions behind ``SchedulerContext``, as kernels.

Each takes an action that is possible as given; the caller has checked that. Each leaves the job itself
and those that share its cores with speeds still to be set, as ``progress`` does.

Running jobs on other nodes, or on more or fewer of them: their work stays what it was.

A resize may cost time, in which the job holds its new nodes and sets up.
"""

from __future__ import annotations

from simulator.cores.node_classes import divide, leave_classes
from simulator.cores.node_fitting import fits
from simulator.jit.compilation import kernel
from simulator.lifecycle.job_progress import count_busy, hold, let_go, set_speeds, settle, vacate
from simulator.lifecycle.segments import (
    close_last_stretch,
    close_stretch,
    forget_progress,
    halt,
    keep,
    lose,
    lose_all,
    note_loss,
    pause,
    rate_at,
    tally,
    work,
)
from simulator.placement import place_parts
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.event_queue import (
    enter_agenda,
    leave_queue,
    move_in_agenda,
    present,
    queue_behind,
    release_dependents,
)
from simulator.state.lifecycle_state import (
    BY_CHECKPOINT,
    BY_PREEMPTION,
    BY_REQUEUE,
    BY_RESIZE,
    FROM_SCRATCH,
    GIVEN_UP,
    LEAVING,
    OVER,
    PARKED,
    RUNNING,
    SETTING_UP,
    WAITING,
    WORKING,
    LifecycleTables,
)
from simulator.state.node_sets import flip


@kernel
def set_size(state: EngineState, lifecycles: LifecycleTables, job: int, nodes: int) -> None:
    """Give a job that holds nothing space for so many nodes, and their rate."""
    asked = state.jobs[job]
    asked.nodes = nodes
    asked.part_end = asked.part_at + nodes
    lifecycles.jobs[job].rate = rate_at(lifecycles, job, nodes)


@kernel
def come(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Note that ``job`` has arrived."""
    lifecycles.jobs[job].status = WAITING
    forget_progress(state, lifecycles, job)


@kernel
def _is_behind(state: EngineState, lifecycles: LifecycleTables, a: int, b: int) -> bool:
    """Return whether ``a`` waits behind ``b``."""
    if lifecycles.jobs[a].in_front != lifecycles.jobs[b].in_front:
        return lifecycles.jobs[b].in_front > lifecycles.jobs[a].in_front
    if state.jobs[a].submit_us != state.jobs[b].submit_us:
        return state.jobs[a].submit_us > state.jobs[b].submit_us
    return a > b


@kernel
def queue_again(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Put ``job`` where it belongs in the queue: by front, time of submission and number."""
    runs = state.runs
    end = state.rules[0].jobs
    before = runs[end].queue_prev
    while before != end and _is_behind(state, lifecycles, before, job):
        before = runs[before].queue_prev
    queue_behind(state, job, before)


@kernel
def put_first(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Let the waiting ``job`` wait in front of all that are not put there."""
    leave_queue(state, job)
    lifecycles.jobs[job].in_front = 1
    queue_again(state, lifecycles, job)


@kernel
def _save(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Let the place where a halted job is be where it begins again."""
    life = lifecycles.jobs[job]
    keep(lifecycles, job)
    life.saved_phase = state.runs[job].phase
    life.saved_left = life.rest
    life.saved_request = life.kept_request


@kernel
def _wait_again(state: EngineState, lifecycles: LifecycleTables, job: int, why: int) -> None:
    life = lifecycles.jobs[job]
    life.status = WAITING
    life.why = why
    set_size(state, lifecycles, job, life.asked)
    queue_again(state, lifecycles, job)


@kernel
def _stop(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Settle a running job and put together where it is."""
    settle(state.runs[job], state.clock[0].now_us)
    tally(state, lifecycles, job)
    halt(state, lifecycles, job)


@kernel
def kill(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Take ``job`` off its nodes; what it did since its last checkpoint is lost."""
    _stop(state, lifecycles, job)
    lose(lifecycles, job)
    vacate(state, job)
    close_stretch(state, lifecycles, job)
    lifecycles.jobs[job].preemptions += 1
    _wait_again(state, lifecycles, job, BY_PREEMPTION)


@kernel
def warn(state: EngineState, lifecycles: LifecycleTables, job: int, warning_us: int) -> None:
    """Let ``job`` stop working, and leave after a while."""
    _stop(state, lifecycles, job)
    was_busy = state.runs[job].busy
    state.clock[0].affected = 0
    life = lifecycles.jobs[job]
    life.preemptions += 1
    pause(state, lifecycles, job, LEAVING, warning_us * state.rules[0].scale * life.rate)
    if was_busy:
        count_busy(state, job, False)
    move_in_agenda(present(state), job)


@kernel
def leave(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Take ``job``, whose warning has passed, off its nodes; nothing is lost."""
    _stop(state, lifecycles, job)
    _save(state, lifecycles, job)
    vacate(state, job)
    close_stretch(state, lifecycles, job)
    _wait_again(state, lifecycles, job, BY_CHECKPOINT)


@kernel
def save_and_go(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Take ``job`` off its nodes at once, without a warning; nothing is lost."""
    lifecycles.jobs[job].preemptions += 1
    leave(state, lifecycles, job)


@kernel
def _over(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    lifecycles.jobs[job].status = OVER
    lifecycles.clock[0].unfinished -= 1
    state.runs[job].end_us = state.clock[0].now_us
    release_dependents(state, job)


@kernel
def end(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """End ``job``, which has done its work."""
    _stop(state, lifecycles, job)
    keep(lifecycles, job)
    vacate(state, job)
    close_last_stretch(state, lifecycles, job)
    _over(state, lifecycles, job)


@kernel
def _hold_memory(state: EngineState, job: int, sign: int) -> None:
    """Take the memory of a suspended job from its nodes (1), or give it back (-1)."""
    divide(state, job)
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        state.classes[held.node_class].free_kib -= sign * state.jobs[job].memory_kib
        piece = held.next
    leave_classes(state, job)


@kernel
def park(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Suspend ``job``: it gives back its cores, keeps its memory, and loses nothing."""
    _stop(state, lifecycles, job)
    vacate(state, job)
    close_stretch(state, lifecycles, job)
    _hold_memory(state, job, 1)
    life = lifecycles.jobs[job]
    life.preemptions += 1
    life.status = PARKED
    life.why = BY_PREEMPTION


@kernel
def unpark(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Let a suspended job go on, on the cores that it had."""
    run, life = state.runs[job], lifecycles.jobs[job]
    _hold_memory(state, job, -1)
    life.status = RUNNING
    life.stretch_us = state.clock[0].now_us
    life.since_us = state.clock[0].now_us
    state.clock[0].restless += 1
    if life.doing == WORKING:
        run.request_left = life.kept_request
        work(state, lifecycles, job)
    else:
        pause(state, lifecycles, job, life.doing, life.pause_left)
    hold(state, job)
    enter_agenda(present(state), job)


@kernel
def _is_on(state: EngineState, job: int, node: int) -> bool:
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        if state.parts[part].node == node:
            return True
    return False


@kernel
def next_on_node(state: EngineState, lifecycles: LifecycleTables, node: int, after: int) -> int:
    """Return the first job after ``after`` that runs on a node, or is suspended there; or ``NEVER``."""
    for job in range(after + 1, state.rules[0].jobs):
        status = lifecycles.jobs[job].status
        if status in (RUNNING, PARKED) and _is_on(state, job, node):
            return job
    return NEVER


@kernel
def lose_node(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Let ``job`` lose one of its nodes: it waits again, from its checkpoint or from nothing, or is over."""
    life = lifecycles.jobs[job]
    after_failure = lifecycles.clock[0].after_failure
    state.clock[0].affected = 0
    ran = life.status == RUNNING
    if ran:
        _stop(state, lifecycles, job)
    lose(lifecycles, job)
    if after_failure == FROM_SCRATCH:
        lose_all(lifecycles, job)
        forget_progress(state, lifecycles, job)
    if ran:
        vacate(state, job)
        close_stretch(state, lifecycles, job)
    else:
        _hold_memory(state, job, -1)
        note_loss(state, lifecycles, job)
    if after_failure == GIVEN_UP:
        life.given_up = 1
        _over(state, lifecycles, job)
    else:
        _wait_again(state, lifecycles, job, BY_CHECKPOINT if life.useful_us > 0 else BY_REQUEUE)


@kernel
def lift(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Take a running job off its cores, to be laid on others at the same instant."""
    settle(state.runs[job], state.clock[0].now_us)
    tally(state, lifecycles, job)
    life = lifecycles.jobs[job]
    if state.clock[0].now_us > life.stretch_us:
        close_stretch(state, lifecycles, job)
        life.stretch_us = state.clock[0].now_us
        life.why = BY_RESIZE
    let_go(state, job)


@kernel
def _let_set_up(state: EngineState, lifecycles: LifecycleTables, job: int, cost_us: int) -> None:
    """Let a job on its new nodes set up before it works on, or for longer."""
    run, life = state.runs[job], lifecycles.jobs[job]
    units = cost_us * state.rules[0].scale * life.rate
    if life.doing == WORKING:
        halt(state, lifecycles, job)
        pause(state, lifecycles, job, SETTING_UP, units)
    else:
        run.left += units
        run.request_left += units


@kernel
def lay(state: EngineState, lifecycles: LifecycleTables, job: int, nodes: int, cost_us: int) -> None:
    """Lay a lifted job on the first ``nodes`` of its parts; its work stays what it was."""
    run, life = state.runs[job], lifecycles.jobs[job]
    before = life.rate
    set_size(state, lifecycles, job, nodes)
    if life.doing != WORKING:
        run.left = (run.left * life.rate + before - 1) // before
        run.request_left = life.kept_request + run.left
    if cost_us > 0:
        _let_set_up(state, lifecycles, job, cost_us)
    hold(state, job)
    speed = state.rules[0].scale * life.rate
    life.due_us = state.clock[0].now_us + (run.request_left + speed - 1) // speed
    if run.busy:
        run.speed = 0


@kernel
def _bar_held(state: EngineState, job: int) -> None:
    """Let placements keep off the nodes that ``job`` holds and where it fits again, or no longer."""
    asked = state.jobs[job]
    if 2 * asked.cores > state.rules[0].cores * state.rules[0].slots:
        return
    for part in range(asked.part_at, asked.part_end):
        if fits(asked, state.classes[state.class_of[state.parts[part].node]]):
            flip(state.barred, state.parts[part].node)


@kernel
def _place_more(state: EngineState, job: int, more: int) -> bool:
    """Name more nodes for a running job in the spare parts behind those of all jobs, if they fit."""
    asked = state.jobs[job]
    first, last, nodes = asked.part_at, asked.part_end, asked.nodes
    _bar_held(state, job)
    asked.part_at = state.jobs[state.rules[0].jobs].part_at
    asked.part_end = asked.part_at + more
    asked.nodes = more
    placed = place_parts(state, job, False)
    asked.part_at = first
    asked.part_end = last
    asked.nodes = nodes
    _bar_held(state, job)
    return placed


@kernel
def _move_part(state: EngineState, source: int, target: int) -> None:
    state.parts[target].node = state.parts[source].node
    for word in range(state.mask.shape[1]):
        state.mask[target, word] = state.mask[source, word]


@kernel
def _merge_parts(state: EngineState, job: int, more: int) -> None:
    """Put the parts in the spare place among those of a lifted job, in order of node."""
    first = state.jobs[job].part_at
    spare = state.jobs[state.rules[0].jobs].part_at
    held = state.jobs[job].part_end - 1
    new = spare + more - 1
    target = held + more
    while new >= spare:
        if held >= first and state.parts[held].node > state.parts[new].node:
            _move_part(state, held, target)
            held -= 1
        else:
            _move_part(state, new, target)
            new -= 1
        target -= 1


@kernel
def resize(state: EngineState, lifecycles: LifecycleTables, job: int, nodes: int, cost_us: int) -> bool:
    """Give a running malleable job another size under the built-in rules; return False if it does not fit.

    More nodes are chosen by the placement; of fewer the lowest are kept.
    """
    more = nodes - state.jobs[job].nodes
    if more > 0 and not _place_more(state, job, more):
        return False
    lift(state, lifecycles, job)
    set_speeds(state, job)
    if more > 0:
        _merge_parts(state, job, more)
    lay(state, lifecycles, job, nodes, cost_us)
    set_speeds(state, job)
    return True
