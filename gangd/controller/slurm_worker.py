"""Talks to Slurm in a thread of its own: a slow slurmctld must not delay a slice.

Everything that Slurm says, and every failure, comes back through ``answers``; ``fd`` is readable while one
waits. Ends are moved between two looks, the nearest first, many by one command; what Slurm did not answer is
tried again. Slurm is away for as long as it likes. An unexpected exception (an answer of Slurm that breaks
its reader) is a ``Death`` among the answers, and the thread begins anew.

While looks bring nothing new they become rarer, down to one in ``SLOWEST_S``: agents tell of jobs that begin
and end, and then Slurm is asked at once. Asking at once that brings nothing new becomes rarer, too, down to
the usual pause: one node that cries wolf must not keep slurmctld busy. Nodes are asked for once in a minute;
sooner when they come and go, or an agent is of one that is not known; and in the very look that shows a job
on such a node.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from foundation.errors import OsubError
from foundation.slurm import JobSnapshot, Reservation, SlurmClient, SlurmJob, SlurmNode
from foundation.slurm.run_command import end_commands
from foundation.slurm.slurm_client import MarkField, sharing_text
from foundation.units import counted
from gangd.controller.controller_config import Config
from gangd.controller.examine_slurm import examine
from gangd.controller.slurm_view import Marks
from gangd.daemon_process import Death, WatchedThread

NODES_EVERY_S = 60.0
NODES_SOON_S = 5.0  # while nodes come and go: agents of a node that is not known are refused
SLOWEST_S = 5.0
SLOWER = 1.5
LEAST_PAUSE_S = 0.1
MOVES_A_CALL = 100  # they hold up looks: some 0.3 s
MOVE_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class SlurmObserved:
    """Slurm answered: all jobs; nodes and reservations if they were asked for too.

    Instants are on CLOCK_MONOTONIC. ``completed``: jobs that ended well, where that was
    asked for.
    """

    asked_ns: int
    snapshot: JobSnapshot
    nodes: Sequence[SlurmNode] | None
    reservations: Sequence[Reservation] | None = None
    completed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Failed:
    """A call failed: which, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class LimitsMoved:
    """Ends of jobs were moved; for some, Slurm may have refused it."""

    ends_s: Mapping[int, float]
    refused: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Checked:
    """A configuration was held against Slurm's: warnings, or why it cannot be in force (``refusal``).

    ``hides_jobs``: whether Slurm shows a user his own jobs only; ``partitions``: those that there are.
    """

    config: Config
    warnings: tuple[str, ...] = ()
    refusal: str | None = None
    hides_jobs: bool = True
    partitions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Marked:
    """Jobs were marked, so many; for some, Slurm refused it. ``denied``: none may be, no more is tried."""

    jobs: int
    refused: Mapping[int, str]
    denied: bool


Answer = SlurmObserved | Failed | LimitsMoved | Checked | Marked | Death


