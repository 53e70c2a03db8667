"""Random jobs with general lifecycles, and a policy that does all that a policy can, on any engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

from hypothesis import strategies as st

from simulator.model.jobs import JobLifecycle, SimulatedJob, Sizes
from simulator.policy_interface import (
    Event,
    JobArrived,
    JobPreempted,
    NodeDown,
    NodeState,
    Preemption,
    SchedulerContext,
    SimulationStarted,
    Timer,
)
from tests.property.simulator.reference_lifecycle_record import Outage


@dataclass(frozen=True)
class LifecycleCase:
    """A pool, the jobs that come to it, and when its nodes fail."""

    nodes: int
    cores: int
    multiplicity: int
    memory_kib: int | None
    overhead: Fraction
    jobs: tuple[SimulatedJob, ...]
    outages: tuple[Outage, ...]
    after_failure: str
    seed: int


def _sizes(dice: Random, nodes: int, asked: int) -> Sizes | None:
    if dice.random() < 0.5:
        return None
    least, most = dice.randint(1, asked), dice.randint(asked, min(nodes, asked + 4))
    kind = dice.choice(("linear", "half", "flat"))
    rates = {
        "linear": list(range(1, most + 1)),
        "half": [7 + 5 * n for n in range(1, most + 1)],
        "flat": [13] * most,
    }[kind]
    return Sizes(least=least, preferred=dice.randint(least, most), most=most, rates=tuple(rates))


def _job(dice: Random, index: int, nodes: int, cores: int, memory: int | None) -> SimulatedJob:
    asked = min(nodes, dice.choice((1, 1, 2, 3, dice.randint(1, nodes))))
    sizes = _sizes(dice, nodes, asked)
    run_us = dice.choice((0, dice.randint(1, 12), dice.randint(1, 90)))
    phases: tuple[int, ...] = (0, run_us) if run_us else (0,)
    if sizes is None and dice.random() < 0.2:
        phases = (dice.randint(0, 9), *(dice.randint(1, 15) for _ in range(dice.randint(1, 4))))
    return SimulatedJob(
        index=index,
        number=3 * index + 1,
        nodes=asked,
        cores=dice.randint(1, cores),
        submit_us=dice.randint(0, 60),
        phases_us=phases,
        requested_us=sum(phases) + dice.choice((0, 0, 4, 30)),
        memory_kib=0 if memory is None else dice.randint(0, memory // 2),
        life=JobLifecycle(
            sizes=sizes,
            setup_us=dice.choice((0, 0, dice.randint(1, 7))),
            checkpoint_every_us=dice.choice((None, None, dice.randint(1, 20))),
            checkpoint_us=dice.randint(0, 3),
        ),
    )


def _outages(dice: Random, nodes: int) -> tuple[Outage, ...]:
    found = []
    for node in range(nodes):
        at = dice.randint(0, 300)
        while dice.random() < 0.4 and at < 600:
            back = at + dice.randint(1, 60)
            found.append(Outage(node, at, back))
            at = back + dice.randint(0, 120)
    return tuple(found)


def world_of(seed: int, *, nodes: int, jobs: int, cores: int | None = None) -> LifecycleCase:
    """Return a world of this size."""
    dice = Random(seed)
    cores = cores or dice.randint(1, 4)
    memory = dice.choice((None, None, dice.randint(6, 20)))
    return LifecycleCase(
        nodes=nodes,
        cores=cores,
        multiplicity=dice.choice((1, 1, 2, 3)),
        memory_kib=memory,
        overhead=dice.choice((Fraction(1), Fraction(6, 5))),
        jobs=tuple(_job(dice, index, nodes, cores, memory) for index in range(jobs)),
        outages=_outages(dice, nodes) if dice.random() < 0.5 else (),
        after_failure=dice.choice(("checkpoint", "scratch", "fail")),
        seed=dice.randint(0, 2**30),
    )


@st.composite
def lifecycle_cases(draw: st.DrawFn) -> LifecycleCase:
    """Draw 12 to 40 jobs on 2 to 8 nodes."""
    dice = Random(draw(st.integers(0, 2**32 - 1)))
    return world_of(dice.randint(0, 2**32), nodes=dice.randint(2, 8), jobs=dice.randint(12, 40))


@dataclass
class RandomActionPolicy:
    """Takes random actions: all that a policy can do, and nothing sensible.

    ``chosen`` has what it saw and did, so that two engines that run it can be compared step by step.
    """

    seed: int
    chosen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = Random(self.seed)
        self._steps = 0
        self._leaving: dict[int, int] = {}

    def __deepcopy__(self, memo: object) -> RandomActionPolicy:
        return self  # so that the test sees what it chose

    def note(self, context: SchedulerContext, what: str) -> None:
        self.chosen.append(f"{context.now_us} {what}")

    def hear(self, context: SchedulerContext, event: Event) -> None:
        reported = getattr(event, "job", None)
        name = "" if reported is None else str(reported.number)
        if isinstance(event, NodeDown):
            name = f"{event.node} {[job.number for job in event.lost]}"
        self.note(context, f"{type(event).__name__} {name}")
        if isinstance(event, SimulationStarted):
            context.set_timer(17, "tick")
        if (
            isinstance(event, Timer)
            and event.kind == "tick"
            and (context.now_us < 700 or context.running or context.waiting or context.suspended)
        ):
            context.set_timer(context.now_us + self._dice.randint(1, 40), "tick")
        if isinstance(event, JobArrived | JobPreempted) and self._dice.random() < 0.1:
            context.put_first(event.job)

    def schedule(self, context: SchedulerContext) -> None:
        self._steps += 1
        if self._steps < 400:  # then it only starts jobs, so that the run has an end
            for _ in range(self._dice.randint(0, 3)):
                action = self._dice.choice(
                    (self.resize, self.preempt, self.resume, self.lease, self.drain, self.look)
                )
                action(context)
        else:
            self.calm_down(context)
        for job in list(context.waiting):
            if self._steps >= 400 or self._dice.random() < 0.7:
                size = self._dice.randint(job.least_nodes, job.most_nodes) if self._steps < 400 else None
                self.note(context, f"start {job.number} {size} {self.begin(context, job, size)}")

    def begin(self, context: SchedulerContext, job: SimulatedJob, size: int | None) -> bool:
        if self._dice.random() < 0.15:
            taken = [node for node in range(context.nodes) if context.node_state(node) is NodeState.UP]
            used = {node for other in context.running for node in context.held(other)}
            free = [node for node in taken if node not in used][: size or job.nodes]
            if len(free) == (size or job.nodes) and all(self.has_memory(context, node) for node in free):
                return context.start(job, on={node: range(job.cores) for node in free}, lent=True)
        return context.start(job, size)

    def has_memory(self, context: SchedulerContext, node: int) -> bool:
        return all(node not in context.held(job) for job in context.suspended)

    def calm_down(self, context: SchedulerContext) -> None:
        for node in range(context.nodes):
            owner = context.lease_of(node)
            if owner is not None:
                context.release(owner)
            if context.node_state(node) is NodeState.DRAINED:
                context.drain(node, drained=False)
        for job in list(context.suspended):
            context.resume(job)

    def resize(self, context: SchedulerContext) -> None:
        soft = [
            job
            for job in context.running
            if job.life.sizes is not None and job.number not in self.leaving(context)
        ]
        if soft:
            job = self._dice.choice(soft)
            size = self._dice.randint(job.least_nodes, job.most_nodes)
            cost_us = self._dice.choice((0, 0, self._dice.randint(1, 9)))
            done = context.resize(job, size, cost_us=cost_us)
            self.note(context, f"resize {job.number} {size} {cost_us} {done} {sorted(context.held(job))}")

    def leaving(self, context: SchedulerContext) -> set[int]:
        return {number for number, until in self._leaving.items() if until >= context.now_us}

    def preempt(self, context: SchedulerContext) -> None:
        candidates = [job for job in context.running if job.number not in self.leaving(context)]
        if not candidates:
            return
        job = self._dice.choice(candidates)
        how = self._dice.choice((Preemption.KILL, Preemption.CHECKPOINT, Preemption.SUSPEND))
        warning = (
            self._dice.randint(1, 9) if how is Preemption.CHECKPOINT and self._dice.random() < 0.6 else 0
        )
        self.note(
            context,
            f"preempt {job.number} {how} {warning} {context.unsaved_us(job)} {context.remaining_us(job)}",
        )
        context.preempt(job, how, warning_us=warning)
        if warning:
            self._leaving[job.number] = context.now_us + warning

    def resume(self, context: SchedulerContext) -> None:
        for job in list(context.suspended):
            self.note(context, f"resume {job.number} {context.resume(job)}")

    def lease(self, context: SchedulerContext) -> None:
        free = [
            node
            for node in range(context.nodes)
            if context.lease_of(node) is None and context.node_state(node) is not NodeState.DOWN
        ]
        waiting = list(context.waiting)
        if not waiting or not free:
            return
        job = self._dice.choice(waiting)
        if self._dice.random() < 0.3:
            context.release(job)
            self.note(context, f"release {job.number}")
            return
        nodes = self._dice.sample(free, self._dice.randint(1, len(free)))
        until = context.now_us + self._dice.randint(0, 50) if self._dice.random() < 0.7 else None
        context.reserve(nodes, job, until)
        self.note(context, f"reserve {job.number} {sorted(nodes)} {until}")

    def drain(self, context: SchedulerContext) -> None:
        node = self._dice.randrange(context.nodes)
        drained = context.node_state(node) is NodeState.UP and self._dice.random() < 0.4
        context.drain(node, drained=drained)
        self.note(context, f"drain {node} {drained}")

    def look(self, context: SchedulerContext) -> None:
        waiting = list(context.waiting)
        self.note(
            context,
            f"idle {list(context.idle_nodes())} suspended {[job.number for job in context.suspended]}",
        )
        if not waiting:
            return
        job = self._dice.choice(waiting)
        size = self._dice.randint(job.least_nodes, job.most_nodes)
        self.note(context, f"earliest {job.number} {size} {context.earliest_start_us(job, nodes=size)}")
        other = self._dice.choice(waiting)
        if other is not job and context.place(other) is not None:
            self.note(context, f"beside {other.number} {context.earliest_start_us(job, started=other)}")
