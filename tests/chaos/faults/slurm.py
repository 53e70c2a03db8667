"""Slurm's own daemons: restarts, outages, and a node that is drained."""

from __future__ import annotations

import random
import signal
import time
from typing import ClassVar

from deploy.local.daemons import find_process
from tests.chaos.broken import Broken, wait_for
from tests.chaos.fault import Fault
from tests.chaos.stage import Stage
from tests.chaos.troupe import ROUNDS_A_SECOND, Troupe

_HELD_S = 30.0


class SlurmFault(Fault):
    """A fault that a command of Slurm makes."""

    def ask(self, *words: str) -> str:
        """Run a command that must succeed and return what it prints."""
        done = self.stage.command(*words)
        if done.returncode:
            raise Broken(f"`{' '.join(words)}` failed: {done.stderr.strip()}")
        return done.stdout

    def a_held_guest(self, name: str, rounds: int, **how: object) -> int:
        """Submit a job and wait until it takes turns, and until an instant at which it is held."""
        job = self.troupe.guest(name, rounds, **how)  # type: ignore[arg-type]
        self.troupe.wait_running(job)
        self.wait_held(job)
        return job

    def wait_held(self, job: int) -> None:
        """Wait for an instant at which a job is held."""
        wait_for(lambda: self.stage.watcher.is_held(job), _HELD_S, f"job {job} is held")


class ControllerAway(SlurmFault):
    """Slurmctld is killed and comes back after a while: jobs end meanwhile, the schedule goes on."""

    name = "slurmctld away 60 s"
    share: ClassVar[float] = 0.0
    away_s: ClassVar[float] = 60.0
    short: ClassVar[bool] = False

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.holds_s = self.away_s
        self._before = stage.watcher.switches()
        self._turns = 0

    def inject(self) -> None:
        # Ends while Slurm is away: its core must go on to the others all the same.
        self.troupe.guest("orphan", ROUNDS_A_SECOND, by_s=self.away_s + 90)
        self.troupe.extend(self.away_s)
        saved = self.stage.layout.controller_state / "job_state"
        changed = time.time()
        # What slurmctld had not saved before SIGKILL is Slurm's to lose, not ours.
        wait_for(lambda: saved.exists() and saved.stat().st_mtime > changed, 20, "slurmctld saves its state")
        daemon = self.stage.slurm_daemon("slurmctld")
        process = find_process(daemon)
        if process is not None:
            process.send_signal(self.dice.choice([signal.SIGKILL, signal.SIGTERM]))
            wait_for(lambda: find_process(daemon) is None, 20, "slurmctld is dead")
        self._before = self.stage.watcher.switches()
        self.detail = f"{self.away_s:.0f} s"

    def heal(self) -> None:
        after = self.stage.watcher.switches()
        self._turns = min(
            after[node, job] - self._before[node, job]
            for node in self.stage.nodes
            for job in self.troupe.residents
        )
        self.stage.revive_slurm()

    def check(self) -> None:
        if not self._turns:
            raise Broken("the residents took no turns while Slurm was away")
        status = self.stage.status()
        known = set() if status is None else {one.job for one in status.jobs}
        if not known & set(self.troupe.residents):
            raise Broken("the controller forgot the residents while Slurm was away")


class ControllerAwayShort(ControllerAway):
    """As above, for as long as a short campaign can wait."""

    name = "slurmctld away 10 s"
    away_s = 10.0
    share = 0.3
    short = True


class ControllerRestarted(SlurmFault):
    """Slurmctld restarts in order."""

    name = "slurmctld restart"

    def inject(self) -> None:
        self.holds_s = 0.0
        daemon = self.stage.slurm_daemon("slurmctld")
        process = find_process(daemon)
        if process is not None:
            process.send_signal(signal.SIGTERM)
        wait_for(lambda: find_process(daemon) is None, 20, "slurmctld is dead")
        self.troupe.extend(10.0)

    def heal(self) -> None:
        self.stage.revive_slurm()


class Drain(SlurmFault):
    """An administrator drains a node with held jobs, and takes it back."""

    name = "node drain and resume"

    def inject(self) -> None:
        self.node = self.a_node()
        self.detail = self.node
        self.ask("scontrol", "update", f"NodeName={self.node}", "State=DRAIN", "Reason=campaign")

    def heal(self) -> None:
        self.ask("scontrol", "update", f"NodeName={self.node}", "State=RESUME")


class SlurmdRestarted(SlurmFault):
    """A slurmd is killed and started again below running jobs."""

    name = "slurmd restart"

    def inject(self) -> None:
        self.node = self.a_node()
        self.detail = self.node
        daemon = self.stage.slurm_daemon(f"slurmd {self.node}")
        process = find_process(daemon)
        if process is not None:
            process.send_signal(self.dice.choice([signal.SIGKILL, signal.SIGTERM]))
        wait_for(lambda: find_process(daemon) is None, 20, "slurmd is dead")

    def heal(self) -> None:
        self.stage.revive_slurm()


SLURM_FAULTS: tuple[type[Fault], ...] = (
    ControllerAway, ControllerAwayShort, ControllerRestarted, Drain, SlurmdRestarted,
)  # fmt: skip