class SlurmWorker:
    """The thread.

    Parameters
    ----------
    client
        Used by the thread alone.
    every_s
        Pause between two looks at the jobs while they change.
    clock
        CLOCK_MONOTONIC in ns.
    again_s
        When ends are moved again that Slurm did not answer.
    nodes_soon_s
        How often nodes are asked for at most while they come and go.

    Attributes
    ----------
    asks_ends
        Whether Slurm is asked which jobs ended well when some are gone.
    """

    def __init__(
        self,
        client: SlurmClient,
        every_s: float,
        clock: Callable[[], int] = time.monotonic_ns,
        again_s: float = MOVE_AGAIN_S,
        nodes_soon_s: float = NODES_SOON_S,
    ) -> None:
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.every_s = every_s
        self.asks_ends = False
        self._client = client
        self._clock = clock
        self._again_s = again_s
        self._soon_s = nodes_soon_s
        self._moves: dict[int, tuple[float, float]] = {}
        self._moves_s = 0.0
        self._unchecked: Config | None = None
        self._marks = Marks()
        self._wake = threading.Condition()
        self._asked = True
        self._asked_pause_s = LEAST_PAUSE_S
        self._leaving = False
        self._pause_s = every_s
        self._seen: dict[int, SlurmJob] = {}
        self._number: int | None = None
        self._has_looked = False
        self._names: frozenset[str] | None = None
        self._nodes_come = True
        self._nodes_asked = False
        self._news = True
        self._thread = WatchedThread("slurm", self._run, self._put)

    def start(self) -> None:
        """Begin with a look at the jobs."""
        self._thread.start()

    def ask(self) -> None:
        """Look at the jobs soon, not only when it is time."""
        with self._wake:
            self._asked = True
            self._wake.notify()

    def ask_nodes(self) -> None:
        """Look at the nodes soon, too: an agent is of one that is not known."""
        with self._wake:
            self._asked = self._nodes_asked = True
            self._wake.notify()

    def mark(self, jobs: Sequence[int]) -> None:
        """Have jobs marked as sharing cores after one of the looks to come, if marks are wanted."""
        with self._wake:
            self._marks.add(jobs)

    def mark_in(self, where: MarkField | None) -> None:
        """Say in which field jobs are marked from now on; None: in none."""
        with self._wake:
            self._marks.set_field(where)

    def move_end(self, job: int, end_s: float, due_s: float) -> None:
        """Move a job's end, which is ``due_s`` now; of two moves of a job that wait the later counts."""
        with self._wake:
            self._moves[job] = (due_s, end_s)
            self._wake.notify()

    def check(self, config: Config) -> None:
        """Hold a configuration against Slurm's, as at the start; of two that wait the later counts."""
        with self._wake:
            self._unchecked = config
            self._wake.notify()

    def take(self) -> list[Answer]:
        """Take all answers that wait."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return []
        answers = []
        while not self.answers.empty():
            answers.append(self.answers.get())
        return answers

    def stop(self, within_s: float = 1.0) -> None:
        """End the thread, and a command that hangs; another call that hangs ends with the process."""
        with self._wake:
            self._leaving = True
            self._wake.notify()
        if self._thread.stop(within_s):
            os.close(self.fd)
        else:
            end_commands()

    def _run(self) -> None:
        looked_s = nodes_s = float("-inf")
        while True:
            with self._wake:
                least_s = self._asked_pause_s if self._asked else self._pause_s
                pause_s = looked_s + least_s - time.monotonic()
                may_move = bool(self._moves) and time.monotonic() >= self._moves_s
                if pause_s > 0 and not (may_move or self._unchecked or self._leaving):
                    self._wake.wait(pause_s)
                    continue
                if self._leaving:
                    return
                moves = self._urgent() if may_move else {}
                unchecked, self._unchecked = self._unchecked, None
                if pause_s <= 0:
                    asked, self._asked = self._asked, False
                    soon = self._nodes_come or self._nodes_asked
                    with_nodes = time.monotonic() >= nodes_s + (self._soon_s if soon else NODES_EVERY_S)
                    self._nodes_asked = self._nodes_asked and not with_nodes
            if unchecked is not None:
                self._put(self._checked(unchecked))
            if moves and not self._answer(
                f"move the ends of {counted(len(moves), 'job')}", partial(self._move, moves)
            ):
                self._put_back(moves)
            if pause_s <= 0:
                answered = self._answer("ask for jobs", partial(self._look, with_nodes))
                looked_s = time.monotonic()
                if answered and with_nodes:
                    nodes_s = looked_s
                if answered:
                    self._mark()
                if asked:
                    slower_s = min(self._asked_pause_s * 2, max(self.every_s, LEAST_PAUSE_S))
                    self._asked_pause_s = LEAST_PAUSE_S if self._news else slower_s
                quiet = answered and not asked and not self._news
                slower_s = min(self._pause_s * SLOWER, SLOWEST_S) if quiet else 0.0
                self._pause_s = max(self.every_s, slower_s)

    def _look(self, with_nodes: bool) -> SlurmObserved:
        nodes = self._ask_nodes() if with_nodes else None
        reservations = self._client.reservations() if with_nodes else None
        asked_ns = self._clock()
        snapshot = self._client.jobs()
        before = frozenset(self._seen) if self.asks_ends else frozenset()
        fresh = self._note(snapshot)
        if nodes is None and self._strange(fresh):
            nodes = self._ask_nodes()
        completed: frozenset[int] = frozenset()
        if before - self._seen.keys():
            with suppress(OsubError):  # then these jobs teach nothing
                completed = self._client.completed()
        return SlurmObserved(asked_ns, snapshot, nodes, reservations, completed)

    def _note(self, snapshot: JobSnapshot) -> Sequence[SlurmJob]:
        """Note the jobs that hold cores; returns those that are new or not as they were."""
        difference = snapshot.difference
        if difference is not None and difference.since == self._number:
            fresh = [job for job in difference.changed if job.cores]
            gone = [job.job_id for job in difference.changed if not job.cores]
            left = [self._seen.pop(key, None) for key in (*gone, *difference.gone)]
            self._news = bool(fresh) or any(left)
            self._seen.update((job.job_id, job) for job in fresh)
        else:
            seen = {job.job_id: job for job in snapshot.jobs if job.cores}
            fresh = [job for key, job in seen.items() if self._seen.get(key) != job]
            self._news = bool(fresh) or len(seen) != len(self._seen) or not self._has_looked
            self._seen = seen
        self._has_looked = True
        self._number = None if difference is None else difference.number
        return fresh

    def _ask_nodes(self) -> Sequence[SlurmNode]:
        nodes = self._client.nodes()
        names = frozenset(node.name for node in nodes)
        self._nodes_come, self._names = names != self._names, names
        return nodes

    def _strange(self, jobs: Sequence[SlurmJob]) -> bool:
        """Whether a job is on a node that was not there when nodes were asked for."""
        known = self._names or frozenset()
        return any(held.node not in known for job in jobs for held in job.cores)

    def _mark(self) -> None:
        """Mark some of the jobs that wait for it, by what Slurm has just said of them."""
        with self._wake:
            where = self._marks.where
            jobs = self._marks.take(self._seen, time.monotonic())
        if where is None or not jobs:
            return
        try:
            refused = self._client.mark(jobs, where, sharing_text(time.time()))
        except (OsubError, OSError) as error:  # some may be marked: no job is marked twice
            self._put(Failed(f"mark {counted(len(jobs), 'job')} as sharing cores", str(error)))
            return
        with self._wake:
            denied = self._marks.refused(refused.values())
        self._put(Marked(len(jobs) - len(refused), refused, denied))

    def _checked(self, config: Config) -> Checked:
        try:
            found = examine(self._client, config)
        except (OsubError, OSError) as error:
            return Checked(config, refusal=str(error))
        return Checked(config, found.warnings, hides_jobs=found.hides_jobs, partitions=found.partitions)

    def _urgent(self) -> dict[int, tuple[float, float]]:
        """Take the moves that are made next: those of the jobs whose ends are nearest."""
        first = sorted(self._moves.items(), key=lambda move: move[1])[:MOVES_A_CALL]
        for job, _ in first:
            del self._moves[job]
        return dict(first)

    def _put_back(self, moves: Mapping[int, tuple[float, float]]) -> None:
        """Keep moves for later that Slurm did not answer, unless there are newer ones."""
        with self._wake:
            self._moves = {**moves, **self._moves}
            self._moves_s = time.monotonic() + self._again_s

    def _move(self, moves: Mapping[int, tuple[float, float]]) -> LimitsMoved:
        refused = self._client.move_ends({job: int(end_s) for job, (_, end_s) in moves.items()})
        return LimitsMoved({job: end_s for job, (_, end_s) in moves.items() if job not in refused}, refused)

    def _answer(self, what: str, call: Callable[[], Answer]) -> bool:
        """Put the outcome of a call into ``answers``; True if it succeeded."""
        try:
            answer = call()
        except (OsubError, OSError) as error:
            answer = Failed(what, str(error))
        self._put(answer)
        return not isinstance(answer, Failed)

    def _put(self, answer: Answer) -> None:
        self.answers.put(answer)
        os.eventfd_write(self.fd, 1)
