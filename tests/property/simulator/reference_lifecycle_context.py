"""What a policy sees of jobs with general lifecycles, and what it does to them."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from fractions import Fraction

from simulator.model.jobs import SimulatedJob
from simulator.policy_interface import NodeState, PolicyError, Preemption, Timer
from tests.property.simulator.reference_lifecycle_progress import LifecycleProgress
from tests.property.simulator.reference_lifecycle_record import (
    FAR_US,
    Cores,
    Doing,
    LifecycleRecord,
    Progress,
    Status,
)


class LifecycleContext(LifecycleProgress):
    """A ``SchedulerContext``: it takes the same policies as the engine's."""

    # what a policy sees

    @property
    def waiting(self) -> list[SimulatedJob]:
        waiting = [record for record in self.lifecycles if record.status is Status.WAITING]
        waiting.sort(key=lambda record: (not record.in_front, record.job.submit_us, record.job.index))
        return [record.job for record in waiting]

    @property
    def running(self) -> list[SimulatedJob]:
        return [record.job for record in self.lifecycles if record.status is Status.RUNNING]

    @property
    def suspended(self) -> list[SimulatedJob]:
        return [record.job for record in self.lifecycles if record.status is Status.SUSPENDED]

    @property
    def nodes(self) -> int:
        return self.shape[0]

    @property
    def cores(self) -> int:
        return self.shape[1]

    @property
    def multiplicity(self) -> int:
        return self.shape[2]

    def node_state(self, node: int) -> NodeState:
        if self.states[node] is NodeState.UP and node in self.drained:
            return NodeState.DRAINED
        return self.states[node]

    def lease_of(self, node: int) -> SimulatedJob | None:
        return self.leases.get(node)

    def takes(self, node: int, job: SimulatedJob | None) -> bool:
        return self.node_state(node) is NodeState.UP and self.leases.get(node) in (None, job)

    def idle_nodes(self, job: SimulatedJob | None = None) -> list[int]:
        busy = {node for record in self.lifecycles if record.status is Status.RUNNING for node in record.held}
        return [node for node in range(self.nodes) if node not in busy and self.takes(node, job)]

    def held(self, job: SimulatedJob) -> Cores:
        return self.lifecycles[job.index].held

    def remaining_us(self, job: SimulatedJob, nodes: int | None = None) -> int:
        record = self.lifecycles[job.index]
        runs = record.status in (Status.RUNNING, Status.SUSPENDED)
        size = nodes or (record.nodes if runs else job.nodes)
        if runs and record.doing is Doing.LEAVE:
            return math.ceil(record.pause_left)
        pause = Fraction(job.life.setup_us) if not runs else Fraction(0)
        if runs and record.doing is not Doing.WORK:
            pause = record.pause_left
        return math.ceil(pause) + math.ceil(record.now.request / job.rate(size))

    def unsaved_us(self, job: SimulatedJob) -> int:
        return self.lifecycles[job.index].fresh_us

    def load(self, node: int) -> int:
        return sum(
            len(record.held[node])
            for record in self.lifecycles
            if record.status is Status.RUNNING and node in record.held
        )

    def free_memory_kib(self, node: int) -> int:
        if self.memory_kib is None:
            return FAR_US
        held = (Status.RUNNING, Status.SUSPENDED)
        return self.memory_kib - sum(
            record.job.memory_kib
            for record in self.lifecycles
            if record.status in held and node in record.held
        )

    def free_cores(self, node: int) -> list[int]:
        return [core for core in range(self.shape[1]) if len(self.users(node, core)) < self.shape[2]]

    def place(self, job: SimulatedJob, nodes: int | None = None) -> Cores | None:
        return self.choose(job, nodes or job.nodes, set())

    def choose(self, job: SimulatedJob, count: int, barred: set[int]) -> Cores | None:
        suited = [
            node
            for node in range(self.nodes)
            if node not in barred
            and self.takes(node, job)
            and len(self.free_cores(node)) >= job.cores
            and self.free_memory_kib(node) >= job.memory_kib
        ]
        if len(suited) < count:
            return None
        suited.sort(key=lambda node: (self.load(node), node))
        return {
            node: sorted(
                sorted(range(self.shape[1]), key=lambda core: (len(self.users(node, core)), core))[
                    : job.cores
                ]
            )
            for node in sorted(suited[:count])
        }

    # what a policy does

    def refuse(self, job: SimulatedJob, what: str) -> PolicyError:
        return PolicyError(f"job {job.number} {what}")

    def expect(self, job: SimulatedJob, status: Status) -> LifecycleRecord:
        record = self.lifecycles[job.index]
        if record.status is not status:
            raise self.refuse(job, f"is not {status.name}")
        return record

    def check_cores(self, job: SimulatedJob, on: Cores, count: int, *, lent: bool) -> None:
        mine = self.lifecycles[job.index].held if self.lifecycles[job.index].status is Status.RUNNING else {}
        if len(on) != count:
            raise self.refuse(job, "wrong number of nodes")
        for node, cores in on.items():
            if not 0 <= node < self.nodes:
                raise self.refuse(job, "no such node")
            if node not in mine and not (
                self.takes(node, job) or (lent and self.node_state(node) is NodeState.UP)
            ):
                raise self.refuse(job, "reserved or broken node")
            own = set(mine.get(node, []))
            free = set(self.free_cores(node)) | own
            if len(cores) != job.cores or len(set(cores)) != job.cores or not set(cores) <= free:
                raise self.refuse(job, "cores that are not free")
            if node not in mine and self.free_memory_kib(node) < job.memory_kib:
                raise self.refuse(job, "memory")

    def size_of(self, job: SimulatedJob, nodes: int | None, on: Cores | None) -> int:
        count = nodes if nodes is not None else (len(on) if on is not None else job.nodes)
        if not job.least_nodes <= count <= job.most_nodes or (on is not None and len(on) != count):
            raise self.refuse(job, "size")
        return count

    def start(
        self, job: SimulatedJob, nodes: int | None = None, on: Cores | None = None, *, lent: bool = False
    ) -> bool:
        record = self.expect(job, Status.WAITING)
        count = self.size_of(job, nodes, on)
        if on is None:
            cores = self.choose(job, count, set())
            if cores is None:
                return False
        else:
            self.check_cores(job, on, count, lent=lent)
            cores = {node: sorted(on[node]) for node in sorted(on)}
        self.release_leases(job)
        record.held, record.status, record.in_front = cores, Status.RUNNING, False
        record.starts += 1
        record.start_us = record.stretch_us = self.now_us
        self.save(record)
        if job.life.setup_us > 0:
            record.doing, record.pause_left = Doing.SETUP, Fraction(job.life.setup_us)
        else:
            record.doing = Doing.WORK
        return True

    def resize(
        self, job: SimulatedJob, nodes: int | None = None, on: Cores | None = None, *, cost_us: int = 0
    ) -> bool:
        record = self.expect(job, Status.RUNNING)
        if job.life.sizes is None:
            raise self.refuse(job, "rigid")
        if record.doing is Doing.LEAVE:
            raise self.refuse(job, "leaves")
        if nodes is None and on is None:
            raise self.refuse(job, "no size")
        count = self.size_of(job, nodes, on)
        if on is not None:
            self.check_cores(job, on, count, lent=False)
            cores = {node: sorted(on[node]) for node in sorted(on)}
        elif count <= record.nodes:
            cores = {node: record.held[node] for node in sorted(record.held)[:count]}
        else:
            more = self.choose(job, count - record.nodes, set(record.held))
            if more is None:
                return False
            cores = {node: (record.held | more)[node] for node in sorted(record.held | more)}
        if cores == record.held:
            return True
        before = record.rate
        if self.now_us > record.stretch_us:
            self.end_stretch(record)
            record.stretch_us, record.why = self.now_us, "resize"
        record.held = cores
        if record.doing is not Doing.WORK and before != record.rate:
            units = math.ceil(record.pause_left * self.scale * record.rate)
            record.pause_left = Fraction(units, self.scale * record.rate)
        if cost_us and record.doing is Doing.WORK:
            record.doing, record.pause_left = Doing.SETUP, Fraction(0)
        record.pause_left += cost_us
        return True

    def preempt(self, job: SimulatedJob, how: Preemption, *, warning_us: int = 0) -> None:
        record = self.expect(job, Status.RUNNING)
        if record.doing is Doing.LEAVE:
            raise self.refuse(job, "leaves already")
        if warning_us < 0 or (warning_us and how is not Preemption.CHECKPOINT):
            raise self.refuse(job, "warning")
        record.preemptions += 1
        if how is Preemption.SUSPEND:
            self.leave(record, "preemption")
            record.status = Status.SUSPENDED
        elif how is Preemption.KILL:
            self.lose(record)
            self.leave(record, "preemption")
        elif warning_us == 0:
            self.save(record)
            self.leave(record, "checkpoint")
        else:
            record.doing, record.pause_left = Doing.LEAVE, Fraction(warning_us)

    def put_first(self, job: SimulatedJob) -> None:
        self.expect(job, Status.WAITING).in_front = True

    def resume(self, job: SimulatedJob) -> bool:
        record = self.expect(job, Status.SUSPENDED)
        for node, cores in record.held.items():
            if not self.takes(node, job) or not set(cores) <= set(self.free_cores(node)):
                return False
        record.status, record.stretch_us = Status.RUNNING, self.now_us
        return True

    def reserve(self, nodes: Sequence[int], job: SimulatedJob, until_us: int | None = None) -> None:
        if self.lifecycles[job.index].status in (Status.RUNNING, Status.SUSPENDED, Status.ENDED):
            raise self.refuse(job, "runs or has ended")
        for node in nodes:
            if not 0 <= node < self.nodes or node in self.leases or self.states[node] is NodeState.DOWN:
                raise self.refuse(job, "node is reserved, broken or not there")
        if len(set(nodes)) != len(nodes):
            raise self.refuse(job, "node twice")
        if until_us is not None:
            self.set_timer(until_us, "expiry", job)
        self.leases.update(dict.fromkeys(nodes, job))

    def release_leases(self, job: SimulatedJob) -> None:
        self.leases = {node: owner for node, owner in self.leases.items() if owner is not job}

    def release(self, job: SimulatedJob, nodes: Sequence[int] | None = None) -> None:
        if nodes is None:
            self.release_leases(job)
            return
        for node in nodes:
            if self.leases.get(node) is not job:
                raise self.refuse(job, "node is not reserved for it")
        for node in nodes:
            del self.leases[node]

    def set_timer(self, at_us: int, kind: str, about: SimulatedJob | None = None) -> Timer:
        if at_us < self.now_us:
            raise PolicyError("a timer in the past")
        timer = Timer(self.set_timers, kind, about)
        self.set_timers += 1
        self.timers.append((at_us, timer))
        return timer

    def cancel(self, timer: Timer) -> None:
        self.timers = [entry for entry in self.timers if entry[1].number != timer.number]

    def drain(self, node: int, *, drained: bool = True) -> None:
        (self.drained.add if drained else self.drained.discard)(node)

    def earliest_start_us(
        self,
        job: SimulatedJob,
        started: SimulatedJob | None = None,
        on: None = None,
        nodes: int | None = None,
    ) -> int:
        assert on is None
        world = copy.copy(self)
        world.lifecycles = [copy.copy(record) for record in self.lifecycles]
        world.rows, world.leases = [], dict(self.leases)
        for record in world.lifecycles:
            record.node_us = dict(record.node_us)
        return world.project(job, started, nodes or job.nodes)

    def project(self, job: SimulatedJob, started: SimulatedJob | None, nodes: int) -> int:
        """Let every job that runs compute until its request is done, and find when ``job`` fits."""
        if started is not None and not self.start(started):
            raise PolicyError(f"job {started.number} does not fit now")
        for record in self.lifecycles:
            if record.status is Status.RUNNING:
                pause = Fraction(0) if record.doing is Doing.WORK else record.pause_left * record.rate
                work = Fraction(0) if record.doing is Doing.LEAVE else record.now.request
                record.now = Progress(len(record.job.phases_us) - 1 | 1, work + pause, Fraction(0))
                record.doing, record.until_save = Doing.WORK, None
        while True:
            running = [
                (self.segment_end(record), record.job.index)
                for record in self.lifecycles
                if record.status is Status.RUNNING
            ]
            fitting = sum(
                self.takes(node, job)
                and len(self.free_cores(node)) >= job.cores
                and self.free_memory_kib(node) >= job.memory_kib
                for node in range(self.nodes)
            )
            if fitting >= nodes and (not running or min(running)[0] > self.now_us):
                return self.now_us
            if not running:
                return FAR_US
            at, which = min(running)
            self.advance(at)
            self.lifecycles[which].status = Status.ENDED
