"""Running jobs on other nodes, or on more or fewer of them: their work stays what it was.

A resize may cost time, in which the job holds its new nodes and sets up.
"""

from __future__ import annotations

from simulator.engine.cores.job_fitting import fits
from simulator.engine.kernels.compilation import kernel
from simulator.engine.lifecycle.job_progress import hold, let_go, set_speeds, settle
from simulator.engine.lifecycle.lifecycle_accounting import close_stretch, tally
from simulator.engine.lifecycle.lifecycle_actions import set_size
from simulator.engine.lifecycle.lifecycle_segments import halt, pause
from simulator.engine.state.bit_sets import flip
from simulator.engine.state.engine_state import EngineState
from simulator.engine.state.lifecycle_state import BY_RESIZE, SETTING_UP, WORKING, Lives
from simulator.placement import place


@kernel
def lift(state: EngineState, lives: Lives, job: int) -> None:
    """Take a running job off its cores, to be laid on others at the same instant."""
    settle(state.runs[job], state.clock[0].now_us)
    tally(state, lives, job)
    life = lives.jobs[job]
    if state.clock[0].now_us > life.stretch_us:
        close_stretch(state, lives, job)
        life.stretch_us = state.clock[0].now_us
        life.why = BY_RESIZE
    let_go(state, job)


@kernel
def _let_set_up(state: EngineState, lives: Lives, job: int, cost_us: int) -> None:
    """Let a job on its new nodes set up before it works on, or for longer."""
    run, life = state.runs[job], lives.jobs[job]
    units = cost_us * state.rules[0].scale * life.rate
    if life.doing == WORKING:
        halt(state, lives, job)
        pause(state, lives, job, SETTING_UP, units)
    else:
        run.left += units
        run.request_left += units


@kernel
def lay(state: EngineState, lives: Lives, job: int, nodes: int, cost_us: int) -> None:
    """Lay a lifted job on the first ``nodes`` of its parts; its work stays what it was."""
    run, life = state.runs[job], lives.jobs[job]
    before = life.rate
    set_size(state, lives, job, nodes)
    if life.doing != WORKING:
        run.left = (run.left * life.rate + before - 1) // before
        run.request_left = life.kept_request + run.left
    if cost_us > 0:
        _let_set_up(state, lives, job, cost_us)
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
        if fits(asked, state.nodes[state.parts[part].node]):
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
    placed = place(state, job)
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
def resize(state: EngineState, lives: Lives, job: int, nodes: int, cost_us: int) -> bool:
    """Give a running malleable job another size under the built-in rules; return False if it does not fit.

    More nodes are chosen by the placement; of fewer the lowest are kept.
    """
    more = nodes - state.jobs[job].nodes
    if more > 0 and not _place_more(state, job, more):
        return False
    lift(state, lives, job)
    set_speeds(state, job)
    if more > 0:
        _merge_parts(state, job, more)
    lay(state, lives, job, nodes, cost_us)
    set_speeds(state, job)
    return True
