"""What a policy sees and does (``SchedulerContext``). Each action is checked before it changes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from foundation.errors import InputError
from simulator.cores import node_fitting as owners
from simulator.lifecycle import lifecycle_actions
from simulator.lifecycle.job_progress import begin, done_since
from simulator.lifecycle.segments import forget_progress, rate_at
from simulator.model.jobs import SimulatedJob
from simulator.placement import Cores
from simulator.policy_interface import NodeState, PolicyError, Preemption, Timer
from simulator.state import event_queue as timers
from simulator.state.allocations import PoolState, class_at, members, running_jobs, words_of
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.lifecycle_state import (
    FUTURE,
    LEAVING,
    OVER,
    PARKED,
    RUNNING,
    WAITING,
    WORKING,
    LifecycleRecord,
    LifecycleTables,
)
from simulator.state.node_sets import WORD_BITS


class PoolView:
    """A pool as a policy sees it.

    Parameters
    ----------
    state
        The pool, with lifecycle tables, in plain Python.
    jobs
        Its jobs, by index.
    """

    def __init__(self, state: EngineState, jobs: list[SimulatedJob]) -> None:
        assert state.lifecycles is not None
        self.state = state
        self.lifecycles: LifecycleTables = state.lifecycles
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
        return {job for job in range(len(self.jobs)) if self.lifecycles.jobs[job].status == PARKED}

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
        life = self.lifecycles.nodes[node]
        if life.down:
            return NodeState.DOWN
        return NodeState.DRAINED if life.drained else NodeState.UP

    def lease_of(self, node: int) -> SimulatedJob | None:
        """See ``SchedulerContext``."""
        job = self.lifecycles.nodes[node].lease
        return None if job == NEVER else self.jobs[job]

    def idle_nodes(self, job: SimulatedJob | None = None) -> list[int]:
        """See ``SchedulerContext``."""
        owners = (NEVER, NEVER if job is None else job.index)
        classes = [class_at(self.state, node) for node in range(self.nodes)]
        return [node for node, one in enumerate(classes) if one.used == 0 and one.owner in owners]

    def free_cores(self, node: int) -> int:
        """See ``SchedulerContext``."""
        here = class_at(self.state, node)
        return here.free if here.owner == NEVER else 0

    def free_memory_kib(self, node: int) -> int:
        """See ``SchedulerContext``."""
        return self.cluster.free_memory_kib(node)

    def held(self, job: SimulatedJob) -> Cores:
        """See ``SchedulerContext``."""
        return self.cluster.cores_of(job.index) if self.lifecycles.jobs[job.index].starts else {}

    def remaining_us(self, job: SimulatedJob, nodes: int | None = None) -> int:
        """See ``SchedulerContext``."""
        life, scale = self.lifecycles.jobs[job.index], self.state.rules[0].scale
        if life.status == FUTURE:
            forget_progress(self.state, self.lifecycles, job.index)
        if life.status in (RUNNING, PARKED):
            size = nodes or self.state.jobs[job.index].nodes
            pause, request = self._left(job.index)
            pause_us = _ceil(pause, scale * life.rate)
        else:
            size, request, pause_us = nodes or job.nodes, life.saved_request, life.setup_us
        return pause_us + _ceil(request, scale * rate_at(self.lifecycles, job.index, size))

    def _left(self, job: int) -> tuple[int, int]:
        """Return the units left of a job's pause and of its request."""
        run, life = self.state.runs[job], self.lifecycles.jobs[job]
        if life.status == PARKED:
            return 0 if life.doing == WORKING else life.pause_left, life.kept_request
        done = done_since(run, self.now_us)
        if life.doing == WORKING:
            return 0, run.request_left - done
        return run.left - done, 0 if life.doing == LEAVING else life.kept_request

    def unsaved_us(self, job: SimulatedJob) -> int:
        """See ``SchedulerContext``."""
        life = self.lifecycles.jobs[job.index]
        works = life.status == RUNNING and life.doing == WORKING
        return life.fresh_us + (self.now_us - life.since_us if works else 0)


