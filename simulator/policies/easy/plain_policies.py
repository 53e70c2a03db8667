"""The built-in policies in plain Python, for runs in which another part is a user's, and as kernels.

EASY as NCS, the thesis's simulator, has it; in plain Python the same rules as in ``ncs``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from simulator.jit.field_records import StateAllocator, only_record
from simulator.model.jobs import PoolJobs, SimulatedJob
from simulator.model.system import FAR_US
from simulator.placement import Cores
from simulator.policies.easy.backfill_state import BackfillState, new_outlook, shapes_of
from simulator.policies.easy.easy_loop import run_events, run_lifecycle_events
from simulator.policies.easy.ncs import new_ncs
from simulator.policy_interface import Event, JobEnded, NodeState, Program, SchedulerContext, Timer
from simulator.state.engine_state import EngineRulesRecord, EngineState


class EasyKernels:
    """FCFS and EASY as kernels; they differ in what they keep of the future."""

    __slots__ = ()
    keeps_lifecycles: ClassVar[bool] = False

    def outlook(self, make: StateAllocator, state: EngineState, shapes: int) -> BackfillState | None:
        """Return what the kernels keep of the future, for jobs of so many shapes; FCFS keeps nothing."""
        raise NotImplementedError

    def program(self, make: StateAllocator, state: EngineState, jobs: PoolJobs) -> Program:  # noqa: ARG002
        """See ``KernelPolicy``."""
        outlook = self.outlook(make, state, shapes_of(state))
        if state.lifecycles is None:
            return Program(run_events, (state, outlook))
        return Program(run_lifecycle_events, (state, state.lifecycles, outlook))


@dataclass(frozen=True, slots=True)
class Fcfs(EasyKernels):
    """First come, first served: a job that does not fit holds up the rest."""

    def outlook(self, make: StateAllocator, state: EngineState, shapes: int) -> None:
        """See ``EasyKernels``."""

    def schedule(self, context: SchedulerContext) -> None:
        """Start queue heads while they fit."""
        while context.waiting and context.start(context.waiting[0]):
            pass


class RefusedShapes:
    """Who was refused since something started: a job like one of them, and no shorter, would be, too."""

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self._shortest_us: dict[tuple[int, ...], int] = {}

    def covers(self, job: SimulatedJob) -> bool:
        """Return whether a job like this one, but no longer, was refused."""
        asked_us = self._context.remaining_us(job)
        return self._shortest_us.get(_shape_of(job), asked_us + 1) <= asked_us

    def add(self, job: SimulatedJob) -> None:
        """Note that ``job`` is refused."""
        self._shortest_us[_shape_of(job)] = self._context.remaining_us(job)

    def forget(self) -> None:
        """Forget all, for something has started."""
        self._shortest_us.clear()


def _shape_of(job: SimulatedJob) -> tuple[int, ...]:
    return job.nodes, job.cores, job.memory_kib, job.app


@dataclass(frozen=True, slots=True)
class Easy(EasyKernels):
    """EASY backfilling: a later job may start if the queue's head can start no later for it."""

    elsewhere: ClassVar[bool] = False

    def outlook(self, make: StateAllocator, state: EngineState, shapes: int) -> BackfillState:
        """See ``EasyKernels``."""
        return new_outlook(make, state, shapes, elsewhere=self.elsewhere)

    def schedule(self, context: SchedulerContext) -> None:
        """Start queue heads while they fit, then, in order, the jobs that do not delay the head."""
        Fcfs().schedule(context)
        if context.waiting:
            _Pass(context, elsewhere=self.elsewhere).run()


@dataclass(frozen=True, slots=True)
class EasyElsewhere(Easy):
    """EASY in which a job that would delay the head is tried again, off the head's nodes."""

    elsewhere: ClassVar[bool] = True


_ALL_HAVE_ENDED = "all have ended"


@dataclass(slots=True)
class EasyNcs(EasyKernels):
    """Backfilling as NCS has it; see ``ncs``.

    Parameters
    ----------
    victims, bounds, ends
        Which of rules 2 to 4 hold.
    """

    victims: bool = True
    bounds: bool = True
    ends: bool = True
    _postponed: bool = field(default=False, init=False, repr=False)
    _ticking: bool = field(default=False, init=False, repr=False)

    def outlook(self, make: StateAllocator, state: EngineState, shapes: int) -> BackfillState:
        """See ``EasyKernels``."""
        jobs = only_record(EngineRulesRecord, state.rules).jobs
        rules = new_ncs(make, jobs, (self.victims, self.bounds, self.ends))
        return new_outlook(make, state, shapes, elsewhere=True, ncs=rules)

    def hear(self, context: SchedulerContext, event: Event) -> None:
        """Put the pass after an end off until all that end at this instant have: timers ring after that."""
        self._postponed = self.ends and isinstance(event, JobEnded)
        if isinstance(event, Timer):
            self._ticking = False
        if self._postponed and not self._ticking:
            context.set_timer(context.now_us, _ALL_HAVE_ENDED)
            self._ticking = True

    def schedule(self, context: SchedulerContext) -> None:
        """Start queue heads while they fit, then the jobs that the plan does not refuse."""
        if self._postponed:
            return
        Fcfs().schedule(context)
        if context.waiting:
            _PlannedPass(context, self).run()


