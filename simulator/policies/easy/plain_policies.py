"""The built-in policies in plain Python, for runs in which another part is a user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from simulator.engine.building.build_state import PoolJobs
from simulator.jit.field_records import StateAllocator
from simulator.model.jobs import SimulatedJob
from simulator.policies.easy.backfill_state import BackfillState, new_outlook
from simulator.policy_interface import SchedulerContext
from simulator.state.engine_state import EngineState


@runtime_checkable
class BuiltinPolicy(Protocol):
    """A policy that kernels know."""

    def outlook(self, make: StateAllocator, state: EngineState, shapes: int) -> BackfillState | None:
        """Return what the kernels keep of the future, for jobs of so many shapes; FCFS keeps nothing."""
        ...


@runtime_checkable
class LoopPolicy(Protocol):
    """A policy whose kernels have an event loop of their own; all its runs have lifecycle tables."""

    def program(self, make: StateAllocator, state: EngineState, jobs: PoolJobs) -> Program:
        """Return the loop for a pool's jobs, and what it works on."""
        ...


class Program(NamedTuple):
    """An event loop that is a kernel, and its arguments but for the last: how many events it may process.

    It returns how many there were.
    """

    loop: Callable[..., int]
    arguments: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Fcfs:
    """First come, first served: a job that does not fit holds up the rest."""

    def outlook(self, make: StateAllocator, state: EngineState, shapes: int) -> None:
        """See ``BuiltinPolicy``."""

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
class Easy:
    """EASY backfilling: a later job may start if the queue's head can start no later for it."""

    def outlook(self, make: StateAllocator, state: EngineState, shapes: int) -> BackfillState:
        """See ``BuiltinPolicy``."""
        return new_outlook(make, state, shapes, elsewhere=False)

    def schedule(self, context: SchedulerContext) -> None:
        """Start queue heads while they fit, then, in order, the jobs that do not delay the head."""
        Fcfs().schedule(context)
        if not context.waiting:
            return
        head, *rest = context.waiting
        refused = RefusedShapes(context)
        start_us: int | None = None  # not known, as always when something has started
        for job in rest:
            if refused.covers(job) or context.place(job) is None:
                continue
            start_us = context.earliest_start_us(head) if start_us is None else start_us
            if context.earliest_start_us(head, beside=job) <= start_us:
                context.start(job)
                refused.forget()
                start_us = None
            else:
                refused.add(job)


@dataclass(frozen=True, slots=True)
class EasyElsewhere:
    """EASY in which a job that would delay the head is tried again, off the head's nodes."""

    def outlook(self, make: StateAllocator, state: EngineState, shapes: int) -> BackfillState:
        """See ``BuiltinPolicy``."""
        return new_outlook(make, state, shapes, elsewhere=True)

    def schedule(self, context: SchedulerContext) -> None:
        """Start queue heads while they fit, then, in order, the jobs that do not delay the head somewhere."""
        Fcfs().schedule(context)
        if not context.waiting:
            return
        head, *rest = context.waiting
        refused = RefusedShapes(context)
        off: Sequence[int] | None = None
        start_us: int | None = None
        for job in rest:
            if refused.covers(job) or context.place(job) is None:
                continue
            start_us = context.earliest_start_us(head) if start_us is None else start_us
            second = None
            if context.earliest_start_us(head, beside=job) > start_us:
                off = context.nodes_at_start(head) if off is None else off
                second = context.place(job, off=off)
                if second is None or context.earliest_start_us(head, beside=job, on=second) > start_us:
                    refused.add(job)
                    continue
            context.start(job, on=second)
            refused.forget()
            start_us = None
