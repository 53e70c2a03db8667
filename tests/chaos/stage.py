"""The stage of a campaign: an embedded Slurm, gangd's controller, and agents behind proxies.

The gang scheduler's daemons are started here and not by the cluster, because faults need them apart: behind
a proxy, with other keys, in another time or network namespace, or not at all.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from deploy.local import HoldSetting, LocalCluster, Shape
from deploy.local.daemons import Daemon, find_process, start_daemon
from deploy.local.gang import gang_daemons, keys_folder, prepare_gang, status_folder
from deploy.local.host import CgroupVersion, look_at_host
from foundation.errors import OsubError
from foundation.slurm import CommandSlurm
from gangd.controller.controller_status import ControllerStatus, read_status
from gangd.curve_keys import make_keys
from gangd.guardian.state_folders import state_path
from gangd.guardian.statefile import StateFile, Word
from tests.chaos.broken import Broken, wait_for
from tests.chaos.ending import end_daemons
from tests.chaos.forger import Recorder
from tests.chaos.proxy import Proxy, ProxyThread
from tests.chaos.watcher import Watcher
from tests.fixtures.leftovers import left_of_cluster

LEASE_S = 2.0
ALLOWANCE_S = LEASE_S + 1.0
KILL_WAIT_S = 5
HEALTH_CHECK_S = 5
QUANTUM_MS = 50
MULTIPLICITY = 6  # enough for the residents and for the guests of several faults at a time
PARTS = {
    "tune": "tune = true\nquantum_min_ms = 50\nquantum_max_ms = 200\n",
    "pairing": 'pairing_learn = true\npairing_word = "name"\n',
    "memory": "memory_mib = 1\n",
}  # lines of gangd.toml for parts that are off by default
CONTROLLER = "gangd"
FUZZ = "fuzz"  # name of an agent's key that is on the allow-list and of no node


class Stage:
    """Everything that faults act on; use ``with``.

    folder: an empty folder; a short path, because Unix sockets lie below it.
    dice: source of all randomness of the proxies.
    hold: how gangd holds jobs.
    parts: which of ``PARTS`` are on.
    """

    def __init__(
        self,
        folder: Path,
        dice: random.Random,
        hold: HoldSetting = HoldSetting.FREEZE,
        parts: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self._parts = parts
        self.yields = hold is HoldSetting.YIELD
        self.cluster = LocalCluster(folder / "c")
        self.shape = Shape(
            nodes=2,
            cores=1,
            multiplicity=MULTIPLICITY,
            hold=hold,
            quantum_ms=QUANTUM_MS,
            settings=(
                f"KillWait={KILL_WAIT_S}", "UnkillableStepTimeout=10", "JobRequeue=1",
                "MinJobAge=300", f"HealthCheckProgram={folder}/health-check",
                f"HealthCheckInterval={HEALTH_CHECK_S}", "HealthCheckNodeState=ANY",
            ),
        )  # fmt: skip
        self._dice = dice
        self.gang: dict[str, Daemon] = {}
        self.intruders: list[Daemon] = []

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self.tell()
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        self.host = look_at_host()
        agents = self.folder / "c" / "gang" / "agents"
        check = self.folder / "health-check"
        sources = os.environ.get("PYTHONPATH", "")
        hammer = f"{sys.executable} -P -m gangd.agent.main thaw --expired --state {agents}"
        log = f"{self.folder}/health-check.log"
        check.write_text(f"#!/bin/sh\nexec env PYTHONPATH={sources} {hammer} >>{log} 2>&1\n")
        check.chmod(0o755)
        (self.folder / "beats").mkdir()
        self.layout = self.cluster.up(self.shape).layout
        self.nodes = tuple(node.name for node in self.layout.nodes)
        self.layout.gang.mkdir(mode=0o700)  # `up` makes it only for a gang scheduler that it starts itself
        prepare_gang(self.shape, self.layout)
        with (self.layout.gang / "gangd.toml").open("a") as settings:
            settings.writelines(PARTS[part] for part in self._parts)
        make_keys(self.keys(), [FUZZ])
        self.client: CommandSlurm = self.cluster.client()
        self.proxies = ProxyThread()
        self.lines = {
            node: Proxy(self.proxies.loop, self.layout.gang_ports, random.Random(self._dice.random()))
            for node in self.nodes
        }
        self.watcher = Watcher(self.nodes, ALLOWANCE_S, yields=self.yields)
        self.recorder = Recorder(self.keys(), self.nodes, self.layout.gang_ports[0])
        self.revive()
        self.wait_joined()

    def close(self) -> None:
        """End everything that was started, and thaw what is frozen."""
        with suppress(AttributeError):
            self.watcher.close()
        for process in [p for role in self.gang for p in self.processes(role)]:
            with suppress(psutil.NoSuchProcess):
                process.resume()
        end_daemons([*self.gang.values(), *self.intruders], within_s=5.0)
        try:
            if hasattr(self, "layout"):
                self._remove_gang_folder()
            self.cluster.down()
            if hasattr(self, "layout") and (left := left_of_cluster(self.layout)):
                raise Broken(f"left after the cluster's end: {', '.join(left)}")
        finally:
            with suppress(AttributeError):
                self.recorder.close()
                for line in self.lines.values():
                    line.close()
                self.proxies.close()

    def _remove_gang_folder(self, within_s: float = 60.0) -> None:
        """Remove the folder; a guardian may still write into it how its agent ended."""
        deadline = time.monotonic() + within_s
        while self.layout.gang.exists() and time.monotonic() < deadline:
            shutil.rmtree(self.layout.gang, ignore_errors=True)
            time.sleep(0.05)

    def tell(self, lines: int = 8) -> None:
        """Print the last lines of every daemon's log to standard error."""
        for path in sorted((self.folder / "c" / "log").glob("gang*.out")):
            print(f"--- {path.name}", *path.read_text().splitlines()[-lines:], sep="\n", file=sys.stderr)

    @property
    def what_is_held(self) -> str:
        """What the watcher counts as held."""
        return "jobs yielding" if self.yields else "steps held"

    def agent(self, node: str) -> str:
        """Return the role of a node's agent."""
        return f"gang-agent {node}"

    def start(
        self,
        role: str,
        *,
        prefix: Sequence[str] = (),
        change: Callable[[list[str]], list[str]] = lambda words: words,
    ) -> Daemon:
        """Start a daemon of the gang scheduler that does not run.

        role: ``gangd`` or ``gang-agent NODE``.
        prefix: words before its command, such as those of unshare(1).
        change: changes its command.
        """
        words = gang_daemons(self.layout, self.host)[role]
        if role != CONTROLLER:
            words = [*words[:-1], self.lines[role.split()[1]].endpoints()]
        words = [*prefix, *change(words)]
        log = self.layout.logs / f"{role.replace(' ', '-')}.out"
        self.gang[role] = start_daemon(role, words, log, self.environment())
        return self.gang[role]

    def environment(self) -> dict[str, str]:
        """Return the environment of daemons and commands of this cluster."""
        own = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        return own | {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "SLURM_CONF": str(self.layout.conf),
            "OSUB_CLUSTER": self.layout.cluster_name,
        }

    def command(self, *words: str, within_s: float = 90.0) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm or of ours to its end."""
        return subprocess.run(
            words, env=self.environment(), capture_output=True, text=True, timeout=within_s, check=False
        )

    def is_alive(self, role: str) -> bool:
        """Whether a daemon of the gang scheduler runs."""
        return role in self.gang and find_process(self.gang[role]) is not None

    def revive(self) -> None:
        """Start what is dead of the gang scheduler, as a service manager would; an agent waits its turn."""
        for role in (CONTROLLER, *(self.agent(node) for node in self.nodes)):
            if not self.is_alive(role):
                self.start(role)

    def replace(
        self,
        role: str,
        *,
        prefix: Sequence[str] = (),
        change: Callable[[list[str]], list[str]] = lambda words: words,
    ) -> None:
        """End a daemon in order and start it anew; the options are those of ``start``."""
        end_daemons([self.gang[role]], within_s=5.0)
        self.start(role, prefix=prefix, change=change)

    def processes(self, role: str) -> list[psutil.Process]:
        """Return the process of a role, of ``guardian NODE`` too; empty where it is dead."""
        if role.startswith("guardian "):
            pid = self._guardian_pid(role.split()[1])
            with suppress(psutil.NoSuchProcess):
                return [psutil.Process(pid)] if pid else []
            return []
        process = find_process(self.gang[role]) if role in self.gang else None
        return [process] if process is not None else []

    def pause(self, for_s: float) -> None:
        """Let a fault last."""
        time.sleep(for_s)

    def signal(self, role: str, number: signal.Signals) -> bool:
        """Send a signal to a role; returns whether it was there."""
        found = self.processes(role)
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return bool(found)

    def status(self) -> ControllerStatus | None:
        """Return the controller's newest status, None if there is none."""
        try:
            return read_status(status_folder(self.layout))
        except OsubError:
            return None

    def joined(self) -> bool:
        """Whether a live controller knows every agent as joined, by a status no older than itself."""
        process = self.processes(CONTROLLER)
        status = self.status()
        if not process or status is None or status.pid != process[0].pid:
            return False
        return {node.node for node in status.nodes if node.agent == "joined"} >= set(self.nodes)

    def wait_joined(self, within_s: float = 90.0) -> float:
        """Wait until controller and agents work together, by a status newer than this call."""
        now_ms = time.time() * 1000

        def joined() -> bool:
            status = self.status()
            return status is not None and status.time_ms > now_ms and self.joined()

        return wait_for(joined, within_s, "every agent joined")

    def revive_slurm(self) -> None:
        """Start what is dead of Slurm."""
        self.cluster.up(self.shape)

    def slurm_daemon(self, role: str) -> Daemon:
        """Return a daemon of Slurm, such as ``slurmctld``."""
        return next(daemon for daemon in self.cluster.state().daemons if daemon.role == role)

    def keys(self) -> Path:
        """Return the folder of keys."""
        return keys_folder(self.layout)

    def _guardian_pid(self, node: str) -> int | None:
        path = state_path(self.layout.gang / "agents", node)
        try:
            state = StateFile.open(path)
        except (OSError, OsubError):
            return None
        try:
            pid = state.word(Word.GUARDIAN_PID)
            name = Path(f"/proc/{pid}/comm")
            return pid if pid and name.exists() and name.read_text().startswith("gang-guardian") else None
        except OSError:
            return None
        finally:
            state.close()


def usable() -> str | None:
    """Return why this host cannot be a stage; None if it can."""
    if os.geteuid() != 0:
        return "needs root: cgroups, namespaces and priorities"
    host = look_at_host()
    if host.cgroup is not CgroupVersion.V1:
        return "needs a cgroup v1 freezer, whose states it watches"
    return None if len(host.cpus) >= 2 else "needs two CPUs"
