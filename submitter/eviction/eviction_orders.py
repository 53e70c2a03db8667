"""What is done to a job that is to be evicted, and by which commands. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from foundation.errors import UsageError
from foundation.slurm import Receiver
from foundation.slurm.command_slurm import cancel_words, put_back_words, signal_words

PLACE = "{job}"


class Fate(StrEnum):
    """What becomes of a job."""

    KILL = "kill"
    APP = "app"
    SYSTEM = "system"


class Requeue(StrEnum):
    """Whether evicted jobs go back to the queue."""

    NO = "no"
    YES = "yes"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One job to evict.

    ``spec`` is what Slurm's commands call it, ``start_time`` tells this run of it from a later one,
    ``planned_s`` is how long its checkpoint takes.
    """

    spec: str
    job_id: int
    start_time: int
    fate: Fate
    planned_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How orders are carried out.

    Parameters
    ----------
    deadline_s
        Seconds from the first order on.
    signal_name, receiver
        What a job that saves itself is sent, and which of its processes get it.
    requeue
        Whether jobs go back to the queue.
    system_command
        Words of the command that checkpoints a job from outside, with ``{job}`` in place of its id; empty for
        none.
    """

    deadline_s: float
    signal_name: str = "USR1"
    receiver: Receiver = Receiver.STEPS
    requeue: Requeue = Requeue.NO
    system_command: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether jobs that go back to the queue are held there."""
        return self.requeue is Requeue.HELD


def commands(order: Order, ways: Ways) -> list[tuple[str, ...]]:
    """Return the commands of an order in turn, as they would be typed."""
    end = (
        cancel_words(order.spec)
        if ways.requeue is Requeue.NO
        else put_back_words(order.spec, held=ways.holds)
    )
    if order.fate is Fate.APP:
        return [signal_words(order.spec, ways.signal_name, ways.receiver), end]
    if order.fate is Fate.SYSTEM:
        return [system_words(ways.system_command, order.spec), end]
    return [end]


def system_words(template: Sequence[str], spec: str) -> tuple[str, ...]:
    """Return the operator's command for a job; the id is a number, so it is part of one word."""
    return tuple(word.replace(PLACE, spec) for word in template)


def read_template(text: str) -> tuple[str, ...]:
    """Split the operator's command into words, as a shell would; no shell ever sees them.

    Raises
    ------
    UsageError
        It cannot be split, is empty, or does not say where the job's id goes.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"the command to checkpoint a job cannot be split into words: {error}") from error
    if not words or not any(PLACE in word for word in words):
        raise UsageError(f"the command to checkpoint a job must have {PLACE} where its id goes")
    return words
