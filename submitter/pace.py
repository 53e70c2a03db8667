"""Submitting each job at its instant, in a thread of its own so that nothing else delays it."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from osub.errors import ClusterError, OsubError
from osub.slurm import SlurmClient, SubmitRequest
from osub.slurm.faults import SlurmRefusedError, SlurmUnreachableError, SubmitUncertainError
from submitter.follow import Submission
from submitter.plan import PlannedJob

_AWAY_PAUSE_S = 1.0
# How long to look for a job whose submission got no answer before submitting it again.
_LOOK_FOR_S = 5.0


def job_name(run_id: str, trace_job: int) -> str:
    """Return the name by which a replay's job is found again in Slurm."""
    return f"osub-{run_id}-{trace_job}"


def trace_job_of(name: str, run_id: str) -> int | None:
    """Return the trace's job number from a job's name, None for a job of somebody else."""
    prefix = f"osub-{run_id}-"
    number = name.removeprefix(prefix)
    return int(number) if name.startswith(prefix) and number.isdigit() else None


class Submitter(threading.Thread):
    """The submitting thread; what comes of each submission is put on ``results``.

    Slurm being away is waited out. A submission that got no answer is looked for by name, so that it is
    neither lost nor made twice. A fault that repeats for every job (an OsubError of another kind) is put
    on ``results`` and ends the thread.

    Parameters
    ----------
    client
        Slurm.
    jobs
        What to submit, in order of ``due_s``.
    origin
        Epoch second of the run's second 0.
    run_id
        Part of every job's name.
    script
        Returns a job's batch script.
    output
        Returns where a job's output goes.
    environment
        The jobs' environment.
    """

    def __init__(
        self,
        client: SlurmClient,
        jobs: Sequence[PlannedJob],
        *,
        origin: float,
        run_id: str,
        script: Callable[[PlannedJob], str],
        output: Callable[[PlannedJob], Path],
        environment: dict[str, str],
    ) -> None:
        super().__init__(name="submitter", daemon=True)
        self.results: queue.SimpleQueue[Submission | OsubError] = queue.SimpleQueue()
        self.is_away = threading.Event()
        self._client = client
        self._jobs = jobs
        self._origin = origin
        self._run_id = run_id
        self._script = script
        self._output = output
        self._environment = environment
        self._stopped = threading.Event()

    def run(self) -> None:
        """Submit job after job, each at its instant."""
        _before_the_jobs()
        try:
            for job in self._jobs:
                if self._stopped.wait(max(0.0, self._origin + job.due_s - time.time())):
                    return
                submission = self._submit(job)
                if submission is None:
                    return
                self.results.put(submission)
        except OsubError as error:
            self.results.put(error)

    def stop(self) -> None:
        """Submit nothing more, and wait for the submission that is under way."""
        self._stopped.set()
        self.join()

    def _submit(self, job: PlannedJob) -> Submission | None:
        request = SubmitRequest(
            script=self._script(job),
            name=job_name(self._run_id, job.trace_job),
            nodes=job.nodes,
            tasks_per_node=job.cores_per_node,
            partition=job.partition,
            memory_per_cpu_mib=job.memory_per_core_mib,
            time_limit_minutes=job.limit_minutes,
            output=self._output(job),
            comment=f"osub replay {self._run_id}",
            environment=self._environment,
        )
        called = time.time()
        while not self._stopped.is_set():
            refusal = None
            try:
                job_id: int | None = self._client.submit(request)
            except SlurmRefusedError as error:
                job_id, refusal = None, str(error)
            except SubmitUncertainError:
                job_id = self._find(request.name)
                if job_id is None:
                    continue
            except SlurmUnreachableError:
                self.is_away.set()
                self._stopped.wait(_AWAY_PAUSE_S)
                continue
            self.is_away.clear()
            return Submission(
                trace_job=job.trace_job, job_id=job_id, called=called, returned=time.time(), refusal=refusal
            )
        return None

    def _find(self, name: str) -> int | None:
        """Return the id of the job of that name once Slurm answers, None where it surely has none."""
        deadline = time.monotonic() + _LOOK_FOR_S
        while True:
            try:
                found = [job.job_id for job in self._client.jobs().jobs if job.name == name]
            except ClusterError:
                found = []
                deadline = time.monotonic() + _LOOK_FOR_S
                self.is_away.set()
            if found:
                return min(found)
            if time.monotonic() > deadline or self._stopped.wait(_AWAY_PAUSE_S):
                return None


def _before_the_jobs() -> None:
    """Let this thread, and each ``sbatch`` it starts, run before the jobs where they share the CPUs.

    Its few milliseconds a submission are what the lag is made of. Where the system does not permit it,
    nothing changes; on a cluster the submitting host has no jobs to compete with.
    """
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
