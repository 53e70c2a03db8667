"""What users and administrators do, by Slurm's commands, to jobs that are held just then."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

from foundation.slurm import SlurmJobState
from tests.chaos.broken import Broken, wait_for
from tests.chaos.fault import Fault
from tests.chaos.faults.slurm import SlurmFault
from tests.chaos.stage import KILL_WAIT_S
from tests.chaos.troupe import LIMITED_S, ROUNDS_A_SECOND

GONE_MARGIN_S = 5.0


class Scancel(SlurmFault):
    """Jobs are cancelled at random instants of their slices; some ignore SIGTERM."""

    name = "scancel"
    share = 2.0
    count: ClassVar[int] = 5
    waves: ClassVar[int] = 4
    deaf: ClassVar[bool] = False

    def inject(self) -> None:
        self.holds_s = 0.0
        waves, held = (1 if self.brief else self.waves), 0
        for _ in range(waves):
            held += self._wave()
        total = f"{waves * self.count} jobs, {held} held"
        self.detail = total + (", one of each wave ignores SIGTERM" if self.deaf else "")

    def _wave(self) -> int:
        """Start jobs, see some work, and cancel all; returns how many were held just then."""
        jobs = [
            self.troupe.guest(f"cancel{index}", 0, by_s=120, deaf=self.deaf and index == 0)
            for index in range(self.count)
        ]
        # The last may still wait for cores: one that is cancelled before it ran must be gone as well.
        for job in jobs[:-1]:
            self.troupe.wait_running(job)
        self.wait_held(self.dice.choice(jobs[:-1]))
        held = sum(self.stage.watcher.is_held(job) for job in jobs)
        self.troupe.cancel_and_wait(jobs, GONE_MARGIN_S, KILL_WAIT_S)
        return held


class ScancelDeaf(Scancel):
    """As above; one job ignores SIGTERM and runs until SIGKILL."""

    name = "scancel, SIGTERM ignored"
    share = 0.7
    count = 3
    waves = 1
    deaf = True


class ScancelGang(SlurmFault):
    """A job of one step on two nodes is cancelled while it is held."""

    name = "scancel of a gang"

    def inject(self) -> None:
        self.holds_s = 0.0
        job = self.a_held_guest("gang", 0, by_s=120, nodes=2)
        self.detail = f"job {job}"
        self.troupe.cancel_and_wait([job], GONE_MARGIN_S, KILL_WAIT_S)


class TimeLimit(SlurmFault):
    """A held job reaches its time limit; Slurm looks every half minute, so it is reviewed later."""

    name = "time limit"
    share = 0.4
    short = False

    def inject(self) -> None:
        self.holds_s = 0.0
        job = self.a_held_guest("limited", 0, minutes=1)
        self.troupe.expect(job, "limited", SlurmJobState.TIMEOUT, LIMITED_S)
        self.detail = f"job {job}, reviewed later"


class Requeue(SlurmFault):
    """A held job is requeued: nothing of it may stay behind, and it is to be run anew."""

    name = "requeue"

    def inject(self) -> None:
        self.holds_s = 0.0
        job = self.a_held_guest("requeued", 0)
        before = self.stage.watcher.steps_of(job)
        self.ask("scontrol", "requeue", str(job))
        took_s = wait_for(
            lambda: not any(path.exists() for path in before),
            KILL_WAIT_S + GONE_MARGIN_S,
            f"requeued job {job} is gone",
        )

        def pending() -> bool:
            found = self.stage.client.job(job)
            return found is not None and found.state is SlurmJobState.PENDING and found.restarts == 1

        wait_for(pending, 20, f"job {job} is queued again")
        self.detail = f"gone after {took_s:.1f} s, queued again"
        self.stage.client.cancel([job])
        self.troupe.expect(job, "requeued", SlurmJobState.CANCELLED, 30)


class Suspend(SlurmFault):
    """Slurm suspends a held job: gangd must leave it frozen, and let it go on when Slurm resumes it."""

    name = "suspend and resume"

    def inject(self) -> None:
        self.holds_s = 0.0
        job = self.a_held_guest("suspended", 2 * ROUNDS_A_SECOND, by_s=90)
        watcher = self.stage.watcher
        watcher.spared = frozenset((job,))
        try:
            self.ask("scontrol", "suspend", str(job))
            # Slurm sends SIGTSTP, waits, and freezes; until then the job may still take its turns.
            wait_for(lambda: self._stays_frozen(job, 0.5), 15, "the suspended job stays frozen")
            lasts_s = self.dice.uniform(0.5, 2.0)
            if not self._stays_frozen(job, lasts_s):
                raise Broken(f"suspended job {job} was thawed")
        finally:
            self.ask("scontrol", "resume", str(job))
            self.stage.pause(0.2)
            watcher.spared = frozenset()
        self.detail = f"job {job}, frozen for {lasts_s:.1f} s while SUSPENDED"

    def _stays_frozen(self, job: int, for_s: float) -> bool:
        until_s = time.monotonic() + for_s
        while time.monotonic() < until_s:
            if not _all_frozen(self.stage.watcher.steps_of(job)):
                return False
            self.stage.pause(0.011)
        return True


class NewStep(SlurmFault):
    """A step is started in a job while the job is held; it is held with it and ends in order."""

    name = "step in a held job"

    def inject(self) -> None:
        self.holds_s = 0.0
        job = self.dice.choice(self.troupe.residents)
        self.wait_held(job)
        worker = Path(__file__).parents[1] / "worker.py"
        began_s = time.monotonic()
        words = ["srun", f"--jobid={job}", "--overlap", "--mpi=none", "-N1", "-n1", "-w", self.a_node()]
        # The step counts in a folder of its own: its task number is that of a resident's rank.
        (own := self.stage.folder / "steps").mkdir(exist_ok=True)
        words += ["/usr/bin/python3", "-I", "-S", str(worker), str(own), str(ROUNDS_A_SECOND // 2)]
        done = self.stage.command(*words, within_s=60)
        if done.returncode:
            raise Broken(f"the step failed: {done.stderr.strip()}")
        self.detail = f"job {job}, ended after {time.monotonic() - began_s:.1f} s"


class Array(SlurmFault):
    """A job array, each task of which shares cores."""

    name = "job array"

    def inject(self) -> None:
        self.holds_s = 0.0
        script = self.stage.folder / "array.sh"
        script.write_text(self.troupe.request("array", ROUNDS_A_SECOND).script)
        script.chmod(0o755)
        first = int(self.ask("sbatch", "--parsable", "--array=0-3", "-o/dev/null", str(script)))

        def split() -> bool:
            jobs = [job for job in self.stage.client.jobs().jobs if job.array_job_id == first]
            self._tasks = sorted(job.job_id for job in jobs if job.start_time and job.cores)
            return len(self._tasks) == 4 or all(job.state.is_over for job in jobs)

        wait_for(split, 60, "all tasks of the array started")
        for job in self._tasks:
            self.troupe.expect(job, "array task", SlurmJobState.COMPLETED, 60)
        self.detail = f"{len(self._tasks)} tasks"


class Heterogeneous(SlurmFault):
    """A heterogeneous job: both components are one gang, and it is cancelled while held."""

    name = "heterogeneous job"

    def inject(self) -> None:
        self.holds_s = 0.0
        script = self.stage.folder / "het.sh"
        worker = self.troupe.request("het", 0).script.splitlines()[1].removeprefix("exec ")
        script.write_text(f"#!/bin/sh\nexec srun --mpi=none --het-group=0,1 {worker}\n")
        one, two = self.stage.nodes
        words = ["sbatch", "--parsable", "-o/dev/null", "-n1", "-w", one, ":", "-n1", "-w", two, str(script)]
        leader = int(self.ask(*words).strip().partition(";")[0])
        self.troupe.wait_running(leader)
        self.wait_held(leader)

        def one_gang() -> bool:
            status = self.stage.status()
            found = [] if status is None else [one for one in status.jobs if one.gang == leader]
            self._parts = sorted(one.job for one in found)
            return len(self._parts) == 2

        wait_for(one_gang, 10, "both components are one gang")
        self.detail = f"components {self._parts} are one gang"
        self.troupe.cancel_and_wait(self._parts, GONE_MARGIN_S, KILL_WAIT_S)


def _all_frozen(steps: list[Path]) -> bool:
    try:
        return bool(steps) and all((path / "freezer.state").read_text().strip() == "FROZEN" for path in steps)
    except OSError:
        return False


JOB_FAULTS: tuple[type[Fault], ...] = (
    Scancel, ScancelDeaf, ScancelGang, TimeLimit, Requeue, Suspend, NewStep, Array, Heterogeneous,
)  # fmt: skip
