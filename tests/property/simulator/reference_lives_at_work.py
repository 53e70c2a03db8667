"""Time and work of general lives: who computes how fast, and what is saved and lost."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

from simulator.model.jobs import SimulatedJob
from simulator.policy_interface import Event, JobEnded, JobPreempted, NodeState, SimulationStarted, Timer
from tests.property.simulator.reference_life import Doing, LifecycleRecord, Outage, Progress, Row, Status


class LivesAtWork(ABC):
    """Jobs on nodes, and how they get on; ``run`` says what happens when."""

    def __init__(
        self,
        jobs: Sequence[SimulatedJob],
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
        together: bool = False,
    ) -> None:
        self.jobs = jobs
        self.lifecycles = [LifecycleRecord(job) for job in jobs]
        self.shape = (nodes, cores, multiplicity)
        self.memory_kib = memory_kib
        self.overhead = overhead
        self.scale = scale
        self.outages = outages
        self.after_failure = after_failure
        self.together = together
        self.policy = policy
        self.now_us = 0
        self.rows: list[Row] = []
        self.leases: dict[int, SimulatedJob] = {}
        self.states = [NodeState.UP] * nodes
        self.drained: set[int] = set()
        self.timers: list[tuple[int, Timer]] = []
        self.set_timers = 0
        self.tell(SimulationStarted())
        self.run()

    @abstractmethod
    def run(self) -> None:
        """Run all jobs to their end."""

    def tell(self, event: Event) -> None:
        hear = getattr(self.policy, "hear", None)
        if hear is not None:
            hear(self, event)

    # time and work

    def beginning(self, job: SimulatedJob) -> Progress:
        first = 1 if job.phases_us[0] == 0 and len(job.phases_us) > 1 else 0
        asked = job.rate(job.nodes)
        return Progress(first, Fraction(job.phases_us[first] * asked), Fraction(job.requested_us * asked))

    def share(self, life: LifecycleRecord) -> Fraction:
        """Return the speed of its slowest core."""
        busy = [o.held for o in self.lifecycles if o.status is Status.RUNNING and not o.is_idle]
        users = (
            sum(core in held.get(node, ()) for held in busy)
            for node, cores in life.held.items()
            for core in cores
        )
        worst = max(1, max(users, default=1))
        return Fraction(1) if worst == 1 else 1 / (worst * self.overhead)

    def users(self, node: int, core: int) -> list[LifecycleRecord]:
        return [o for o in self.lifecycles if o.status is Status.RUNNING and core in o.held.get(node, [])]

    def segment(self, life: LifecycleRecord) -> tuple[Fraction, Fraction]:
        """Return what is left of what it does, and how much of that it does in a microsecond."""
        if life.doing is Doing.LEAVE:
            return life.pause_left, Fraction(1)
        if life.doing is not Doing.WORK:
            return life.pause_left, self.share(life)
        if life.is_idle:
            return life.now.left, Fraction(1)
        left = life.now.left if life.until_save is None else min(life.now.left, life.until_save)
        return left, self.share(life) * life.rate

    def segment_end(self, life: LifecycleRecord) -> int:
        left, speed = self.segment(life)
        return self.now_us + math.ceil(left / speed)

    def frees(self, life: LifecycleRecord) -> bool:
        """Whether its nodes become free when it has done what it does now."""
        if life.doing is Doing.LEAVE:
            return True
        saves = life.until_save is not None and not life.is_idle and life.until_save < life.now.left
        return life.doing is Doing.WORK and life.is_last and not saves

    def advance(self, at: int) -> None:
        span = at - self.now_us
        moved = [(life, *self.segment(life)) for life in self.lifecycles if life.status is Status.RUNNING]
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

    def change(self, life: LifecycleRecord) -> None:
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

    def save(self, life: LifecycleRecord) -> None:
        life.saved = life.now
        life.node_us["useful"] += life.node_us["fresh"]
        life.useful_us += life.fresh_us
        life.node_us["fresh"] = life.fresh_us = 0
        every = life.job.life.checkpoint_every_us
        life.until_save = None if every is None else Fraction(every * life.job.rate(life.job.nodes))

    def lose(self, life: LifecycleRecord) -> None:
        life.now = life.saved
        life.wasted_us += life.fresh_us
        life.node_us["lost"] += life.node_us["fresh"]
        life.node_us["fresh"] = life.fresh_us = 0

    def stop(self, life: LifecycleRecord) -> Event:
        if life.doing is Doing.LEAVE:
            self.save(life)
            self.leave(life, "checkpoint")
            return JobPreempted(life.job)
        self.save(life)
        self.end_stretch(life)
        life.status, life.end_us = Status.ENDED, self.now_us
        return JobEnded(life.job)

    def leave(self, life: LifecycleRecord, why: str) -> None:
        self.end_stretch(life)
        life.status, life.why = Status.WAITING, why

    def end_stretch(self, life: LifecycleRecord) -> None:
        """Note what it held since when."""
        self.rows.append((life.job.number, life.stretch_us, self.now_us, dict(life.held), life.why))
