"""What a policy sees: the looking half of ``SchedulerContext``."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.lifecycle.job_progress import done_since
from simulator.lifecycle.segments import forget_progress, rate_at
from simulator.model.jobs import SimulatedJob
from simulator.placement import Cores
from simulator.policy_interface import NodeState
from simulator.state.allocations import PoolState, running_jobs
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.lifecycle_state import FUTURE, LEAVING, PARKED, RUNNING, WORKING, Lives


class PoolView:
    """A pool as a policy sees it.

    Parameters
    ----------
    state
        The pool, with lifecycle tables, in plain Python.
    jobs
        Its jobs, by index.
    """

    def __init__(self, state: EngineState, jobs: Sequence[SimulatedJob]) -> None:
        assert state.lives is not None
        self.state = state
        self.lives: Lives = state.lives
        self.jobs = jobs
        self.cluster = PoolState(state)

    @property
    def now_us(self) -> int:
        """See ``SchedulerContext``."""
        return self.state.clock[0].now_us

    @property
    def waiting(self) -> list[SimulatedJob]:
        """See ``SchedulerContext``."""
        runs, end = self.state.runs, self.state.rules[0].jobs
        queue = []
        job = runs[end].queue_next
        while job != end:
            queue.append(self.jobs[job])
            job = runs[job].queue_next
        return queue

    @property
    def running(self) -> list[SimulatedJob]:
        """See ``SchedulerContext``."""
        return [self.jobs[job] for job in running_jobs(self.state)]

    @property
    def suspended(self) -> list[SimulatedJob]:
        """See ``SchedulerContext``."""
        return [self.jobs[job] for job in sorted(self.parked)]

    @property
    def parked(self) -> set[int]:
        """The indices of the suspended jobs."""
        return {job for job in range(len(self.jobs)) if self.lives.jobs[job].status == PARKED}

    @property
    def nodes(self) -> int:
        """See ``SchedulerContext``."""
        return self.state.rules[0].nodes

    @property
    def cores(self) -> int:
        """See ``SchedulerContext``."""
        return self.cluster.cores

    @property
    def multiplicity(self) -> int:
        """See ``SchedulerContext``."""
        return self.cluster.multiplicity

    @property
    def keeps_rows(self) -> bool:
        """See ``SchedulerContext``."""
        return self.state.rows is not None

    def node_state(self, node: int) -> NodeState:
        """See ``SchedulerContext``."""
        life = self.lives.nodes[node]
        if life.down:
            return NodeState.DOWN
        return NodeState.DRAINED if life.drained else NodeState.UP

    def lease_of(self, node: int) -> SimulatedJob | None:
        """See ``SchedulerContext``."""
        job = self.lives.nodes[node].lease
        return None if job == NEVER else self.jobs[job]

    def idle_nodes(self, job: SimulatedJob | None = None) -> list[int]:
        """See ``SchedulerContext``."""
        owners = (NEVER, NEVER if job is None else job.index)
        nodes = self.state.nodes
        return [node for node in range(self.nodes) if nodes[node].used == 0 and nodes[node].owner in owners]

    def free_cores(self, node: int) -> int:
        """See ``SchedulerContext``."""
        here = self.state.nodes[node]
        return here.free if here.owner == NEVER else 0

    def free_memory_kib(self, node: int) -> int:
        """See ``SchedulerContext``."""
        return self.cluster.free_memory_kib(node)

    def held(self, job: SimulatedJob) -> Cores:
        """See ``SchedulerContext``."""
        return self.cluster.cores_of(job.index) if self.lives.jobs[job.index].starts else {}

    def remaining_us(self, job: SimulatedJob, nodes: int | None = None) -> int:
        """See ``SchedulerContext``."""
        life, scale = self.lives.jobs[job.index], self.state.rules[0].scale
        if life.status == FUTURE:
            forget_progress(self.state, self.lives, job.index)
        if life.status in (RUNNING, PARKED):
            size = nodes or self.state.jobs[job.index].nodes
            pause, request = self._left(job.index)
            pause_us = _ceil(pause, scale * life.rate)
        else:
            size, request, pause_us = nodes or job.nodes, life.saved_request, life.setup_us
        return pause_us + _ceil(request, scale * rate_at(self.lives, job.index, size))

    def _left(self, job: int) -> tuple[int, int]:
        """Return the units left of a job's pause and of its request."""
        run, life = self.state.runs[job], self.lives.jobs[job]
        if life.status == PARKED:
            return 0 if life.doing == WORKING else life.pause_left, life.kept_request
        done = done_since(run, self.now_us)
        if life.doing == WORKING:
            return 0, run.request_left - done
        return run.left - done, 0 if life.doing == LEAVING else life.kept_request

    def unsaved_us(self, job: SimulatedJob) -> int:
        """See ``SchedulerContext``."""
        life = self.lives.jobs[job.index]
        works = life.status == RUNNING and life.doing == WORKING
        return life.fresh_us + (self.now_us - life.since_us if works else 0)


def _ceil(units: int, speed: int) -> int:
    return (units + speed - 1) // speed
