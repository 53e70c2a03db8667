"""Slurm's two schedulers: starts in order of priority at every event, backfilling now and then.

The main scheduler goes through the queue by priority and stops at the first job that does not fit; it runs
after every arrival and end, but not before ``tick`` seconds have passed since it ran last. The backfill
scheduler runs every ``interval`` seconds: for each of the first ``depth`` jobs it finds the earliest start
within ``window`` seconds at which nodes have room for as long as the job asks for, beside all that was
planned before; who can start now starts. The nodes of a job that has ended take no other for ``completing``
seconds.

Priority is multifactor: age up to ``max_age``, size, and fair share ``2^(-usage/share)`` with usage that
decays by half in ``half_life`` and equal shares. Sources: slurm.conf(5), SchedulerParameters; Slurm's
documents on multifactor priority (classic fair share); ``sched/backfill`` in Slurm 22.05.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from osub.units import seconds_to_us
from simulator.job import Job
from simulator.policies.events import Ended, Event, Left, Timer
from simulator.policies.family import Family, Option, Value
from simulator.policies.rule import Desk

TICK, BACKFILL, COMPLETED = "tick", "backfill", "completed"


@dataclass
class Plan:
    """How many cores of each node are free from when on, while running and planned jobs end as they ask.

    ``changes[n]`` are (instant, cores) in order of time: cores that become free, or are taken, if negative.
    """

    changes: list[list[tuple[int, int]]]

    def add(self, node: int, at_us: int, cores: int) -> None:
        """Let cores become free, or be taken."""
        self.changes[node].append((at_us, cores))
        self.changes[node].sort()

    def has_room(self, node: int, cores: int, from_us: int, to_us: int) -> bool:
        """Return whether so many cores are free all the while."""
        free = 0
        for at_us, change in self.changes[node]:
            if at_us >= to_us:
                break
            if at_us > from_us and free < cores:
                return False
            free += change
        return free >= cores


@dataclass
class Slurm:
    """See the module; times in microseconds."""

    tick_us: int = 0
    interval_us: int = 30_000_000
    depth: int = 100
    window_us: int = 86_400_000_000
    completing_us: int = 0
    age: float = 0.0
    size: float = 0.0
    fair: float = 0.0
    max_age_us: int = 604_800_000_000
    half_life_us: int = 604_800_000_000
    _due: bool = False
    _ran_us: int | None = None
    _ticking: bool = False
    _backfills: bool = False
    _usage: dict[int | None, float] = field(default_factory=lambda: defaultdict(float))
    _decayed_us: int = 0
    _completing: dict[int, int] = field(default_factory=dict)

    def hear(self, desk: Desk, event: Event) -> None:
        """Note what is due."""
        if isinstance(event, Ended | Left):
            self._charge(desk, event.job)
        if isinstance(event, Timer) and event.kind == COMPLETED and event.about is not None:
            for node in [node for node, number in self._completing.items() if number == event.about.number]:
                del self._completing[node]
                desk.drain(node, drained=False)
        if isinstance(event, Timer) and event.kind == TICK:
            self._ticking = False
        if isinstance(event, Timer) and event.kind == BACKFILL:
            self._backfills = False
            self._backfill(desk)
        self._due = self._due or not isinstance(event, Timer) or event.kind == COMPLETED

    def schedule(self, desk: Desk) -> None:
        """Run the main scheduler, if it is due and not too soon; see to it that both run again."""
        if self._due:
            again_us = 0 if self._ran_us is None else self._ran_us + self.tick_us
            if desk.now_us >= again_us:
                self._main(desk)
            elif not self._ticking:
                desk.set_timer(again_us, TICK)
                self._ticking = True
        if desk.waiting and not self._backfills:
            after_us = self.interval_us - desk.now_us % self.interval_us
            desk.set_timer(desk.now_us + after_us, BACKFILL)
            self._backfills = True

    def _main(self, desk: Desk) -> None:
        self._due, self._ran_us = False, desk.now_us
        for job in self._queue(desk):
            if not desk.start(job):
                return

    def _backfill(self, desk: Desk) -> None:
        plan = self._plan(desk)
        for job in self._queue(desk)[: self.depth]:
            times = {desk.now_us} | {at_us for node in plan.changes for at_us, _ in node}
            for at_us in sorted(time for time in times if time <= desk.now_us + self.window_us):
                until_us = at_us + max(job.requested_us, 1)
                nodes = [n for n in range(desk.nodes) if plan.has_room(n, job.cores, at_us, until_us)]
                if at_us < desk.now_us or len(nodes) < job.nodes:
                    continue
                if at_us == desk.now_us:
                    others = [node for node in range(desk.nodes) if node not in nodes]
                    cores = desk.place(job, off=others)
                    if cores is None or not desk.start(job, on=cores):
                        continue
                    nodes = list(cores)
                for node in nodes[: job.nodes]:
                    plan.add(node, at_us, -job.cores)
                    plan.add(node, until_us, job.cores)
                break

    def _plan(self, desk: Desk) -> Plan:
        plan = Plan([[] for _ in range(desk.nodes)])
        for node in range(desk.nodes):
            plan.add(node, 0, desk.free_cores(node))
        for job in desk.running:
            ends_us = desk.now_us + max(desk.remaining_us(job), 1)
            for node, cores in desk.held(job).items():
                plan.add(node, ends_us, len(cores))
        return plan

    def _queue(self, desk: Desk) -> list[Job]:
        if not (self.age or self.size or self.fair):
            return list(desk.waiting)
        self._decay(desk)
        return sorted(desk.waiting, key=lambda job: -self._priority(desk, job))

    def _priority(self, desk: Desk, job: Job) -> float:
        age = min(1.0, (desk.now_us - job.submit_us) / self.max_age_us)
        whole = sum(self._usage.values())
        share = 1 / max(1, len(self._usage))
        used = self._usage.get(job.user, 0.0) / whole if whole else 0.0
        fair = float(2.0 ** (-used / share))
        return self.age * age + self.size * job.nodes / desk.nodes + self.fair * fair

    def _decay(self, desk: Desk) -> None:
        factor = 0.5 ** ((desk.now_us - self._decayed_us) / self.half_life_us)
        self._decayed_us = desk.now_us
        for user in self._usage:
            self._usage[user] *= factor

    def _charge(self, desk: Desk, job: Job) -> None:
        """Charge a job's user, and let its nodes complete."""
        self._decay(desk)
        self._usage[job.user] += job.nodes * job.cores * job.run_us / 1e6
        if self.completing_us:
            for node in desk.held(job):
                desk.drain(node)
                self._completing[node] = job.number
            desk.set_timer(desk.now_us + self.completing_us, COMPLETED, job)


