"""The jobs of a campaign, and what must become of each.

Two *residents*, wide gangs that share every core, live as long as the campaign: none may be lost, restarted
or stand still. A *guest* is a job that a fault brings; it is on the ledger with the state in which it must
end and the time by which it must have.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from foundation.slurm import SlurmJob, SlurmJobState, SubmitRequest
from tests.chaos.broken import Broken, wait_for
from tests.chaos.stage import MULTIPLICITY, Stage

ROUNDS_A_SECOND = 150
RESIDENTS = 2
LIMITED_S = 60.0 * MULTIPLICITY + 60.0
"""By then a job with a limit of a minute is over: time frozen does not count, and every core may be full."""
_ALIVE_S = 20.0


@dataclass(frozen=True, slots=True)
class Guest:
    """A job on the ledger: what it must end as, and by when (time.monotonic)."""

    job: int
    name: str
    must: SlurmJobState
    by_s: float


class Troupe:
    """Submits jobs and holds Slurm and gangd to account for them."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._beats = stage.folder / "beats"
        self.residents: tuple[int, ...] = ()
        self.ledger: list[Guest] = []
        self.ended: dict[SlurmJobState, int] = {}
        self.worst_gone_s = 0.0
        self.cancelled = 0

    def request(
        self, name: str, rounds: int, *, nodes: int = 1, deaf: bool = False, minutes: int | None = None
    ) -> SubmitRequest:
        """Return the request of a job of workers, one on each node."""
        worker = f"{sys.executable} -I -S {Path(__file__).with_name('worker.py')} {self._beats} {rounds}"
        worker += " deaf" if deaf else ""
        launch = f"srun --mpi=none -n{nodes} --kill-on-bad-exit=1 " if nodes > 1 else ""
        return SubmitRequest(
            script=f"#!/bin/sh\nexec {launch}{worker}\n",
            name=name,
            nodes=nodes,
            time_limit_minutes=minutes,
            working_directory=self._stage.folder,
            environment={"PATH": "/usr/bin:/bin"},
        )

    def settle(self) -> None:
        """Bring in the residents and wait until they take turns."""
        client = self._stage.client
        self.residents = tuple(
            client.submit(self.request(f"resident{index}", 0, nodes=2)) for index in range(RESIDENTS)
        )
        self.wait_turns()

    def guest(self, name: str, rounds: int, by_s: float = 60.0, **how: object) -> int:
        """Submit a job that must complete within ``by_s`` seconds; returns its id."""
        job = self._stage.client.submit(self.request(name, rounds, **how))  # type: ignore[arg-type]
        self.expect(job, name, SlurmJobState.COMPLETED, by_s)
        return job

    def expect(self, job: int, name: str, must: SlurmJobState, by_s: float) -> None:
        """Put a job on the ledger, or change what is expected of it."""
        self.ledger = [guest for guest in self.ledger if guest.job != job]
        self.ledger.append(Guest(job, name, must, time.monotonic() + by_s))

    def extend(self, by_s: float) -> None:
        """Give every guest more time: the fault kept Slurm or the cores from them."""
        self.ledger = [replace(guest, by_s=guest.by_s + by_s) for guest in self.ledger]

    def wait_running(self, job: int, within_s: float = 60.0) -> SlurmJob:
        """Wait until a job's first task works and return the job."""
        wait_for(lambda: bool(self._own_beats(job)), within_s, f"job {job} works")
        found = self._stage.client.job(job)
        if found is None:
            raise Broken(f"job {job} is unknown to Slurm")
        return found

    def wait_turns(self, within_s: float = 90.0) -> float:
        """Wait until the residents take turns on every node; returns how long that took."""
        wanted = [(node, job) for node in self._stage.nodes for job in self.residents]
        before = self._stage.watcher.switches()

        def turned() -> bool:
            now = self._stage.watcher.switches()
            return all(now[pair] - before[pair] >= 2 for pair in wanted)

        return wait_for(turned, within_s, "the residents take turns on every node")

    def check(self) -> None:
        """Hold residents and guests to account; raises Broken."""
        jobs = {job.job_id: job for job in self._stage.client.jobs().jobs}
        for number in self.residents:
            job = jobs.get(number)
            if job is None or job.state is not SlurmJobState.RUNNING or job.restarts:
                raise Broken(f"resident {number} is {job.state if job else 'lost'}")
        self._review(jobs)
        before = {path: path.read_bytes() for job in self.residents for path in self._own_beats(job)}
        if len(before) < RESIDENTS * len(self._stage.nodes):
            raise Broken("a rank of a resident never worked")
        wait_for(
            lambda: all(path.read_bytes() != count for path, count in before.items()),
            _ALIVE_S,
            "every rank of every resident works on",
        )

    def cancel_and_wait(self, jobs: list[int], margin_s: float, kill_wait_s: float) -> None:
        """Cancel jobs and see that nothing is left of them in time; raises Broken."""
        began_s = time.monotonic()
        self._stage.client.cancel(jobs)
        left = set(jobs)

        def gone() -> bool:
            known = {job.job_id: job.state for job in self._stage.client.jobs().jobs if job.job_id in left}
            for job in list(left):
                if not self._stage.watcher.steps_of(job) and known.get(job) is SlurmJobState.CANCELLED:
                    left.discard(job)
            return not left

        wait_for(gone, kill_wait_s + margin_s, f"jobs {jobs} are gone after their cancellation")
        self.worst_gone_s = max(self.worst_gone_s, time.monotonic() - began_s)
        self.cancelled += len(jobs)
        self.ledger = [guest for guest in self.ledger if guest.job not in jobs]
        self.ended[SlurmJobState.CANCELLED] = self.ended.get(SlurmJobState.CANCELLED, 0) + len(jobs)

    def abandon(self, before: set[int]) -> None:
        """Cancel the guests that a fault left behind when it broke off; ``before`` are those of others."""
        left = [guest.job for guest in self.ledger if guest.job not in before]
        self.ledger = [guest for guest in self.ledger if guest.job in before]
        self._stage.client.cancel(left)

    def guests(self) -> set[int]:
        """Return the jobs on the ledger."""
        return {guest.job for guest in self.ledger}

    def farewell(self) -> None:
        """Wait for every guest, let the residents end in order, and see that they completed."""
        wait_for(self._all_reviewed, LIMITED_S + 30.0, f"guests end: {self.ledger}")
        (self._beats / "end").touch()

        def completed() -> bool:
            jobs = {job.job_id: job.state for job in self._stage.client.jobs().jobs}
            return all(jobs.get(job) is SlurmJobState.COMPLETED for job in self.residents)

        wait_for(completed, 60.0, "the residents complete")

    def _all_reviewed(self) -> bool:
        time.sleep(0.3)
        self._review({job.job_id: job for job in self._stage.client.jobs().jobs})
        return not self.ledger

    def _review(self, jobs: dict[int, SlurmJob]) -> None:
        for guest in list(self.ledger):
            job = jobs.get(guest.job)
            if job is None:
                raise Broken(f"{guest.name} {guest.job} is lost")
            if job.state is guest.must:
                self.ledger.remove(guest)
                self.ended[job.state] = self.ended.get(job.state, 0) + 1
            elif job.state.is_over or time.monotonic() > guest.by_s:
                self.ledger.remove(guest)
                raise Broken(f"{guest.name} {guest.job} is {job.state} ({job.reason}), not {guest.must}")

    def _own_beats(self, job: int) -> list[Path]:
        return list(self._beats.glob(f"{job}-*"))
