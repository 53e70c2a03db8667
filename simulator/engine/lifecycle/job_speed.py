"""How fast a job runs where it is: the kernels of the built-in sharing models.

``runs[job].busy`` flags the jobs that count, ``stack`` has them by core. The same kernels serve the present
(jobs that compute) and the projections of backfilling (jobs that have not ended yet).
"""

from __future__ import annotations

from simulator.engine.cores.core_slots import part_multiplicity
from simulator.engine.kernels.compilation import kernel
from simulator.engine.kernels.field_records import IntegerGrid, RecordTable
from simulator.engine.lifecycle.lifecycle_segments import rate_of
from simulator.engine.state.engine_state import NEVER, ONE, EngineState, RunRecord, Timeline
from simulator.engine.state.sharing_state import Links


@kernel
def _paired_speed(state: EngineState, runs: RecordTable[RunRecord], excess: IntegerGrid, part: int) -> int:
    """Return the speed on that core of ``part`` where the other applications slow it most."""
    node = state.parts[part].node
    job = state.parts[part].job
    most = 0
    for word in range(state.mask.shape[1]):
        rest = state.mask[part, word]
        while rest:
            core = rest & -rest
            rest ^= core
            slowed = 0
            for place in range(state.nodes[node].listed):
                other = state.listed[node, place]
                guest = state.parts[other].job
                if guest != job and runs[guest].busy and state.mask[other, word] & core:
                    slowed += excess[state.jobs[job].app, state.jobs[guest].app]
            most = max(most, slowed)
    return (state.rules[0].scale * ONE) // (ONE + most)


@kernel
def _part_speed(
    state: EngineState,
    runs: RecordTable[RunRecord],
    stack: IntegerGrid,
    excess: IntegerGrid | None,
    part: int,
) -> int:
    if excess is None:
        return state.speeds[part_multiplicity(stack, state.mask, state.parts[part].node, part, 1)]
    return _paired_speed(state, runs, excess, part)


@kernel
def _slowest_part(state: EngineState, runs: RecordTable[RunRecord], stack: IntegerGrid, job: int) -> int:
    slowest = -1
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        speed = _part_speed(state, runs, stack, state.excess, part)
        if state.rules[0].nodes_differ:
            speed = (speed * state.nodes[state.parts[part].node].factor) // ONE
        if slowest < 0 or speed < slowest:
            slowest = speed
    return slowest


@kernel
def _multiplicity(state: EngineState, stack: IntegerGrid, job: int, co_located: int) -> int:
    """Return the most jobs on a core of ``job``, which shares cores with ``co_located`` other jobs."""
    most = min(co_located + 1, state.rules[0].slots)
    if most <= 2:
        return most
    multiplicity = 2
    part = state.jobs[job].part_at
    while part < state.jobs[job].part_end and multiplicity < most:
        multiplicity = part_multiplicity(stack, state.mask, state.parts[part].node, part, multiplicity)
        part += 1
    return multiplicity


@kernel
def needs_stack(state: EngineState) -> bool:
    """Return whether ``speed_of`` looks at its stack."""
    return not state.rules[0].alike or state.rules[0].slots > 2


@kernel
def speed_of(state: EngineState, runs: RecordTable[RunRecord], stack: IntegerGrid, job: int) -> int:
    """Return the speed of ``job``, in units a microsecond: that of its slowest core, at least 1.

    Where speed hangs on the multiplicity alone ``stack`` is looked at only if that may be more than 2.
    """
    if state.rules[0].alike:
        speed = state.speeds[_multiplicity(state, stack, job, runs[job].co_located)]
    else:
        speed = _slowest_part(state, runs, stack, job)
    return max(speed, 1) * rate_of(state.lives, job)


@kernel
def note_affected(links: Links | None, line: Timeline, job: int, change: int) -> None:
    """List as affected the other busy jobs that have a core in common with ``job``.

    All that have, busy or not, have one more busy job on their cores now (``change`` is 1), or one less (-1).
    """
    if links is None:
        return
    count = 0
    record = links.of[job].first
    while record != NEVER:
        guest = links.records[record].job
        line.runs[guest].co_located += change
        if line.runs[guest].busy:
            line.lists[count].affected = guest
            count += 1
        record = links.records[record].after
    line.clock[0].affected = count
