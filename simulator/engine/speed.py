"""How fast a job runs where it is: the kernels of the built-in sharing models.

``runs[job].busy`` flags the jobs that count, ``stack`` has them by core. The same kernels serve the present
(jobs that compute) and the projections of backfilling (jobs that have not ended yet).
"""

from __future__ import annotations

from simulator.engine.compile import kernel
from simulator.engine.occupancy import part_multiplicity
from simulator.engine.records import Grid, Table
from simulator.engine.segments import rate_of
from simulator.engine.sharing_state import Links
from simulator.engine.state import NEVER, ONE, RunRecord, State, Timeline


@kernel
def _paired_speed(state: State, runs: Table[RunRecord], excess: Grid, part: int) -> int:
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
def _part_speed(state: State, runs: Table[RunRecord], stack: Grid, excess: Grid | None, part: int) -> int:
    if excess is None:
        return state.speeds[part_multiplicity(stack, state.mask, state.parts[part].node, part, 1)]
    return _paired_speed(state, runs, excess, part)


@kernel
def speed_of(state: State, runs: Table[RunRecord], stack: Grid, job: int) -> int:
    """Return the speed of ``job``, in units a microsecond: that of its slowest core, at least 1."""
    slowest = -1
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        speed = _part_speed(state, runs, stack, state.excess, part)
        if state.rules[0].nodes_differ:
            speed = (speed * state.nodes[state.parts[part].node].factor) // ONE
        if slowest < 0 or speed < slowest:
            slowest = speed
    return max(slowest, 1) * rate_of(state.lives, job)


@kernel
def note_affected(links: Links | None, line: Timeline, job: int) -> None:
    """List as affected the other busy jobs that have a core in common with ``job``."""
    if links is None:
        return
    count = 0
    record = links.of[job].first
    while record != NEVER:
        guest = links.records[record].job
        if line.runs[guest].busy:
            line.lists[count].affected = guest
            count += 1
        record = links.records[record].after
    line.clock[0].affected = count
