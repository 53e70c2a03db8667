"""Following the jobs: from each answer of Slurm to rows, allocations and events of the RUN.

What is decided is in ``follow`` (rows), ``copies`` (which copy is the job) and ``stuck`` (what can never
start); here it is carried out.

Finding a replay's own jobs in Slurm, and telling the copies of a job apart.

A submission that got no answer may have arrived nevertheless, and be made again: Slurm then has two copies.
The job's script lets only the first one that starts do the work: it makes a link ``<job>.claim`` that names
itself, which no second one can make. So the copy that claimed is the job. Pure, but for the link.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

import msgspec

from foundation.errors import ClusterError
from foundation.one_line import launch_fault
from foundation.records import JobEntry, JobRecord, RunWriter
from foundation.slurm import JobSnapshot, SlurmClient, SlurmJob, SlurmNode
from foundation.slurm.slurm_client import Accounted
from submitter.follow import job_rows
from submitter.follow.journal_lifecycles import JOBS_FOLDER, StampsOf, look_again, read_stamps
from submitter.follow.stuck_jobs import Blocked, Hope, StuckJobs, hope_of, nodes_up
from submitter.plan import Clock, Timing

# Target of the claim of a job that no copy may run any more.
_NO_COPY = "nobody"
_LONGEST_NUMBER = 18
CLAIM = ".claim"


def job_name(run_id: str, trace_job: int) -> str:
    """Return the name by which a replay's job is found again in Slurm."""
    return f"osub-{run_id}-{trace_job}"


def trace_job_of(name: str, run_id: str) -> int | None:
    """Return the trace's job number from a job's name, None for another user's job."""
    prefix = f"osub-{run_id}-"
    number = name.removeprefix(prefix)
    plain = number.isascii() and number.isdigit() and len(number) <= _LONGEST_NUMBER
    return int(number) if name.startswith(prefix) and plain else None


def own_jobs(jobs: Iterable[SlurmJob], run_id: str, uids: Collection[int]) -> dict[int, list[SlurmJob]]:
    """Return this run's jobs by trace job, each with its copies in order of their ids.

    A name is anybody's to choose, so only jobs of the users ``uids`` are believed to be the run's.
    """
    found: dict[int, list[SlurmJob]] = {}
    for job in sorted(jobs, key=lambda job: job.job_id):
        number = trace_job_of(job.name, run_id) if job.name and job.uid in uids else None
        if number is not None:
            found.setdefault(number, []).append(job)
    return found


@dataclass(frozen=True, slots=True)
class CopyChoice:
    """The copy that is the job, and the others."""

    job_id: int
    others: tuple[SlurmJob, ...] = ()


def choose_copy(copies: Iterable[SlurmJob], known: int | None, claimed: int | None) -> CopyChoice | None:
    """Return which copy counts, None where there is none at all.

    Parameters
    ----------
    copies
        What Slurm has under the job's name, in order of their ids.
    known
        The id that is recorded for the job.
    claimed
        The id that the job's own start stamp tells: once there is one, it is the job.
    """
    copies = tuple(copies)
    first = min((job.job_id for job in copies), default=None)
    chosen = claimed if claimed is not None else known if known is not None else first
    if chosen is None:
        return None
    return CopyChoice(chosen, tuple(job for job in copies if job.job_id != chosen))


# A cluster with very many jobs is asked less often: at most a fifth of the time.
_SHARE = 4


@dataclass(frozen=True, slots=True)
class SlurmAnswer:
    """What Slurm said, or why it said nothing, when the answer came; nodes only where they were wanted."""

    at: float
    jobs: JobSnapshot | None = None
    nodes: tuple[SlurmNode, ...] | None = None
    error: ClusterError | None = None


class Poll:
    """The work of asking, step by step; answers are put on ``answers``.

    Parameters
    ----------
    client
        Slurm.
    timing, clock
        How often, on which clock.
    """

    def __init__(self, client: SlurmClient, timing: Timing, clock: Clock) -> None:
        self.answers: queue.SimpleQueue[SlurmAnswer] = queue.SimpleQueue()
        self.wants_nodes = threading.Event()
        self._client = client
        self._timing = timing
        self._clock = clock

    def step(self) -> float | None:
        """Ask once; see :class:`Worker`."""
        asked = self._clock.monotonic()
        try:
            jobs = self._client.jobs()
            nodes = tuple(self._client.nodes()) if self.wants_nodes.is_set() else None
        except ClusterError as error:
            self.answers.put(SlurmAnswer(self._clock.monotonic(), error=error))
            return self._timing.poll_s
        now = self._clock.monotonic()
        self.answers.put(SlurmAnswer(now, jobs, nodes))
        return max(self._timing.poll_s, _SHARE * (now - asked))


