"""The built-in policies in plain Python, for runs in which another part is a user's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from osub.errors import UsageError
from simulator.engine.state import EASY, EASY_ELSEWHERE, FCFS
from simulator.policies.rule import Desk


@dataclass(frozen=True, slots=True)
class Fcfs:
    """First come, first served: a job that does not fit holds up the rest."""

    code: ClassVar[int] = FCFS

    def schedule(self, desk: Desk) -> None:
        """Start queue heads while they fit."""
        while desk.waiting and desk.start(desk.waiting[0]):
            pass


@dataclass(frozen=True, slots=True)
class EasyElsewhere:
    """EASY in which a job that would delay the head is tried again, off the nodes that the head would take.

    It is built in only: it does not go with plug-ins, nor event by event.
    """

    code: ClassVar[int] = EASY_ELSEWHERE

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

    code: ClassVar[int] = EASY

    def schedule(self, desk: Desk) -> None:
        """Start queue heads while they fit, then, in order, the jobs that do not delay the head."""
        Fcfs().schedule(desk)
        if not desk.waiting:
            return
        head, *rest = desk.waiting
        for job in rest:
            if desk.place(job) is None:
                continue
            if desk.earliest_start_us(head, beside=job) <= desk.earliest_start_us(head):
                desk.start(job)
