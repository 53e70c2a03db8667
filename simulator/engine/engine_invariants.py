"""What must hold after every event, checked from scratch: the debug mode of the engine.

No slot is used twice, memory is never over, the sets that the kernels keep agree with what each job holds,
and work is conserved: what each job that ran once did, integrated over its speeds, is what it set out to do,
up to the microsecond that ends each of its phases. Node time is conserved for all jobs: what they held is
what their books say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simulator.engine.python_engine import PythonEngine
from simulator.jit.field_records import IntegerGrid, Ints, column
from simulator.state.allocations import class_at, members, parts_of, running_jobs, words_of
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.lifecycle_state import BY_START, NO_JOB, OVER, PARKED, RUNNING, WAITING, LifecycleRecord
from simulator.state.node_sets import WORD_BITS

if TYPE_CHECKING:
    from simulator.engine.python_engine import PythonEngine

__all__ = ["InvariantError", "Invariants"]


class Invariants:
    """To be called after each event of one run: ``Stepper(..., after_event=Invariants())``."""

    def __init__(self) -> None:
        self.events = 0
        self._total_kib = np.zeros(0, dtype=np.int64)
        self._done = np.zeros(0, dtype=np.int64)
        self._speed = np.zeros(0, dtype=np.int64)
        self._then_us = 0
        self._books = LifecycleInvariants()

    def __call__(self, stepper: PythonEngine) -> None:
        """Check the state.

        Raises
        ------
        InvariantError
            Something does not hold; the message says what, and when.
        """
        state = stepper.state
        if self.events == 0:
            self._done = np.zeros(state.rules[0].jobs, dtype=np.int64)
            self._speed = np.zeros(state.rules[0].jobs, dtype=np.int64)
            self._total_kib = _of_nodes(state, "free_kib") + _used_kib(stepper)
        self.events += 1
        self._conserve_work(stepper)
        try:
            _check_classes(state)
            _check_slots(state)
            _check_memory(stepper, self._total_kib)
            _check_busy(stepper)
            self._books.check(stepper)
        except InvariantError as error:
            raise InvariantError(f"after {self.events} events, at {stepper.now_us} us: {error}") from error

    def _conserve_work(self, stepper: PythonEngine) -> None:
        """Credit every job with its speed since the last event, and compare when it has ended."""
        state, now_us = stepper.state, stepper.now_us
        self._done += self._speed * (now_us - self._then_us)
        self._then_us = now_us
        for job in np.flatnonzero(self._speed).tolist():
            was_killed = stepper.killed is not None and job in stepper.killed
            if state.runs[job].end_us == NEVER or was_killed or not _ran_once(stepper, job):
                continue
            phases = [
                state.phase_us[phase]
                for phase in range(state.jobs[job].phase_at, state.jobs[job + 1].phase_at)
            ]
            work = sum(phases) * state.rules[0].scale
            surplus = int(self._done[job]) - work
            if not 0 <= surplus < len(phases) * max(int(self._speed[job]), state.rules[0].scale):
                raise InvariantError(
                    f"job {job} did {self._done[job]} units of work; it set out to do {work}"
                )
        self._speed[:] = 0
        for job in running_jobs(state):
            self._speed[job] = state.runs[job].speed


def _ran_once(stepper: PythonEngine, job: int) -> bool:
    """Return whether a job did nothing but its work, on what it began on."""
    life = stepper.lifecycles.jobs[job]
    paused = life.spent_setup_us + life.save_node_us
    return (
        life.why == BY_START and life.starts == 1 and life.rate_at == NEVER and not (paused or life.given_up)
    )


def _holders(state: EngineState) -> list[tuple[int, int, list[int]]]:
    """Return job, node and cores of every part that is held."""
    return [
        (job, state.parts[part].node, members(words_of(state.mask, part)))
        for job in running_jobs(state)
        for part in parts_of(state, job)
    ]


def _counts(state: EngineState, held: list[tuple[int, int, list[int]]]) -> Ints:
    counts = np.zeros((state.rules[0].nodes, state.rules[0].cores), dtype=np.int64)
    for _, node, cores in held:
        counts[node, cores] += 1
    return counts


def _of_nodes(state: EngineState, name: str) -> Ints:
    """Return a field of the class of each node."""
    return column(state.classes, name)[[state.class_of[node] for node in range(state.rules[0].nodes)]]


def _stacked(state: EngineState, stack: IntegerGrid, shape: tuple[int, ...]) -> Ints:
    counts = np.zeros(shape, dtype=np.int64)
    for node in range(len(counts)):
        for level in range(stack.shape[1]):
            counts[node, members(words_of(stack, state.class_of[node], level))] += 1
    return counts


def _check_classes(state: EngineState) -> None:
    """Check that each node is of the class that has it in its set."""
    for index in range(state.clock[0].classes):
        one = state.classes[index]
        nodes = [node for node in range(state.rules[0].nodes) if state.class_of[node] == index]
        if one.row == NEVER:
            known = [one.first] if one.nodes else []
        else:
            words = [state.sets[one.row, word] for word in range(one.low, one.high + 1)]
            known = [one.low * WORD_BITS + node for node in members(words)]
        if nodes != known or len(nodes) != one.nodes:
            raise InvariantError(f"class {index} has the nodes {known}, {nodes} are of it")


def _check_slots(state: EngineState) -> None:
    held = _holders(state)
    counts = _counts(state, held)
    slots = state.rules[0].slots
    if (counts > slots).any():
        raise InvariantError(f"a core has {counts.max()} jobs; it has {slots} slots")
    for job, node, cores in held:
        if len(cores) != state.jobs[job].cores:
            raise InvariantError(f"job {job} holds {len(cores)} cores of node {node}")
    for job in {job for job, _, _ in held}:
        nodes = [node for holder, node, _ in held if holder == job]
        if nodes != sorted(set(nodes)) or len(nodes) != state.jobs[job].nodes:
            raise InvariantError(f"job {job} holds the nodes {nodes}")
    free_now = _of_nodes(state, "free")
    open_now = _of_nodes(state, "owner") == NEVER
    agreed = (
        (_stacked(state, state.occupied, counts.shape) == counts).all()
        and (free_now == (counts < slots).sum(axis=1)).all()
        and (_of_nodes(state, "used") == counts.sum(axis=1)).all()
        and all(
            state.open_nodes[free] == ((free_now >= free) & open_now).sum()
            for free in range(len(state.open_nodes))
        )
    )
    listed = sorted(
        (state.pieces[state.listed[state.class_of[node], place]].job, node)
        for node in range(len(counts))
        for place in range(class_at(state, node).listed)
    )
    if not agreed or listed != sorted((job, node) for job, node, _ in held):
        raise InvariantError("the tables of the nodes differ from what the running jobs hold")


def _used_kib(stepper: PythonEngine) -> Ints:
    """Return the memory of each node that jobs hold, suspended ones too."""
    state = stepper.state
    used = np.zeros(state.rules[0].nodes, dtype=np.int64)
    for job in (*running_jobs(state), *stepper.parked):
        for part in parts_of(state, job):
            used[state.parts[part].node] += state.jobs[job].memory_kib
    return used


def _check_memory(stepper: PythonEngine, total_kib: Ints) -> None:
    state, used = stepper.state, _used_kib(stepper)
    free_kib = _of_nodes(state, "free_kib")
    if (used > total_kib).any() or (free_kib != total_kib - used).any():
        raise InvariantError(f"a node has {free_kib.min()} KiB of memory left")


def _check_busy(stepper: PythonEngine) -> None:
    """Check that speeds and counts of busy jobs fit: a job that waits or has ended has neither."""
    state = stepper.state
    running = set(running_jobs(state))
    for job in range(state.rules[0].jobs):
        if (stepper.lifecycles.jobs[job].status == RUNNING) != (job in running):
            raise InvariantError(f"job {job} is counted as running wrongly")
        if job not in running and state.runs[job].busy:
            raise InvariantError(f"job {job} does not run and is counted as busy")
    if state.busy is None:
        return
    busy = [entry for entry in _holders(state) if state.runs[entry[0]].busy]
    counts = _counts(state, busy)
    if (_stacked(state, state.busy, counts.shape) != counts).any():
        raise InvariantError("the busy jobs are counted wrongly")


class InvariantError(AssertionError):
    """The engine contradicts itself: a bug, or a plug-in that changed what it was shown."""


class LifecycleInvariants:
    """To be called after each event of one run."""

    def __init__(self) -> None:
        self._allocated: dict[int, int] = {}
        self._holding: dict[int, int] = {}
        self._then_us = 0

    def check(self, stepper: PythonEngine) -> None:
        """Check the books of all jobs and the owners of all nodes.

        Raises
        ------
        InvariantError
            Something does not hold.
        """
        self._check_books(stepper)
        _check_owners(stepper)
        _check_queue(stepper)

    def _check_books(self, stepper: PythonEngine) -> None:
        """Compare the node time that jobs held, as seen from outside, with their books."""
        span_us = stepper.now_us - self._then_us
        self._then_us = stepper.now_us
        for job, nodes in self._holding.items():
            self._allocated[job] = self._allocated.get(job, 0) + nodes * span_us
        for job in self._holding:
            booked = _booked(stepper, job)
            if booked != self._allocated[job]:
                raise InvariantError(
                    f"job {job} held {self._allocated[job]} node microseconds; its books say {booked}"
                )
        self._holding = {
            job: len({stepper.state.parts[part].node for part in parts_of(stepper.state, job)})
            for job in running_jobs(stepper.state)
        }


def _booked(stepper: PythonEngine, job: int) -> int:
    """Return the node time in a job's books, what it does now included."""
    life: LifecycleRecord = stepper.lifecycles.jobs[job]
    if life.status == OVER and life.fresh_us:
        raise InvariantError(
            f"job {job} has ended and {life.fresh_us} us of its work are neither kept nor lost"
        )
    booked = (
        life.fresh_node_us + life.useful_node_us + life.lost_node_us + life.setup_node_us + life.save_node_us
    )
    if life.status == RUNNING:
        booked += (stepper.now_us - life.since_us) * stepper.state.jobs[job].nodes
    return booked


