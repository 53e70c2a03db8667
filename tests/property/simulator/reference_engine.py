"""The simulator's rules in the plainest Python: the oracle of the property tests.

Written from ``docs/mechanisms.md`` and the thesis, not from the engine. Work is counted in exact fractions,
everything is recomputed at every event, and backfilling copies the whole world to look ahead. It shares no
code with the engine.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise


@dataclass
class RefJob:
    """A job; ``phases_us`` are idle, busy, idle, ... and ``cores`` is per node."""

    number: int
    submit_us: int
    nodes: int
    cores: int
    phases_us: list[int]
    requested_us: int
    memory_kib: int = 0
    app: int = 0
    start_us: int | None = None
    end_us: int | None = None
    placement: dict[int, list[int]] = field(default_factory=dict)
    phase: int = 0
    left: Fraction = Fraction(0)
    request_left: Fraction = Fraction(0)
    busy: bool = False

    @property
    def places(self) -> set[tuple[int, int]]:
        return {(node, core) for node, cores in self.placement.items() for core in cores}

    def __deepcopy__(self, memo: dict[int, object]) -> RefJob:
        """Copy what a projection changes: thousands are made."""
        own = copy.copy(self)
        own.placement = {node: [*cores] for node, cores in self.placement.items()}
        return own


@dataclass
class RefCluster:
    """Nodes with lists of job numbers on each core."""

    nodes: int
    cores: int
    multiplicity: int
    memory_kib: int | None = None
    holders: list[list[list[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.holders = [[[] for _ in range(self.cores)] for _ in range(self.nodes)]

    def __deepcopy__(self, memo: dict[int, object]) -> RefCluster:
        """Copy what a projection changes: thousands are made."""
        own = copy.copy(self)
        own.holders = [[[*numbers] for numbers in cores] for cores in self.holders]
        return own


@dataclass
class Row:
    """One of Slurm's rows: jobs without a common core."""

    jobs: list[RefJob]

    @property
    def cores(self) -> set[tuple[int, int]]:
        return {place for job in self.jobs for place in job.places}


Speed = Callable[[RefJob, list[RefJob], int], Fraction]


def proportional(overhead: Fraction) -> Speed:
    """1/(m x C_o)."""
    return lambda job, others, node: 1 / ((len(others) + 1) * overhead) if others else Fraction(1)


@dataclass
class RefPlan:
    """NCS's plan: the head's start and nodes, when jobs end, and the world without those that end by then."""

    start: int
    ends: dict[int, int]
    staying: ReferenceEngine
    head_nodes: set[int]