def _make(values: Mapping[str, Value]) -> Slurm:
    def us(name: str) -> int:
        return seconds_to_us(float(values[name]))

    return Slurm(
        tick_us=us("tick"),
        interval_us=us("interval"),
        depth=int(values["depth"]),
        window_us=us("window"),
        completing_us=us("completing"),
        age=float(values["age"]),
        size=float(values["size"]),
        fair=float(values["fair"]),
        max_age_us=us("max_age"),
        half_life_us=us("half_life"),
    )


def _seconds(name: str, default: float, told: str, least: float = 0.0) -> Option:
    return Option(name=name, help=told, default=default, least=least, most=1e9)


FAMILY = Family(
    name="slurm",
    help="Slurm's main and backfill schedulers with their periods, and multifactor priority",
    make=_make,
    options=(
        _seconds("tick", 0.0, "seconds between two runs of the main scheduler"),
        _seconds("interval", 30.0, "seconds between two runs of the backfill scheduler (bf_interval)", 0.001),
        Option(name="depth", help="jobs that it looks at (bf_max_job_test)", default=100, least=0, most=1e9),
        _seconds("window", 86_400.0, "seconds that it looks ahead (bf_window)"),
        _seconds("completing", 0.0, "seconds for which nodes take no job after one has ended"),
        _seconds("age", 0.0, "weight of age (PriorityWeightAge)"),
        _seconds("size", 0.0, "weight of size (PriorityWeightJobSize)"),
        _seconds("fair", 0.0, "weight of fair share (PriorityWeightFairshare)"),
        _seconds("max_age", 604_800.0, "seconds after which age counts in full (PriorityMaxAge)", 1.0),
        _seconds(
            "half_life", 604_800.0, "seconds in which usage decays by half (PriorityDecayHalfLife)", 1.0
        ),
    ),
)
