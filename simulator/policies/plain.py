"""The built-in policies in plain Python, for runs in which another part is a user's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from osub.errors import UsageError
from simulator.engine.records import Maker
from simulator.engine.state import State
from simulator.policies.easy import Outlook, new_outlook
from simulator.policies.rule import Desk


@runtime_checkable
class BuiltinPolicy(Protocol):
    """A policy that kernels know."""

    def outlook(self, make: Maker, state: State, shapes: int) -> Outlook | None:
        """Return what the kernels keep of the future, for jobs of so many shapes; FCFS keeps nothing."""
        ...


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
class EasyElsewhere:
    """EASY in which a job that would delay the head is tried again, off the nodes that the head would take.

    It is built in only: it does not go with plug-ins, nor event by event.
    """

    def outlook(self, make: Maker, state: State, shapes: int) -> Outlook:
        """See ``BuiltinPolicy``."""
        return new_outlook(make, state, shapes, elsewhere=True)

    def schedule(self, desk: Desk) -> None:  # noqa: ARG002
        """Refuse.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError(
            "policy easy-elsewhere goes with built-in rules only, and not with --slices or --check"
        )


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
        for job in rest:
            shape = (job.nodes, job.cores, job.memory_kib, job.app)
            if refused.get(shape, job.requested_us + 1) <= job.requested_us or desk.place(job) is None:
                continue
            if desk.earliest_start_us(head, beside=job) <= desk.earliest_start_us(head):
                desk.start(job)
                refused.clear()
            else:
                refused[shape] = job.requested_us
