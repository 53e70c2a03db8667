"""What a policy sees of general lives, and what it does to them."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from fractions import Fraction

from simulator.model.jobs import SimulatedJob
from simulator.policy_interface import NodeState, PolicyError, Preemption, Timer
from tests.property.simulator.reference_life import FAR_US, Cores, Doing, LifecycleRecord, Progress, Status
from tests.property.simulator.reference_lives_at_work import LivesAtWork


class LivesDesk(LivesAtWork):
    """A ``SchedulerContext``: it takes the same policies as the engine's."""

    # what a policy sees

    @property
    def waiting(self) -> list[SimulatedJob]:
        waiting = [life for life in self.lifecycles if life.status is Status.WAITING]
        waiting.sort(key=lambda life: (not life.in_front, life.job.submit_us, life.job.index))
        return [life.job for life in waiting]

    @property
    def running(self) -> list[SimulatedJob]:
        return [life.job for life in self.lifecycles if life.status is Status.RUNNING]

    @property
    def suspended(self) -> list[SimulatedJob]:
        return [life.job for life in self.lifecycles if life.status is Status.SUSPENDED]

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
        busy = {node for life in self.lifecycles if life.status is Status.RUNNING for node in life.held}
        return [node for node in range(self.nodes) if node not in busy and self.takes(node, job)]

    def held(self, job: SimulatedJob) -> Cores:
        return self.lifecycles[job.index].held

    def remaining_us(self, job: SimulatedJob, nodes: int | None = None) -> int:
        life = self.lifecycles[job.index]
        runs = life.status in (Status.RUNNING, Status.SUSPENDED)
        size = nodes or (life.nodes if runs else job.nodes)
        if runs and life.doing is Doing.LEAVE:
            return math.ceil(life.pause_left)
        pause = Fraction(job.life.setup_us) if not runs else Fraction(0)
        if runs and life.doing is not Doing.WORK:
            pause = life.pause_left
        return math.ceil(pause) + math.ceil(life.now.request / job.rate(size))

    def unsaved_us(self, job: SimulatedJob) -> int:
        return self.lifecycles[job.index].fresh_us

    def load(self, node: int) -> int:
        return sum(
            len(life.held[node])
            for life in self.lifecycles
            if life.status is Status.RUNNING and node in life.held
        )

    def free_memory_kib(self, node: int) -> int:
        if self.memory_kib is None:
            return FAR_US
        held = (Status.RUNNING, Status.SUSPENDED)
        return self.memory_kib - sum(
            life.job.memory_kib for life in self.lifecycles if life.status in held and node in life.held
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
        life = self.lifecycles[job.index]
        if life.status is not status:
            raise self.refuse(job, f"is not {status.name}")
        return life

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
        life = self.expect(job, Status.WAITING)
        count = self.size_of(job, nodes, on)
        if on is None:
            cores = self.choose(job, count, set())
            if cores is None:
                return False
        else:
            self.check_cores(job, on, count, lent=lent)
            cores = {node: sorted(on[node]) for node in sorted(on)}
        self.release_leases(job)
        life.held, life.status, life.in_front = cores, Status.RUNNING, False
        life.starts += 1
        life.start_us = life.stretch_us = self.now_us
        self.save(life)
        if job.life.setup_us > 0:
            life.doing, life.pause_left = Doing.SETUP, Fraction(job.life.setup_us)
        else:
            life.doing = Doing.WORK
        return True

    def resize(
        self, job: SimulatedJob, nodes: int | None = None, on: Cores | None = None, *, cost_us: int = 0
    ) -> bool:
        life = self.expect(job, Status.RUNNING)
        if job.life.sizes is None:
            raise self.refuse(job, "rigid")
        if life.doing is Doing.LEAVE:
            raise self.refuse(job, "leaves")
        if nodes is None and on is None:
            raise self.refuse(job, "no size")
        count = self.size_of(job, nodes, on)
        if on is not None:
            self.check_cores(job, on, count, lent=False)
            cores = {node: sorted(on[node]) for node in sorted(on)}
        elif count <= life.nodes:
            cores = {node: life.held[node] for node in sorted(life.held)[:count]}
        else:
            more = self.choose(job, count - life.nodes, set(life.held))
            if more is None:
                return False
            cores = {node: (life.held | more)[node] for node in sorted(life.held | more)}
        if cores == life.held:
            return True
        before = life.rate
        if self.now_us > life.stretch_us:
            self.end_stretch(life)
            life.stretch_us, life.why = self.now_us, "resize"
        life.held = cores
        if life.doing is not Doing.WORK and before != life.rate:
            units = math.ceil(life.pause_left * self.scale * life.rate)
            life.pause_left = Fraction(units, self.scale * life.rate)
        if cost_us and life.doing is Doing.WORK:
            life.doing, life.pause_left = Doing.SETUP, Fraction(0)
        life.pause_left += cost_us
        return True

    def preempt(self, job: SimulatedJob, how: Preemption, *, warning_us: int = 0) -> None:
        life = self.expect(job, Status.RUNNING)
        if life.doing is Doing.LEAVE:
            raise self.refuse(job, "leaves already")
        if warning_us < 0 or (warning_us and how is not Preemption.CHECKPOINT):
            raise self.refuse(job, "warning")
        life.preemptions += 1
        if how is Preemption.SUSPEND:
            self.leave(life, "preemption")
            life.status = Status.SUSPENDED
        elif how is Preemption.KILL:
            self.lose(life)
            self.leave(life, "preemption")
        elif warning_us == 0:
            self.save(life)
            self.leave(life, "checkpoint")
        else:
            life.doing, life.pause_left = Doing.LEAVE, Fraction(warning_us)

    def put_first(self, job: SimulatedJob) -> None:
        self.expect(job, Status.WAITING).in_front = True

    def resume(self, job: SimulatedJob) -> bool:
        life = self.expect(job, Status.SUSPENDED)
        for node, cores in life.held.items():
            if not self.takes(node, job) or not set(cores) <= set(self.free_cores(node)):
                return False
        life.status, life.stretch_us = Status.RUNNING, self.now_us
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
        self, job: SimulatedJob, beside: SimulatedJob | None = None, *, nodes: int | None = None
    ) -> int:
        world = copy.copy(self)
        world.lifecycles = [copy.copy(life) for life in self.lifecycles]
        world.rows, world.leases = [], dict(self.leases)
        for life in world.lifecycles:
            life.node_us = dict(life.node_us)
        return world.project(job, beside, nodes or job.nodes)

    def project(self, job: SimulatedJob, beside: SimulatedJob | None, nodes: int) -> int:
        """Let every job that runs compute until its request is done, and find when ``job`` has room."""
        if beside is not None and not self.start(beside):
            raise PolicyError(f"job {beside.number} does not fit now")
        for life in self.lifecycles:
            if life.status is Status.RUNNING:
                pause = Fraction(0) if life.doing is Doing.WORK else life.pause_left * life.rate
                work = Fraction(0) if life.doing is Doing.LEAVE else life.now.request
                life.now = Progress(len(life.job.phases_us) - 1 | 1, work + pause, Fraction(0))
                life.doing, life.until_save = Doing.WORK, None
        while True:
            running = [
                (self.segment_end(life), life.job.index)
                for life in self.lifecycles
                if life.status is Status.RUNNING
            ]
            room = sum(
                self.takes(node, job)
                and len(self.free_cores(node)) >= job.cores
                and self.free_memory_kib(node) >= job.memory_kib
                for node in range(self.nodes)
            )
            if room >= nodes and (not running or min(running)[0] > self.now_us):
                return self.now_us
            if not running:
                return FAR_US
            at, which = min(running)
            self.advance(at)
            self.lifecycles[which].status = Status.ENDED
