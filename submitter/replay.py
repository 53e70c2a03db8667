"""The replay itself: submit, follow, write the RUN; detach or cancel on the user's wish."""

from __future__ import annotations

import os
import queue
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from osub.errors import ClusterError, OsubError
from osub.records import JobRecord, RunWriter
from osub.slurm import Job, SlurmClient
from submitter.begin import JOBS_FOLDER, begin_run, origin_of, plan_again
from submitter.follow import (
    Submission,
    allocation_row,
    ended_row,
    lost_row,
    planned_row,
    submitted_row,
)
from submitter.options import ReplayOptions, restored
from submitter.pace import Submitter
from submitter.plan import Plan, PlannedJob
from submitter.resume import recover_rows, wait_for_orphans
from submitter.script import batch_script
from submitter.stamps import read_stamps

_TURN_S = 0.1
_POLL_S = 1.0
# A job that Slurm has not listed this often in a row, and that left no end of its own, is lost.
_MISSED_POLLS = 5
_NICENESS = -10


class Wish(Enum):
    """What the user wants of a replay that is under way."""

    GO_ON = "go on"
    DETACH = "detach"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a replay stands: numbers of jobs, and seconds since the run's second 0.

    ``unsubmitted`` jobs are not due yet; ``left_s`` is a guess at the time left: the last due job and the
    run times still to come.
    """

    unsubmitted: int
    waiting: int
    running: int
    done: int
    now_s: float
    left_s: float
    slurm_away: bool

    @property
    def total(self) -> int:
        """Jobs in the plan."""
        return self.unsubmitted + self.waiting + self.running + self.done


Watch = Callable[[Progress], Wish]
# Adds what others recorded (time slices) to a RUN whose second 0 is at an epoch second; returns the
# frozen seconds of jobs by Slurm's job id.
Collect = Callable[[RunWriter, float], Mapping[int, float]]


class Replay:
    """One replay, begun or resumed; :meth:`run` carries it out.

    Parameters
    ----------
    writer
        The RUN.
    plan
        The whole plan.
    client
        Slurm.
    options
        What was asked for.
    """

    def __init__(self, writer: RunWriter, plan: Plan, client: SlurmClient, options: ReplayOptions) -> None:
        self.plan = plan
        self.path = writer.path.resolve()
        self._writer = writer
        self._client = client
        self._options = options
        self._origin = origin_of(writer.info)
        self._folder = self.path / JOBS_FOLDER
        self._rows: dict[int, JobRecord] = writer.jobs()
        self._missed: dict[int, int] = {}
        self._running: set[int] = set()
        self._away = False
        self._next_poll = 0.0
        self._began = time.monotonic()

    @classmethod
    def begin(
        cls,
        trace: Path,
        out: Path,
        client: SlurmClient,
        options: ReplayOptions,
        apps: Path | None = None,
    ) -> Replay:
        """Begin a replay of ``trace`` into the new RUN ``out``; see :func:`begin_run` for what it raises."""
        writer, plan = begin_run(trace, out, client, options, apps)
        return cls(writer, plan, client, options)

    @classmethod
    def resume(cls, out: Path, client: SlurmClient) -> Replay:
        """Go on with the RUN ``out`` of a replay that was killed or detached.

        Raises
        ------
        InputError, OutputError
            It is no unfinished RUN, or another replay works on it.
        ClusterError
            Slurm does not answer.
        """
        writer = RunWriter.reopen(out)
        try:
            options = restored(writer.info)
            replay = cls(writer, plan_again(writer, client, options), client, options)
            wait_for_orphans(options.run_id, os.getpid())
            jobs = client.jobs().jobs
            found = recover_rows(
                replay.plan.jobs, replay._rows, jobs, replay._folder, options.run_id, replay._origin
            )
            writer.event("resumed", known=len(replay._rows), recovered=len(found))
            replay._keep(*found.values())
        except BaseException:
            writer.close()
            raise
        return replay

    def run(
        self, watch: Watch = lambda _: Wish.GO_ON, collect: Collect = lambda _writer, _origin: {}
    ) -> bool:
        """Submit and follow until every job has ended.

        Parameters
        ----------
        watch
            Called about ten times a second; says whether to go on.
        collect
            Called once all jobs have ended.

        Returns
        -------
        bool
            True when the RUN is finished, False when the user detached from it.

        Raises
        ------
        OutputError
            The RUN can't be written (disk full): jobs go on, and ``resume`` follows them later.
        """
        with self._writer, _promptly():
            submitter = self._submitter([job for job in self.plan.jobs if job.trace_job not in self._rows])
            submitter.start()
            try:
                if not self._until_over(submitter, watch):
                    self._writer.event("detached", unsubmitted=len(self.plan.jobs) - len(self._rows))
                    return False
            finally:
                submitter.stop()
                with suppress(OsubError):
                    self._drain(submitter)
            self._note_frozen(collect(self._writer, self._origin))
            usage = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
            self._writer.finish(
                wall_s=time.monotonic() - self._began, cpu_s=sum(use.ru_utime + use.ru_stime for use in usage)
            )
        self._clean_up()
        return True

    def _until_over(self, submitter: Submitter, watch: Watch) -> bool:
        cancelling = False
        while True:
            fault = self._drain(submitter)
            if fault is not None:
                raise fault
            self._follow()
            if len(self._rows) == len(self.plan.jobs) and not self._open_rows():
                return True
            wish = watch(self._progress(submitter))
            if wish is Wish.DETACH:
                return False
            if wish is Wish.CANCEL and not cancelling:
                cancelling = True
                self._cancel(submitter)
            time.sleep(_TURN_S)

    def _submitter(self, jobs: Sequence[PlannedJob]) -> Submitter:
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
        }
        return Submitter(
            self._client,
            jobs,
            origin=self._origin,
            run_id=self._options.run_id,
            script=lambda job: batch_script(
                job, self.path, pin=self._options.pin, calibration=self._options.calibration
            ),
            output=lambda job: self._folder / f"{job.trace_job}.out",
            environment=environment,
        )

    def _drain(self, submitter: Submitter) -> OsubError | None:
        """Write rows of what was submitted since the last time; returns a fault that ended the thread."""
        plans = {job.trace_job: job for job in self.plan.jobs} if not submitter.results.empty() else {}
        with suppress(queue.Empty):
            while True:
                result = submitter.results.get_nowait()
                if not isinstance(result, Submission):
                    return result
                self._keep(submitted_row(plans[result.trace_job], result, self._origin))
                if result.refusal:
                    self._writer.event("refused", trace_job=result.trace_job, why=result.refusal)
        return None

    def _follow(self) -> None:
        """Ask Slurm, at most once a second, and write the rows of jobs that have ended."""
        if time.monotonic() < self._next_poll:
            return
        asked = time.monotonic()
        try:
            snapshot = self._client.jobs()
        except ClusterError as error:
            if not self._away:
                self._writer.event("slurm away", why=str(error))
            self._away = True
            self._next_poll = time.monotonic() + _POLL_S
            return
        if self._away:
            self._writer.event("slurm back")
        self._away = False
        self._running = set()
        jobs = {job.job_id: job for job in snapshot.jobs}
        for row in self._open_rows():
            job = jobs.get(row.job_id or -1)
            if job is None and row.job_id is not None and snapshot.is_unreadable(row.job_id):
                continue  # it is there, whatever it does: neither running for sure nor lost
            self._look_at(row, job)
        # A cluster with very many jobs is asked less often: at most a fifth of the time.
        self._next_poll = time.monotonic() + max(_POLL_S, 4 * (time.monotonic() - asked))

    def _look_at(self, row: JobRecord, job: Job | None) -> None:
        if job is not None and job.state.holds_cores:
            self._running.add(row.trace_job)
        stamps = read_stamps(self._folder, row.trace_job)
        ended = ended_row(row, job, stamps, self._origin)
        if job is None and ended is None:
            self._missed[row.trace_job] = self._missed.get(row.trace_job, 0) + 1
            if self._missed[row.trace_job] >= _MISSED_POLLS:
                ended = lost_row(row, stamps, self._origin)
                self._writer.event("lost", trace_job=row.trace_job, job_id=row.job_id)
        if ended is not None:
            allocation = allocation_row(ended)
            if allocation is None:
                self._keep(ended)
            else:
                self._writer.append_allocated(ended, [allocation])
                self._rows[ended.trace_job] = ended

    def _cancel(self, submitter: Submitter) -> None:
        submitter.stop()
        self._drain(submitter)
        self._writer.event("cancelled", left=sum(1 for _ in self._open_rows()))
        self._client.cancel(row.job_id for row in self._open_rows() if row.job_id is not None)
        for job in self.plan.jobs:
            if job.trace_job not in self._rows:
                row = planned_row(job)
                fields = {name: getattr(row, name) for name in row.__struct_fields__}
                self._keep(JobRecord(**(fields | {"state": "CANCELLED"})))

    def _note_frozen(self, frozen_s: Mapping[int, float]) -> None:
        for row in list(self._rows.values()):
            held_s = None if row.job_id is None else frozen_s.get(row.job_id)
            if held_s is not None:
                fields = {name: getattr(row, name) for name in row.__struct_fields__}
                self._keep(JobRecord(**(fields | {"frozen_s": round(held_s, 6)})))

    def _keep(self, *rows: JobRecord) -> None:
        if rows:
            self._writer.append_job(*rows)
            self._rows.update({row.trace_job: row for row in rows})

    def _open_rows(self) -> list[JobRecord]:
        return [row for row in self._rows.values() if row.state is None]

    def _progress(self, submitter: Submitter) -> Progress:
        now = time.time() - self._origin
        still_open = self._open_rows()
        running = sum(1 for row in still_open if row.trace_job in self._running)
        unsubmitted = len(self.plan.jobs) - len(self._rows)
        last_due = self.plan.jobs[-1].due_s
        longest = max((row.dedicated_s or 0.0 for row in still_open), default=0.0)
        return Progress(
            unsubmitted=unsubmitted,
            waiting=len(still_open) - running,
            running=running,
            done=len(self._rows) - len(still_open),
            now_s=now,
            left_s=max(0.0, last_due - now if unsubmitted else 0.0) + longest,
            slurm_away=self._away or submitter.is_away.is_set(),
        )

    def _clean_up(self) -> None:
        """Drop the files of jobs that went well; what others printed stays, to be read."""
        good = {row.trace_job for row in self._rows.values() if row.state == "COMPLETED"}
        for path in self._folder.iterdir():
            number = path.name.partition(".")[0]
            if not number.isdigit() or int(number) in good:
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self._folder.rmdir()


@contextmanager
def _promptly() -> Iterator[None]:
    """Put this process before the jobs where it shares their CPUs and the system lets it."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, min(before, _NICENESS))
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
