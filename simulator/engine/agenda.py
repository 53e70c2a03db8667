"""The agenda (an indexed binary heap of running jobs by what is next for them), the queue, the running set.

Order of the agenda: time, then ends before changes of phase, then job number. The kernels take a ``run``
table and its ``clock``, because a projection of the future has an agenda of its own.
"""

from __future__ import annotations

from simulator.engine.compile import kernel
from simulator.engine.state import (
    ACTIVE,
    AGENDA,
    HEAP,
    HEAP_AT,
    LAST,
    NEVER,
    NEXT_US,
    QUEUE_NEXT,
    QUEUE_PREV,
    RUNNING,
    RUNNING_AT,
    WAITING,
    Ints,
)


@kernel
def _comes_first(run: Ints, a: int, b: int) -> bool:
    """Return whether the next event of job ``a`` precedes that of job ``b``."""
    if run[NEXT_US, a] != run[NEXT_US, b]:
        return bool(run[NEXT_US, a] < run[NEXT_US, b])
    if run[LAST, a] != run[LAST, b]:
        return bool(run[LAST, a] > run[LAST, b])
    return a < b


@kernel
def _rise(run: Ints, place: int) -> None:
    job = run[HEAP, place]
    while place > 0:
        parent = (place - 1) >> 1
        above = run[HEAP, parent]
        if not _comes_first(run, job, above):
            break
        run[HEAP, place] = above
        run[HEAP_AT, above] = place
        place = parent
    run[HEAP, place] = job
    run[HEAP_AT, job] = place


@kernel
def _sink(run: Ints, size: int, place: int) -> None:
    job = run[HEAP, place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _comes_first(run, run[HEAP, child + 1], run[HEAP, child]):
            child += 1
        below = run[HEAP, child]
        if not _comes_first(run, below, job):
            break
        run[HEAP, place] = below
        run[HEAP_AT, below] = place
        place = child
    run[HEAP, place] = job
    run[HEAP_AT, job] = place


@kernel
def enter_agenda(run: Ints, clock: Ints, job: int) -> None:
    """Put ``job`` on the agenda at its ``NEXT_US``."""
    place = clock[AGENDA]
    clock[AGENDA] = place + 1
    run[HEAP, place] = job
    _rise(run, place)


@kernel
def move_in_agenda(run: Ints, clock: Ints, job: int) -> None:
    """Restore the order after the key of ``job`` changed."""
    _rise(run, run[HEAP_AT, job])
    _sink(run, clock[AGENDA], run[HEAP_AT, job])


@kernel
def leave_agenda(run: Ints, clock: Ints, job: int) -> None:
    """Take ``job`` off the agenda."""
    place = run[HEAP_AT, job]
    last = clock[AGENDA] - 1
    clock[AGENDA] = last
    run[HEAP_AT, job] = NEVER
    if place != last:
        moved = run[HEAP, last]
        run[HEAP, place] = moved
        run[HEAP_AT, moved] = place
        move_in_agenda(run, clock, moved)


@kernel
def enter_queue(run: Ints, clock: Ints, job: int) -> None:
    """Append ``job`` to the queue."""
    end = run.shape[1] - 1
    last = run[QUEUE_PREV, end]
    run[QUEUE_NEXT, last] = job
    run[QUEUE_PREV, job] = last
    run[QUEUE_NEXT, job] = end
    run[QUEUE_PREV, end] = job
    clock[WAITING] += 1


@kernel
def leave_queue(run: Ints, clock: Ints, job: int) -> None:
    """Take ``job`` out of the queue."""
    before = run[QUEUE_PREV, job]
    after = run[QUEUE_NEXT, job]
    run[QUEUE_NEXT, before] = after
    run[QUEUE_PREV, after] = before
    clock[WAITING] -= 1


@kernel
def enter_running(run: Ints, clock: Ints, job: int) -> None:
    """Add ``job`` to the set of running jobs."""
    place = clock[ACTIVE]
    run[RUNNING, place] = job
    run[RUNNING_AT, job] = place
    clock[ACTIVE] = place + 1


@kernel
def leave_running(run: Ints, clock: Ints, job: int) -> None:
    """Remove ``job`` from the set of running jobs."""
    place = run[RUNNING_AT, job]
    last = clock[ACTIVE] - 1
    moved = run[RUNNING, last]
    run[RUNNING, place] = moved
    run[RUNNING_AT, moved] = place
    run[RUNNING_AT, job] = NEVER
    clock[ACTIVE] = last
