"""The built-in policies in plain Python, for runs in which another part is a user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from osub.errors import UsageError
from simulator.engine.build import PoolJobs
from simulator.engine.records import Maker, only_record
from simulator.engine.state import RulesRecord, State
from simulator.policies.ncs import new_ncs
from simulator.policies.outlook import Outlook, new_outlook
from simulator.policies.rule import Desk


@runtime_checkable
class BuiltinPolicy(Protocol):
    """A policy that kernels know."""

    def outlook(self, make: Maker, state: State, shapes: int) -> Outlook | None:
        """Return what the kernels keep of the future, for jobs of so many shapes; FCFS keeps nothing."""
        ...


@runtime_checkable
class LoopPolicy(Protocol):
    """A policy whose kernels have an event loop of their own; all its runs have tables of lives."""

    def program(self, make: Maker, state: State, jobs: PoolJobs) -> Program:
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

    def outlook(self, make: Maker, state: State, shapes: int) -> None:
        """See ``BuiltinPolicy``."""

    def schedule(self, desk: Desk) -> None:
        """Start queue heads while they fit."""
        while desk.waiting and desk.start(desk.waiting[0]):
            pass


@dataclass(frozen=True, slots=True)
class Easy:
    """EASY backfilling: a later job may start if the queue's head can start no later for it."""

    def outlook(self, make: Maker, state: State, shapes: int) -> Outlook:
        """See ``BuiltinPolicy``."""
        return new_outlook(make, state, shapes, elsewhere=False)

    def schedule(self, desk: Desk) -> None:
        """Start queue heads while they fit, then, in order, the jobs that do not delay the head."""
        Fcfs().schedule(desk)
        if not desk.waiting:
            return
        head, *rest = desk.waiting
        refused: dict[tuple[int, ...], int] = {}
        start_us: int | None = None  # not known, as always when something has started
        for job in rest:
            shape = (job.nodes, job.cores, job.memory_kib, job.app)
            asked_us = desk.remaining_us(job)
            if refused.get(shape, asked_us + 1) <= asked_us or desk.place(job) is None:
                continue
            start_us = desk.earliest_start_us(head) if start_us is None else start_us
            if desk.earliest_start_us(head, beside=job) <= start_us:
                desk.start(job)
                refused.clear()
                start_us = None
            else:
                refused[shape] = asked_us


@dataclass(frozen=True, slots=True)
class EasyElsewhere:
    """EASY in which a job that would delay the head is tried again, off the head's nodes."""

    def outlook(self, make: Maker, state: State, shapes: int) -> Outlook:
        """See ``BuiltinPolicy``."""
        return new_outlook(make, state, shapes, elsewhere=True)

    def schedule(self, desk: Desk) -> None:
        """Start queue heads while they fit, then, in order, the jobs that do not delay the head somewhere."""
        Fcfs().schedule(desk)
        if not desk.waiting:
            return
        head, *rest = desk.waiting
        off: Sequence[int] | None = None
        start_us: int | None = None
        for job in rest:
            if desk.place(job) is None:
                continue
            start_us = desk.earliest_start_us(head) if start_us is None else start_us
            if desk.earliest_start_us(head, beside=job) <= start_us:
                desk.start(job)
                start_us = None
                continue
            off = desk.nodes_at_start(head) if off is None else off
            second = desk.place(job, off=off)
            if second is not None and desk.earliest_start_us(head, beside=job, on=second) <= start_us:
                desk.start(job, on=second)
                start_us = None


@dataclass(frozen=True, slots=True)
class EasyNcs:
    """EASY with a second choice of nodes and the three refusals of NCS; see ``ncs``.

    It is built in only: it does not go with plug-ins, nor event by event.
    """

    victims: bool = True
    bounds: bool = True
    ends: bool = True

    def outlook(self, make: Maker, state: State, shapes: int) -> Outlook:
        """See ``BuiltinPolicy``."""
        jobs = only_record(RulesRecord, state.rules).jobs
        rules = new_ncs(make, jobs, (self.victims, self.bounds, self.ends))
        return new_outlook(make, state, shapes, elsewhere=True, ncs=rules)

    def schedule(self, desk: Desk) -> None:  # noqa: ARG002
        """Refuse.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError("policy easy-ncs goes with built-in rules only, and not with --slices or --check")
