"""An in-memory Slurm for tests: allocates cores, lets time pass, refuses what it does not know.

It fails as the real one does when it is told to: answers are lost or late, jobs are held, requeued or killed
with their node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

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
    NodeCores,
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


@dataclass(slots=True)
class _Entry:
    job: Job
    request: SubmitRequest
    ends_at: float | None = None
    eligible_at: float = 0.0
    held: bool = False


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


class FakeSlurm:
    """A cluster of equal nodes whose time stands still until :meth:`advance`.

    Jobs start in order of submission (no backfilling) on the least loaded cores, at most
    ``multiplicity`` a core, and end after ``run_time(request)`` seconds.

    Parameters
    ----------
    nodes, cores
        Number of nodes (named ``n1`` ...) and cores on each.
    multiplicity
        Most jobs a core.
    run_time
        Seconds a job runs, from its request.
    start_time
        The epoch second at which the cluster's clock stands first.
    uid
        Whose jobs they are.
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
    hold
        Returns the reason for which a job is held in the queue, from its request; None for none.
    refuse
        Returns why a request is refused, None where it is not.
    on_start, on_end
        Called when a job starts (it ends at once where that returns False) and when it has ended.
    on_signal
        Returns after how many seconds a job ends that is sent a signal; None: it goes on.
    others
        Jobs of somebody else, whom nobody but he may tell anything.
    down
        Nodes that take no jobs.
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
        self.now = start_time
        self.reachable = True
        self.lose_next_answer = False
        self.unreadable: dict[int, str] = {}
        self.signals: list[tuple[int, str]] = []
        self.faults: deque[SubmitFault | None] = deque()
        self.late_s = 15.0
        self.hold: Callable[[SubmitRequest], str | None] = lambda _: None
        self.refuse: Callable[[SubmitRequest], str | None] = lambda _: None
        self.on_start: Callable[[Job, SubmitRequest], bool] = lambda _job, _request: True
        self.on_end: Callable[[Job, SubmitRequest], None] = lambda _job, _request: None
        self.on_signal: Callable[[Job], float | None] = lambda _: None
        self.others: set[int] = set()
        self.down: set[str] = set()
        self.reserved: list[Reservation] = []
        self.accounting: Callable[[Job], Accounted | None] | None = None
        self._uid = uid
        self._threads = threads
        self._forced = multiplicity > 1 if forced is None else forced
        self._late: list[tuple[float, SubmitRequest]] = []
        self._cores = cores
        self._multiplicity = multiplicity
        self._run_time = run_time
        self._nodes = [f"n{index + 1}" for index in range(nodes)]
        self._entries: dict[int, _Entry] = {}
        self._next_id = 1

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

    def _accept(self, request: SubmitRequest) -> int:
        if request.partition not in {None, "main"}:
            raise SlurmRefusedError(f"invalid partition specified: {request.partition}")
        if request.nodes > len(self._nodes) or request.tasks_per_node > self._cores:
            raise SlurmRefusedError(f"{request.name}: Requested node configuration is not available")
        if not request.script.startswith("#!"):
            raise SlurmRefusedError(f"{request.name}: This does not look like a batch script")
        job_id, self._next_id = self._next_id, self._next_id + 1
        limit = request.time_limit_minutes
        job = Job(
            job_id=job_id,
            name=request.name,
            user="tester",
            uid=self._uid,
            partition="main",
            state=JobState.PENDING,
            reason=self.hold(request) or "None",
            num_nodes=request.nodes,
            submit_time=int(self.now),
            time_limit_s=limit * 60 if limit is not None else None,
            comment=request.comment,
        )
        self._entries[job_id] = _Entry(job, request, held=job.reason != "None")
        self._schedule()
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

    def signal(self, job: int | str, signal_name: str, receiver: Receiver = Receiver.STEPS) -> None:  # noqa: ARG002
        """Note a signal to a running job; ``on_signal`` says what it does with it."""
        self._reach()
        entry = self._own(job)
        if entry.job.state is not JobState.RUNNING:
            raise SlurmRefusedError(f"job {job} is not running: it cannot be signalled")
        self.signals.append((entry.job.job_id, signal_name))
        ends_after_s = self.on_signal(entry.job)
        if ends_after_s is not None:
            entry.ends_at = min(entry.ends_at or self.now + ends_after_s, self.now + ends_after_s)

    def advance(self, seconds: float) -> None:
        """Let time pass: jobs end at their instants and waiting ones start."""
        target = self.now + seconds
        while True:
            ends = [entry.ends_at for entry in self._entries.values() if entry.ends_at is not None]
            starts = [entry.eligible_at for entry in self._entries.values() if entry.eligible_at > self.now]
            now = min([*ends, *starts, *(at for at, _ in self._late)], default=target)
            if now > target or not (ends or starts or self._late):
                break
            self.now = max(self.now, now)
            due, self._late = (
                [one for one in self._late if one[0] <= self.now],
                [one for one in self._late if one[0] > self.now],
            )
            for _, request in due:
                self._accept(request)
            for entry in list(self._entries.values()):
                if entry.ends_at is not None and entry.ends_at <= self.now:
                    self._end(entry, self._outcome(entry), entry.ends_at)
            self._schedule()
        self.now = target

    def forget_ended(self) -> None:
        """Drop ended jobs, as slurmctld does after MinJobAge."""
        self._entries = {key: entry for key, entry in self._entries.items() if not entry.job.state.is_over}

    def suspend(self, job_id: int, *, suspended: bool = True) -> None:
        """Suspend or resume a job, as ``scontrol`` would; its end is not moved."""
        entry = self._known(job_id)
        entry.job = replace(entry.job, state=JobState.SUSPENDED if suspended else JobState.RUNNING)

    def end(self, job_id: int, state: JobState) -> None:
        """End a job as ``state`` says, such as one that runs out of memory."""
        self._end(self._known(job_id), state, self.now)
        self._schedule()

    def preempt(self, job_id: int) -> None:
        """Say that a job is being preempted; ``requeue`` or ``end`` are what comes of it."""
        entry = self._known(job_id)
        entry.job = replace(entry.job, preempt_time=int(self.now))

    def requeue(self, job_id: int, after_s: float = 2.0, reason: str | None = None) -> None:
        """Put a job back to the queue, as ``scontrol requeue`` does; with a reason it is held there."""
        entry = self._known(job_id)
        if entry.ends_at is not None:
            self.on_end(replace(entry.job, state=JobState.REQUEUED), entry.request)
        entry.ends_at, entry.held = None, reason is not None
        entry.eligible_at = self.now + after_s
        entry.job = replace(
            entry.job,
            state=JobState.PENDING,
            reason=reason or "BeginTime",
            cores=(),
            restarts=entry.job.restarts + 1,
            preempt_time=None,
            submit_time=int(self.now),
            start_time=None,
            end_time=None,
            exit_code=None,
        )

    def release(self, job_id: int) -> None:
        """Let a held job start."""
        entry = self._known(job_id)
        entry.held, entry.job = False, replace(entry.job, reason="None")
        self._schedule()

    def _outcome(self, entry: _Entry) -> JobState:
        limit, start = entry.job.time_limit_s, entry.job.start_time
        timed_out = limit is not None and start is not None and self._run_time(entry.request) > limit
        return JobState.TIMEOUT if timed_out else JobState.COMPLETED

    def _end(self, entry: _Entry, state: JobState, at: float) -> None:
        entry.ends_at = None
        code = 0 if state is JobState.COMPLETED else None
        ran = entry.job.state.holds_cores
        entry.job = replace(entry.job, state=state, end_time=int(at), exit_code=code)
        if ran:
            self.on_end(entry.job, entry.request)

    def _schedule(self) -> None:
        for entry in self._entries.values():
            if entry.job.state is not JobState.PENDING or entry.held or entry.eligible_at > self.now:
                continue
            cores = self._place(entry.request)
            if cores is None:
                return
            limit = entry.job.time_limit_s
            run_s = self._run_time(entry.request)
            entry.ends_at = self.now + (min(run_s, limit) if limit is not None else run_s)
            entry.job = replace(
                entry.job,
                state=JobState.RUNNING,
                reason="None",
                cores=cores,
                start_time=int(self.now),
                end_time=int(self.now) + limit if limit is not None else None,
            )
            if not self.on_start(entry.job, entry.request):
                entry.ends_at = self.now

    def _place(self, request: SubmitRequest) -> tuple[NodeCores, ...] | None:
        load = self._load()
        placed: list[NodeCores] = []
        for name in sorted(self._nodes, key=lambda node: (sum(load[node]), self._nodes.index(node))):
            free = [core for core in range(self._cores) if load[name][core] < self._multiplicity]
            free.sort(key=lambda core, loads=load[name]: (loads[core], core))  # type: ignore[misc]
            fits = len(free) >= request.tasks_per_node and name not in self.down
            if fits and len(placed) < request.nodes:
                placed.append(NodeCores(name, tuple(sorted(free[: request.tasks_per_node]))))
        return tuple(placed) if len(placed) == request.nodes else None

    def _load(self) -> dict[str, list[int]]:
        load = {name: [0] * self._cores for name in self._nodes}
        for entry in self._entries.values():
            if entry.job.state.holds_cores:
                for held in entry.job.cores:
                    for core in held.cores:
                        load[held.node][core] += 1
        return load

    def _known(self, job_id: int) -> _Entry:
        if job_id not in self._entries:
            raise SlurmRefusedError(f"Invalid job id specified: {job_id}")
        return self._entries[job_id]

    def _own(self, job: int | str) -> _Entry:
        entry = self._known(int(job))
        if entry.job.job_id in self.others:
            raise SlurmRefusedError(f"Kill job error on job id {job}: Access/permission denied")
        return entry

    def _reach(self) -> None:
        if not self.reachable:
            raise SlurmUnreachableError("Slurm does not answer (fake outage); is slurmctld running?")
