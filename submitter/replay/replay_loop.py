"""The replay itself: submit, follow, write the RUN; detach or cancel on the user's wish."""

from __future__ import annotations

import os
import queue
import resource
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol

import msgspec

from foundation.errors import ClusterError, InputError, OsubError
from foundation.one_line import last_words
from foundation.records import JobEntry, JobRecord, RunWriter
from foundation.slurm import SlurmClient, SubmitRequest
from foundation.units import counted
from submitter import plan as planning
from submitter.follow import (
    CLAIM,
    JOBS_FOLDER,
    JobTracker,
    Poll,
    disagreements,
    planned_row,
    submissions,
    submitted_row,
)
from submitter.plan import Clock
from submitter.replay.begin_run import (
    begin_run,
    plan_again,
    recover_rows,
    submit_request,
    wait_for_orphans,
)
from submitter.replay.replay_progress import Collect, HeldTime, Look, ReplayProgress, Watch, Wish, time_left_s
from submitter.replay.timed_submission import Submissions


class Worker(Protocol):
    """Something that is done step by step."""

    def step(self) -> float | None:
        """Do what is due now; return after how many seconds to come again, None when nothing is left."""
        ...


class Companion(Worker, Protocol):
    """A worker that acts on the jobs of a replay while they wait and run, such as for on-demand jobs."""

    events: queue.SimpleQueue[tuple[str, dict[str, object]]]
    """What it did, for the RUN's log."""

    def begin(self, run_id: str, origin: float, run: Path) -> None:
        """Take the run's id, the epoch second of its second 0, and the RUN."""
        ...

    def request(self, job: planning.PlannedJob, request: SubmitRequest) -> SubmitRequest:
        """Return what is asked of Slurm for a job."""
        ...

    def amended(self, entry: JobEntry) -> JobEntry:
        """Return the entry of a job that has ended, with what the companion knows of it."""
        ...

    def close(self) -> None:
        """Undo what must not outlast the replay."""
        ...


class RunningWorker(Protocol):
    """A worker at work."""

    def start(self) -> None:
        """Begin."""
        ...

    def fault(self) -> OsubError | None:
        """Return why the work ended before it was done; None while it goes on, is done, or was stopped."""
        ...

    def stop(self, within_s: float | None = None) -> None:
        """Begin no further step; wait for the one under way, at most ``within_s`` seconds."""
        ...


class WorkerThread(threading.Thread):
    """A thread that calls a worker's steps; nothing that a step raises is lost.

    Parameters
    ----------
    name
        What it does, for messages.
    worker
        Whose steps.
    promptly
        Whether it, and what it starts, runs before the jobs where they share CPUs.
    """

    def __init__(self, name: str, worker: Worker, promptly: bool = False) -> None:
        super().__init__(name=name, daemon=True)
        self._worker = worker
        self._promptly = promptly
        self._stopped = threading.Event()
        self._is_done = False
        self._error: BaseException | None = None

    def run(self) -> None:
        """Step until nothing is left, a step fails, or ``stop``."""
        try:
            if self._promptly:
                _before_the_jobs()
            while not self._stopped.is_set():
                pause_s = self._worker.step()
                if pause_s is None:
                    self._is_done = True
                    return
                self._stopped.wait(pause_s)
        except BaseException as error:  # a thread that dies unheard is waited for for ever
            self._error = error

    def fault(self) -> OsubError | None:
        """Return why the thread ended before its work was done."""
        if self._is_done or self._stopped.is_set() or self.is_alive():
            return None
        if isinstance(self._error, OsubError):
            return self._error
        what = "it ended" if self._error is None else f"{type(self._error).__name__}: {self._error}"
        fault = ClusterError(f"{self.name} failed ({what}); the jobs go on, and --resume follows them")
        fault.__cause__ = self._error
        return fault

    def stop(self, within_s: float | None = None) -> None:
        """Begin no further step, and wait for the one under way."""
        self._stopped.set()
        if self.ident is not None:
            self.join(within_s)


