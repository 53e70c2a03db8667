"""Daemons of the gang scheduler that die or are stopped, alone and together."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable

from tests.chaos.broken import wait_for
from tests.chaos.ending import end_daemons
from tests.chaos.fault import Fault
from tests.chaos.stage import ALLOWANCE_S, CONTROLLER, HEALTH_CHECK_S, Stage
from tests.chaos.troupe import Troupe


class ControllerKilled(Fault):
    """SIGKILL to the controller; a service manager starts another."""

    name = "SIGKILL controller"

    def inject(self) -> None:
        self.stage.signal(CONTROLLER, signal.SIGKILL)
        self.detail = f"away {self.holds_s:.1f} s"

    def heal(self) -> None:
        self.stage.revive()


class ControllerStopped(Fault):
    """SIGSTOP to the controller, then SIGCONT: it wakes up in a world that has moved on."""

    name = "SIGSTOP controller"

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.holds_s = dice.uniform(0.3, 5.0)

    def inject(self) -> None:
        self.stage.signal(CONTROLLER, signal.SIGSTOP)
        self.detail = f"{self.holds_s:.1f} s"

    def heal(self) -> None:
        self.stage.signal(CONTROLLER, signal.SIGCONT)


class AgentKilled(Fault):
    """SIGKILL to an agent while it holds jobs."""

    name = "SIGKILL agent"
    number = signal.SIGKILL

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.node = self.a_node()

    def inject(self) -> None:
        wait_for(lambda: any(self.node in line for line in self.stage.watcher.held()), 5, "a job is held")
        self.stage.signal(self.stage.agent(self.node), self.number)
        self.detail = f"{self.node}, away {self.holds_s:.1f} s"

    def heal(self) -> None:
        self.stage.revive()


class AgentRestarted(AgentKilled):
    """An orderly restart of an agent while it holds jobs."""

    name = "agent restart with held jobs"
    number = signal.SIGTERM

    def heal(self) -> None:
        end_daemons([self.stage.gang[self.stage.agent(self.node)]], within_s=10.0)
        self.stage.revive()


class AgentStopped(Fault):
    """SIGSTOP to an agent: it cannot thaw, its guardian must; SIGCONT, and it must not freeze on."""

    name = "SIGSTOP agent"

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.node = self.a_node()
        self.holds_s = dice.uniform(0.3, 5.0)

    def inject(self) -> None:
        self.stage.signal(self.stage.agent(self.node), signal.SIGSTOP)
        self.detail = f"{self.node}, {self.holds_s:.1f} s"

    def heal(self) -> None:
        self.stage.signal(self.stage.agent(self.node), signal.SIGCONT)


class GuardianKilled(Fault):
    """SIGKILL to a guardian: the agent must hold nothing until it has another."""

    name = "SIGKILL guardian"
    number = signal.SIGKILL

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.node = self.a_node()
        self.pid: int | None = None

    def inject(self) -> None:
        found = self.stage.processes(f"guardian {self.node}")
        self.pid = found[0].pid if found else None
        self.stage.signal(f"guardian {self.node}", self.number)
        self.detail = self.node

    def check(self) -> None:
        def another() -> bool:
            found = self.stage.processes(f"guardian {self.node}")
            return bool(found) and found[0].pid != self.pid

        wait_for(another, 20, "another guardian watches")


class GuardianStopped(GuardianKilled):
    """SIGSTOP to a guardian: it looks alive to the kernel, and must be replaced all the same."""

    name = "SIGSTOP guardian"
    number = signal.SIGSTOP


class Progress:
    """CPU time of jobs that are held while no process runs that would release them."""

    def __init__(self, stage: Stage, nodes: Iterable[str]) -> None:
        self._stage = stage
        self._began_s = time.monotonic()
        self._before = {node: stage.watcher.cpu_s(node) for node in nodes}

    def __str__(self) -> str:
        if not self._stage.yields:
            return ""
        lasted_s = time.monotonic() - self._began_s
        shares = [
            (self._stage.watcher.cpu_of(job, node) - used_s) / lasted_s
            for node, jobs in self._before.items()
            for job, used_s in jobs.items()
        ]
        return f", meanwhile at least {min(shares, default=0.0):.2%} of a core"


class BothKilled(Fault):
    """SIGKILL to an agent and its guardian at once: only slurmd's health check is left to thaw."""

    name = "SIGKILL agent and guardian"
    number = signal.SIGKILL
    # Due every HEALTH_CHECK_S seconds; slurmctld sends it round late at times.
    allowance_s = 2 * HEALTH_CHECK_S + ALLOWANCE_S

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.node = self.a_node()

    def inject(self) -> None:
        stage = self.stage
        wait_for(lambda: any(self.node in line for line in stage.watcher.held()), 5, "a job is held")
        # Stopped first: of two that die one after the other, the second acts upon the death of the first.
        stage.signal(stage.agent(self.node), signal.SIGSTOP)
        stage.signal(f"guardian {self.node}", self.number)
        stage.signal(stage.agent(self.node), self.number)
        time.sleep(0.1)
        held = [line for line in stage.watcher.held() if self.node in line]
        progress = Progress(stage, (self.node,))
        took_s = wait_for(
            lambda: not any(self.node in line for line in stage.watcher.held()),
            self.allowance_s + 5,
            "the health check releases",
        )
        self.detail = (
            f"{self.node}, {len(held)} {stage.what_is_held}, released after {took_s:.1f} s{progress}"
        )
        self.holds_s = 0.0

    def heal(self) -> None:
        self.stage.signal(f"guardian {self.node}", signal.SIGCONT)
        self.stage.signal(self.stage.agent(self.node), signal.SIGCONT)
        self.stage.revive()


