"""General lives in the plainest Python: jobs that are resized, preempted, suspended, lost, started again.

The oracle for the engine's actions. Written from ``docs/mechanisms.md``, not from the engine: work is counted
in exact fractions, everything is recomputed at every event, and looking ahead copies the whole world. It
takes the same policies as the engine, for it is a ``Desk``; it shares only the words of that protocol.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction

from simulator.policies.interface.policy_events import (
    Arrived,
    Begun,
    Ended,
    Event,
    Left,
    NodeDown,
    NodeState,
    NodeUp,
    Timer,
)
from simulator.policies.interface.policy_rule import PolicyError, Preemption
from simulator.world.simulated_job import Job

FAR_US = 1 << 62
Cores = dict[int, list[int]]


class Status(Enum):
    FUTURE = auto()
    WAITING = auto()
    RUNNING = auto()
    SUSPENDED = auto()
    ENDED = auto()


class Doing(Enum):
    SETUP = auto()
    WORK = auto()
    SAVE = auto()
    LEAVE = auto()


@dataclass(frozen=True)
class Progress:
    """Where a job is: its phase, work left of it, and work left of its request, both at rate 1."""

    phase: int
    left: Fraction
    request: Fraction


@dataclass
class LifeRecord:
    """What became of a job; node time in node microseconds by what it was spent on."""

    job: Job
    status: Status = Status.FUTURE
    doing: Doing = Doing.WORK
    held: Cores = field(default_factory=dict)
    now: Progress = Progress(0, Fraction(0), Fraction(0))
    saved: Progress = Progress(0, Fraction(0), Fraction(0))
    pause_left: Fraction = Fraction(0)
    until_save: Fraction | None = None
    in_front: bool = False
    why: str = "start"
    starts: int = 0
    preemptions: int = 0
    given_up: bool = False
    start_us: int | None = None
    end_us: int | None = None
    stretch_us: int = 0
    fresh_us: int = 0
    useful_us: int = 0
    setup_us: int = 0
    wasted_us: int = 0
    node_us: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("fresh", "useful", "lost", "setup", "save"), 0)
    )

    @property
    def nodes(self) -> int:
        return len(self.held)

    @property
    def rate(self) -> int:
        return self.job.rate(self.nodes)

    @property
    def is_idle(self) -> bool:
        """Whether it computes nothing: an idle phase, or a job that has been warned."""
        return self.doing is Doing.LEAVE or (self.doing is Doing.WORK and self.now.phase % 2 == 0)

    @property
    def is_last(self) -> bool:
        return self.now.phase == len(self.job.phases_us) - 1


Row = tuple[int, int, int, Cores, str]
"""Job number, from, to, cores, why."""


@dataclass(frozen=True)
class Outage:
    node: int
    down_us: int
    up_us: int


class ReferenceLives:
    """Runs jobs to their end on construction; ``lives`` and ``rows`` then tell what became of them."""

    def __init__(
        self,
        jobs: Sequence[Job],
        policy: object,
        *,
        nodes: int,
        cores: int,
        multiplicity: int = 1,
        memory_kib: int | None = None,
        overhead: Fraction = Fraction(1),
        scale: int = 840,
        outages: Sequence[Outage] = (),
        after_failure: str = "checkpoint",
    ) -> None:
        self.jobs = jobs
        self.lives = [LifeRecord(job) for job in jobs]
        self.shape = (nodes, cores, multiplicity)
        self.memory_kib = memory_kib
        self.overhead = overhead
        self.scale = scale
        self.outages = outages
        self.after_failure = after_failure
        self.policy = policy
        self.now_us = 0
        self.rows: list[Row] = []
        self.leases: dict[int, Job] = {}
        self.states = [NodeState.UP] * nodes
        self.drained: set[int] = set()
        self.timers: list[tuple[int, Timer]] = []
        self.set_timers = 0
        self.tell(Begun())
        self.run()

    # the loop

    def run(self) -> None:
        arrivals = sorted(self.jobs, key=lambda job: (job.submit_us, job.index))
        ups = sorted((outage.up_us, outage.node) for outage in self.outages)
        downs = sorted((outage.down_us, outage.node) for outage in self.outages)
        while True:
            unfinished = arrivals or any(
                life.status in (Status.WAITING, Status.RUNNING, Status.SUSPENDED) for life in self.lives
            )
            if not unfinished:
                return
            candidates: list[tuple[int, int, int]] = [
                (self.segment_end(life), 0 if self.frees(life) else 1, life.job.index)
                for life in self.lives
                if life.status is Status.RUNNING
            ]
            candidates += [(at, 2, node) for at, node in ups[:1]]
            candidates += [(at, 3, node) for at, node in downs[:1]]
            candidates += [(at, 4, timer.number) for at, timer in self.timers]
            if arrivals:
                candidates.append((arrivals[0].submit_us, 5, arrivals[0].index))
            if not candidates:
                return
            at, kind, which = min(candidates)
            self.advance(at)
            if kind == 1:
                self.change(self.lives[which])
                continue
            if kind == 0:
                event = self.stop(self.lives[which])
            elif kind == 2:
                ups.pop(0)
                event = self.repair(which)
            elif kind == 3:
                downs.pop(0)
                event = self.fail(which)
            elif kind == 4:
                event = self.ring(which)
            else:
                event = Arrived(arrivals.pop(0))
                life = self.lives[which]
                life.status = Status.WAITING
                life.now = life.saved = self.beginning(event.job)
            self.tell(event)
            self.policy.schedule(self)  # type: ignore[attr-defined]

    def tell(self, event: Event) -> None:
        hear = getattr(self.policy, "hear", None)
        if hear is not None:
            hear(self, event)

    # time and work

    def beginning(self, job: Job) -> Progress:
        first = 1 if job.phases_us[0] == 0 and len(job.phases_us) > 1 else 0
        asked = job.rate(job.nodes)
        return Progress(first, Fraction(job.phases_us[first] * asked), Fraction(job.requested_us * asked))

    def share(self, life: LifeRecord) -> Fraction:
        """Return the speed of its slowest core."""
        busy = [o.held for o in self.lives if o.status is Status.RUNNING and not o.is_idle]
        users = (
            sum(core in held.get(node, ()) for held in busy)
            for node, cores in life.held.items()
            for core in cores
        )
        worst = max(1, max(users, default=1))
        return Fraction(1) if worst == 1 else 1 / (worst * self.overhead)

    def users(self, node: int, core: int) -> list[LifeRecord]:
        return [o for o in self.lives if o.status is Status.RUNNING and core in o.held.get(node, [])]

    def segment(self, life: LifeRecord) -> tuple[Fraction, Fraction]:
        """Return what is left of what it does, and how much of that it does in a microsecond."""
        if life.doing is Doing.LEAVE:
            return life.pause_left, Fraction(1)
        if life.doing is not Doing.WORK:
            return life.pause_left, self.share(life)
        if life.is_idle:
            return life.now.left, Fraction(1)
        left = life.now.left if life.until_save is None else min(life.now.left, life.until_save)
        return left, self.share(life) * life.rate

    def segment_end(self, life: LifeRecord) -> int:
        left, speed = self.segment(life)
        return self.now_us + math.ceil(left / speed)

    def frees(self, life: LifeRecord) -> bool:
        """Whether its nodes become free when it has done what it does now."""
        if life.doing is Doing.LEAVE:
            return True
        saves = life.until_save is not None and not life.is_idle and life.until_save < life.now.left
        return life.doing is Doing.WORK and life.is_last and not saves

    def advance(self, at: int) -> None:
        span = at - self.now_us
        moved = [(life, *self.segment(life)) for life in self.lives if life.status is Status.RUNNING]
        for life, left, speed in moved:
            done = min(left, span * speed)
            if life.doing is Doing.WORK:
                life.now = Progress(life.now.phase, life.now.left - done, life.now.request - done)
                if life.until_save is not None and not life.is_idle:
                    life.until_save -= done
                life.fresh_us += span
            else:
                life.pause_left -= done
                life.setup_us += span if life.doing is Doing.SETUP else 0
            spent = {Doing.SETUP: "setup", Doing.WORK: "fresh"}.get(life.doing, "save")
            life.node_us[spent] += span * life.nodes
        self.now_us = at

    def change(self, life: LifeRecord) -> None:
        """Go from what it did to what follows, on the same nodes."""
        if life.doing is Doing.SETUP:
            life.doing = Doing.WORK
        elif life.doing is Doing.SAVE:
            self.save(life)
            life.doing = Doing.WORK
        elif life.until_save is not None and not life.is_idle and life.until_save < life.now.left:
            life.doing, life.pause_left = Doing.SAVE, Fraction(life.job.life.checkpoint_us)
        else:
            phase = life.now.phase + 1
            life.now = Progress(phase, Fraction(life.job.phases_us[phase]), life.now.request)

    def save(self, life: LifeRecord) -> None:
        life.saved = life.now
        life.node_us["useful"] += life.node_us["fresh"]
        life.useful_us += life.fresh_us
        life.node_us["fresh"] = life.fresh_us = 0
        every = life.job.life.checkpoint_every_us
        life.until_save = None if every is None else Fraction(every * life.job.rate(life.job.nodes))

    def lose(self, life: LifeRecord) -> None:
        life.now = life.saved
        life.wasted_us += life.fresh_us
        life.node_us["lost"] += life.node_us["fresh"]
        life.node_us["fresh"] = life.fresh_us = 0

    def stop(self, life: LifeRecord) -> Event:
        if life.doing is Doing.LEAVE:
            self.save(life)
            self.leave(life, "checkpoint")
            return Left(life.job)
        self.save(life)
        self.end_stretch(life)
        life.status, life.end_us = Status.ENDED, self.now_us
        return Ended(life.job)

    def leave(self, life: LifeRecord, why: str) -> None:
        self.end_stretch(life)
        life.status, life.why = Status.WAITING, why

    def end_stretch(self, life: LifeRecord) -> None:
        """Note what it held since when."""
        self.rows.append((life.job.number, life.stretch_us, self.now_us, dict(life.held), life.why))

    # nodes

    def fail(self, node: int) -> Event:
        self.states[node] = NodeState.DOWN
        lost = []
        for life in self.lives:
            if life.status in (Status.RUNNING, Status.SUSPENDED) and node in life.held:
                lost.append(life.job)
                self.lose(life)
                if life.status is Status.RUNNING:
                    self.leave(life, "requeue")
                if self.after_failure == "scratch":
                    life.now = life.saved = self.beginning(life.job)
                    life.node_us["lost"] += life.node_us["useful"]
                    life.wasted_us += life.useful_us
                    life.node_us["useful"] = life.useful_us = 0
                life.status, life.why = Status.WAITING, "checkpoint" if life.useful_us else "requeue"
                if self.after_failure == "fail":
                    life.status, life.end_us, life.given_up = Status.ENDED, self.now_us, True
        return NodeDown(node, tuple(lost))

    def repair(self, node: int) -> Event:
        self.states[node] = NodeState.UP
        return NodeUp(node)

    def ring(self, number: int) -> Event:
        timer = next(timer for _, timer in self.timers if timer.number == number)
        self.cancel(timer)
        if timer.kind == "expiry" and timer.about is not None:
            self.release(timer.about)
        return timer

    # what a policy sees

    @property
    def waiting(self) -> list[Job]:
        waiting = [life for life in self.lives if life.status is Status.WAITING]
        waiting.sort(key=lambda life: (not life.in_front, life.job.submit_us, life.job.index))
        return [life.job for life in waiting]

    @property
    def running(self) -> list[Job]:
        return [life.job for life in self.lives if life.status is Status.RUNNING]

    @property
    def suspended(self) -> list[Job]:
        return [life.job for life in self.lives if life.status is Status.SUSPENDED]

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

    def lease_of(self, node: int) -> Job | None:
        return self.leases.get(node)

    def takes(self, node: int, job: Job | None) -> bool:
        return self.node_state(node) is NodeState.UP and self.leases.get(node) in (None, job)

    def idle_nodes(self, job: Job | None = None) -> list[int]:
        busy = {node for life in self.lives if life.status is Status.RUNNING for node in life.held}
        return [node for node in range(self.nodes) if node not in busy and self.takes(node, job)]

    def held(self, job: Job) -> Cores:
        return self.lives[job.index].held

    def remaining_us(self, job: Job, nodes: int | None = None) -> int:
        life = self.lives[job.index]
        runs = life.status in (Status.RUNNING, Status.SUSPENDED)
        size = nodes or (life.nodes if runs else job.nodes)
        if runs and life.doing is Doing.LEAVE:
            return math.ceil(life.pause_left)
        pause = Fraction(job.life.setup_us) if not runs else Fraction(0)
        if runs and life.doing is not Doing.WORK:
            pause = life.pause_left
        return math.ceil(pause) + math.ceil(life.now.request / job.rate(size))

    def unsaved_us(self, job: Job) -> int:
        return self.lives[job.index].fresh_us

    def load(self, node: int) -> int:
        return sum(
            len(life.held[node]) for life in self.lives if life.status is Status.RUNNING and node in life.held
        )

    def free_memory_kib(self, node: int) -> int:
        if self.memory_kib is None:
            return FAR_US
        held = (Status.RUNNING, Status.SUSPENDED)
        return self.memory_kib - sum(
            life.job.memory_kib for life in self.lives if life.status in held and node in life.held
        )

    def free_cores(self, node: int) -> list[int]:
        return [core for core in range(self.shape[1]) if len(self.users(node, core)) < self.shape[2]]

    def place(self, job: Job, nodes: int | None = None) -> Cores | None:
        return self.choose(job, nodes or job.nodes, set())

    def choose(self, job: Job, count: int, barred: set[int]) -> Cores | None:
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

    def refuse(self, job: Job, what: str) -> PolicyError:
        return PolicyError(f"job {job.number} {what}")

    def expect(self, job: Job, status: Status) -> LifeRecord:
        life = self.lives[job.index]
        if life.status is not status:
            raise self.refuse(job, f"is not {status.name}")
        return life

    def check_cores(self, job: Job, on: Cores, count: int, *, lent: bool) -> None:
        mine = self.lives[job.index].held if self.lives[job.index].status is Status.RUNNING else {}
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

    def size_of(self, job: Job, nodes: int | None, on: Cores | None) -> int:
        count = nodes if nodes is not None else (len(on) if on is not None else job.nodes)
        if not job.least_nodes <= count <= job.most_nodes or (on is not None and len(on) != count):
            raise self.refuse(job, "size")
        return count

    def start(
        self, job: Job, nodes: int | None = None, on: Cores | None = None, *, lent: bool = False
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
        self, job: Job, nodes: int | None = None, on: Cores | None = None, *, cost_us: int = 0
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

    def preempt(self, job: Job, how: Preemption, *, warning_us: int = 0) -> None:
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

    def put_first(self, job: Job) -> None:
        self.expect(job, Status.WAITING).in_front = True

    def resume(self, job: Job) -> bool:
        life = self.expect(job, Status.SUSPENDED)
        for node, cores in life.held.items():
            if not self.takes(node, job) or not set(cores) <= set(self.free_cores(node)):
                return False
        life.status, life.stretch_us = Status.RUNNING, self.now_us
        return True

    def reserve(self, nodes: Sequence[int], job: Job, until_us: int | None = None) -> None:
        if self.lives[job.index].status in (Status.RUNNING, Status.SUSPENDED, Status.ENDED):
            raise self.refuse(job, "runs or has ended")
        for node in nodes:
            if not 0 <= node < self.nodes or node in self.leases or self.states[node] is NodeState.DOWN:
                raise self.refuse(job, "node is reserved, broken or not there")
        if len(set(nodes)) != len(nodes):
            raise self.refuse(job, "node twice")
        if until_us is not None:
            self.set_timer(until_us, "expiry", job)
        self.leases.update(dict.fromkeys(nodes, job))

    def release_leases(self, job: Job) -> None:
        self.leases = {node: owner for node, owner in self.leases.items() if owner is not job}

    def release(self, job: Job, nodes: Sequence[int] | None = None) -> None:
        if nodes is None:
            self.release_leases(job)
            return
        for node in nodes:
            if self.leases.get(node) is not job:
                raise self.refuse(job, "node is not reserved for it")
        for node in nodes:
            del self.leases[node]

    def set_timer(self, at_us: int, kind: str, about: Job | None = None) -> Timer:
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

    def earliest_start_us(self, job: Job, beside: Job | None = None, *, nodes: int | None = None) -> int:
        world = copy.copy(self)
        world.lives = [copy.copy(life) for life in self.lives]
        world.rows, world.leases = [], dict(self.leases)
        for life in world.lives:
            life.node_us = dict(life.node_us)
        return world.project(job, beside, nodes or job.nodes)

    def project(self, job: Job, beside: Job | None, nodes: int) -> int:
        """Let every job that runs compute until its request is done, and find when ``job`` has room."""
        if beside is not None and not self.start(beside):
            raise PolicyError(f"job {beside.number} does not fit now")
        for life in self.lives:
            if life.status is Status.RUNNING:
                pause = Fraction(0) if life.doing is Doing.WORK else life.pause_left * life.rate
                work = Fraction(0) if life.doing is Doing.LEAVE else life.now.request
                life.now = Progress(len(life.job.phases_us) - 1 | 1, work + pause, Fraction(0))
                life.doing, life.until_save = Doing.WORK, None
        while True:
            running = [
                (self.segment_end(life), life.job.index)
                for life in self.lives
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
            self.lives[which].status = Status.ENDED
