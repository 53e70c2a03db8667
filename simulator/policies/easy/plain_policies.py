"""The built-in policies in plain Python, for runs in which another part is a user's, and as kernels.

EASY as NCS, the thesis's simulator, has it; in plain Python the same rules as in ``ncs``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from simulator.jit.field_records import StateAllocator, only_record
from simulator.model.jobs import PoolJobs, SimulatedJob
from simulator.model.system import FAR_US
from simulator.placement import Cores
from simulator.policies.easy.backfill_state import BackfillState, new_outlook, shapes_of
from simulator.policies.easy.easy_loop import run_events, run_lifecycle_events
from simulator.policies.easy.ncs import new_ncs
from simulator.policy_interface import Event, JobEnded, Program, SchedulerContext, Timer
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
    """EASY with a second choice of nodes and the three refusals of NCS; see ``ncs``.

    Parameters
    ----------
    victims, bounds, ends
        Which of the three hold.
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
        """Start queue heads while they fit, then who delays the head nowhere, or only on its nodes."""
        if self._postponed:
            return
        Fcfs().schedule(context)
        if context.waiting:
            _Pass(context, elsewhere=True, ncs=self).run()


class _Pass:
    """One pass over those behind the queue's head, with NCS's refusals or without them."""

    def __init__(self, context: SchedulerContext, *, elsewhere: bool, ncs: EasyNcs | None = None) -> None:
        self._context = context
        self._elsewhere = elsewhere
        self._ncs = ncs
        self._head, *self._rest = context.waiting
        self._bounds: list[tuple[int, int]] = []
        self._start_us: int | None = None  # not known, as always when something has started

    def run(self) -> None:
        context, refused = self._context, RefusedShapes(self._context)
        off = None
        for job in self._rest:
            first = None if self._is_out_of_bounds(job) or refused.covers(job) else context.place(job)
            if first is None:
                continue
            on = None if self._ncs is None else first
            delays = self._delays_head(job, on)
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

    def _is_out_of_bounds(self, job: SimulatedJob) -> bool:
        asked_us = self._context.remaining_us(job)
        return any(job.nodes * job.cores >= procs and asked_us >= us for procs, us in self._bounds)

    def _delays_head(self, job: SimulatedJob, on: Cores | None) -> bool:
        """Return whether the head starts later for ``job`` there; None: where the placement puts it."""
        context, head, ncs = self._context, self._head, self._ncs
        if self._start_us is None:
            self._start_us = context.earliest_start_us(head)
        if self._start_us == FAR_US:
            return False
        if ncs and ncs.victims and on and not context.keeps_rows and self._raises_victim(on):
            if ncs.bounds:
                self._bounds.append((job.nodes * job.cores, context.remaining_us(job)))
            return True
        return context.earliest_start_us(head, started=job, on=on) > self._start_us

    def _raises_victim(self, on: Cores) -> bool:
        """Return whether a job there raises the multiplicity of one that ends by the head's start."""
        context = self._context
        wanted = set(_places(on))
        held = {guest.number: set(_places(context.held(guest))) for guest in context.running}
        jobs_on = Counter(place for places in held.values() for place in places)
        stay = {guest.number for guest in context.running_at_start(self._head)}
        return any(
            max(jobs_on[place] for place in places & wanted) + 1 > max(jobs_on[place] for place in places)
            for number, places in held.items()
            if number not in stay and places & wanted
        )


def _places(cores: Cores) -> Iterator[tuple[int, int]]:
    return ((node, core) for node, ids in cores.items() for core in ids)
