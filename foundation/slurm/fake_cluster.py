"""What happens inside the in-memory Slurm: nodes, their cores, jobs on them, and a time that is let pass.

Jobs start in order of submission (no backfilling) on the least loaded cores. What who asks hears of it, and
what goes wrong with that, is in ``fake_slurm``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from foundation.slurm.reading.record_faults import SlurmRefusedError
from foundation.slurm.slurm_client import SubmitRequest
from foundation.slurm.slurm_types import Job, JobState, NodeCores


@dataclass(slots=True)
class Entry:
    """A job, what it was asked for with, and when it ends and may start, epoch seconds."""

    job: Job
    request: SubmitRequest
    ends_at: float | None = None
    eligible_at: float = 0.0
    held: bool = False


class FakeCluster:
    """A cluster of equal nodes whose time stands still until :meth:`advance`.

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

    Attributes
    ----------
    now
        What the clock says, epoch seconds.
    hold
        Returns the reason for which a job is held in the queue, from its request; None for none.
    on_start, on_end
        Called when a job starts (it ends at once where that returns False) and when it has ended.
    down
        Nodes that take no jobs.
    """

    def __init__(
        self,
        nodes: int,
        cores: int,
        multiplicity: int,
        run_time: Callable[[SubmitRequest], float],
        start_time: float,
        uid: int,
    ) -> None:
        self.now = start_time
        self.hold: Callable[[SubmitRequest], str | None] = lambda _: None
        self.on_start: Callable[[Job, SubmitRequest], bool] = lambda _job, _request: True
        self.on_end: Callable[[Job, SubmitRequest], None] = lambda _job, _request: None
        self.down: set[str] = set()
        self._uid = uid
        self._late: list[tuple[float, SubmitRequest]] = []
        self._cores = cores
        self._multiplicity = multiplicity
        self._run_time = run_time
        self._nodes = [f"n{index + 1}" for index in range(nodes)]
        self._entries: dict[int, Entry] = {}
        self._next_id = 1

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
        self._entries[job_id] = Entry(job, request, held=job.reason != "None")
        self._schedule()
        return job_id

    def _outcome(self, entry: Entry) -> JobState:
        limit, start = entry.job.time_limit_s, entry.job.start_time
        timed_out = limit is not None and start is not None and self._run_time(entry.request) > limit
        return JobState.TIMEOUT if timed_out else JobState.COMPLETED

    def _end(self, entry: Entry, state: JobState, at: float) -> None:
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
            free.sort(key=lambda core, loads=load[name]: (loads[core], core))  # type: ignore[misc]  # a lambda with a default
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

    def _known(self, job_id: int) -> Entry:
        if job_id not in self._entries:
            raise SlurmRefusedError(f"Invalid job id specified: {job_id}")
        return self._entries[job_id]
