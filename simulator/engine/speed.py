"""How fast a job runs where it is: the kernels of the built-in sharing models.

``run[BUSY]`` flags the jobs that count, ``stack`` has them by core. The same kernels serve the present (jobs
that compute) and the projections of backfilling (jobs that have not ended yet).
"""

from __future__ import annotations

from simulator.engine.compile import kernel
from simulator.engine.occupancy import is_shared, overlap, part_multiplicity
from simulator.engine.state import (
    AFFECTED,
    APP,
    BUSY,
    BY_MULTIPLICITY,
    BY_PAIR,
    FACTOR,
    JOB,
    KIND,
    LISTED,
    MARK,
    NODE,
    NODES_DIFFER,
    ONE,
    PART_AT,
    SCALE,
    STAMP,
    TOUCHED,
    Ints,
    State,
)


@kernel
def _paired_speed(state: State, run: Ints, part: int) -> int:
    """Return the speed on that core of ``part`` where the other applications slow it most."""
    node = state.parts[NODE, part]
    job = state.parts[JOB, part]
    most = 0
    for word in range(state.mask.shape[1]):
        rest = state.mask[part, word]
        while rest:
            core = rest & -rest
            rest ^= core
            excess = 0
            for place in range(state.nodes[LISTED, node]):
                other = state.listed[node, place]
                guest = state.parts[JOB, other]
                if guest != job and run[BUSY, guest] and state.mask[other, word] & core:
                    excess += state.excess[state.jobs[APP, job], state.jobs[APP, guest]]
            most = max(most, excess)
    speed: int = (state.rules[SCALE] * ONE) // (ONE + most)
    return speed


@kernel
def speed_of(state: State, run: Ints, stack: Ints, job: int) -> int:
    """Return the speed of ``job``, in units a microsecond: that of its slowest core, at least 1."""
    first = state.jobs[PART_AT, job]
    last = state.jobs[PART_AT, job + 1]
    if state.rules[KIND] == BY_MULTIPLICITY and state.rules[NODES_DIFFER] == 0:
        multiplicity = 1
        for part in range(first, last):
            multiplicity = part_multiplicity(stack, state.mask, state.parts[NODE, part], part, multiplicity)
        even: int = state.speeds[multiplicity]
        return even
    slowest = -1
    for part in range(first, last):
        node = state.parts[NODE, part]
        if state.rules[KIND] == BY_PAIR:
            speed = _paired_speed(state, run, part)
        else:
            speed = state.speeds[part_multiplicity(stack, state.mask, node, part, 1)]
        speed = (speed * state.nodes[FACTOR, node]) // ONE
        if slowest < 0 or speed < slowest:
            slowest = speed
    return max(slowest, 1)


@kernel
def note_affected(state: State, run: Ints, clock: Ints, stack: Ints, job: int) -> None:
    """List in ``run[AFFECTED]`` the other busy jobs that have a core in common with ``job``.

    To be called while ``job`` is counted in ``stack``.
    """
    mark = clock[MARK] + 1
    clock[MARK] = mark
    run[STAMP, job] = mark
    count = 0
    for part in range(state.jobs[PART_AT, job], state.jobs[PART_AT, job + 1]):
        node = state.parts[NODE, part]
        if not is_shared(stack, state.mask, node, part):
            continue
        for place in range(state.nodes[LISTED, node]):
            other = state.listed[node, place]
            guest = state.parts[JOB, other]
            if run[BUSY, guest] and run[STAMP, guest] != mark and overlap(state.mask, part, other):
                run[STAMP, guest] = mark
                run[AFFECTED, count] = guest
                count += 1
    clock[TOUCHED] = count
