"""What must hold after every event, checked from scratch."""

from __future__ import annotations

from collections import Counter

from simulator.engine.desk.life_invariants import InvariantError
from simulator.hybrid.loop.hybrid_state import (
    COMING,
    GATHERING,
    KNOWN,
    LEAVING,
    MALLEABLE,
    NOBODY,
    ON_DEMAND,
    RUNNING,
    WAITING,
    World,
)

_HOLDING = (RUNNING, LEAVING, GATHERING)


def check_world(world: World) -> None:
    """Check a state in plain Python.

    Raises
    ------
    InvariantError
        Something does not hold; the message says what, and when.
    """
    try:
        _check_nodes(world)
        _check_jobs(world)
        _check_books(world)
    except InvariantError as error:
        clock = world.clock[0]
        raise InvariantError(f"after {clock.events} events, at {clock.now_us} us: {error}") from error


def _want(holds: bool, told: str) -> None:
    if not holds:
        raise InvariantError(told)


def _check_nodes(world: World) -> None:
    """Every node has one job, one lease and one guest at most, and all counts are those of the nodes."""
    held: Counter[int] = Counter()
    plain: Counter[int] = Counter()
    leased: Counter[int] = Counter()
    got: Counter[int] = Counter()
    free = 0
    for node in range(world.rules[0].nodes):
        entry = world.nodes[node]
        if entry.guest != NOBODY:
            _want(entry.job != NOBODY, f"node {node} has a guest and no job")
            held[entry.guest] += 1
        if entry.lease != NOBODY:
            leased[entry.lease] += 1
            got[entry.lease] += entry.job == NOBODY
        if entry.job != NOBODY:
            held[entry.job] += 1
            plain[entry.job] += entry.lease == NOBODY
        free += entry.job == NOBODY and entry.lease == NOBODY
    _want(free == world.clock[0].free, f"{free} nodes are free, not {world.clock[0].free}")
    for job in range(world.rules[0].jobs):
        asker = world.jobs[job]
        _want(asker.nodes == held[job], f"job {job} holds {held[job]} nodes, not {asker.nodes}")
        _want(asker.plain == plain[job], f"job {job} holds {plain[job]} nodes for itself, not {asker.plain}")
        _want(asker.got == got[job], f"{got[job]} free nodes are reserved for {job}, not {asker.got}")
        if leased[job]:
            _want(asker.status in (COMING, WAITING, GATHERING), f"job {job} has leases and runs")
        if asker.status == COMING and asker.notice == KNOWN:
            _want(
                asker.missing == asker.asked - leased[job],
                f"job {job} misses {asker.asked - leased[job]}, not {asker.missing}",
            )


def _check_jobs(world: World) -> None:
    active = [world.active[place] for place in range(world.clock[0].active)]
    queue = [world.queue[place] for place in range(world.clock[0].waiting)]
    _want(active == sorted(set(active)), f"the jobs that hold nodes are out of order: {active}")
    _want(len(queue) == len(set(queue)), f"a job waits twice: {queue}")
    for job in range(world.rules[0].jobs):
        entry = world.jobs[job]
        _want((entry.status in _HOLDING) == (job in active), f"job {job} holds nodes, or not, unknown to all")
        _want((entry.status == WAITING) == (job in queue), f"job {job} waits, or not, unknown to all")
        if entry.status == RUNNING:
            low = entry.least if entry.kind == MALLEABLE else entry.asked
            _want(low <= entry.nodes <= entry.asked, f"job {job} runs on {entry.nodes} nodes")
        if entry.kind == ON_DEMAND:
            _want(entry.preemptions == 0, f"job {job} is on demand and was preempted")


def _check_books(world: World) -> None:
    """Check that what was held is useful, lost, set-up, saving, warning, or not decided yet."""
    for job in range(world.rules[0].jobs):
        entry = world.jobs[job]
        spent = entry.useful_node_us + entry.lost_node_us + entry.setup_node_us + entry.save_node_us
        spent += entry.warned_node_us + entry.fresh_node_us
        _want(spent == entry.held_node_us, f"job {job} held {entry.held_node_us} node us and spent {spent}")
