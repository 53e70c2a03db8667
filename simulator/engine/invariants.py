"""What must hold after every event, checked from scratch: the debug mode of the engine.

No slot is used twice, memory is never over, the sets that the kernels keep agree with what each job holds,
and work is conserved: what each job did, integrated over its speeds, is what it set out to do, up to the
microsecond that ends each of its phases.
"""

from __future__ import annotations

import numpy as np

from simulator.engine.cluster import members
from simulator.engine.state import (
    ACTIVE,
    BUSY,
    CORES,
    END_US,
    FREE,
    FREE_KIB,
    JOB,
    LISTED,
    MEMORY_KIB,
    NEVER,
    NODE,
    NODES,
    PART_AT,
    PHASE_AT,
    RUNNING,
    SCALE,
    SPEED,
    START_US,
    USED,
    Ints,
    State,
)
from simulator.engine.stepper import Stepper


class InvariantError(AssertionError):
    """The engine contradicts itself: a bug, or a plug-in that changed what it was shown."""


class Invariants:
    """To be called after each event of one run: ``Stepper(..., after_event=Invariants())``."""

    def __init__(self) -> None:
        self.events = 0
        self._total_kib = np.zeros(0, dtype=np.int64)
        self._done = np.zeros(0, dtype=np.int64)
        self._speed = np.zeros(0, dtype=np.int64)
        self._then_us = 0

    def __call__(self, stepper: Stepper) -> None:
        """Check the state.

        Raises
        ------
        InvariantError
            Something does not hold; the message says what, and when.
        """
        state = stepper.state
        if self.events == 0:
            self._done = np.zeros(state.run.shape[1], dtype=np.int64)
            self._speed = np.zeros(state.run.shape[1], dtype=np.int64)
            self._total_kib = state.nodes[FREE_KIB] + _used_kib(state)
        self.events += 1
        self._conserve_work(state, stepper.now_us)
        try:
            _check_slots(state)
            _check_memory(state, self._total_kib)
            _check_busy(state)
        except InvariantError as error:
            raise InvariantError(f"after {self.events} events, at {stepper.now_us} us: {error}") from error

    def _conserve_work(self, state: State, now_us: int) -> None:
        """Credit every job with its speed since the last event, and compare when it has ended."""
        self._done += self._speed * (now_us - self._then_us)
        self._then_us = now_us
        for job in np.flatnonzero((self._speed > 0) & (state.run[END_US] != NEVER)):
            phases = state.phase_us[state.jobs[PHASE_AT, job] : state.jobs[PHASE_AT, job + 1]]
            work = int(phases.sum() * state.rules[SCALE])
            surplus = int(self._done[job]) - work
            if not 0 <= surplus < len(phases) * int(max(self._speed[job], state.rules[SCALE])):
                raise InvariantError(
                    f"job {job} did {self._done[job]} units of work; it set out to do {work}"
                )
        running = state.run[RUNNING, : state.clock[ACTIVE]]
        self._speed[:] = 0
        self._speed[running] = state.run[SPEED, running]


def _holders(state: State) -> list[tuple[int, int, list[int]]]:
    """Return job, node and cores of every part that is held."""
    return [
        (int(job), int(state.parts[NODE, part]), members(state.mask[part]))
        for job in state.run[RUNNING, : state.clock[ACTIVE]]
        for part in range(state.jobs[PART_AT, job], state.jobs[PART_AT, job + 1])
    ]


def _counts(state: State, held: list[tuple[int, int, list[int]]]) -> Ints:
    counts = np.zeros((state.nodes.shape[1], len(state.roomy) - 1), dtype=np.int64)
    for _, node, cores in held:
        counts[node, cores] += 1
    return counts


def _stacked(stack: Ints, shape: tuple[int, ...]) -> Ints:
    counts = np.zeros(shape, dtype=np.int64)
    for node, levels in enumerate(stack):
        for level in levels:
            counts[node, members(level)] += 1
    return counts


def _check_slots(state: State) -> None:
    held = _holders(state)
    counts = _counts(state, held)
    slots = state.occupied.shape[1]
    if (counts > slots).any():
        raise InvariantError(f"a core has {counts.max()} jobs; it has {slots} slots")
    for job, node, cores in held:
        if len(cores) != state.jobs[CORES, job]:
            raise InvariantError(f"job {job} holds {len(cores)} cores of node {node}")
    for job in {job for job, _, _ in held}:
        nodes = [node for holder, node, _ in held if holder == job]
        if nodes != sorted(set(nodes)) or len(nodes) != state.jobs[NODES, job]:
            raise InvariantError(f"job {job} holds the nodes {nodes}")
    agreed = (
        (_stacked(state.occupied, counts.shape) == counts).all()
        and (state.nodes[FREE] == (counts < slots).sum(axis=1)).all()
        and (state.nodes[USED] == counts.sum(axis=1)).all()
        and all(state.roomy[free] == (state.nodes[FREE] >= free).sum() for free in range(len(state.roomy)))
    )
    listed = sorted(
        (int(state.parts[JOB, part]), node)
        for node in range(len(counts))
        for part in state.listed[node, : state.nodes[LISTED, node]]
    )
    if not agreed or listed != sorted((job, node) for job, node, _ in held):
        raise InvariantError("the tables of the nodes differ from what the running jobs hold")


def _used_kib(state: State) -> Ints:
    used = np.zeros(state.nodes.shape[1], dtype=np.int64)
    for job, node, _ in _holders(state):
        used[node] += state.jobs[MEMORY_KIB, job]
    return used


def _check_memory(state: State, total_kib: Ints) -> None:
    used = _used_kib(state)
    if (used > total_kib).any() or (state.nodes[FREE_KIB] != total_kib - used).any():
        raise InvariantError(f"a node has {state.nodes[FREE_KIB].min()} KiB of memory left")


def _check_busy(state: State) -> None:
    """Check that speeds and counts of busy jobs fit: a job that waits or has ended has neither."""
    running = set(state.run[RUNNING, : state.clock[ACTIVE]].tolist())
    for job in range(state.run.shape[1] - 1):
        started, ended = state.run[START_US, job] != NEVER, state.run[END_US, job] != NEVER
        if (started and not ended) != (job in running):
            raise InvariantError(f"job {job} is counted as running wrongly")
        if job not in running and state.run[BUSY, job]:
            raise InvariantError(f"job {job} does not run and is counted as busy")
    if state.occupied.shape[1] == 1:
        return
    busy = [entry for entry in _holders(state) if state.run[BUSY, entry[0]]]
    counts = _counts(state, busy)
    if (_stacked(state.busy, counts.shape) != counts).any():
        raise InvariantError("the busy jobs are counted wrongly")