class _Pass:
    """One pass of EASY over those behind the queue's head."""

    def __init__(self, context: SchedulerContext, *, elsewhere: bool) -> None:
        self._context = context
        self._elsewhere = elsewhere
        self._head, *self._rest = context.waiting
        self._start_us: int | None = None  # not known, as always when something has started

    def run(self) -> None:
        context, refused = self._context, RefusedShapes(self._context)
        off = None
        for job in self._rest:
            if refused.covers(job) or context.place(job) is None:
                continue
            on = None
            delays = self._delays_head(job)
            if delays and self._elsewhere:
                off = context.nodes_at_start(self._head) if off is None else off
                on = context.place(job, off=off)
                delays = on is None or self._delays_head(job, on)
            if delays:
                refused.add(job)
                continue
            context.start(job, on=on)
            refused.forget()
            self._start_us = None

    def _delays_head(self, job: SimulatedJob, on: Cores | None = None) -> bool:
        """Return whether the head starts later for ``job`` there; None: where the placement puts it."""
        context, head = self._context, self._head
        if self._start_us is None:
            self._start_us = context.earliest_start_us(head)
        if self._start_us == FAR_US:
            return False
        return context.earliest_start_us(head, started=job, on=on) > self._start_us


_Places: TypeAlias = set[tuple[int, int]]
"""Nodes and cores."""


class _PlannedPass:
    """One pass of NCS over those behind the queue's head; the same rules as in ``ncs``."""

    def __init__(self, context: SchedulerContext, ncs: EasyNcs) -> None:
        self._context = context
        self._ncs = ncs
        self._head, *self._rest = context.waiting
        self._bounds: list[tuple[int, int]] = []
        self._jobs = {job.number: job for job in context.running}
        self._now = {job.number: set(_places(context.held(job))) for job in context.running}
        self._jobs_on = Counter(place for places in self._now.values() for place in places)
        self._then = dict(self._now)
        self._start_us = self._plan_start()
        self._aside = self._suited(self._head, self._then)[: self._head.nodes]

    def run(self) -> None:
        context, refused = self._context, RefusedShapes(self._context)
        for job in self._rest:
            if self._is_out_of_bounds(job) or refused.covers(job):
                continue
            on = context.place(job, off=self._refused_nodes(job))
            if on is None or self._raises_victim(job, set(_places(on))):
                refused.add(job)
                continue
            places = set(_places(on))
            self._jobs[job.number], self._now[job.number] = job, places
            self._jobs_on.update(places)
            if self._ends_late(job, self._multiplicity(job.number)):
                self._then[job.number] = places
            context.start(job, on=on)
            refused.forget()

    def _plan_start(self) -> int:
        """Return the head's start by the plan, and leave those who hold cores then."""
        now_us = self._context.now_us
        ends_us = {
            number: now_us + self._multiplicity(number) * self._context.remaining_us(job)
            for number, job in self._jobs.items()
        }
        for instant in [now_us, *sorted(set(ends_us.values()))]:
            self._then = {number: held for number, held in self._then.items() if ends_us[number] > instant}
            if len(self._suited(self._head, self._then)) >= self._head.nodes:
                return instant
        return FAR_US

    def _ends_late(self, job: SimulatedJob, multiplicity: int) -> bool:
        """Return whether ``job`` starts now and by its request ends after the head's start."""
        return self._context.now_us + multiplicity * self._context.remaining_us(job) > self._start_us

    def _multiplicity(self, number: int) -> int:
        """Return the most jobs on a core of a running job."""
        return max(self._jobs_on[place] for place in self._now[number])

    def _level(self, slots: int) -> int:
        """Return the most jobs on a core of a node with so many occupied slots, evenly spread."""
        return -(-slots // self._context.cores)

    def _suited(self, job: SimulatedJob, held: dict[int, _Places]) -> list[int]:
        """Return the nodes that take ``job`` if these hold cores, fewest occupied slots first."""
        context = self._context
        jobs_on = Counter(place for places in held.values() for place in places)
        kib = {node: context.free_memory_kib(node) for node in range(context.nodes)}
        for number in self._now.keys() - held.keys():
            for node in {node for node, _ in self._now[number]}:
                kib[node] += self._jobs[number].memory_kib
        suited = []
        for node in range(context.nodes):
            jobs = [jobs_on[node, core] for core in range(context.cores)]
            is_open = context.node_state(node) is NodeState.UP and context.lease_of(node) in (None, job)
            free = sum(count < context.multiplicity for count in jobs)
            if is_open and free >= job.cores and kib[node] >= job.memory_kib:
                suited.append((sum(jobs), node))
        return [node for _, node in sorted(suited)]

    def _refused_nodes(self, job: SimulatedJob) -> list[int]:
        """Return the nodes of the head that ``job`` may not have."""
        used, then = (
            Counter(node for places in held.values() for node, _ in places)
            for held in (self._now, self._then)
        )
        late = {
            node
            for node in range(self._context.nodes)
            if self._ends_late(job, self._level(used[node] + job.cores))
        }
        spills = any(node in late for node in self._suited(job, self._now) if node not in self._aside)
        refused = []
        for node in self._aside:
            slots = max(used[node], then[node] + self._head.cores)
            if self._level(slots) < self._level(slots + job.cores) and (spills or node in late):
                refused.append(node)
        return refused

    def _is_out_of_bounds(self, job: SimulatedJob) -> bool:
        asked_us = self._context.remaining_us(job)
        return any(job.nodes * job.cores >= procs and asked_us >= us for procs, us in self._bounds)

    def _raises_victim(self, job: SimulatedJob, wanted: _Places) -> bool:
        """Return whether a job there raises the multiplicity of one that ends by the head's start."""
        raises = (
            self._ncs.victims
            and self._start_us < FAR_US
            and any(
                max(self._jobs_on[place] for place in places & wanted) == self._multiplicity(number)
                for number, places in self._now.items()
                if number not in self._then and places & wanted
            )
        )
        if raises and self._ncs.bounds:
            self._bounds.append((job.nodes * job.cores, self._context.remaining_us(job)))
        return raises


def _places(cores: Cores) -> Iterator[tuple[int, int]]:
    return ((node, core) for node, ids in cores.items() for core in ids)
