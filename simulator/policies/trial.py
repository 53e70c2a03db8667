"""Trying a candidate for backfilling on shared cores: the projection of its group, against the base.

See ``ahead`` for the rule and for why the group is enough.
"""

from __future__ import annotations

from simulator.engine.compile import kernel
from simulator.engine.occupancy import is_shared, overlap
from simulator.engine.room import fits
from simulator.engine.state import State
from simulator.policies.ahead import Ahead, copy_node, end_next, free_cores, launch, load, load_waiting


@kernel
def _enter_group(state: State, ahead: Ahead, part: int) -> None:
    """Add the cores of ``part`` to those of the group."""
    node = state.parts[part].node
    fresh = True
    for word in range(state.mask.shape[1]):
        fresh = fresh and ahead.group_cores[node, word] == 0
        ahead.group_cores[node, word] |= state.mask[part, word]
    if fresh:
        ahead.ground[ahead.head[0].nodes].node = node
        ahead.head[0].nodes += 1


@kernel
def _join(ahead: Ahead, job: int) -> None:
    """Make ``job`` a member of the group."""
    ahead.trial.runs[job].busy = 1
    ahead.group[ahead.head[0].members].job = job
    ahead.head[0].members += 1


@kernel
def _gather_group(state: State, ahead: Ahead, job: int) -> None:
    """List ``job`` and the jobs whose presence at the head's start it may change."""
    pairwise = state.excess is not None
    ahead.head[0].members = 0
    ahead.head[0].nodes = 0
    _join(ahead, job)
    reached = 0
    while reached < ahead.head[0].members:
        member = ahead.group[reached].job
        reached += 1
        for part in range(state.jobs[member].part_at, state.jobs[member].part_end):
            _enter_group(state, ahead, part)
            node = state.parts[part].node
            if not is_shared(state.occupied, state.mask, node, part):
                continue
            for place in range(state.nodes[node].listed):
                other = state.listed[node, place]
                guest = state.parts[other].job
                if (
                    ahead.trial.runs[guest].busy == 0
                    and (ahead.base.runs[guest].busy == 0 or pairwise)
                    and overlap(state.mask, part, other)
                ):
                    _join(ahead, guest)


@kernel
def _forget_group(ahead: Ahead) -> None:
    for place in range(ahead.head[0].members):
        ahead.trial.runs[ahead.group[place].job].busy = 0
    for place in range(ahead.head[0].nodes):
        for word in range(ahead.group_cores.shape[1]):
            ahead.group_cores[ahead.ground[place].node, word] = 0


@kernel
def _project_group(state: State, ahead: Ahead, job: int) -> None:
    """Project the group of ``job`` up to the head's start."""
    trial, clock = ahead.trial, ahead.trial.clock[0]
    for place in range(ahead.head[0].nodes):
        copy_node(ahead.trial_stack, state.occupied, ahead.ground[place].node)
    clock.agenda = 0
    clock.now_us = state.clock[0].now_us
    for place in range(1, ahead.head[0].members):
        load(state, trial, ahead.group[place].job)
    load_waiting(state, trial, job)
    for place in range(ahead.head[0].members):
        launch(state, trial, ahead.trial_stack, ahead.group[place].job)
    while clock.agenda > 0 and trial.runs[trial.lists[0].agenda].next_us <= ahead.head[0].start_us:
        end_next(state, trial, ahead.trial_stack)


@kernel
def _merge(state: State, ahead: Ahead, node: int) -> None:
    """Put the group's cores as the trial left them into the base of ``node``, and keep the old base."""
    for level in range(ahead.base_stack.shape[1]):
        for word in range(ahead.base_stack.shape[2]):
            own = ahead.group_cores[node, word]
            old = ahead.base_stack[node, level, word]
            ahead.base_stack[node, level, word] = (old & ~own) | (ahead.trial_stack[node, level, word] & own)
            ahead.trial_stack[node, level, word] = old
    ahead.room[node].free = free_cores(state, ahead.base_stack, node)


@kernel
def _charge_memory(state: State, ahead: Ahead, sign: int) -> None:
    """Take the memory of the jobs that end later than in the base from the nodes at the head's start."""
    for place in range(ahead.head[0].members):
        member = ahead.group[place].job
        if ahead.trial.runs[member].busy and not ahead.base.runs[member].busy:
            for part in range(state.jobs[member].part_at, state.jobs[member].part_end):
                ahead.room[state.parts[part].node].free_kib -= sign * state.jobs[member].memory_kib


@kernel
def _suited_nodes(state: State, ahead: Ahead, head: int) -> int:
    count = 0
    for place in range(ahead.head[0].nodes):
        count += int(fits(state.jobs[head], ahead.room[ahead.ground[place].node]))
    return count


@kernel
def _restore(state: State, ahead: Ahead) -> None:
    """Let the base be as it was before the trial."""
    _charge_memory(state, ahead, -1)
    for place in range(ahead.head[0].nodes):
        node = ahead.ground[place].node
        copy_node(ahead.base_stack, ahead.trial_stack, node)
        ahead.room[node].free = free_cores(state, ahead.base_stack, node)


@kernel
def delays_head(state: State, ahead: Ahead, head: int, job: int) -> bool:
    """Return whether ``head`` would start later because ``job``, which holds its cores already, starts now.

    If not, the base projection is brought up to date with ``job``.
    """
    ahead.base.runs[job].busy = 0
    _gather_group(state, ahead, job)
    _project_group(state, ahead, job)
    before = _suited_nodes(state, ahead, head)
    _charge_memory(state, ahead, 1)
    for place in range(ahead.head[0].nodes):
        _merge(state, ahead, ahead.ground[place].node)
    fitting = ahead.head[0].fitting + _suited_nodes(state, ahead, head) - before
    delayed = fitting < state.jobs[head].nodes
    if delayed:
        _restore(state, ahead)
    else:
        ahead.head[0].fitting = fitting
        for place in range(ahead.head[0].members):
            member = ahead.group[place].job
            ahead.base.runs[member].busy = ahead.trial.runs[member].busy
    _forget_group(ahead)
    return delayed