# An answer that was long in coming tells of one instant only.
_LONGEST_STEP_S = 5.0
# A job is gone only where several answers in a row have been without it.
_LEAST_ABSENCES = 3
_ACCOUNTING_EVERY_S = 5.0
# When, after its start, it is seen whether Slurm has spoilt a job's launch, s.
_LAUNCH_LOOKS_S = (10.0, 40.0)


class JobTracker:
    """What is known of every job that was submitted, kept up to date with Slurm's answers.

    Parameters
    ----------
    writer
        The RUN.
    client
        For cancelling what can never start, and second copies.
    run_id, origin
        Part of the jobs' names, and the epoch second of the run's second 0.
    timing
        How long to wait for what.
    partitions
        The nodes of the partitions that the jobs go to.
    """

    def __init__(
        self,
        writer: RunWriter,
        client: SlurmClient,
        *,
        run_id: str,
        origin: float,
        timing: Timing,
        partitions: Mapping[str, Collection[str]],
    ) -> None:
        self.entries: dict[int, JobEntry] = writer.entries()
        self.running: set[int] = set()
        self.blocked: dict[int, Blocked] = {}
        self.reasons: dict[int, str] = {}
        self.steps: dict[int, int] = {}
        """How many steps jobs made that ended well enough to tell, by the trace's number."""
        self.is_away = False
        self.is_cancelling = False
        self.wants_nodes = False
        self._writer = writer
        self._client = client
        self._folder = writer.path / JOBS_FOLDER
        self._run_id = run_id
        self._origin = origin
        self._timing = timing
        self._partitions = partitions
        self._stuck = StuckJobs(timing)
        self._answered_at: float | None = None
        self._ended_s: dict[int, float] = {}
        self._accounting: Mapping[int, Accounted] | None = {}
        """The last accounting records of jobs that Slurm has forgotten; None where there is no accounting."""
        self._accounting_s = float("-inf")
        self._absent: dict[int, tuple[int, float]] = {}
        self._ran_s: dict[int, float] = {}
        self._spoilt: set[int] = set()
        self._reported: set[tuple[str, int | None, object]] = set()

    def open_rows(self) -> list[JobRecord]:
        """Return the rows of the jobs that have not ended."""
        return [entry.job for entry in self.entries.values() if entry.job.state is None]

    def keep(self, *entries: JobEntry) -> None:
        """Record entries."""
        if entries:
            self._writer.append_entry(*entries)
            self.entries.update({entry.job.trace_job: entry for entry in entries})

    def hear(self, answer: SlurmAnswer) -> None:
        """Write what an answer of Slurm tells."""
        if answer.jobs is None:
            if not self.is_away:
                self._writer.event("slurm away", why=str(answer.error))
            self.is_away, self._answered_at = True, None
            return
        if self.is_away:
            self._writer.event("slurm back")
        before, self._answered_at, self.is_away = self._answered_at, answer.at, False
        passed_s = 0.0 if before is None else min(answer.at - before, _LONGEST_STEP_S)
        look_again(self._folder)
        jobs = {job.job_id: job for job in answer.jobs.jobs}
        unreadable = {one.job_id: one.why for one in answer.jobs.unreadable}
        copies = own_jobs(answer.jobs.jobs, self._run_id, self._uids(jobs))
        self.running = set()
        waiting: dict[int, SlurmJob] = {}
        spare: list[SlurmJob] = []
        for key in list(self.entries):
            stamps_of = cache(partial(read_stamps, self._folder, key))
            is_hidden = self._is_hidden(key, jobs, unreadable)
            job, others = self._choose(key, copies.get(key, []), jobs, stamps_of, is_hidden=is_hidden)
            spare += others
            self._reopen(key, job)
            if self.entries[key].job.state is not None:
                continue
            if job is not None and job_rows.waits(job):
                waiting[key] = job
            self._look(key, job, stamps_of, passed_s, is_hidden=is_hidden)
        self._drop(spare)
        self._unblock(waiting, passed_s, answer)
        if self.is_cancelling:
            left = [jobs[row.job_id] for row in self.open_rows() if row.job_id in jobs]
            self._cancel(job.job_id for job in left if not job.state.is_over)

    def forbid(self, key: int) -> int | None:
        """Let no copy of a job start any more; returns the id of one that has started already.

        A copy claims the job by a link whose target is the copy's id.
        """
        path = self._folder / f"{key}{CLAIM}"
        try:
            path.symlink_to(_NO_COPY)
        except FileExistsError:
            with suppress(OSError, ValueError):
                return int(path.readlink().name)
        except OSError:
            pass  # a file system without links: whatever turns up is cancelled when it is seen
        return None

    def _uids(self, jobs: Mapping[int, SlurmJob]) -> set[int]:
        known = [jobs.get(entry.job.job_id or 0) for entry in self.entries.values()]
        return {os.geteuid()} | {job.uid for job in known if job is not None}

    def _is_hidden(
        self, key: int, jobs: Mapping[int, SlurmJob], unreadable: Mapping[int | None, str]
    ) -> bool:
        """Whether Slurm has, or may have, a job of which it says nothing that can be read."""
        number = self.entries[key].job.job_id
        if number is None or number in jobs or not {number, None} & unreadable.keys():
            return False
        if self.entries[key].job.state is None:
            self._tell("unreadable", number, key, why=unreadable.get(number, unreadable.get(None)))
        return True

    def _choose(
        self,
        key: int,
        copies: list[SlurmJob],
        jobs: Mapping[int, SlurmJob],
        stamps_of: StampsOf,
        *,
        is_hidden: bool,
    ) -> tuple[SlurmJob | None, tuple[SlurmJob, ...]]:
        """Return the copy of a job that counts, and those that don't; a change of mind is recorded."""
        row = self.entries[key].job
        known = jobs.get(row.job_id) if row.job_id is not None else None
        if known is not None and job_rows.waits(known) and len(copies) < 2:
            return known, ()  # by far the most frequent case costs no look at files
        if row.job_id is None:  # refused or cancelled: what turns up comes too late
            return None, tuple(copies)
        believed = row.job_id if known is not None or is_hidden or not copies else None
        choice = choose_copy(copies, believed, stamps_of(0).slurm_job)
        if choice is None:
            return known, ()
        if choice.job_id != row.job_id:
            self._writer.event("another copy", trace_job=key, job_id=choice.job_id, instead_of=row.job_id)
            changed = msgspec.structs.replace(row, job_id=choice.job_id, start_s=None, placement=None)
            self.keep(JobEntry(changed, ()))
        return jobs.get(choice.job_id), choice.others

    def _reopen(self, key: int, job: SlurmJob | None) -> None:
        entry = self.entries[key]
        if job is not None and job_rows.began_again(entry, job):
            self._writer.event("began again", trace_job=key, job_id=job.job_id, after=entry.job.state)
            self._ended_s.pop(key, None)
            self.reasons.pop(key, None)
            self.keep(job_rows.reopened(entry))

    def _look(
        self, key: int, job: SlurmJob | None, stamps_of: StampsOf, passed_s: float, *, is_hidden: bool
    ) -> None:
        """Record what is new of a job that has not ended as far as is known."""
        entry = self.entries[key]
        if job is None:
            if is_hidden:  # it is there, and an end that it stamped may be that of an earlier life
                self._absent.pop(key, None)
            else:
                self._miss(key, stamps_of, passed_s)
            return
        self._absent.pop(key, None)
        if not job.state.is_over:
            if job.state.holds_cores:
                self.running.add(key)
                self._look_at_launch(key, job, passed_s)
            now = job_rows.progressed(entry, job, stamps_of, self._origin)
            if now != entry:
                self.keep(now)
            if job.restarts:
                self._tell("requeued", job.job_id, key, restarts=job.restarts)
            return
        due = job_rows.stamps_due(entry, job, stamps_of)
        if due is not False:
            waited_s = self._ended_s[key] = self._ended_s.get(key, -passed_s) + passed_s
            if waited_s < (self._timing.stamps_s if due else self._timing.killed_s):
                return
            if due:
                self._tell("stamps missing", job.job_id, key, waited_s=round(waited_s, 1))
                self.reasons[key] = (
                    f"no stamps within {waited_s:.0f} s: is {self._folder} seen by every node?"
                )
        last = job_rows.ended(entry, job, stamps_of, self._origin)
        if last is not None:
            self._ended_s.pop(key, None)
            self._end(key, last, stamps_of)

    def _end(self, key: int, last: JobEntry, stamps_of: StampsOf) -> None:
        """Record the end of a job, and how many steps it reported.

        One whose launch Slurm spoilt has FAILED, though it may have gone on to its end with wrong addresses.
        """
        row = last.job
        completed = row.state == "COMPLETED"
        checked = not last.restarts if completed else row.state in {"FAILED", "TIMEOUT"}
        if checked and key not in self._spoilt:
            self._find_fault(key, row.job_id, completed=completed)
        if key in self._spoilt and row.state in {"COMPLETED", "CANCELLED"}:
            last = msgspec.structs.replace(last, job=msgspec.structs.replace(row, state="FAILED"))
        self.keep(last)
        if steps := stamps_of(0).steps:
            self.steps[key] = steps

    def _look_at_launch(self, key: int, job: SlurmJob, passed_s: float) -> None:
        """End a job whose start of MPI Slurm cut: it hangs, or runs with wrong addresses."""
        before_s = self._ran_s.get(key, 0.0)
        self._ran_s[key] = before_s + passed_s
        if any(before_s < look_s <= before_s + passed_s for look_s in _LAUNCH_LOOKS_S) and not job.restarts:
            self._find_fault(key, job.job_id, completed=True)
        if key in self._spoilt:
            self._cancel([job.job_id])

    def _find_fault(self, key: int, job_id: int | None, *, completed: bool) -> None:
        """Record what a job's output says of a fault of its launch."""
        fault = launch_fault(self._folder / f"{key}.out", completed=completed)
        if fault is not None:
            self._tell("launch fault", job_id, key, why=fault)
            self.reasons[key] = fault
            self._spoilt |= {key}

    def _miss(self, key: int, stamps_of: StampsOf, passed_s: float) -> None:
        """Count an answer without a job; after so many in a row its own word counts, or it is lost."""
        times, absent_s = self._absent.get(key, (0, -passed_s))
        times, absent_s = times + 1, absent_s + passed_s
        self._absent[key] = times, absent_s
        if times < _LEAST_ABSENCES:
            return
        last = job_rows.ended(self.entries[key], None, stamps_of, self._origin)
        if last is not None:
            self._end(key, last, stamps_of)
            return
        record = self._accounted(self.entries[key].job.job_id)
        if record is not None:
            last = job_rows.ended(self.entries[key], record, stamps_of, self._origin, accounted=True)
            if last is not None:
                self._writer.event(
                    "by accounting", trace_job=key, job_id=record.job_id, state=str(record.state)
                )
                self._end(key, last, stamps_of)
                return
        if absent_s < self._timing.gone_s:
            return
        entry = job_rows.lost(self.entries[key], stamps_of, self._origin)
        why = f"Slurm has not known it for {absent_s:.0f} s, and it left no end"
        self._writer.event("lost", trace_job=key, job_id=entry.job.job_id, why=why)
        self.reasons[key] = why
        self.forbid(key)
        self.keep(entry)

    def _accounted(self, job_id: int | None) -> SlurmJob | None:
        """Return a job that slurmctld has forgotten as accounting has it, if it has its end."""
        now_s = self._answered_at or 0.0
        if self._accounting is not None and now_s >= self._accounting_s + _ACCOUNTING_EVERY_S:
            self._accounting_s = now_s
            missing = [self.entries[key].job for key in self._absent]
            try:
                self._accounting = self._client.accounted(job_rows.submissions(missing, self._origin))
            except ClusterError:
                self._accounting = {}
        record = None if job_id is None else (self._accounting or {}).get(job_id)
        return job_rows.job_of(record) if record is not None and record.state.is_over else None

    def _drop(self, spare: Collection[SlurmJob]) -> None:
        """Cancel second copies that wait; one that has started finds that it has nothing to do, and ends."""
        for job in spare:
            self._tell("second copy", job.job_id, None, state=str(job.state))
        self._cancel((job.job_id for job in spare if job_rows.waits(job)), only_pending=True)

    def _unblock(self, waiting: Mapping[int, SlurmJob], passed_s: float, answer: SlurmAnswer) -> None:
        """Cancel jobs that can never start, and tell of those that may not."""
        assert answer.jobs is not None
        up = None if answer.nodes is None else nodes_up(answer.nodes, self._partitions)
        is_idle = not answer.jobs.unreadable and not any(job.state.holds_cores for job in answer.jobs.jobs)
        self.blocked = {
            key: blocked
            for key, blocked in self._stuck.look(waiting, passed_s, is_idle=is_idle, up_nodes=up).items()
            if blocked.is_notable
        }
        self.wants_nodes = any(hope_of(job) is Hope.NODES for job in waiting.values())
        for key, blocked in self.blocked.items():
            job = blocked.job
            self._tell("blocked", job.job_id, key, reason=blocked.reason)
            if blocked.is_hopeless:
                self.reasons[key] = f"never started: {blocked.reason}"
                waited_s = round(blocked.waited_s, 1)
                self._tell("never starts", job.job_id, key, reason=blocked.reason, waited_s=waited_s)
        self._cancel(blocked.job.job_id for blocked in self.blocked.values() if blocked.is_hopeless)

    def _cancel(self, job_ids: Iterable[int], *, only_pending: bool = False) -> None:
        """Cancel jobs; where Slurm is away again, the next answer is in time for it."""
        try:
            self._client.cancel(list(job_ids), only_pending=only_pending)
        except ClusterError as error:
            self._tell("cancel failed", None, None, why=str(error))

    def _tell(self, kind: str, job_id: int | None, key: int | None, **fields: object) -> None:
        """Log an event once for each job, a requeue once for each life."""
        mark = (kind, job_id, fields.get("restarts"))
        if mark not in self._reported:
            self._reported.add(mark)
            known = {"trace_job": key} if key is not None else {}
            known |= {"job_id": job_id} if job_id is not None else {}
            self._writer.event(kind, **known, **fields)