def _ceil(units: int, speed: int) -> int:
    return (units + speed - 1) // speed


_STATES = {
    FUTURE: "has not arrived",
    WAITING: "waits",
    RUNNING: "runs",
    PARKED: "is suspended",
    OVER: "has ended",
}


class Actions(PoolView):
    """A pool as a policy changes it; ``place_on`` and ``set_speeds`` are the engine's."""

    timer_kinds: list[str]

    def place_on(
        self, job: SimulatedJob, nodes: int, barred: Sequence[int] = (), *, is_running: bool = False
    ) -> Cores | None:
        """Return where the placement puts so many nodes of ``job``, off the barred ones.

        ``is_running``: it runs, and these are more nodes for it.
        """
        raise NotImplementedError

    def place(self, job: SimulatedJob, nodes: int | None = None, off: Sequence[int] = ()) -> Cores | None:
        """See ``SchedulerContext``."""
        raise NotImplementedError

    def fork(self, state: EngineState) -> Actions:
        """Return the same on another state."""
        raise NotImplementedError

    def speed(self, job: int) -> int:
        """Return the speed of a job's slowest core at its size, in units a microsecond."""
        raise NotImplementedError

    def set_speeds(self, job: int) -> None:
        """Give a job and those that feel it the speeds that the sharing model gives."""
        raise NotImplementedError

    def act(self) -> None:
        """Refuse, where a policy may only start jobs; and note that something was done."""
        raise NotImplementedError

    def start(
        self, job: SimulatedJob, nodes: int | None = None, on: Cores | None = None, *, lent: bool = False
    ) -> bool:
        """See ``SchedulerContext``."""
        self._expect(job, WAITING, "start")
        count = self._size(job, nodes, on)
        cores = self.place_on(job, count) if on is None else on
        if cores is None:
            return False
        self._check_cores(job, cores, count, lent=lent, chosen=on is not None)
        lifecycle_actions.set_size(self.state, self.lifecycles, job.index, count)
        self._name(job.index, cores)
        begin(self.state, job.index)
        self.set_speeds(job.index)
        return True

    def resize(
        self, job: SimulatedJob, nodes: int | None = None, on: Cores | None = None, *, cost_us: int = 0
    ) -> bool:
        """See ``SchedulerContext``."""
        self.act()
        self._expect(job, RUNNING, "resize")
        if job.life.sizes is None:
            self._refuse(job, "is rigid and cannot be resized")
        if self.lifecycles.jobs[job.index].doing == LEAVING:
            self._refuse(job, "has been warned and cannot be resized")
        if nodes is None and on is None:
            self._refuse(job, "is resized to no size: give nodes or cores")
        if cost_us < 0:
            self._refuse(job, f"cannot set up for {cost_us} us when it is resized")
        count = self._size(job, nodes, on)
        cores = self._resized(job, count) if on is None else on
        if cores is None:
            return False
        self._check_cores(job, cores, count, lent=False, chosen=on is not None)
        if {node: sorted(ids) for node, ids in cores.items()} == self.held(job):
            return True
        lifecycle_actions.lift(self.state, self.lifecycles, job.index)
        self.set_speeds(job.index)
        self._name(job.index, cores)
        lifecycle_actions.lay(self.state, self.lifecycles, job.index, count, cost_us)
        self.set_speeds(job.index)
        return True

    def _resized(self, job: SimulatedJob, count: int) -> Cores | None:
        """Return the cores of a running job at another size."""
        held = self.held(job)
        if count <= len(held):
            return {node: held[node] for node in sorted(held)[:count]}
        more = self.place_on(job, count - len(held), sorted(held), is_running=True)
        return None if more is None else {**held, **more}

    def preempt(self, job: SimulatedJob, how: Preemption, *, warning_us: int = 0) -> None:
        """See ``SchedulerContext``."""
        self.act()
        self._expect(job, RUNNING, "preempt")
        if self.lifecycles.jobs[job.index].doing == LEAVING:
            self._refuse(job, "has been warned and cannot be preempted again")
        if warning_us < 0 or (warning_us > 0 and how is not Preemption.CHECKPOINT):
            self._refuse(job, f"cannot be warned for {warning_us} us before it is preempted by {how}")
        if warning_us > 0:
            lifecycle_actions.warn(self.state, self.lifecycles, job.index, warning_us)
        elif how is Preemption.KILL:
            lifecycle_actions.kill(self.state, self.lifecycles, job.index)
        elif how is Preemption.CHECKPOINT:
            lifecycle_actions.save_and_go(self.state, self.lifecycles, job.index)
        elif how is Preemption.SUSPEND:
            lifecycle_actions.park(self.state, self.lifecycles, job.index)
        else:
            self._refuse(job, f"cannot be preempted by {how!r}")
        self.set_speeds(job.index)

    def put_first(self, job: SimulatedJob) -> None:
        """See ``SchedulerContext``."""
        self.act()
        self._expect(job, WAITING, "put first")
        lifecycle_actions.put_first(self.state, self.lifecycles, job.index)

    def resume(self, job: SimulatedJob) -> bool:
        """See ``SchedulerContext``."""
        self.act()
        self._expect(job, PARKED, "resume")
        for node, ids in self.held(job).items():
            open_to_it = class_at(self.state, node).owner in (NEVER, job.index)
            if not open_to_it or not set(ids) <= self._free_cores(node):
                return False
        lifecycle_actions.unpark(self.state, self.lifecycles, job.index)
        self.set_speeds(job.index)
        return True

    def reserve(self, nodes: Sequence[int], job: SimulatedJob, until_us: int | None = None) -> None:
        """See ``SchedulerContext``."""
        self.act()
        if self.lifecycles.jobs[job.index].status not in (FUTURE, WAITING):
            self._refuse(job, f"{self._state_of(job)}: nothing can be reserved for it")
        for node in nodes:
            self._check_node(node)
            owner = self.lease_of(node)
            if owner is not None:
                self._refuse(job, f"cannot have node {node}: it is reserved for job {owner.number}")
            if self.node_state(node) is NodeState.DOWN:
                self._refuse(job, f"cannot have node {node}: it is down")
        if len(set(nodes)) != len(nodes):
            self._refuse(job, "is to have the same node twice")
        if until_us is not None:
            self.set_timer(until_us, timers.KINDS[timers.EXPIRY], job)
        for node in nodes:
            owners.lease(self.state, self.lifecycles, node, job.index)

    def release(self, job: SimulatedJob, nodes: Sequence[int] | None = None) -> None:
        """See ``SchedulerContext``."""
        self.act()
        if nodes is None:
            owners.end_leases(self.state, self.lifecycles, job.index)
            return
        for node in nodes:
            self._check_node(node)
            if self.lifecycles.nodes[node].lease != job.index:
                self._refuse(job, f"has no reservation of node {node} to release")
        for node in dict.fromkeys(nodes):
            owners.end_lease(self.state, self.lifecycles, node)

    def set_timer(self, at_us: int, kind: str, about: SimulatedJob | None = None) -> Timer:
        """See ``SchedulerContext``."""
        self.act()
        if at_us < self.now_us:
            raise PolicyError(f"a timer {kind!r} at {at_us} us is in the past: it is {self.now_us} us")
        if kind not in self.timer_kinds:
            self.timer_kinds.append(kind)
        number = self.lifecycles.clock[0].timers_set
        index = NEVER if about is None else about.index
        if timers.set_timer(self.lifecycles, at_us, self.timer_kinds.index(kind), index) == NEVER:
            raise PolicyError(f"more than {len(self.lifecycles.timers)} timers tick at once")
        return Timer(number, kind, about)

    def cancel(self, timer: Timer) -> None:
        """See ``SchedulerContext``."""
        self.act()
        for place in range(self.lifecycles.clock[0].ticking):
            slot = self.lifecycles.timers[place].heap
            if self.lifecycles.timers[slot].number == timer.number:
                timers.cancel_timer(self.lifecycles, slot)
                return

    def drain(self, node: int, *, drained: bool = True) -> None:
        """See ``SchedulerContext``."""
        self.act()
        self._check_node(node)
        owners.set_drained(self.state, self.lifecycles, node, int(drained))

    def _refuse(self, job: SimulatedJob, what: str) -> NoReturn:
        raise PolicyError(f"job {job.number} {what}")

    def _state_of(self, job: SimulatedJob) -> str:
        return _STATES[self.lifecycles.jobs[job.index].status]

    def _expect(self, job: SimulatedJob, status: int, action: str) -> LifecycleRecord:
        known = 0 <= job.index < len(self.jobs) and self.jobs[job.index].number == job.number
        if not known:
            self._refuse(job, "is no job of this pool")
        life = self.lifecycles.jobs[job.index]
        if life.status != status:
            self._refuse(job, f"{self._state_of(job)}: the policy cannot {action} it")
        return life

    def _size(self, job: SimulatedJob, nodes: int | None, on: Mapping[int, Sequence[int]] | None) -> int:
        """Return the size that an action means."""
        count = nodes if nodes is not None else (job.nodes if on is None else len(on))
        if not job.least_nodes <= count <= job.most_nodes:
            sizes = f"{job.least_nodes} to {job.most_nodes}" if job.life.sizes else f"{job.nodes}"
            self._refuse(job, f"runs on {sizes} nodes, not on {count}")
        return count

    def _check_node(self, node: int) -> None:
        if not 0 <= node < self.nodes:
            raise PolicyError(f"there is no node {node}: they are 0 to {self.nodes - 1}")

    def _free_cores(self, node: int) -> set[int]:
        full = members(
            words_of(self.state.occupied, self.state.class_of[node], self.cluster.multiplicity - 1)
        )
        return set(range(self.cluster.cores)) - set(full)

    def _check_cores(self, job: SimulatedJob, cores: Cores, count: int, *, lent: bool, chosen: bool) -> None:
        """Refuse cores that are not what a job may have now, whether a policy chose them or a placement."""
        if len(cores) != count:
            _misplaced(job, f"{len(cores)} nodes; it asks for {count}", chosen=chosen)
        held = self.held(job) if self.lifecycles.jobs[job.index].status == RUNNING else {}
        for node, ids in cores.items():
            self._check_node(node)
            free = self._free_cores(node) | set(held.get(node, ()))
            if len(set(ids)) != job.cores or len(ids) != job.cores or not set(ids) <= free:
                what = f"the cores {sorted(ids)} of node {node}; it asks for {job.cores} with a free slot"
                _misplaced(job, what, chosen=chosen)
            if node not in held:
                self._check_owner(job, node, lent=lent, chosen=chosen)

    def _check_owner(self, job: SimulatedJob, node: int, *, lent: bool, chosen: bool) -> None:
        free_kib = self.free_memory_kib(node)
        owner = self.lease_of(node)
        if free_kib < job.memory_kib:
            what = f"node {node}, which has {free_kib} KiB left; it needs {job.memory_kib}"
            _misplaced(job, what, chosen=chosen)
        if self.node_state(node) is not NodeState.UP:
            _misplaced(job, f"node {node}, which is {self.node_state(node)}", chosen=chosen)
        if owner is not None and owner.index != job.index and not lent:
            what = f"node {node}, which is reserved for job {owner.number}"
            _misplaced(job, what, chosen=chosen)

    def _name(self, job: int, cores: Cores) -> None:
        """Write cores into the parts of a job."""
        state = self.state
        for part, (node, ids) in enumerate(sorted(cores.items()), start=state.jobs[job].part_at):
            state.parts[part].node = node
            for word in range(state.mask.shape[1]):
                state.mask[part, word] = 0
            for core in ids:
                state.mask[part, core // WORD_BITS] |= 1 << core % WORD_BITS


def _misplaced(job: SimulatedJob, what: str, *, chosen: bool) -> NoReturn:
    if chosen:
        raise PolicyError(f"job {job.number} cannot be given {what}")
    raise InputError(f"the placement gave job {job.number} {what}")
