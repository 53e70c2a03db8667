"""What must hold of lives: node time is booked once, and nodes have the owners that their states say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.engine.state.cluster_view import parts_of, running_jobs
from simulator.engine.state.engine_state import NEVER
from simulator.engine.state.life_state import NOBODY, OVER, PARKED, RUNNING, WAITING, LifeRecord

if TYPE_CHECKING:
    from simulator.engine.desk.stepper import Stepper


class InvariantError(AssertionError):
    """The engine contradicts itself: a bug, or a plug-in that changed what it was shown."""


class LifeInvariants:
    """To be called after each event of one run."""

    def __init__(self) -> None:
        self._allocated: dict[int, int] = {}
        self._holding: dict[int, int] = {}
        self._then_us = 0

    def check(self, stepper: Stepper) -> None:
        """Check the books of all jobs and the owners of all nodes.

        Raises
        ------
        InvariantError
            Something does not hold.
        """
        self._check_books(stepper)
        _check_owners(stepper)
        _check_queue(stepper)

    def _check_books(self, stepper: Stepper) -> None:
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


def _booked(stepper: Stepper, job: int) -> int:
    """Return the node time in a job's books, what it does now included."""
    life: LifeRecord = stepper.lives.jobs[job]
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


def _check_owners(stepper: Stepper) -> None:
    state, lives = stepper.state, stepper.lives
    leased = [0] * len(stepper.jobs)
    for index in range(state.rules[0].nodes):
        life = lives.nodes[index]
        if life.lease != NEVER:
            leased[life.lease] += 1
        if state.nodes[index].owner != (NOBODY if life.down or life.drained else life.lease):
            raise InvariantError(f"node {index} has the wrong owner")
        if life.down and state.nodes[index].listed:
            raise InvariantError(f"node {index} is down and has jobs")
    for job, count in enumerate(leased):
        if lives.jobs[job].leased != count or (count and lives.jobs[job].status in (RUNNING, PARKED, OVER)):
            raise InvariantError(
                f"job {job} has {count} nodes reserved and should not, or counts them wrongly"
            )
    closed = sum(state.nodes[node].owner != NEVER for node in range(state.rules[0].nodes))
    if closed != state.clock[0].closed:
        raise InvariantError(f"{closed} nodes are closed, {state.clock[0].closed} are counted")


def _check_queue(stepper: Stepper) -> None:
    """Check that those wait who should, each once, in order."""
    waiting = [job.index for job in stepper.waiting]
    lives = stepper.lives
    expected = [job for job in range(len(stepper.jobs)) if lives.jobs[job].status == WAITING]
    expected.sort(key=lambda job: (not lives.jobs[job].in_front, stepper.jobs[job].submit_us, job))
    if waiting != expected:
        raise InvariantError(f"the queue is {waiting}, it should be {expected}")