class BothStopped(BothKilled):
    """SIGSTOP to an agent and its guardian at once, then SIGCONT to both."""

    name = "SIGSTOP agent and guardian"
    number = signal.SIGSTOP


class AllKilled(BothKilled):
    """SIGKILL to the controller, every agent and every guardian at once."""

    name = "SIGKILL controller, agents and guardians"
    number = signal.SIGKILL

    def inject(self) -> None:
        stage = self.stage
        wait_for(lambda: bool(stage.watcher.held()), 5, "a job is held")
        roles = [CONTROLLER, *(stage.agent(node) for node in stage.nodes)]
        guardians = [f"guardian {node}" for node in stage.nodes]
        found = [process for role in (*roles, *guardians) for process in stage.processes(role)]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none is to see another die
            for process in found:
                process.send_signal(number)
        time.sleep(0.1)
        held = list(stage.watcher.held())
        progress = Progress(stage, stage.nodes)
        took_s = wait_for(lambda: not stage.watcher.held(), self.allowance_s + 5, "the health check releases")
        self.detail = f"{len(held)} {stage.what_is_held}, released after {took_s:.1f} s{progress}"
        self.holds_s = 0.0

    def heal(self) -> None:
        self.stage.revive()


class ShortOfMemory(Fault):
    """The controller reads that a node must have more memory free than the host has, and later that not."""

    name = "nodes short of memory"
    allowance_s = 5.0 + ALLOWANCE_S  # memory_freeze_ms

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self._file = stage.layout.gang / "gangd.toml"
        self._before = self._file.read_text()

    def inject(self) -> None:
        others = [line for line in self._before.splitlines() if not line.startswith("memory_mib")]
        self._configure("\n".join([*others, "memory_mib = 10000000", ""]))
        took_s = wait_for(self._is_deferred, 60, "a gang is deferred")
        self.detail = f"deferred after {took_s:.1f} s"

    def heal(self) -> None:
        self._configure(self._before)

    def check(self) -> None:
        wait_for(lambda: not self._is_deferred(), 60, "no gang is deferred")

    def _configure(self, text: str) -> None:
        self._file.write_text(text)
        self.stage.signal(CONTROLLER, signal.SIGHUP)

    def _is_deferred(self) -> bool:
        status = self.stage.status()
        return status is not None and any(alarm.kind == "memory" for alarm in status.alarms)


class SecondController(Fault):
    """A second gangd is started: with the same state folder, or with the same ports."""

    name = "second controller, refused"

    def inject(self) -> None:
        self.holds_s = 0.0
        words = [sys.executable, "-P", "-m", "gangd.main", "run"]
        words += ["--config", str(self.stage.layout.gang / "gangd.toml")]
        self.detail = "same state folder"
        if self.dice.random() < 0.5:
            self.detail = "same ports"
            words += ["--state", str(self.stage.folder / "second")]
        done: subprocess.CompletedProcess[str] = self.stage.command(*words)
        self.refused = done.returncode == 1 and "another gangd" in done.stderr

    def check(self) -> None:
        if not self.refused:
            raise AssertionError("the second controller was not refused")


class SecondAgent(Fault):
    """A second agent is started on a node that has one."""

    name = "second agent, refused"

    def inject(self) -> None:
        self.holds_s = 0.0
        self.detail = node = self.a_node()
        stage = self.stage
        words = [sys.executable, "-P", "-m", "gangd.agent.main", "run", "--node", node]
        words += ["--state", str(stage.layout.gang / "agents"), "--keys", str(stage.keys())]
        words += ["--controller", stage.lines[node].endpoints()]
        done = stage.command(*words)
        self.refused = done.returncode == 1 and "already runs" in done.stderr

    def check(self) -> None:
        if not self.refused:
            raise AssertionError("the second agent was not refused")


PROCESS_FAULTS: tuple[type[Fault], ...] = (
    ControllerKilled, ControllerStopped, AgentKilled, AgentRestarted, AgentStopped, GuardianKilled,
    GuardianStopped, BothKilled, BothStopped, AllKilled, ShortOfMemory, SecondController,
    SecondAgent,
)  # fmt: skip
