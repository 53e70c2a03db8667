"""Submitting each job at its instant; what got no answer is put aside, looked for, and made again."""

from __future__ import annotations

import math
import os
import queue
import threading
from bisect import insort_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foundation.errors import ClusterError, OsubError
from foundation.slurm import SlurmClient, SubmitRequest
from foundation.slurm.slurm_types import SlurmRefusedError, SlurmUnreachableError, SubmitUncertainError
from foundation.units import counted
from submitter.follow import Submission, own_jobs
from submitter.plan import Clock, PlannedJob, Timing

# An unexpected error, so often for one job: then it is refused.
_MOST_FAULTS = 3
# Records that cannot be read may be the job; they put off its repetition, but not for ever.
_LONGEST_LOOKS = 4
# An answer that was long in coming tells of one instant only.
_LONGEST_STEP_S = 5.0


@dataclass(slots=True)
class _Doubt:
    """A job whose submission got no answer, and for how long Slurm has since answered without it."""

    job: PlannedJob
    called: float
    why: str
    answered_at: float | None = None
    answered_s: float = 0.0
    unclear_s: float = 0.0


class Submissions:
    """The work of submitting, step by step; what comes of each job is put on ``results``.

    Slurm being away is waited out. A submission that got no answer is looked for by name while the others go
    on, for as long as it may still arrive, and then made again. What fails for every job (sbatch is missing)
    is raised.

    Parameters
    ----------
    client
        Slurm.
    jobs
        What to submit, in order of ``due_s``.
    later
        How many jobs more ``release`` will give.
    origin
        Epoch second of the run's second 0.
    run_id
        Part of every job's name.
    request
        Returns what is asked of Slurm for a job.
    timing, clock
        How long to wait, on which clock.
    """

    def __init__(
        self,
        client: SlurmClient,
        jobs: Sequence[PlannedJob],
        *,
        later: int = 0,
        origin: float,
        run_id: str,
        request: Callable[[PlannedJob], SubmitRequest],
        timing: Timing,
        clock: Clock,
    ) -> None:
        self.results: queue.SimpleQueue[Submission] = queue.SimpleQueue()
        self.is_away = threading.Event()
        self._client = client
        self._jobs = deque(jobs)
        self._later = later
        self._released: queue.SimpleQueue[PlannedJob] = queue.SimpleQueue()
        self._again: deque[PlannedJob] = deque()
        self._doubts: list[_Doubt] = []
        self._faults: dict[int, int] = {}
        self._run_id = run_id
        self._request = request
        self._timing = timing
        self._clock = clock
        self._began = clock.monotonic() + origin - clock.wall()
        self._next_look = 0.0

    @property
    def doubtful(self) -> tuple[int, ...]:
        """The trace's numbers of jobs that Slurm may or may not have."""
        return tuple(doubt.job.trace_job for doubt in self._doubts)

    def release(self, job: PlannedJob) -> None:
        """Submit a job, too, at its ``due_s``; may be called from another thread."""
        self._released.put(job)

    def step(self) -> float | None:
        """Submit the next job if it is due, and look for those in doubt; see :class:`Worker`."""
        self._settle()
        while not self._released.empty():
            insort_right(self._jobs, self._released.get_nowait(), key=lambda job: job.due_s)
            self._later -= 1
        waiting = self._again or self._jobs
        if waiting:
            now = self._clock.monotonic()
            due = now if self._again else self._began + waiting[0].due_s
            if due <= now:
                if not self._submit(waiting[0]):
                    return self._timing.away_s
                waiting.popleft()
            return self._until(due)
        return self._until(math.inf) if self._doubts or self._later else None

    def _until(self, due: float) -> float:
        until = min(due, self._next_look) if self._doubts else due
        pause_s = max(0.0, until - self._clock.monotonic())
        return min(pause_s, self._timing.turn_s) if self._later else pause_s

    def _submit(self, job: PlannedJob) -> bool:
        """Submit a job; False where Slurm was not reached."""
        called, job_id, refusal = self._clock.wall(), None, None
        try:
            job_id = self._client.submit(self._request(job))
        except SlurmRefusedError as error:
            refusal = str(error)
        except SubmitUncertainError as error:
            self._doubt(job, called, str(error))
            return True
        except SlurmUnreachableError:
            self.is_away.set()
            return False
        except OsubError:
            raise
        except Exception as error:  # the effect is unknown: look, and try again
            count = self._faults[job.trace_job] = self._faults.get(job.trace_job, 0) + 1
            self._doubt(
                job, called, f"submitting it failed {counted(count, 'time')}: {type(error).__name__}: {error}"
            )
            return True
        self.is_away.clear()
        self._tell(job, called, job_id, refusal)
        return True

    def _doubt(self, job: PlannedJob, called: float, why: str) -> None:
        self._doubts.append(_Doubt(job, called, why))
        self._next_look = self._clock.monotonic()

    def _settle(self) -> None:
        """Look whether Slurm has the jobs in doubt; give back those that it surely has not."""
        now = self._clock.monotonic()
        if not self._doubts or now < self._next_look:
            return
        self._next_look = now + self._timing.poll_s
        try:
            snapshot = self._client.jobs()
        except ClusterError:
            self.is_away.set()
            for doubt in self._doubts:
                doubt.answered_at = None
            return
        now = self._clock.monotonic()
        self._next_look = now + self._timing.poll_s
        self.is_away.clear()
        found = own_jobs(snapshot.jobs, self._run_id, {os.geteuid()})
        left: list[_Doubt] = []
        for doubt in self._doubts:
            copies = found.get(doubt.job.trace_job)
            passed = 0.0 if doubt.answered_at is None else min(now - doubt.answered_at, _LONGEST_STEP_S)
            doubt.answered_at = now
            if snapshot.unreadable:
                doubt.unclear_s += passed
            else:
                doubt.answered_s += passed
            if copies:
                self._tell(doubt.job, doubt.called, copies[0].job_id, None)
            elif (
                doubt.answered_s < self._timing.look_s
                and doubt.unclear_s < _LONGEST_LOOKS * self._timing.look_s
            ):
                left.append(doubt)
            elif self._faults.get(doubt.job.trace_job, 0) >= _MOST_FAULTS:
                self._tell(doubt.job, doubt.called, None, doubt.why)
            else:
                self._again.append(doubt.job)
        self._doubts = left

    def _tell(self, job: PlannedJob, called: float, job_id: int | None, refusal: str | None) -> None:
        self.results.put(
            Submission(
                trace_job=job.trace_job,
                job_id=job_id,
                called=called,
                returned=self._clock.wall(),
                refusal=refusal,
            )
        )
