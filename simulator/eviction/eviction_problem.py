"""The eviction problem: which jobs to kill or to checkpoint so that K nodes are free by a deadline.

How long checkpoints take and what a kill loses (CoSim, section III-B).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from itertools import groupby

from foundation.errors import UsageError
from foundation.units import counted, verb

_S_PER_H, _S_PER_MIN = 3600.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The file system: bandwidths in GB/s of all of it, and of one node (None: no limit of its own)."""

    all_gb_s: float
    node_gb_s: float | None

    def share(self, nodes: int) -> float:
        """Return which part of the bandwidth so many nodes use at most."""
        return 1.0 if self.node_gb_s is None else min(1.0, nodes * self.node_gb_s / self.all_gb_s)

    def write_s(self, nodes: int, gb_a_node: float) -> float:
        """Return the seconds in which ``nodes`` nodes write so much each (equation 1)."""
        together_s = nodes * gb_a_node / self.all_gb_s
        return together_s if self.node_gb_s is None else max(together_s, gb_a_node / self.node_gb_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """A job's checkpoints: sizes in GB a node, and seconds between those that it takes by itself."""

    system_gb: float
    app_gb: float
    every_s: float = _S_PER_H

    def loss(self, nodes: int, elapsed_s: float) -> float:
        """Return the node-hours since the last checkpoint, the first being the start."""
        return nodes * (elapsed_s % self.every_s) / _S_PER_H

    def wait_min(self, elapsed_s: float) -> float:
        """Return the minutes until the next checkpoint."""
        return (self.every_s - elapsed_s % self.every_s) / _S_PER_MIN

    def ts_min(self, nodes: int, storage: Storage) -> float:
        """Return the minutes of a system-level checkpoint."""
        return storage.write_s(nodes, self.system_gb) / _S_PER_MIN

    def ta_min(self, nodes: int, elapsed_s: float, storage: Storage) -> float:
        """Return the minutes of an application-level checkpoint, the wait for it included."""
        return self.wait_min(elapsed_s) + storage.write_s(nodes, self.app_gb) / _S_PER_MIN


FINEST_LOSS = 1_000_000
"""Parts of a node-hour in which losses are counted, where their sum allows it."""
MOST_STEPS = 10_000
MOST_NODES = 1_000_000
MOST_LOSS = 1e12
MOST_MINUTES = 1e6
_ROOM = 1 << 61


class EvictionChoice(StrEnum):
    """What becomes of a job that is evicted."""

    KILL = "kill"
    APP = "app"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictableJob:
    """A running job, the tuple of section II.

    Parameters
    ----------
    name
        Its identifier, unique in a question.
    nodes
        Nodes that it holds, at least 1.
    loss
        Node-hours that are lost if it is killed; None: it may not be killed.
    ts_min, ta_min
        Minutes that a system-level and an application-level checkpoint take; None: there is none.
    wait_min
        How much of ``ta_min`` passes before the application begins to write.
    share
        Of the storage's bandwidth, what it uses while it writes alone, above 0 and at most 1.
    """

    name: str
    nodes: int
    loss: float | None
    ts_min: float | None = None
    ta_min: float | None = None
    wait_min: float = 0.0
    share: float = 1.0

    def minutes(self, choice: EvictionChoice) -> float | None:
        """Return how long a choice takes; None where it can't be chosen."""
        if choice is EvictionChoice.KILL:
            return None if self.loss is None else 0.0
        return self.ta_min if choice is EvictionChoice.APP else self.ts_min


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which of ``jobs`` to evict so that ``need`` nodes are free, for all deadlines up to one.

    Parameters
    ----------
    jobs
        The jobs, in the order that settles ties.
    need
        K, nodes to free by eviction; 0 or less is the empty set.
    deadline_min
        T, in minutes; a multiple of ``step_min``.
    step_min
        Granularity of times; checkpoints are rounded up to it, so that no deadline is missed.
    steps
        The deadline in steps.

    Raises
    ------
    UsageError
        The deadline is negative, no multiple of the granularity, or makes too many steps; K is more than all
        nodes of the jobs.
    """

    jobs: Sequence[EvictableJob]
    need: int
    deadline_min: float
    step_min: float = 1.0
    steps: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", _steps(self.deadline_min, self.step_min))
        held = sum(job.nodes for job in self.jobs)
        if self.need > held:
            raise UsageError(
                f"{counted(self.need, 'node')} cannot be freed: the {counted(len(self.jobs), 'job')} "
                f"{verb(len(self.jobs), 'holds', 'hold')} {held}"
            )

    def steps_of(self, minutes: float | None) -> int | None:
        """Return a time in steps, rounded up; None where there is none, or it is past the deadline."""
        if minutes is None:
            return None
        steps = math.ceil(minutes if self.step_min == 1 else _exact(minutes) / _exact(self.step_min))
        return steps if steps <= self.steps else None

    def minutes_of(self, steps: int) -> float:
        """Return steps in minutes."""
        return float(steps if self.step_min == 1 else steps * _exact(self.step_min))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionAnswer:
    """Which jobs to evict for one deadline, and what it costs.

    ``loss`` is in node-hours, ``checkpoint_min`` the sum of the checkpoints' times, rounded up one by one,
    ``nodes`` how many nodes are freed. They are None where it is not possible.
    """

    deadline_min: float
    possible: bool
    loss: float | None = None
    checkpoint_min: float | None = None
    nodes: int | None = None
    choices: Mapping[str, EvictionChoice]


def answer_of(question: Question, step: int, choices: Mapping[int, EvictionChoice] | None) -> EvictionAnswer:
    """Return the answer for a deadline in steps from choices by place among the jobs; None: none suffice."""
    if choices is None:
        return EvictionAnswer(deadline_min=question.minutes_of(step), possible=False, choices={})
    spent = 0
    for place, choice in choices.items():
        steps = question.steps_of(question.jobs[place].minutes(choice))
        assert steps is not None, "a choice that is not possible"
        spent += steps
    killed = [place for place, choice in choices.items() if choice is EvictionChoice.KILL]
    return EvictionAnswer(
        deadline_min=question.minutes_of(step),
        possible=True,
        loss=math.fsum(question.jobs[place].loss or 0.0 for place in killed),
        checkpoint_min=question.minutes_of(spent),
        nodes=sum(question.jobs[place].nodes for place in choices),
        choices={question.jobs[place].name: choices[place] for place in sorted(choices)},
    )


def loss_parts(question: Question) -> int:
    """Return in how many parts a node-hour is counted: as fine as the sum of all losses and a count allow."""
    parts = FINEST_LOSS
    total = math.fsum(job.loss or 0.0 for job in question.jobs)
    while parts > 1 and (total * parts + len(question.jobs)) * (len(question.jobs) + 1) >= _ROOM:
        parts //= 10
    return parts


def whole_losses(question: Question) -> list[int | None]:
    """Return the losses in whole parts of a node-hour."""
    parts = loss_parts(question)
    return [None if job.loss is None else round(job.loss * parts) for job in question.jobs]


def _steps(deadline_min: float, step_min: float) -> int:
    if not (math.isfinite(step_min) and step_min > 0):
        raise UsageError(f"the granularity is a number of minutes above zero, not {step_min:g}")
    if not (math.isfinite(deadline_min) and deadline_min >= 0):
        raise UsageError(f"the deadline is a number of minutes, zero or more, not {deadline_min:g}")
    steps = _exact(deadline_min) / _exact(step_min)
    if steps.denominator != 1:
        raise UsageError(f"the deadline, {deadline_min:g} min, is no multiple of {step_min:g} min")
    if steps > MOST_STEPS:
        raise UsageError(f"{deadline_min:g} min in steps of {step_min:g} min: at most {MOST_STEPS:,} steps")
    return int(steps)


def overlapped_min(jobs: Sequence[EvictableJob], choices: Mapping[str, EvictionChoice]) -> float:
    """Return after how many minutes the last checkpoint of a set is written; nothing is rounded.

    The waits of applications pass side by side, and so do writes that leave bandwidth to others (``share``).
    Algorithm 1 adds up whole times, waits included, which is pessimistic: while one application computes on
    to its next checkpoint, another can write. Writes begin when their waits are over and divide bandwidth
    so that the last is done as early as can be: whatever instant one takes, what is still to be written then,
    had each written alone since its wait, needs the whole bandwidth for so long at least.
    """
    writes = []
    for job in jobs:
        choice = choices.get(job.name)
        if choice is EvictionChoice.APP:
            writes.append((job.wait_min, (job.ta_min or 0.0) - job.wait_min, job.share))
        elif choice is EvictionChoice.SYSTEM:
            writes.append((0.0, job.ts_min or 0.0, job.share))
    alone = max((ready + length for ready, length, _ in writes), default=0.0)
    instants = {ready for ready, _, _ in writes}
    return max([alone, *(at + sum(still_to_write(at, *write) for write in writes) for at in instants)])


def still_to_write(at: float, ready: float, length: float, share: float) -> float:
    """Return what a write that began when it was ready leaves at an instant, in minutes of all bandwidth."""
    return share * max(0.0, length - max(0.0, at - ready))


def _exact(minutes: float) -> Fraction:
    """Return the decimal number that was written, so that 1.1 is eleven times 0.1."""
    return Fraction(repr(minutes))


ABSENT = "-"
ANSWER_COLUMNS = ("deadline", "loss", "checkpoints", "nodes", "kill", "app", "system")
CHOICE_COLUMNS = ("job", "choice")


def answer_rows(answers: Sequence[EvictionAnswer]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns and a row for each answer: what it costs, and how many jobs meet which fate.

    Deadlines with the same answer are one row, such as ``7 to 15``.
    """
    return ANSWER_COLUMNS, [_row(same) for same in alike(answers)]


def alike(answers: Sequence[EvictionAnswer]) -> list[list[EvictionAnswer]]:
    """Return the answers in groups of neighbours that say the same."""
    return [list(same) for _, same in groupby(answers, key=lambda answer: (answer.possible, answer.choices))]


def choice_rows(answer: EvictionAnswer) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns and one row for each job that is evicted."""
    return CHOICE_COLUMNS, [(name, choice.value) for name, choice in answer.choices.items()]


def _row(same: Sequence[EvictionAnswer]) -> tuple[str, ...]:
    answer = same[0]
    deadline = f"{answer.deadline_min:g}" + (f" to {same[-1].deadline_min:g}" if len(same) > 1 else "")
    if answer.loss is None or answer.checkpoint_min is None or answer.nodes is None:
        return (deadline, "not possible", *(ABSENT,) * 5)
    often = Counter(answer.choices.values())
    return (
        deadline,
        f"{answer.loss:,.2f}" if answer.loss == 0 or answer.loss >= 0.1 else f"{answer.loss:.2g}",
        f"{answer.checkpoint_min:g}",
        f"{answer.nodes:,}",
        *(str(often[choice]) for choice in EvictionChoice),
    )
