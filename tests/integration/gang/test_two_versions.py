"""Two versions of the project on one cluster: controllers and agents of the one with those of the other.

The older one is a whole second copy, out of the project's history, with the packages that are installed. Jobs
share cores all the while; a thread looks at them every few milliseconds, and none may be suspended beyond the
lease.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deploy.local.daemons import find_process
from deploy.local.gang import gang_daemons, status_folder
from deploy.local.host import look_at_host
from gangd.wire.messages import OLDEST, VERSION
from tests.fixtures.looks import until
from tests.fixtures.older_sources import environment_of, unpack_older, version_spoken
from tests.integration.gang.frozen import is_frozen, processes_of
from tests.integration.gang.stage import SPIN, Stage
from tests.integration.waiting import agents_joined

pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(900)]

LEASE_S, SLACK_S = 2.0, 1.0
LOOK_S = 0.02
TURNS = 4


class Watch(threading.Thread):
    """Notes for how long processes are suspended at a stretch, at most."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        super().__init__(daemon=True)
        self.longest_s = 0.0
        self._pids = pids
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        """Look until the end is asked for."""
        since: dict[int, float] = {}
        while not self._over.wait(LOOK_S):
            now_s = time.monotonic()
            for pid in self._pids:
                if not is_frozen(pid):
                    since.pop(pid, None)
                else:
                    self.longest_s = max(self.longest_s, now_s - since.setdefault(pid, now_s))

    def end(self) -> float:
        """End, and return it."""
        self._over.set()
        self.join()
        return self.longest_s


class Mixed:
    """Daemons of the shared cluster, some of them of the older version."""

    def __init__(self, stage: Stage, older: Path) -> None:
        self.stage = stage
        self.older = older
        self._words = gang_daemons(stage.layout, look_at_host())
        self._ours: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def agents(self) -> list[str]:
        return [f"gang-agent {node}" for node in self.stage.nodes]

    def replace(self, role: str, sources: Path | None) -> None:
        """Put a daemon of other sources in the place of one; a controller leaves without a word."""
        self.end(role)
        log = self.stage.layout.logs / f"mixed-{role.replace(' ', '-')}-gang.out"
        environment = environment_of(
            sources, OSUB_CLUSTER=self.stage.layout.cluster_name, SLURM_CONF=str(self.stage.layout.conf)
        )
        with log.open("ab") as out:
            self._ours[role] = subprocess.Popen(
                self._words[role], env=environment, stdout=out, stderr=out, cwd="/"
            )

    def end(self, role: str) -> None:
        number = signal.SIGUSR2 if role == "gangd" else signal.SIGTERM
        own = self._ours.pop(role, None)
        if own is not None:
            own.send_signal(number)
            own.wait(30)
            return
        former = self.stage.daemon(role)
        with suppress(ProcessLookupError):
            os.kill(former.pid, number)
        until(lambda: find_process(former) is None, 60, f"{role} leaves")

    def status(self) -> dict[str, object]:
        """What the controller says, of whichever version it is."""
        with suppress(OSError, ValueError):
            found = json.loads((status_folder(self.stage.layout) / "status.json").read_bytes())
            assert isinstance(found, dict)
            return found
        return {}

    def settled(self, since_s: float) -> bool:
        """Whether a controller that wrote its status since then has all agents."""
        path = status_folder(self.stage.layout) / "status.json"
        with suppress(OSError):
            return path.stat().st_mtime > since_s and agents_joined(self.stage.layout)
        return False

    def back(self) -> None:
        """Have the cluster's own daemons again."""
        for role in [*self._ours]:
            self.end(role)
        self.stage.cluster.up(self.stage.shape)
        until(lambda: agents_joined(self.stage.layout), 60, "the cluster's own daemons are back")


@pytest.fixture
def mixed(stage: Stage, tmp_path: Path) -> Iterator[Mixed]:
    mixed = Mixed(stage, unpack_older(tmp_path))
    yield mixed
    mixed.back()


@contextmanager
def sharing(stage: Stage) -> Iterator[tuple[tuple[int, ...], Watch]]:
    """Two jobs that share every core; gives a process of each, and who watches them."""
    jobs = [stage.start(f"srun sh -c '{SPIN}'", *stage.nodes) for _ in range(2)]
    places = [(job, node) for job in jobs for node in stage.nodes]
    until(lambda: all(spinner(job, node) for job, node in places), 60, "the jobs' tasks run")
    pids = tuple(spinner(job, node) for job, node in places)
    watch = Watch(pids)
    try:
        yield pids, watch
    finally:
        watch.end()


def spinner(job: int, node: str) -> int:
    """The newest process of a job on a node: its task; 0 for none."""
    return max(processes_of(job, node), default=0)


def take_turns(pids: tuple[int, ...]) -> None:
    """Wait until each has stood still and run again several times."""
    for _ in range(TURNS):
        for pid in pids:
            until(lambda pid=pid: is_frozen(pid), 60, f"{pid} is suspended")  # type: ignore[misc]
            until(lambda pid=pid: not is_frozen(pid), 10, f"{pid} runs again")  # type: ignore[misc]


def test_the_older_sources_speak_the_version_before(tmp_path: Path) -> None:
    assert version_spoken(unpack_older(tmp_path)) == OLDEST
    assert version_spoken(None) == VERSION


def test_agents_of_the_version_before_under_this_controller(mixed: Mixed) -> None:
    with sharing(mixed.stage) as (pids, watch):
        take_turns(pids)
        since_s = time.time()
        for role in mixed.agents:
            mixed.replace(role, mixed.older)
        until(lambda: mixed.settled(since_s), 60, "the older agents have joined")
        take_turns(pids)
        spoken = {node.protocol for node in mixed.stage.status().nodes}
        longest_s = watch.end()
    assert spoken == {OLDEST}
    assert longest_s <= LEASE_S + SLACK_S
    print(f"older agents: no process was suspended for more than {longest_s:.2f} s")


def test_agents_of_this_version_under_the_controller_before(mixed: Mixed) -> None:
    with sharing(mixed.stage) as (pids, watch):
        take_turns(pids)
        since_s = time.time()
        mixed.replace("gangd", mixed.older)
        until(lambda: mixed.settled(since_s), 60, "the agents have joined the older controller")
        take_turns(pids)
        longest_s = watch.end()
    assert longest_s <= LEASE_S + SLACK_S
    print(f"older controller: no process was suspended for more than {longest_s:.2f} s")


def test_an_upgrade_of_all_daemons_while_jobs_share(mixed: Mixed) -> None:
    """From the version before to this one: the controller first, then the agents, one after the other."""
    since_s = time.time()
    for role in (*mixed.agents, "gangd"):
        mixed.replace(role, mixed.older)
    until(lambda: mixed.settled(since_s), 60, "all is of the version before")
    with sharing(mixed.stage) as (pids, watch):
        take_turns(pids)
        for role in ("gangd", *mixed.agents):
            since_s = time.time()
            mixed.replace(role, None)
            until(lambda since_s=since_s: mixed.settled(since_s), 60, f"{role} is back")  # type: ignore[misc]
            take_turns(pids)
        spoken = {node.protocol for node in mixed.stage.status().nodes}
        longest_s = watch.end()
    assert spoken == {VERSION}
    assert longest_s <= LEASE_S + SLACK_S
    print(f"an upgrade: no process was suspended for more than {longest_s:.2f} s")
