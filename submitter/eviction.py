"""Carrying out orders: kills first, then checkpoints one after another, all by one deadline.

A job that is to be killed is cancelled, or put back to the queue. One that saves itself is sent a signal; it
has until the deadline, less what the checkpoints after it need, to end by itself, and is then ended. One that
is checkpointed from outside waits as long for the operator's command, and is ended then. Before each order
Slurm is asked: a job that has ended, or that has started again since it was chosen, is left alone. A refusal
by Slurm is reported for its job, and the others go on.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from foundation.errors import ClusterError, OsubError, UsageError
from foundation.one_line import one_line
from foundation.slurm import Receiver, SlurmClient, SlurmJob, SlurmJobState
from foundation.slurm.command_slurm import cancel_words, put_back_words, signal_words
from foundation.slurm.run_command import CommandOutput
from foundation.slurm.slurm_types import SlurmRefusedError, SlurmUnreachableError, UnreadableJobError

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
class EvictionOrder:
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
class EvictionMeans:
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


def commands(order: EvictionOrder, ways: EvictionMeans) -> list[tuple[str, ...]]:
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


POLL_S = 1.0
END_PATIENCE_S = 60.0
"""How long after the deadline jobs may take to let go of their nodes: Slurm's KillWait, and an epilog."""


class OrderEnd(StrEnum):
    """What came of an order."""

    CANCELLED = "cancelled"
    REQUEUED = "put back to the queue"
    SAVED = "ended by itself after the signal"
    GONE = "had ended already"
    RESTARTED = "has started again since: left alone"
    REFUSED = "refused by Slurm"
    UNKNOWN = "not known"
    INTERRUPTED = "interrupted meanwhile"
    NOT_DONE = "not done"


@dataclass(slots=True)
class OrderOutcome:
    """What came of an order, after how many seconds, and what else is to be said."""

    order: EvictionOrder
    end: OrderEnd = OrderEnd.NOT_DONE
    after_s: float | None = None
    note: str = ""

    def add(self, note: str) -> None:
        """Say something more."""
        self.note = f"{self.note}; {note}" if self.note else note