def _check_owners(stepper: PythonEngine) -> None:
    state, lifecycles = stepper.state, stepper.lifecycles
    leased = [0] * len(stepper.jobs)
    for index in range(state.rules[0].nodes):
        life = lifecycles.nodes[index]
        if life.lease != NEVER:
            leased[life.lease] += 1
        if class_at(state, index).owner != (NO_JOB if life.down or life.drained else life.lease):
            raise InvariantError(f"node {index} has the wrong owner")
        if life.down and class_at(state, index).listed:
            raise InvariantError(f"node {index} is down and has jobs")
    for job, count in enumerate(leased):
        if lifecycles.jobs[job].leased != count or (
            count and lifecycles.jobs[job].status in (RUNNING, PARKED, OVER)
        ):
            raise InvariantError(
                f"job {job} has {count} nodes reserved and should not, or counts them wrongly"
            )
    closed = int((_of_nodes(state, "owner") != NEVER).sum())
    if closed != state.clock[0].closed:
        raise InvariantError(f"{closed} nodes are closed, {state.clock[0].closed} are counted")


def _check_queue(stepper: PythonEngine) -> None:
    """Check that those wait who should, each once, in order."""
    waiting = [job.index for job in stepper.waiting]
    lifecycles = stepper.lifecycles
    expected = [job for job in range(len(stepper.jobs)) if lifecycles.jobs[job].status == WAITING]
    expected.sort(key=lambda job: (not lifecycles.jobs[job].in_front, stepper.jobs[job].submit_us, job))
    if waiting != expected:
        raise InvariantError(f"the queue is {waiting}, it should be {expected}")
