"""Time and work of general lifecycles: how fast each job computes, and what is saved and lost."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

from simulator.model.jobs import SimulatedJob
from simulator.policy_interface import Event, JobEnded, JobPreempted, NodeState, SimulationStarted, Timer
from tests.property.simulator.reference_lifecycle_record import (
    Doing,
    LifecycleRecord,
    Outage,
    Progress,
    Row,
    Status,
)


class LifecycleProgress(ABC):
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

    def share(self, record: LifecycleRecord) -> Fraction:
        """Return the speed of its slowest core."""
        busy = [o.held for o in self.lifecycles if o.status is Status.RUNNING and not o.is_idle]
        users = (
            sum(core in held.get(node, ()) for held in busy)
            for node, cores in record.held.items()
            for core in cores
        )
        worst = max(1, max(users, default=1))
        return Fraction(1) if worst == 1 else 1 / (worst * self.overhead)

    def users(self, node: int, core: int) -> list[LifecycleRecord]:
        return [o for o in self.lifecycles if o.status is Status.RUNNING and core in o.held.get(node, [])]

    def segment(self, record: LifecycleRecord) -> tuple[Fraction, Fraction]:
        """Return what is left of what it does, and how much of that it does in a microsecond."""
        if record.doing is Doing.LEAVE:
            return record.pause_left, Fraction(1)
        if record.doing is not Doing.WORK:
            return record.pause_left, self.share(record)
        if record.is_idle:
            return record.now.left, Fraction(1)
        left = record.now.left if record.until_save is None else min(record.now.left, record.until_save)
        return left, self.share(record) * record.rate

    def segment_end(self, record: LifecycleRecord) -> int:
        left, speed = self.segment(record)
        return self.now_us + math.ceil(left / speed)

    def frees(self, record: LifecycleRecord) -> bool:
        """Whether its nodes become free when it has done what it does now."""
        if record.doing is Doing.LEAVE:
            return True
        saves = record.until_save is not None and not record.is_idle and record.until_save < record.now.left
        return record.doing is Doing.WORK and record.is_last and not saves

    def advance(self, at: int) -> None:
        span = at - self.now_us
        moved = [
            (record, *self.segment(record)) for record in self.lifecycles if record.status is Status.RUNNING
        ]
        for record, left, speed in moved:
            done = min(left, span * speed)
            if record.doing is Doing.WORK:
                record.now = Progress(record.now.phase, record.now.left - done, record.now.request - done)
                if record.until_save is not None and not record.is_idle:
                    record.until_save -= done
                record.fresh_us += span
            else:
                record.pause_left -= done
                record.setup_us += span if record.doing is Doing.SETUP else 0
            spent = {Doing.SETUP: "setup", Doing.WORK: "fresh"}.get(record.doing, "save")
            record.node_us[spent] += span * record.nodes
        self.now_us = at

    def change(self, record: LifecycleRecord) -> None:
        """Go from what it did to what follows, on the same nodes."""
        if record.doing is Doing.SETUP:
            record.doing = Doing.WORK
        elif record.doing is Doing.SAVE:
            self.save(record)
            record.doing = Doing.WORK
        elif record.until_save is not None and not record.is_idle and record.until_save < record.now.left:
            record.doing, record.pause_left = Doing.SAVE, Fraction(record.job.life.checkpoint_us)
        else:
            phase = record.now.phase + 1
            record.now = Progress(phase, Fraction(record.job.phases_us[phase]), record.now.request)

    def save(self, record: LifecycleRecord) -> None:
        record.saved = record.now
        record.node_us["useful"] += record.node_us["fresh"]
        record.useful_us += record.fresh_us
        record.node_us["fresh"] = record.fresh_us = 0
        every = record.job.life.checkpoint_every_us
        record.until_save = None if every is None else Fraction(every * record.job.rate(record.job.nodes))

    def lose(self, record: LifecycleRecord) -> None:
        record.now = record.saved
        record.wasted_us += record.fresh_us
        record.node_us["lost"] += record.node_us["fresh"]
        record.node_us["fresh"] = record.fresh_us = 0

    def stop(self, record: LifecycleRecord) -> Event:
        if record.doing is Doing.LEAVE:
            self.save(record)
            self.leave(record, "checkpoint")
            return JobPreempted(record.job)
        self.save(record)
        self.end_stretch(record)
        record.status, record.end_us = Status.ENDED, self.now_us
        return JobEnded(record.job)

    def leave(self, record: LifecycleRecord, why: str) -> None:
        self.end_stretch(record)
        record.status, record.why = Status.WAITING, why

    def end_stretch(self, record: LifecycleRecord) -> None:
        """Note what it held since when."""
        self.rows.append((record.job.number, record.stretch_us, self.now_us, dict(record.held), record.why))
