"""An in-memory Slurm for tests: answers as a client of Slurm is answered, refuses what it does not know.

What happens to its jobs is in ``fake_cluster``. It fails as the real one does when it is told to: answers are
lost or late, jobs are held, requeued or killed with their node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from foundation.slurm.fake_cluster import Entry, FakeCluster
from foundation.slurm.job_accounting import Accounted
from foundation.slurm.job_updates import MarkField
from foundation.slurm.reading.record_faults import (
    SlurmRefusedError,
    SlurmUnreachableError,
    SubmitUncertainError,
    UnreadableJobError,
)
from foundation.slurm.slurm_client import Receiver, SubmitRequest
from foundation.slurm.slurm_types import (
    AccountingNames,
    Job,
    JobSnapshot,
    JobState,
    Node,
    Partition,
    Reservation,
    UnreadableJob,
)


class SubmitFault(Enum):
    """What goes wrong with a submission."""

    REFUSED = "Slurm says no"
    AWAY = "it never arrives, and that is told"
    LOST_ANSWER = "the job is made, and nobody is told"
    LATE = "nobody is told, and the job is made some time later"
    VANISHED = "nobody is told, and no job is made"
    BROKEN = "the client fails as nobody foresaw; no job is made"
    BROKEN_AFTER = "the client fails as nobody foresaw once the job is made"


def account_of(job: Job) -> Accounted:
    """Return what accounting has of a job, if it has it as it was."""
    return Accounted(
        job_id=job.job_id,
        state=job.state,
        exit_code=job.exit_code or 0,
        exit_signal=job.exit_signal,
        submit_time=job.submit_time,
        start_time=job.start_time,
        end_time=job.end_time,
    )


class FakeSlurm(FakeCluster):
    """A Slurm that runs a ``FakeCluster``, whose parameters and attributes it has, too.

    Parameters
    ----------
    threads
        Hardware threads a core.
    forced
        Whether every job shares its cores (OverSubscribe=FORCE), or only those that ask for it (YES).

    Attributes
    ----------
    faults
        What goes wrong with the next submissions, in order; None for one that goes well.
    late_s
        How late LATE is.
    refuse
        Returns why a request is refused, None where it is not.
    on_signal
        Returns after how many seconds a job ends that is sent a signal; None: it goes on.
    others
        Jobs of somebody else, whom nobody but he may tell anything.
    accounting
        Returns what accounting has of a job (``account_of``); None where there is no accounting.
    reserved
        Reservations, which nobody but who asks for them respects.
    """

    def __init__(
        self,
        nodes: int = 2,
        cores: int = 1,
        multiplicity: int = 1,
        run_time: Callable[[SubmitRequest], float] = lambda _: 10.0,
        start_time: float = 1_000_000_000.0,
        uid: int = 1000,
        threads: int = 1,
        forced: bool | None = None,
    ) -> None:
        super().__init__(nodes, cores, multiplicity, run_time, start_time, uid)
        self.reachable = True
        self.lose_next_answer = False
        self.unreadable: dict[int, str] = {}
        self.signals: list[tuple[int, str]] = []
        self.faults: deque[SubmitFault | None] = deque()
        self.late_s = 15.0
        self.refuse: Callable[[SubmitRequest], str | None] = lambda _: None
        self.on_signal: Callable[[Job], float | None] = lambda _: None
        self.others: set[int] = set()
        self.reserved: list[Reservation] = []
        self.accounting: Callable[[Job], Accounted | None] | None = None
        self._threads = threads
        self._forced = multiplicity > 1 if forced is None else forced

    def version(self) -> str:
        """Return a version that says what this is."""
        self._reach()
        return "fake"

    def config(self) -> Mapping[str, str]:
        """Return the few keys that the toolkit asks for."""
        self._reach()
        return {
            "SLURM_VERSION": "fake",
            "PreemptMode": "OFF",
            "MessageTimeout": "10 sec",
            "SelectTypeParameters": "CR_CORE_MEMORY,CR_LLN",
            "KillWait": "30 sec",
        }

    def reservations(self) -> Sequence[Reservation]:
        """Return ``reserved``."""
        self._reach()
        return tuple(self.reserved)

    def accounted(self, submitted: Mapping[int, float]) -> Mapping[int, Accounted] | None:
        """Return what accounting has of jobs, by ``accounting``; None where that is None."""
        self._reach()
        if self.accounting is None:
            return None
        known = (self._entries[key].job for key in submitted if key in self._entries)
        return {job.job_id: told for job in known if (told := self.accounting(job)) is not None}

    def accounting_names(self) -> AccountingNames:
        """Return the names of a cluster whose accounting has only what every one has."""
        self._reach()
        return AccountingNames(frozenset({"normal"}), frozenset({"root"}))

    def jobs(self) -> JobSnapshot:
        """Return every job ever submitted; those in ``unreadable`` with the reason that is there."""
        self._reach()
        return JobSnapshot(
            tuple(entry.job for key, entry in self._entries.items() if key not in self.unreadable),
            tuple(UnreadableJob(key, why) for key, why in self.unreadable.items()),
        )

    def job(self, job_id: int) -> Job | None:
        """Return one job, or None; raises UnreadableJobError for those in ``unreadable``."""
        self._reach()
        if job_id in self.unreadable:
            raise UnreadableJobError(str(UnreadableJob(job_id, self.unreadable[job_id])))
        entry = self._entries.get(job_id)
        return entry.job if entry else None

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, all idle or allocated."""
        self._reach()
        load = self._load()
        return [
            Node(
                name=name,
                states=frozenset(
                    {"DOWN" if name in self.down else "ALLOCATED" if any(load[name]) else "IDLE"}
                ),
                cores=self._cores,
                threads_per_core=self._threads,
                memory_mib=4000,
                cpus_allocated=sum(1 for jobs in load[name] if jobs),
                features=frozenset(),
            )
            for name in self._nodes
        ]

    def partitions(self) -> Sequence[Partition]:
        """Return the one partition, ``main``."""
        self._reach()
        return [
            Partition(
                name="main",
                nodes=tuple(self._nodes),
                multiplicity=self._multiplicity,
                forced=self._forced,
                is_default=True,
                is_up=True,
                preempt_mode="OFF",
            )
        ]

    def submit(self, request: SubmitRequest) -> int:
        """Queue a job; refuses an unknown partition, a job that can never fit, an empty script."""
        self._reach()
        fault = self.faults.popleft() if self.faults else None
        if self.lose_next_answer:
            self.lose_next_answer, fault = False, SubmitFault.LOST_ANSWER
        why = "Invalid account" if fault is SubmitFault.REFUSED else self.refuse(request)
        if why is not None:
            raise SlurmRefusedError(f"Slurm refused {request.name}: {why}")
        if fault is SubmitFault.AWAY:
            raise SlurmUnreachableError(f"{request.name} not submitted: Unable to contact slurm controller")
        if fault is SubmitFault.BROKEN:
            raise ValueError("invalid literal for int() with base 10: ''")
        if fault is SubmitFault.LATE:
            self._late.append((self.now + self.late_s, request))
        if fault in {SubmitFault.LATE, SubmitFault.VANISHED}:
            raise SubmitUncertainError(f"submission of {request.name}: no answer within 20 s")
        job_id = self._accept(request)
        if fault is SubmitFault.LOST_ANSWER:
            raise SubmitUncertainError(
                f"submission of {request.name}: Socket timed out on send/recv operation"
            )
        if fault is SubmitFault.BROKEN_AFTER:
            raise ValueError("invalid literal for int() with base 10: 'sbatch: cluster'")
        return job_id

    def check(self, request: SubmitRequest) -> None:
        """Refuse what ``submit`` would."""
        self._reach()
        why = self.refuse(request)
        if why is not None:
            raise SlurmRefusedError(f"Slurm refuses a job: {why}")

    def cancel(self, job_ids: Iterable[int | str], *, only_pending: bool = False) -> None:
        """Cancel jobs; unknown ids and others' jobs are refused, ended ones left."""
        self._reach()
        for job_id in job_ids:
            entry = self._own(job_id)
            started = entry.job.state is not JobState.PENDING
            if not entry.job.state.is_over and not (only_pending and started):
                self._end(entry, JobState.CANCELLED, self.now)
        self._schedule()

    def move_ends(self, ends: Mapping[int, int]) -> Mapping[int, str]:
        """Move the ends of those jobs that run."""
        self._reach()
        refused = {}
        for job_id, end_time in ends.items():
            entry = self._entries.get(job_id)
            if entry is None:
                refused[job_id] = f"Invalid job id specified for job {job_id}"
            elif entry.job.state is not JobState.RUNNING or entry.job.start_time is None:
                refused[job_id] = f"Job is not running for job {job_id}"
            else:
                limit_s = end_time - entry.job.start_time
                entry.job = replace(entry.job, end_time=end_time, time_limit_s=limit_s)
        return refused

    def mark(self, job_ids: Iterable[int], where: MarkField, text: str) -> Mapping[int, str]:
        """Write a word into a field of running jobs, in the place of what is there."""
        self._reach()
        refused: dict[int, str] = {}
        for job_id in job_ids:
            entry = self._entries.get(job_id)
            if entry is None or not entry.job.state.holds_cores:
                refused[job_id] = f"Invalid job id specified for job {job_id}"
            elif where is MarkField.EXTRA:
                entry.job = replace(entry.job, extra=text)
            else:
                entry.job = replace(entry.job, admin_comment=text)
        return refused

    def put_back(self, job: int | str, *, held: bool = False) -> None:
        """Put a job back to the queue; others' jobs, and those that may not start again, are refused."""
        self._reach()
        entry = self._own(job)
        if entry.request.no_requeue:
            raise SlurmRefusedError(f"Requested operation is presently disabled for job {job}")
        self.requeue(entry.job.job_id, reason="job requeued in held state" if held else None)

    def signal(self, job: int | str, signal_name: str, receiver: Receiver = Receiver.STEPS) -> None:  # noqa: ARG002 - as its protocol has it
        """Note a signal to a running job; ``on_signal`` says what it does with it."""
        self._reach()
        entry = self._own(job)
        if entry.job.state is not JobState.RUNNING:
            raise SlurmRefusedError(f"job {job} is not running: it cannot be signalled")
        self.signals.append((entry.job.job_id, signal_name))
        ends_after_s = self.on_signal(entry.job)
        if ends_after_s is not None:
            entry.ends_at = min(entry.ends_at or self.now + ends_after_s, self.now + ends_after_s)

    def _own(self, job: int | str) -> Entry:
        entry = self._known(int(job))
        if entry.job.job_id in self.others:
            raise SlurmRefusedError(f"Kill job error on job id {job}: Access/permission denied")
        return entry

    def _reach(self) -> None:
        if not self.reachable:
            raise SlurmUnreachableError("Slurm does not answer (fake outage); is slurmctld running?")