class ReferenceEngine:
    """Runs jobs to their end on construction; they then have ``start_us``, ``end_us`` and ``placement``.

    A pass follows every end and every arrival, or with ``together`` all that happens at one instant.
    ``promises`` is the earliest start that a job had when it first was the head and another job was to
    overtake it.
    """

    def __init__(
        self,
        jobs: list[RefJob],
        cluster: RefCluster,
        speed: Speed,
        policy: str = "easy",
        placement: str = "thesis",
        *,
        together: bool = False,
    ) -> None:
        rows = [Row([]) for _ in range(cluster.multiplicity)]
        self.rows: list[Row] | None = rows if placement == "lln" else None
        self.jobs = {job.number: job for job in jobs}
        self.cluster = cluster
        self.speed_on_core = speed
        self.now = 0
        self.promises: dict[int, int] = {}
        self.queue: list[RefJob] = []
        self.running: list[RefJob] = []
        arrivals = sorted(jobs, key=lambda job: (job.submit_us, job.number))
        is_pass_due = False
        while arrivals or self.running:
            ends = [(self.phase_end(job), not self.in_last_phase(job), job.number) for job in self.running]
            if ends and (not arrivals or min(ends)[0] <= arrivals[0].submit_us):
                when, changes, number = min(ends)
                self.advance(when)
                job = self.jobs[number]
                if changes:
                    self.enter(job, job.phase + 1)
                else:
                    self.stop(job)
                    is_pass_due = True
                    if policy == "easy-ncs" and self.another_ends():
                        continue
            else:
                self.advance(arrivals[0].submit_us)
                self.queue.append(arrivals.pop(0))
                is_pass_due = True
            if not is_pass_due or (together and self.more_happens_now(arrivals)):
                continue
            is_pass_due = False
            self.pass_fcfs()
            if policy == "easy-ncs":
                self.pass_ncs()
            elif policy != "fcfs":
                self.pass_easy(elsewhere=policy == "easy-elsewhere")

    def more_happens_now(self, arrivals: list[RefJob]) -> bool:
        ends = any(self.phase_end(job) == self.now for job in self.running)
        return ends or (bool(arrivals) and arrivals[0].submit_us == self.now)

    def in_last_phase(self, job: RefJob) -> bool:
        return job.phase == len(job.phases_us) - 1

    def phase_end(self, job: RefJob) -> int:
        return self.now + math.ceil(job.left / self.speed(job))

    def speed(self, job: RefJob) -> Fraction:
        if not job.busy:
            return Fraction(1)
        speeds = []
        for node, cores in job.placement.items():
            for core in cores:
                others = [self.jobs[n] for n in self.cluster.holders[node][core] if n != job.number]
                speeds.append(self.speed_on_core(job, [o for o in others if o.busy], node))
        return min(speeds)

    def advance(self, when: int) -> None:
        done = {job.number: min(job.left, (when - self.now) * self.speed(job)) for job in self.running}
        for job in self.running:
            job.left -= done[job.number]
            job.request_left -= done[job.number]
        self.now = when

    def enter(self, job: RefJob, phase: int) -> None:
        job.phase = phase
        job.left = Fraction(job.phases_us[phase])
        job.busy = phase % 2 == 1

    def start(self, job: RefJob, placement: dict[int, list[int]]) -> None:
        self.queue.remove(job)
        self.running.append(job)
        job.placement = placement
        for node, cores in placement.items():
            for core in cores:
                self.cluster.holders[node][core].append(job.number)
        if self.rows is not None:
            next(row for row in self.rows if not row.cores & job.places).jobs.append(job)
        job.start_us = self.now
        job.request_left = Fraction(job.requested_us)
        self.enter(job, 1 if job.phases_us[0] == 0 and len(job.phases_us) > 1 else 0)

    def stop(self, job: RefJob) -> None:
        self.running.remove(job)
        for node, cores in job.placement.items():
            for core in cores:
                self.cluster.holders[node][core].remove(job.number)
        if self.rows is not None:
            for row in self.rows:
                row.jobs = [other for other in row.jobs if other is not job]
            self.rebuild_rows()
        job.end_us = self.now
        job.busy = False

    def nodes_with_capacity(self, job: RefJob) -> list[int]:
        """Return the nodes with slots and memory for a part of the job."""
        holders, most = self.cluster.holders, self.cluster.multiplicity
        suited = []
        for node in range(self.cluster.nodes):
            free = [core for core in range(self.cluster.cores) if len(holders[node][core]) < most]
            here = {number for core in holders[node] for number in core}
            used_kib = sum(self.jobs[number].memory_kib for number in here)
            fits = self.cluster.memory_kib is None or used_kib + job.memory_kib <= self.cluster.memory_kib
            if len(free) >= job.cores and fits:
                suited.append(node)
        return suited

    def place(self, job: RefJob, barred: set[int] | None = None) -> dict[int, list[int]] | None:
        if self.rows is not None:
            return self.place_slurm(job, barred or set())
        return self.place_thesis(job, barred or set())

    def place_thesis(self, job: RefJob, barred: set[int]) -> dict[int, list[int]] | None:
        holders = self.cluster.holders
        suited = [node for node in self.nodes_with_capacity(job) if node not in barred]
        if len(suited) < job.nodes:
            return None
        suited.sort(key=lambda node: (sum(map(len, holders[node])), node))
        cores = range(self.cluster.cores)
        return {
            node: sorted(sorted(cores, key=lambda core: (len(holders[node][core]), core))[: job.cores])
            for node in sorted(suited[: job.nodes])
        }

    def place_slurm(self, job: RefJob, barred: set[int]) -> dict[int, list[int]] | None:
        assert self.rows is not None
        if len(self.nodes_with_capacity(job)) < job.nodes:
            return None
        nodes = [node for node in range(self.cluster.nodes) if node not in barred]
        every = {(node, core) for node in nodes for core in range(self.cluster.cores)}
        held = {place for row in self.rows for place in row.cores}
        placement = self.least_loaded(job, every - held)
        if placement is not None:
            return placement
        self.sort_rows()
        for row in self.rows:
            placement = self.least_loaded(job, every - row.cores)
            if placement is not None:
                return placement
        return None

    def least_loaded(self, job: RefJob, spare: set[tuple[int, int]]) -> dict[int, list[int]] | None:
        """Return the lowest spare cores of the nodes with the most of them."""
        by_node = {
            node: sorted(core for owner, core in spare if owner == node) for node in range(self.cluster.nodes)
        }
        memory = self.cluster.memory_kib
        suited = [
            node
            for node, cores in by_node.items()
            if len(cores) >= job.cores and (memory is None or self.memory_left(node) >= job.memory_kib)
        ]
        suited.sort(key=lambda node: (-len(by_node[node]), node))
        if len(suited) < job.nodes:
            return None
        return {node: by_node[node][: job.cores] for node in sorted(suited[: job.nodes])}

    def memory_left(self, node: int) -> int:
        assert self.cluster.memory_kib is not None
        here = {number for core in self.cluster.holders[node] for number in core}
        return self.cluster.memory_kib - sum(self.jobs[number].memory_kib for number in here)

    def sort_rows(self) -> None:
        assert self.rows is not None
        for first in range(len(self.rows)):
            for second in range(first + 1, len(self.rows)):
                if len(self.rows[second].cores) > len(self.rows[first].cores):
                    self.rows[first], self.rows[second] = self.rows[second], self.rows[first]

    def rebuild_rows(self) -> None:
        """Part_data_build_row_bitmaps: pack the jobs of all rows anew, or keep what was."""
        assert self.rows is not None
        before = copy.deepcopy(self.rows)
        jobs = [job for row in self.rows for job in row.jobs]
        jobs.sort(
            key=lambda job: (
                min((node, min(cores)) for node, cores in job.placement.items()),
                job.nodes * job.cores,
            )
        )
        for row in self.rows:
            row.jobs.clear()
        for job in jobs:
            fitting = [row for row in self.rows if not row.cores & job.places]
            if not fitting:
                self.rows = [Row([self.jobs[job.number] for job in row.jobs]) for row in before]
                return
            fitting[0].jobs.append(job)
            self.sort_rows()

    def pass_fcfs(self) -> None:
        while self.queue and (placement := self.place(self.queue[0])) is not None:
            self.start(self.queue[0], placement)

    def another_ends(self) -> bool:
        return any(self.in_last_phase(job) and self.phase_end(job) == self.now for job in self.running)

    def pass_ncs(self) -> None:
        """Start the jobs behind the head that NCS's plan does not refuse."""
        if not self.queue:
            return
        plan = self.plan()
        bounds: list[tuple[int, int]] = []
        refused: dict[tuple[int, int, int, int], int] = {}
        for job in self.queue[1:]:
            shape = (job.nodes, job.cores, job.memory_kib, job.app)
            procs, asked = job.nodes * job.cores, job.requested_us
            if refused.get(shape, asked + 1) <= asked or any(p <= procs and r <= asked for p, r in bounds):
                continue
            placement = self.place(job, self.refused_nodes(plan, job))
            if placement is None:
                refused[shape] = asked
            elif self.raises_victim(plan, placement):
                refused[shape] = asked
                bounds.append((procs, asked))
            else:
                self.start(job, placement)
                plan.ends[job.number] = self.planned_end(job)
                if plan.ends[job.number] > plan.start:
                    for node, core in job.places:
                        plan.staying.cluster.holders[node][core].append(job.number)
                refused.clear()

    def planned_end(self, job: RefJob) -> int:
        """Return when a job ends by its request, with as many others on its cores as now."""
        multiplicity = max(len(self.cluster.holders[node][core]) for node, core in job.places)
        return self.now + multiplicity * math.ceil(job.request_left)

    def plan(self) -> RefPlan:
        """Return when and where the head starts if every job goes on at its multiplicity."""
        head, ends = self.queue[0], {job.number: self.planned_end(job) for job in self.running}
        staying = self
        for start in sorted(set(ends.values())):
            staying = copy.copy(self)
            staying.cluster = copy.deepcopy(self.cluster)
            for numbers in (numbers for node in staying.cluster.holders for numbers in node):
                numbers[:] = [number for number in numbers if ends[number] > start]
            if len(staying.nodes_with_capacity(head)) >= head.nodes:
                break
        suited = sorted(staying.nodes_with_capacity(head), key=lambda node: (staying.used(node), node))
        return RefPlan(start, ends, staying, set(suited[: head.nodes]))

    def used(self, node: int) -> int:
        return sum(map(len, self.cluster.holders[node]))

    def level(self, slots: int) -> int:
        return math.ceil(Fraction(slots, self.cluster.cores))

    def refused_nodes(self, plan: RefPlan, job: RefJob) -> set[int]:
        """Return the nodes of the head whose multiplicity ``job`` would raise beside it."""
        late = {
            node
            for node in self.nodes_with_capacity(job)
            if self.now + job.requested_us * self.level(self.used(node) + job.cores) > plan.start
        }
        refused = set()
        for node in plan.head_nodes:
            slots = max(self.used(node), plan.staying.used(node) + self.queue[0].cores)
            if self.level(slots + job.cores) > self.level(slots) and (node in late or late - plan.head_nodes):
                refused.add(node)
        return refused

    def raises_victim(self, plan: RefPlan, placement: dict[int, list[int]]) -> bool:
        """Whether a job that ends by the head's start gets a core with more jobs than any now."""
        holders = self.cluster.holders
        taken = {(node, core) for node, cores in placement.items() for core in cores}
        return any(
            max(len(holders[node][core]) for node, core in victim.places & taken)
            == max(len(holders[node][core]) for node, core in victim.places)
            for victim in self.running
            if victim.places & taken and plan.ends[victim.number] <= plan.start
        )

    def pass_easy(self, *, elsewhere: bool = False) -> None:
        barred: set[int] | None = None
        refused: dict[tuple[int, int, int, int], int] = {}
        for job in self.queue[1:]:
            shape = (job.nodes, job.cores, job.memory_kib, job.app)
            placement = self.place(job)
            if placement is None or refused.get(shape, job.requested_us + 1) <= job.requested_us:
                continue
            head = self.queue[0].number
            without = self.earliest_start(head, None)
            self.promises.setdefault(head, without)
            if self.earliest_start(head, job.number, placement) > without:
                second = None
                if elsewhere:
                    barred = self.head_nodes(head) if barred is None else barred
                    second = self.place(job, barred)
                if second is None or self.earliest_start(head, job.number, second) > without:
                    refused[shape] = job.requested_us
                    continue
                placement = second
            self.start(job, placement)
            refused.clear()

    def head_nodes(self, head: int) -> set[int]:
        """Return the nodes that the head would take at its earliest start, by the thesis's rule."""
        world = self.world_at_start(head, None, None)
        suited = world.nodes_with_capacity(world.jobs[head])
        suited.sort(key=lambda node: (sum(map(len, world.cluster.holders[node])), node))
        return set(suited[: world.jobs[head].nodes])

    def earliest_start(
        self, head: int, started: int | None, placement: dict[int, list[int]] | None = None
    ) -> int:
        return self.world_at_start(head, started, placement).now

    def world_at_start(
        self, head: int, started: int | None, placement: dict[int, list[int]] | None
    ) -> ReferenceEngine:
        """Return the world projected to the instant at which the placement takes the head."""
        world = copy.deepcopy(self)
        if started is not None:
            assert placement is not None
            world.start(world.jobs[started], placement)
        for job in world.running:
            job.busy = True
            job.left = job.request_left
        while True:
            ends = sorted((world.phase_end(job), job.number) for job in world.running)
            due = bool(ends) and ends[0][0] <= world.now
            if not due and world.place(world.jobs[head]) is not None:
                return world
            world.advance(ends[0][0])
            world.stop(world.jobs[ends[0][1]])


def check_no_core_over_used(jobs: list[RefJob], multiplicity: int) -> None:
    """Assert that no core ever has more than ``multiplicity`` of the jobs that have run."""
    changes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for job in jobs:
        assert job.start_us is not None
        assert job.end_us is not None
        for node, cores in job.placement.items():
            for core in cores:
                changes.setdefault((node, core), []).extend([(job.start_us, 1), (job.end_us, -1)])
    for events in changes.values():
        held = 0
        for (when, change), (following, _) in pairwise([*sorted(events), (math.inf, 0)]):
            held += change
            assert held <= multiplicity or when == following