@dataclass(slots=True, kw_only=True)
class Eviction:
    """Carries orders out; ``outcomes`` tells at any time how far it is.

    ``holding`` has the jobs that are not known to have let go of their nodes, ``freed_s`` when the last one
    that was evicted did, None if it did not.

    Parameters
    ----------
    client, orders, ways
        Slurm, the jobs, and how.
    run_command
        Runs the operator's command for so many seconds at most.
    clock, pause
        Seconds that only go up, and waiting.
    tell
        Called with each outcome as it comes.
    """

    client: SlurmClient
    orders: Sequence[EvictionOrder]
    ways: EvictionMeans
    run_command: Callable[[Sequence[str], float], CommandOutput]
    clock: Callable[[], float]
    pause: Callable[[float], None]
    tell: Callable[[OrderOutcome], None]
    outcomes: list[OrderOutcome] = field(init=False)
    holding: set[str] = field(init=False)
    freed_s: float | None = None
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.outcomes = [OrderOutcome(order) for order in self.orders]
        self.holding = {order.spec for order in self.orders}

    def run(self) -> None:
        """Carry out all orders, and wait until the jobs have let go of their nodes."""
        self._began = self.clock()
        saving = [one for one in self.outcomes if one.order.fate is not Fate.KILL]
        for one in self.outcomes:
            if one.order.fate is Fate.KILL:
                self._carry_out(one, self._began)
        for place, one in enumerate(saving):
            later_s = sum(other.order.planned_s for other in saving[place + 1 :])
            self._carry_out(one, self._began + max(0.0, self.ways.deadline_s - later_s))
        self._wait_for_nodes()

    @property
    def passed_s(self) -> float:
        """Seconds since the first order."""
        return self.clock() - self._began

    def _carry_out(self, one: OrderOutcome, until: float) -> None:
        act = {Fate.KILL: self._kill, Fate.APP: self._let_save, Fate.SYSTEM: self._save_from_outside}
        one.end = OrderEnd.INTERRUPTED
        try:
            left_alone = self._left_alone(one.order)
            if left_alone is None:
                act[one.order.fate](one, until)
            else:
                one.end = left_alone
        except SlurmRefusedError as error:
            one.end = OrderEnd.REFUSED
            one.add(_reason(error))
        except ClusterError as error:
            one.end = OrderEnd.UNKNOWN
            one.add(one_line(str(error)))
        one.after_s = self.passed_s
        self.tell(one)

    def _left_alone(self, order: EvictionOrder) -> OrderEnd | None:
        """Return what is to be said of a job that this run of it is no more of; None where it runs."""
        job = self._job(order)
        if job is None or job.state is SlurmJobState.COMPLETING or not job.state.holds_cores:
            return OrderEnd.GONE
        return None if job.start_time == order.start_time else OrderEnd.RESTARTED

    def _kill(self, one: OrderOutcome, _until: float) -> None:
        if self.ways.requeue is not Requeue.NO and self._put_back(one):
            one.end = OrderEnd.REQUEUED
            return
        self.client.cancel([one.order.spec])
        one.end = OrderEnd.CANCELLED

    def _put_back(self, one: OrderOutcome) -> bool:
        """Put a job back to the queue; return whether Slurm did, and say why not."""
        try:
            self.client.put_back(one.order.spec, held=self.ways.holds)
        except SlurmRefusedError as error:
            one.add(f"not put back to the queue: {_reason(error)}")
            return False
        return True

    def _let_save(self, one: OrderOutcome, until: float) -> None:
        self.client.signal(one.order.spec, self.ways.signal_name, self.ways.receiver)
        one.note = "signalled"
        job = self._wait_for_end(one.order, until)
        if job is not None and job.state.holds_cores and job.state is not SlurmJobState.COMPLETING:
            if job.start_time != one.order.start_time:
                one.end = OrderEnd.RESTARTED
                return
            one.note = "it did not end by itself in time: whether it was saved is not known"
            self._kill(one, until)
            return
        one.end, one.note = OrderEnd.SAVED, _how_it_ended(job)
        is_over = job is not None and job.state.is_over
        if self.ways.requeue is not Requeue.NO and is_over and self._put_back(one):
            one.add("put back to the queue")

    def _save_from_outside(self, one: OrderOutcome, until: float) -> None:
        words = system_words(self.ways.system_command, one.order.spec)
        try:
            answer = self.run_command(words, max(0.0, until - self.clock()))
        except OsubError as error:
            one.note = f"not checkpointed: {one_line(str(error))}"
        else:
            said = (answer.stderr or answer.stdout).strip().splitlines()
            why = said[-1] if said else f"exit code {answer.returncode}"
            one.note = "checkpointed" if answer.returncode == 0 else f"not checkpointed: {one_line(why)}"
        self._kill(one, until)

    def _wait_for_end(self, order: EvictionOrder, until: float) -> SlurmJob | None:
        """Return the job once it has let go of its nodes, or when the time is up; None if it is gone.

        Raises
        ------
        ClusterError
            The time is up, and Slurm does not tell of it.
        """
        while True:
            is_late = self.clock() >= until
            try:
                job = self._job(order)
            except (SlurmUnreachableError, UnreadableJobError):
                if is_late:
                    raise
            else:
                is_same = job is not None and job.start_time == order.start_time
                if job is None or not is_same or not job.state.holds_cores or is_late:
                    return job
            self.pause(POLL_S)

    def _wait_for_nodes(self) -> None:
        """Wait until no job of an order that was carried out holds nodes any more, within bounds."""
        until = self._began + max(self.ways.deadline_s, self.passed_s) + END_PATIENCE_S
        ended = {OrderEnd.CANCELLED, OrderEnd.REQUEUED, OrderEnd.SAVED, OrderEnd.GONE, OrderEnd.RESTARTED}
        waiting = {one.order.spec: one.order.start_time for one in self.outcomes if one.end in ended}
        while True:
            try:
                jobs = self.client.jobs().jobs
            except SlurmUnreachableError:
                if self.clock() >= until:
                    return
            else:
                held = {job.spec for job in jobs if _holds(job, waiting)}
                self.holding -= waiting.keys() - held
                if not self.holding & waiting.keys():
                    self.freed_s = self.passed_s
                    return
                if self.clock() >= until:
                    return
            self.pause(POLL_S)

    def _job(self, order: EvictionOrder) -> SlurmJob | None:
        """Return the job of an order, of a heterogeneous one a component that runs if any does."""
        snapshot = self.client.jobs()
        if snapshot.is_unreadable(order.job_id):
            raise UnreadableJobError("; ".join(map(str, snapshot.unreadable[:3])))
        found = [job for job in snapshot.jobs if job.spec == order.spec]
        running = [job for job in found if job.state.holds_cores]
        return next(iter(running or found), None)


def _holds(job: SlurmJob, started: Mapping[str, int]) -> bool:
    """Whether a job holds its nodes still, in the run that was evicted; a requeued one completes first."""
    is_same = job.start_time == started.get(job.spec) or job.state is SlurmJobState.COMPLETING
    return job.state.holds_cores and is_same


def _how_it_ended(job: SlurmJob | None) -> str:
    if job is None:
        return "Slurm does not know it any more"
    if not job.state.is_over or job.state is SlurmJobState.COMPLETED:
        return str(job.state)
    code = "" if job.exit_code is None else f", exit code {job.exit_code}"
    signal = "" if job.exit_signal is None else f", signal {job.exit_signal}"
    return f"{job.state}{code}{signal}: perhaps nothing was saved"


def _reason(error: SlurmRefusedError) -> str:
    """Return what Slurm said, without the command before it."""
    return one_line(str(error).rpartition("failed: ")[2])
