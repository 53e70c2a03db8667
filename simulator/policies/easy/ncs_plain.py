"""EASY as NCS, the thesis's simulator, has it; in plain Python the same rules as in ``ncs``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from simulator.jit.field_records import StateAllocator, only_record
from simulator.model.jobs import SimulatedJob
from simulator.placement import Cores
from simulator.policies.easy.backfill_state import BackfillState, new_outlook
from simulator.policies.easy.ncs import new_ncs
from simulator.policies.easy.plain_policies import Fcfs, RefusedShapes
from simulator.policy_interface import Event, JobEnded, SchedulerContext, Timer
from simulator.state.engine_state import FAR_US, EngineRulesRecord, EngineState

_ALL_HAVE_ENDED = "all have ended"


@dataclass(slots=True)
class EasyNcs:
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
        """See ``BuiltinPolicy``."""
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
            _Pass(self, context).run()


class _Pass:
    """One pass over those behind the queue's head."""

    def __init__(self, policy: EasyNcs, context: SchedulerContext) -> None:
        self._policy = policy
        self._context = context
        self._head, *self._rest = context.waiting
        self._bounds: list[tuple[int, int]] = []
        self._start_us: int | None = None

    def run(self) -> None:
        context, refused = self._context, RefusedShapes(self._context)
        off = None
        for job in self._rest:
            first = None if self._is_out_of_bounds(job) or refused.covers(job) else context.place(job)
            if first is None:
                continue
            chosen: Cores | None = first
            if self._delays_head(job, first):
                off = context.nodes_at_start(self._head) if off is None else off
                chosen = context.place(job, off=off)
                if chosen is not None and self._delays_head(job, chosen):
                    chosen = None
            if chosen is None:
                refused.add(job)
                continue
            context.start(job, on=chosen)
            refused.forget()
            self._start_us = None

    def _is_out_of_bounds(self, job: SimulatedJob) -> bool:
        asked_us = self._context.remaining_us(job)
        return any(job.nodes * job.cores >= procs and asked_us >= us for procs, us in self._bounds)

    def _delays_head(self, job: SimulatedJob, on: Cores) -> bool:
        context, head = self._context, self._head
        if self._start_us is None:
            self._start_us = context.earliest_start_us(head)
        if self._start_us == FAR_US:
            return False
        if self._policy.victims and not context.keeps_rows and self._raises_victim(on):
            if self._policy.bounds:
                self._bounds.append((job.nodes * job.cores, context.remaining_us(job)))
            return True
        return context.earliest_start_us(head, beside=job, on=on) > self._start_us

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