def _before_the_jobs() -> None:
    """Let this thread, and each process it starts, run before the jobs where they share the CPUs.

    Its few milliseconds a submission are what the lag is made of. Where the system does not permit it,
    nothing changes; on a cluster the submitting host has no jobs to compete with.
    """
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


_NICENESS = -10
_LAST_ANSWER_S = 1.0
_LEFT_ANEW_S = 1.0
_MOST_DISAGREEMENTS = 100  # that are reported one by one
# Starts work in the background.
Employ = Callable[[str, Worker, bool], RunningWorker]


class Replay:
    """One replay, begun or resumed; :meth:`run` carries it out.

    Parameters
    ----------
    writer
        The RUN.
    plan, target
        The whole plan, and what it was made for.
    client
        Slurm.
    options
        What was asked for.
    timing, clock, employ
        How long to wait for what, on which clock, and what does the work in the background.
    """

    def __init__(
        self,
        writer: RunWriter,
        plan: planning.ReplayPlan,
        target: planning.TargetCluster,
        client: SlurmClient,
        options: planning.ReplayOptions,
        *,
        timing: planning.Timing | None = None,
        clock: Clock | None = None,
        employ: Employ = WorkerThread,
    ) -> None:
        self.plan = plan
        self.path = writer.path.resolve()
        self._writer = writer
        self.target = target
        self._client = client
        self.options = options
        self._origin = writer.info.origin_s
        self._timing = timing or options.timing(planning.look_back_s(client.config()))
        self._clock = clock or planning.SystemClock()
        self._employ = employ
        self._following = JobTracker(
            writer,
            client,
            run_id=options.run_id,
            origin=self._origin,
            timing=self._timing,
            partitions=target.partitions(),
        )
        self._plans = {job.trace_job: job for job in plan.jobs}
        self._followers: dict[int, list[planning.PlannedJob]] = {}
        for job in plan.jobs:
            if job.after is not None:
                self._followers.setdefault(job.after, []).append(job)
        self._followers_due()
        self._began = self._clock.monotonic()
        self.remark: str | None = None
        self._left: tuple[float, float] | None = None
        self._companion: Companion | None = None

    @classmethod
    def begin(
        cls,
        trace: Path,
        out: Path,
        client: SlurmClient,
        options: planning.ReplayOptions,
        apps: Path | None = None,
        *,
        danger: planning.ConflictPairs | None = None,
        lenient: bool = False,
        timing: planning.Timing | None = None,
        clock: Clock | None = None,
        employ: Employ = WorkerThread,
    ) -> Replay:
        """Begin a replay of ``trace`` into the new RUN ``out``; see :func:`begin_run` for what it raises."""
        clock = clock or planning.SystemClock()
        writer, plan, target = begin_run(trace, out, client, options, apps, clock, danger, lenient=lenient)
        return cls(writer, plan, target, client, options, timing=timing, clock=clock, employ=employ)

    @classmethod
    def resume(
        cls,
        out: Path,
        client: SlurmClient,
        *,
        timing: planning.Timing | None = None,
        clock: Clock | None = None,
        employ: Employ = WorkerThread,
    ) -> Replay:
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
            options = planning.restored(writer.info)
            plan, target = plan_again(writer, client, options)
            wait_for_orphans(options.run_id, os.getpid())
            replay = cls(writer, plan, target, client, options, timing=timing, clock=clock, employ=employ)
            known = replay._following.entries
            found = recover_rows(
                replay._plans.values(),
                known,
                client.jobs().jobs,
                out / JOBS_FOLDER,
                options.run_id,
                replay._origin,
            )
            writer.event("resumed", known=len(known), recovered=len(found))
            replay._following.keep(*map(JobEntry, found))
        except BaseException:
            writer.close()
            raise
        return replay

    def accompany(self, companion: Companion) -> None:
        """Let a companion act on the jobs while ``run`` lasts."""
        self._companion = companion
        companion.begin(self.options.run_id, self._origin, self.path)

    @property
    def steps(self) -> Mapping[int, int]:
        """How many steps each rrba job that has ended made, by the trace's number."""
        return self._following.steps

    @property
    def kept_apart(self) -> list[str]:
        """How dangerous pairs are kept apart, a sentence for each partition."""
        decided = planning.read_apart(self.path)
        return [] if decided is None else [f"{name}: {own.sentence()}" for name, own in decided[0].items()]

    def run(
        self, watch: Watch = lambda _: Wish.GO_ON, collect: Collect | None = None, look: Look | None = None
    ) -> bool:
        """Submit and follow until every job has ended.

        Parameters
        ----------
        watch
            Called about ten times a second; says whether to go on.
        collect
            Called once all jobs have ended.
        look
            Called as often as ``watch``: what it tells of the host is recorded.

        Returns
        -------
        bool
            True when the RUN is finished, False when the user detached from it.

        Raises
        ------
        OutputError
            The RUN can't be written (disk full): jobs go on, and ``resume`` follows them later.
        OsubError
            Nothing can be submitted (sbatch is missing), or the background work died.
        """
        with self._writer, _promptly():
            known = self._following.entries
            submissions = self._submissions()
            poll = Poll(self._client, self._timing, self._clock)
            submitter = self._employ("the submitting thread", submissions, True)
            asker = self._employ("the thread that asks Slurm", poll, False)
            workers = [submitter, asker]
            if self._companion is not None:
                workers.append(self._employ("the thread for on-demand jobs", self._companion, False))
            for worker in workers:
                worker.start()
            try:
                if not self._until_over(submissions, workers, poll, watch, look):
                    submitter.stop()
                    self._drain(submissions)  # what it has submitted meanwhile counts, too
                    self._writer.event("detached", unsubmitted=len(self.plan.jobs) - len(known))
                    return False
            finally:
                submitter.stop()
                asker.stop(_LAST_ANSWER_S)
                if self._companion is not None:
                    workers[-1].stop()
                    self._companion.close()
                with suppress(OsubError):
                    self._drain(submissions)
            if self._companion is not None:
                self._following.keep(*map(self._companion.amended, self._following.entries.values()))
            self._record_host(look, last=True)
            if collect is not None:
                self._collect(collect)
            self._reconcile()
            usage = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
            self._writer.finish(
                wall_s=self._clock.monotonic() - self._began,
                cpu_s=sum(use.ru_utime + use.ru_stime for use in usage),
            )
        self._clean_up()
        return True

    def states(self) -> dict[str, int]:
        """Return how many jobs are in each state; those that have not ended are not counted."""
        return dict(Counter(entry.job.state for entry in self._following.entries.values() if entry.job.state))

    def reasons(self) -> dict[str, int]:
        """Return why jobs were refused, never started or were lost, and how many each time."""
        return dict(Counter(self._following.reasons.values()).most_common())

    def failure(self) -> str | None:
        """Return a job that failed, its exit code and why, in its own words; None where none did."""
        failed = (entry.job for entry in self._following.entries.values() if entry.job.state == "FAILED")
        row = next(failed, None)
        if row is None:
            return None
        output = self.path / JOBS_FOLDER / f"{row.trace_job}.out"
        said = last_words(output)
        return f"job {row.trace_job} with exit code {row.exit_code}" + (
            f": {said} ({output})" if said else ""
        )

    def _until_over(
        self,
        submissions: Submissions,
        workers: Sequence[RunningWorker],
        poll: Poll,
        watch: Watch,
        look: Look | None,
    ) -> bool:
        following = self._following
        while True:
            # What a thread left before it died is recorded before its death is reported.
            fault = next(filter(None, (worker.fault() for worker in workers)), None)
            self._drain(submissions)
            if fault is not None:
                raise fault
            with suppress(queue.Empty):
                while True:
                    following.hear(poll.answers.get_nowait())
            for job in self._followers_due():
                submissions.release(job)
            (poll.wants_nodes.set if following.wants_nodes else poll.wants_nodes.clear)()
            if len(following.entries) == len(self.plan.jobs) and not following.open_rows():
                return True
            self._record_host(look)
            wish = watch(self._progress(submissions))
            if wish is Wish.DETACH:
                return False
            if wish is Wish.CANCEL and not following.is_cancelling:
                self._cancel(submissions, workers[0])
            self._clock.sleep(self._timing.turn_s)

    def _record_host(self, look: Look | None, *, last: bool = False) -> None:
        sample = None if look is None else look(self._clock.wall() - self._origin, last=last)
        if sample is not None:
            self._writer.append_host(sample)

    def _followers_due(self) -> list[planning.PlannedJob]:
        """Return the jobs whose preceding jobs have ended since the last time, with their due times."""
        entries = self._following.entries
        found = []
        for before in [number for number in self._followers if number in entries]:
            row = entries[before].job
            if row.state is not None:
                found += [replace(job, due_s=job.due_after(row.end_s)) for job in self._followers.pop(before)]
        self._plans.update({job.trace_job: job for job in found})
        return found

    def _submissions(self) -> Submissions:
        apart = {job.trace_job for jobs in self._followers.values() for job in jobs}
        left = [job for job in self._plans.values() if job.trace_job not in self._following.entries]
        jobs = [job for job in left if job.trace_job not in apart]
        return Submissions(
            self._client,
            sorted(jobs, key=lambda job: job.due_s),
            later=len(left) - len(jobs),
            origin=self._origin,
            run_id=self.options.run_id,
            request=self._request,
            timing=self._timing,
            clock=self._clock,
        )

    def _request(self, job: planning.PlannedJob) -> SubmitRequest:
        request = submit_request(job, self.target, self.options, self.path)
        return request if self._companion is None else self._companion.request(job, request)

    def _drain(self, submissions: Submissions) -> None:
        """Write rows of what was submitted since the last time, and what the companion did."""
        while self._companion is not None and not self._companion.events.empty():
            kind, fields = self._companion.events.get_nowait()
            self._writer.event(kind, **fields)
        if submissions.results.empty():
            return
        with suppress(queue.Empty):
            while True:
                result = submissions.results.get_nowait()
                row = submitted_row(self._plans[result.trace_job], result, self._origin)
                if result.refusal is not None:
                    row = self._refused(row, result.refusal)
                self._following.keep(JobEntry(row))

    def _refused(self, row: JobRecord, why: str) -> JobRecord:
        """Return the row of a refused job; of one that runs if an earlier try without an answer began it."""
        self._writer.event("refused", trace_job=row.trace_job, why=why)
        started = self._following.forbid(row.trace_job)
        if started is not None:
            return _begun_unheard(row, started)
        self._following.reasons[row.trace_job] = why
        return row

    def _cancel(self, submissions: Submissions, submitter: RunningWorker) -> None:
        """Submit nothing more; whatever Slurm has of this run is cancelled from the next answer on."""
        submitter.stop()
        self._drain(submissions)
        self._following.is_cancelling = True
        after_s = round(self._clock.wall() - self._origin, 3)
        self._writer.event("cancelled", left=len(self._following.open_rows()), after_s=after_s)
        for job in self.plan.jobs:
            if job.trace_job in self._following.entries:
                continue
            # It may be that Slurm has it, or will have it yet: it must not run behind our back.
            started = None
            if job.trace_job in submissions.doubtful:
                started = self._following.forbid(job.trace_job)
            row = planned_row(job)
            if started is None:
                row = msgspec.structs.replace(row, state="CANCELLED")
            else:
                row = _begun_unheard(row, started)
            self._following.keep(JobEntry(row))

    def _collect(self, collect: Collect) -> None:
        """Add the time slices of this run's jobs, and how long each was held."""
        rows = {
            entry.job.job_id: entry.job
            for entry in self._following.entries.values()
            if entry.job.job_id is not None
        }
        held = HeldTime()
        try:
            self._writer.replace_slices(held.through(collect(rows.keys(), self._origin)))
        except InputError as error:
            self._writer.replace_slices(())
            self._writer.event("no slices", why=str(error))
            self._say_at_end(f"the RUN has no time slices: {error}")
            return
        self._say_at_end(held.unattended())
        for job_id, held_s in held.by_job().items():
            row = msgspec.structs.replace(rows[job_id], frozen_s=round(held_s, 6))
            self._writer.append_job(row)

    def _say_at_end(self, remark: str | None) -> None:
        self.remark = "; ".join(filter(None, (self.remark, remark))) or None

    def _reconcile(self) -> None:
        """Hold the rows against Slurm's accounting, where there is one, and record where they differ."""
        rows = [entry.job for entry in self._following.entries.values()]
        try:
            accounted = self._client.accounted(submissions(rows, self._origin))
        except OsubError as error:
            self._writer.event("not reconciled", why=str(error))
            return
        if accounted is None:
            return
        found = disagreements(rows, accounted, self._origin)
        for one in found[:_MOST_DISAGREEMENTS]:
            self._writer.event("disagreement", **asdict(one))
        self._writer.event("reconciled", jobs=len(accounted), disagreements=len(found))
        if found:
            first = found[0]
            self._say_at_end(
                f"accounting differs in {counted(len(found), 'place')}, such as {first.field} of job "
                f"{first.job_id}: {first.run} here, {first.accounting} there (events `disagreement` in "
                "log.jsonl)"
            )

    def _progress(self, submissions: Submissions) -> ReplayProgress:
        following = self._following
        now = self._clock.wall() - self._origin
        still_open = following.open_rows()
        unsubmitted = len(self.plan.jobs) - len(following.entries)
        running = len(following.running & {row.trace_job for row in still_open})
        return ReplayProgress(
            unsubmitted=unsubmitted,
            waiting=len(still_open) - running,
            running=running,
            done=len(following.entries) - len(still_open),
            now_s=now,
            left_s=self._left_s(now),
            slurm_away=following.is_away or submissions.is_away.is_set(),
            blocked=len(following.blocked),
            blocked_by=next((one.reason for one in following.blocked.values()), None),
        )

    def _left_s(self, now: float) -> float:
        """Return a guess at the time left, made anew every second: it looks at every job."""
        if self._left is None or not 0 <= now - self._left[0] < _LEFT_ANEW_S:
            cores = len(self.target.node_names) * self.target.cores
            self._left = now, time_left_s(self.plan.jobs, self._following.entries, now, cores)
        return self._left[1]

    def _clean_up(self) -> None:
        """Drop the files of jobs that went well; what others printed stays, to be read."""
        entries = self._following.entries
        good = {str(key) for key, entry in entries.items() if entry.job.state == "COMPLETED"}
        folder = self.path / JOBS_FOLDER
        with suppress(OSError):
            names = [path.name for path in folder.iterdir()]
            # A claim keeps a late copy of its job from running; the folder's absence does that, too.
            kept = [name for name in names if _number(name) not in good and _number(name).isdigit()]
            for name in names:
                if name not in kept and (not kept or not name.endswith(CLAIM)):
                    with suppress(OSError):
                        (folder / name).unlink()
            folder.rmdir()


def _begun_unheard(row: JobRecord, job_id: int) -> JobRecord:
    """Return the row of a job that a submission without an answer has begun; since when is unknown."""
    return msgspec.structs.replace(row, job_id=job_id, submit_s=row.due_s, state=None)


def _number(name: str) -> str:
    return name.partition(".")[0]


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
