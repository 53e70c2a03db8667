"""Exact time slices: the event-by-event engine, led by the gang scheduler's own core.

A pool whose jobs take turns: the engine event by event, with a boundary of slices between events.

Order at one instant: everything else that happens there, then the boundary. At a boundary the nodes report
what they did in the slice before, the gang scheduler learns which jobs hold cores, decides, and the jobs that
its plan holds are frozen. While no core has two jobs there is nothing to decide and no boundary.

A held job that is frozen makes no progress; its idle phases go on, for thinking time does not stop, but it
wakes up frozen. One that yields goes on while none of the slice's owners computes on any of its cores, with
other held jobs there as the sharing model says; while an owner computes on one of them it stops on
all, for its processes wait for each other.

The sharing model of exact slices, as a setting names it.

Memory, where it counts: a job's grows with its work, to its peak. At each boundary nodes whose jobs have more
than there is kill those with most of it on a core, and what is left goes to the gang scheduler, which may
suspend gangs before (``gangd.core.memory_pressure``). With swap a node pages out what jobs do not use: jobs
that were held first, of those that run the same share of each. What a job lacks of its memory is read in
before it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from foundation.errors import UsageError
from gangd.core.cores import CoreMap, InvalidSettings
from gangd.core.gang_settings import GREATEST_FREEZE_NS, CoreSettings
from gangd.core.scheduler import GangScheduler
from gangd.core.scheduler_events import (
    AgentJoined,
    Alarm,
    Command,
    CpuSample,
    Event,
    Exempt,
    HoldMode,
    JobMemory,
    JobView,
    NodeMemory,
    NodeReport,
    Publish,
    RecordRows,
    SliceRow,
    SliceUse,
    SlurmSnapshot,
    ThawAll,
    Tick,
    TrackPlan,
)
from simulator.engine.python_engine import PythonEngine
from simulator.engine.run_rules import RunRules
from simulator.jit.field_records import Ints
from simulator.lifecycle.job_progress import resume, settle, suspend
from simulator.model.jobs import SimulatedJob
from simulator.model.system import FAR_US, NodePool, node_names
from simulator.policy_interface import PolicyError
from simulator.sharing import Proportional
from simulator.state.allocations import running_jobs
from simulator.state.engine_state import EngineState
from simulator.state.event_queue import move_in_agenda, present

_NS_PER_MS = 1_000_000
_NS_PER_US = 1_000
_SELDOM = 20


@dataclass(frozen=True, slots=True)
class ExactSlices:
    """Jobs that share cores take turns as gangd lets them.

    In a slice a job is held, or it runs; on a core that several running jobs share (one of them has just
    woken, or is too new to be in a plan) ``model`` says how fast. Backfilling looks ahead with ``model`` too.

    Parameters
    ----------
    model
        Speed on cores that are shared within a slice.
    settings
        Those of the gang scheduler.
    hold
        What a held job does: nothing, or what the owners of the slice leave of its cores.
    cost
        How long a job that shares cores takes in its own slices for a second of work: caches are cold after a
        switch, and ranks wait for nodes that switch later.
    growth
        Share of its work in which a job's memory grows to its peak; None: memory does not count.
    """

    model: Proportional
    settings: CoreSettings = field(default_factory=lambda: CoreSettings(grace_ns=0, record=True))
    hold: HoldMode = HoldMode.YIELD
    cost: float = 1.0
    growth: float | None = None

    @classmethod
    def of(cls, model: Proportional, quantum_ms: float, hold: str = HoldMode.YIELD) -> ExactSlices:
        """Return the model with slices of ``quantum_ms`` in which jobs are held as ``hold`` says.

        Raises
        ------
        UsageError
            The gang scheduler does not take this quantum, or knows no such hold.
        """
        if hold not in {kind.value for kind in HoldMode}:
            raise UsageError(f"unknown hold {hold!r}: choose {' or '.join(HoldMode)}")
        quantum_ns = round(quantum_ms * _NS_PER_MS / _NS_PER_US) * _NS_PER_US
        try:
            return cls(model, CoreSettings(quantum_ns=quantum_ns, grace_ns=0, record=True), HoldMode(hold))
        except InvalidSettings as error:
            raise UsageError.naming(
                "{quantum_ms} of {given:g} ms are not possible: {why}", given=quantum_ms, why=error
            ) from error

    def with_memory(self, growth: float, bound_kib: int | None) -> ExactSlices:
        """Return the model with memory that grows so; with a bound gangs give way where less is available.

        A gang that gives way runs for one slice in twenty, as in gangd where nothing else is said.
        """
        freeze_ns = max(_SELDOM * self.settings.quantum_ns, self.settings.freeze_cap_ns)
        settings = replace(
            self.settings, memory_kib=bound_kib, memory_freeze_ns=min(freeze_ns, GREATEST_FREEZE_NS)
        )
        return replace(self, settings=settings, growth=growth)

    @property
    def scale(self) -> int:
        """See ``SharingModel``."""
        return self.model.scale

    def core_speed(self, job: SimulatedJob, others: Sequence[SimulatedJob], node: int) -> Fraction:
        """See ``SharingModel``: the speed within a slice, with others that run in it."""
        return self.model.core_speed(job, others, node)


_US_PER_S = 1_000_000


class GangStepper(PythonEngine):
    """A stepper with a gang scheduler; ``sharing`` is that of its rules.

    Attributes
    ----------
    rows
        The slice record so far.
    frozen_us
        How long each job stood still, held, while it was busy.
    deferrals
        How often a gang was suspended for the memory of a node.
    """

    def __init__(
        self,
        state: EngineState,
        jobs: list[SimulatedJob],
        rules: RunRules,
        pool: NodePool,
        sharing: ExactSlices,
        after_event: Callable[[PythonEngine], None] | None = None,
    ) -> None:
        super().__init__(state, jobs, rules, pool, after_event)
        names = node_names(pool.nodes, pool.first)
        self.rows: list[SliceRow] = []
        self.frozen_us: Ints = np.zeros(len(jobs), dtype=np.int64)
        self.deferrals = 0
        self._growth, self._node_kib = sharing.growth, rules.node_memory_kib
        counts_memory = sharing.growth is not None and rules.node_memory_kib is not None
        self.killed = set() if counts_memory else None
        self._total: Ints = np.zeros(len(jobs), dtype=np.int64)
        self._names = tuple(names)
        self._cores = CoreMap(dict.fromkeys(names, self.cluster.cores))
        self._gangs = GangScheduler(sharing.settings, 0, self._cores)
        self._plan = PlanFollower()
        self._views: dict[int, JobView] = {}
        self._index = {job.number: job.index for job in jobs}
        self._yields = sharing.hold is HoldMode.YIELD
        self._hold = sharing.hold
        self._cost = sharing.cost
        self._held: set[int] = set()
        self._asleep: set[int] = set()
        self._boundary_us: int | None = None
        self._then_us = 0
        self._slice_us = 0
        self._busy_us: Ints = np.zeros(len(jobs), dtype=np.int64)
        self._done: Ints = np.zeros(len(jobs), dtype=np.int64)
        self._seen: dict[int, frozenset[int]] = {}
        for name in names:
            self._tell(AgentJoined(0, name))

    def act(self) -> None:
        """Refuse.

        Raises
        ------
        PolicyError
            Always: who takes turns is the gang scheduler's decision.
        """
        raise PolicyError("with exact slices a policy can only start jobs")

    def run(self) -> None:
        """Process every event and every boundary."""
        self.begin()
        while True:
            following = self.next_us
            if self._boundary_us is not None and self._boundary_us < following:
                self._account(self._boundary_us)
                self.state.clock[0].now_us = self._boundary_us
                if self._kill():  # their ends are events of this instant
                    continue
                self._turn()
                self.show()
                continue
            if following == FAR_US:
                self.check_end()
                return
            self._account(following)
            self.process_event()
            self._freeze_again()
            self.show()
            if self._boundary_us is None and self._needs_slices():
                self._begin_slices()

    def speed(self, job: int) -> int:
        """See ``PythonEngine``; less by what slices cost, while another job is on its cores."""
        even = super().speed(job)
        return even if self._cost == 1 or not self._has_others(job) else max(1, round(even / self._cost))

    def _has_others(self, job: int) -> bool:
        return any(other in self._held or self.state.runs[other].busy for other in self._co_located(job))

    def _co_located(self, job: int) -> Iterator[int]:
        """Yield the other jobs on the cores of a job, once a node."""
        for node, cores in self.cluster.cores_of(job).items():
            mine = set(cores)
            for other, theirs in self.cluster.holders(node).items():
                if other != job and not mine.isdisjoint(theirs):
                    yield other

    def _is_sharing(self) -> bool:
        occupied = self.state.occupied
        _, slots, words = occupied.shape
        used = [one for one in range(self.state.clock[0].classes) if self.state.classes[one].nodes]
        return slots > 1 and any(occupied[one, 1, word] for one in used for word in range(words))

    def _account(self, now_us: int) -> None:
        """Note what running jobs did since the last look, which ended when something changed."""
        span_us = now_us - self._then_us
        self._then_us = now_us
        for job in running_jobs(self.state):
            run = self.state.runs[job]
            if run.busy:
                self._busy_us[job] += span_us
                self._done[job] += run.speed * span_us
                self._total[job] += run.speed * span_us
        if self._asleep:
            asleep = list(self._asleep)
            self.frozen_us[asleep] += span_us
            if self._yields:  # they wait for a core, and agents see that
                self._busy_us[asleep] += span_us

    def _needs_slices(self) -> bool:
        return self._is_sharing() or (self.killed is not None and bool(running_jobs(self.state)))

    def _used_kib(self, job: int) -> int:
        """Return what a job has of its memory on a core."""
        phases_us = self.jobs[job].phases_us
        done = int(self._total[job]) / (sum(phases_us[1::2]) * self.state.rules[0].scale)
        return int(self.jobs[job].used_kib * min(1.0, done / (self._growth or 1.0)))

    def _kill(self) -> bool:
        """Kill the jobs that find no memory, on each node those with most of it first; return whether any."""
        if self.killed is None:
            return False
        before = len(self.killed)
        for node in range(self.cluster.nodes):
            used = {
                job: self._used_kib(job) * len(cores)
                for job, cores in self.cluster.holders(node).items()
                if job not in self.killed
            }
            while sum(used.values()) > (self._node_kib or 0):
                job = max(used, key=lambda one: (self._used_kib(one), one))
                del used[job]
                self.killed.add(job)
                self._end_now(job)
        return len(self.killed) > before

    def _end_now(self, job: int) -> None:
        """Let a job end as if it had done its work."""
        self._held.discard(job)
        self._thaw(job)
        run = self.state.runs[job]
        settle(run, self.now_us)
        run.left, run.last, run.next_us = 0, 1, self.now_us
        move_in_agenda(present(self.state), job)

    def _memory_of(self, holders: Mapping[int, Sequence[int]]) -> NodeMemory | None:
        """Return what a node reports of its memory."""
        if self.killed is None:
            return None
        kib = {job: self._used_kib(job) * len(cores) for job, cores in holders.items()}
        jobs = tuple(JobMemory(self.jobs[job].number, used, used) for job, used in kib.items())
        return NodeMemory((self._node_kib or 0) - sum(kib.values()), jobs=jobs)

    def _begin_slices(self) -> None:
        time = self._gangs.time
        self._boundary_us = time.start_ns(time.slice_at(self.now_us * _NS_PER_US) + 1) // _NS_PER_US
        self._busy_us[:] = 0
        self._done[:] = 0

    def _turn(self) -> None:
        """Pass from a slice to the next."""
        now_ns, time = self.now_us * _NS_PER_US, self._gangs.time
        number = time.slice_at(now_ns)
        self._report(number - 1)
        running = self.running
        views = tuple(self._view(job) for job in running)
        self._tell(SlurmSnapshot(now_ns, now_ns, self.now_us / _US_PER_S, views))
        self._tell(Tick(now_ns))
        present = {job.index for job in running}
        held = {self._index[number_of_job] for number_of_job in self._plan.held(number)} & present
        for job in sorted(self._held - held):
            self._thaw(job)
        self._held = held
        self._freeze_again()
        self._seen = {
            node: frozenset(job for job in self.cluster.holders(node)) for node in range(self.cluster.nodes)
        }
        self._busy_us[:] = 0
        self._done[:] = 0
        goes_on = self._held or self._needs_slices()
        self._boundary_us = time.start_ns(number + 1) // _NS_PER_US if goes_on else None

    def _report(self, number: int) -> None:
        """Let every node report slice ``number``; one in which nothing was looked at is not in it."""
        now_ns = self.now_us * _NS_PER_US
        self._slice_us = self._gangs.time.length_ns(number) // _NS_PER_US
        for node, name in enumerate(self._names):
            holders = self.cluster.holders(node)
            held = tuple(sorted(self.jobs[job].number for job in holders if job in self._held))
            samples = tuple(
                self._sample(job, len(cores))
                for job, cores in holders.items()
                if self._yields or job not in self._held
            )
            use = SliceUse(number, 0, 0, held, samples)
            memory = self._memory_of(holders)
            self._tell(NodeReport(now_ns, name, slices=(use,), memory=memory))

    def _sample(self, job: int, cores: int) -> CpuSample:
        """Return the CPU time and the run-queue delay of a job on one node in the slice that ends now."""
        span_us = min(self._slice_us, self.now_us - self.state.runs[job].start_us)
        cpu_us = int(self._done[job]) * cores // self.state.rules[0].scale
        delay_us = int(self._busy_us[job]) * cores - cpu_us
        return CpuSample(self.jobs[job].number, cpu_us, max(0, delay_us), span_us, cores)

    def _view(self, job: SimulatedJob) -> JobView:
        view = self._views.get(job.index)
        if view is None:
            placement = {self._names[node]: ids for node, ids in self.cluster.cores_of(job.index).items()}
            view = JobView(job.number, job.number, self._cores.pack(placement), hold=self._hold)
            if self.killed is not None:
                start_s = self.state.runs[job.index].start_us / _US_PER_S
                view = replace(view, start_s=start_s, memory_kib=job.memory_kib or None)
            self._views[job.index] = view
        return view

    def _tell(self, event: Event) -> None:
        for command in self._gangs.handle(event):
            if isinstance(command, RecordRows):
                self.rows += command.rows
            else:
                if isinstance(command, Alarm) and command.kind == "memory":
                    self.deferrals += not command.cleared
                self._plan.apply(command)

    def _freeze_again(self) -> None:
        """Suspend the held jobs that are busy: those of a new slice, and those that woke up.

        One that yields goes on where the owners leave its cores.
        """
        if self._yields:
            left = {job for job in self._held if self._is_left(job)}
            for job in sorted(self._asleep & left):
                self._thaw(job)
        else:
            left = set()
        runs = self.state.runs
        for job in sorted(self._held - self._asleep - left):
            if runs[job].busy:
                suspend(self.state, job)
                self._asleep.add(job)
                self.set_speeds(job)

    def _is_left(self, job: int) -> bool:
        """Whether no running job computes on a core of a held job, and memory lets it go on."""
        gang, runs = self._gangs.gangs.get(self.jobs[job].number), self.state.runs
        if gang is not None and gang.deferred:
            return False
        return not any(other not in self._held and runs[other].busy for other in self._co_located(job))

    def _thaw(self, job: int) -> None:
        if job in self._asleep:
            self._asleep.discard(job)
            resume(self.state, job)
            self.set_speeds(job)


class PlanFollower:
    """Follows ``Publish`` and ``Exempt``; slices are asked for in ascending order."""

    def __init__(self) -> None:
        self._tracks: dict[int, list[tuple[int, TrackPlan | None]]] = {}
        self._exempt: set[int] = set()

    def apply(self, command: Command) -> None:
        """Take in a command; those that freeze no job are ignored."""
        match command:
            case Publish():
                for name in command.drop:
                    self._tracks.setdefault(name, []).append((command.first_slice, None))
                for track in command.tracks:
                    self._tracks.setdefault(track.name, []).append((command.first_slice, track))
            case Exempt():
                (self._exempt.add if command.on else self._exempt.discard)(command.member.gang)
            case ThawAll():
                self._tracks.clear()

    def held(self, number: int) -> set[int]:
        """Return the jobs that are held in slice ``number``."""
        held: set[int] = set()
        for name, plans in list(self._tracks.items()):
            while len(plans) > 1 and plans[1][0] <= number:
                plans.pop(0)
            first, track = plans[0]
            if first > number:
                continue
            if track is None:
                if len(plans) == 1:
                    del self._tracks[name]
                continue
            held.update(_held_in(track, number))
        return held - self._exempt


def _held_in(track: TrackPlan, number: int) -> list[int]:
    rows = track.run
    place = number - track.first_slice
    if place >= len(rows):
        if not track.repeat:
            return []
        place %= len(rows)
    return [
        job
        for runs, member in zip(rows[place], track.members, strict=True)
        if not runs
        for job, _ in member.jobs
    ]
