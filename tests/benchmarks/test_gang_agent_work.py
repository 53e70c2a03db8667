"""The agent's work without a pause: ``pytest -m benchmark -s tests/benchmarks/test_gang_agent_work.py``.

The kernel counts: the agent's RLIMIT_RTTIME is lowered step by step, and a fault ``exhausted`` tells that it
worked for longer. ``OSUB_WORK_JOBS`` and ``OSUB_WORK_PROCESSES`` set the jobs of the node and the processes
of each (740 and 14 for a large node), which are killed at once; ``OSUB_WORK_FORKS`` the processes that one
more job starts (29000); ``OSUB_WORK_LIMITS_MS`` the limits, each tried once. ``-k hogs`` has threads of FIFO
99 on every core for three seconds, and tells for how long a held job stays frozen after the agent was
stopped. ``-k srun`` starts real steps (``OSUB_WORK_SRUNS``, ten at a time, for ``OSUB_WORK_SECONDS`` at most)
in a job of an embedded cluster, and tells what agent and controller make of them, and how often the agent
worked for longer than the first of ``OSUB_WORK_LIMITS_MS`` without a pause. ``OSUB_WORK_SHIELD`` weighs jobs
and daemons so much above other work of the host (1024 as one session of it).
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from deploy.local import GangKind
from deploy.local.down import CGROUP_ROOT
from deploy.local.gang import record_folder
from foundation.files import live_folder
from gangd.guardian.guardian_process import set_deadline
from tests.benchmarks.test_fair_shares import shielded
from tests.fixtures.bench import record
from tests.fixtures.gang_host import SLEEP, V1_MOUNT, RealCgroups
from tests.fixtures.gang_puppet import LEASE_NS, Puppet
from tests.fixtures.gang_trials import cluster_of
from tests.fixtures.looks import until
from tests.integration.gang.frozen import cpu_s, processes_of
from tests.integration.gang.stage import Stage
from tests.unit.gangd.agent.test_agent_daemon import Daemon

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]
JOBS = int(os.environ.get("OSUB_WORK_JOBS", "100"))
PROCESSES = int(os.environ.get("OSUB_WORK_PROCESSES", "5"))
FORKS = int(os.environ.get("OSUB_WORK_FORKS", "1000"))
STEPS = int(os.environ.get("OSUB_WORK_STEPS", "1000"))
SRUNS = int(os.environ.get("OSUB_WORK_SRUNS", "1000"))
SHIELD = int(os.environ.get("OSUB_WORK_SHIELD", "0"))
SRUNS_WITHIN_S = float(os.environ.get("OSUB_WORK_SECONDS", "840"))
LIMITS_MS = [int(limit) for limit in os.environ.get("OSUB_WORK_LIMITS_MS", "300,200,100,60,40").split(",")]
STEP = "slurm_a/uid_0/job_{}/step_0"
CROWD = ["sh", "-c", "i=0; while [ $i -lt $0 ]; do sleep 1000 & i=$((i+1)); done; wait"]
HOG = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
end_s = time.monotonic() + 3
while time.monotonic() < end_s: pass
"""


class Node:
    """Jobs in cgroups of their own, an agent, and a controller that has half of the jobs held."""

    def __init__(self, cgroups: RealCgroups, puppet: Puppet, folder: Path) -> None:
        self.cgroups = cgroups
        self.puppet = puppet
        self.daemon = Daemon(puppet, folder, "--freezer", "cgroup1", "--root", str(cgroups.root))
        self.made = 0

    def start(self, jobs: int, processes: int) -> list[Path]:
        steps = []
        for _ in range(jobs):
            self.made += 1
            steps.append(self.cgroups.make(STEP.format(self.made)))
            self.cgroups.spawn(steps[-1], [*CROWD, str(processes - 1)])
        until(lambda: sum(map(count, steps)) >= jobs * processes, 120, "all processes")
        return steps

    def limit(self, limit_ms: int) -> None:
        limit(self.daemon.child.pid, limit_ms)

    def cost(self) -> tuple[float, float]:
        """CPU time that the agent has used so far, and now, in seconds."""
        times = psutil.Process(self.daemon.child.pid).cpu_times()
        return times.user + times.system, time.monotonic()

    def exhausted(self) -> int:
        return len(self.daemon.log("exhausted"))


def limit(agent: int, limit_ms: int) -> None:
    resource.prlimit(agent, resource.RLIMIT_RTTIME, (1000 * limit_ms, 2_000_000))


def count(step: Path) -> int:
    return len((step / "cgroup.procs").read_text().split())


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    if os.geteuid() != 0 or not (V1_MOUNT / "cgroup.procs").exists():
        pytest.skip("needs root and a cgroup v1 freezer hierarchy")
    cgroups = RealCgroups(V1_MOUNT / f"osubtest_{os.getpid()}", "freezer.state", "THAWED")
    puppet = Puppet(tmp_path)
    node = Node(cgroups, puppet, tmp_path)
    yield node
    node.daemon.end()
    puppet.close()
    cgroups.clean()
    shutil.rmtree(live_folder(tmp_path / "state"), ignore_errors=True)


def test_longest_work_without_a_pause(node: Node) -> None:
    met: dict[str, int] = {}
    until(lambda: node.daemon.log("guardian_started") != [], 60, "the agent")
    for limit_ms in LIMITS_MS:
        jobs = node.start(JOBS, PROCESSES)
        numbers = tuple(range(node.made - JOBS + 1, node.made + 1))
        node.puppet.rotate(numbers[::2], numbers[1::2])
        until(lambda: node.puppet.faults() is not None, 10)
        time.sleep(3.0)
        for what in ("cancel", "fork"):
            before = node.exhausted()
            node.limit(limit_ms)
            if what == "cancel":
                kill(jobs)
                node.cgroups.reap()
            else:
                node.start(1, FORKS)
            time.sleep(3.0)
            node.limit(300)
            assert node.daemon.child.poll() is None
            if node.exhausted() == before:
                met[what] = limit_ms
            else:
                until(lambda: len(node.daemon.log("recovered")) == node.exhausted(), 60, "recovery")
        kill([node.cgroups.root / STEP.format(node.made)])
        node.cgroups.reap()
        node.puppet.rotate()
    print(f"\n{JOBS} jobs of {PROCESSES} processes cancelled at once, a job that forks {FORKS} processes")
    for what in ("cancel", "fork"):
        print(f"  {what}: never longer than {met.get(what)} ms without a pause (as RLIMIT_RTTIME counts)")
        if what in met:
            method = f"{JOBS} jobs of {PROCESSES} processes; {FORKS} forks; RLIMIT_RTTIME of a real agent"
            record(
                "agent work", f"bound of work without a pause, {what}", [met[what]], "ms",
                better="less", method=method,
            )  # fmt: skip
    assert met.get("cancel", 1000) <= 60
    assert met.get("fork", 1000) <= 60


def test_steps_one_after_another_and_at_once(node: Node) -> None:
    until(lambda: node.daemon.log("guardian_started") != [], 60, "the agent")
    for job in (1, 2):
        node.cgroups.spawn(node.cgroups.make(STEP.format(job)), ["sh", "-c", "while :; do :; done"])
    node.puppet.rotate((1,), (2,))
    print(f"\n{'steps so far':>14}{'at once':>9}{'agent MiB':>11}{'agent CPU':>11}")
    made = 0
    for _ in range(10):
        used, began = node.cost()
        for _ in range(STEPS // 10):
            made += 1
            step = node.cgroups.make(f"slurm_a/uid_0/job_1/step_{made}")
            node.cgroups.run(step, ["true"])
        print_cost(made, 1, node, used, began)
    steps = [node.cgroups.make(f"slurm_a/uid_0/job_1/step_{made + 1 + at}") for at in range(STEPS // 10)]
    for step in steps:
        node.cgroups.spawn(step, SLEEP)
    for _ in range(2):
        used, began = node.cost()
        time.sleep(10)
        print_cost(made + len(steps), len(steps), node, used, began)
    assert node.daemon.child.poll() is None
    assert node.exhausted() == 0
    kill(steps)


def print_cost(made: int, at_once: int, node: Node, used_s: float, began_s: float) -> None:
    now_s, at_s = node.cost()
    mib = psutil.Process(node.daemon.child.pid).memory_info().rss / 2**20
    print(f"{made:>14}{at_once:>9}{mib:>11.1f}{(now_s - used_s) / (at_s - began_s):>11.1%}")


def kill(steps: list[Path]) -> None:
    for step in steps:
        (step / "freezer.state").write_text("THAWED")
        for pid in (step / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    for step in steps:
        until(lambda step=step: count(step) == 0, 60)  # type: ignore[misc]
        step.rmdir()


@pytest.mark.timeout(SRUNS_WITHIN_S + 300)
def test_steps_by_srun() -> None:
    with cluster_of(GangKind.OSUB, multiplicity=2, nodes=1) as cluster, ExitStack() as others:
        stage = Stage(cluster, cluster.state().shape)
        [node] = stage.nodes
        agent = stage.daemon(f"gang-agent {node}").pid
        if SHIELD:
            role, jobs = f"gang-agent {node}", others.enter_context(shielded(stage, SHIELD))
            agent = others.enter_context(stage.in_place_of({role: ("--cpu-root", str(jobs))}))[role].pid
            until(lambda: stage.node_status(node).agent == "joined", 60, "another agent joins")
        pids = processes_of(stage.start("while :; do :; done", node), node)
        began_s, before_s = time.monotonic(), cpu_s(pids)
        time.sleep(10)
        alone = (cpu_s(pids) - before_s) / (time.monotonic() - began_s)
        print(f"\nthe honest loop alone has {alone:.2f} of a core")
        done = stage.layout.gang / "steps"
        one = f"srun -Q --overlap -n1 true && echo >>{done}"
        stage.start(f"seq {SRUNS} | xargs -P 10 -n 1 sh -c {one!r}; echo end >>{done}", node)
        limit(agent, LIMITS_MS[0])
        daemons = [psutil.Process(pid) for pid in (agent, stage.daemon("gangd").pid)]
        account = CGROUP_ROOT / "cpuacct" / f"slurm_{node}" / "cpuacct.usage"

        def used() -> list[float]:
            both_s = int(account.read_text()) / 1e9 if account.exists() else float("nan")
            return [time.monotonic(), cpu_s(pids), both_s, *(cpu_s([each.pid]) for each in daemons)]

        print(
            f"\n{'steps':>7}{'s':>6}{'honest loop':>12}{'of both':>8}{'agent MiB':>10}{'agent CPU':>10}",
            end="",
        )
        print(f"{'gangd MiB':>10}{'gangd CPU':>10}{'record KiB':>11}  faults")
        began_s = time.monotonic()
        for part in range(1, 11):
            before = used()
            while (
                lines(done) < SRUNS * part // 10 and time.monotonic() < began_s + SRUNS_WITHIN_S * part / 10
            ):
                time.sleep(1)
            now = used()
            at_s, loop_s, both_s, agent_s, gangd_s = (new - old for new, old in zip(now, before, strict=True))
            agent_mib, gangd_mib = (each.memory_info().rss / 2**20 for each in daemons)
            size = sum(file.stat().st_size for file in record_folder(stage.layout).rglob("*")) / 1024
            print(
                f"{lines(done):>7}{now[0] - began_s:>6.0f}{loop_s / at_s:>12.2f}{loop_s / both_s:>8.2f}"
                f"{agent_mib:>10.1f}{agent_s / at_s:>10.1%}"
                f"{gangd_mib:>10.1f}{gangd_s / at_s:>10.1%}{size:>11.0f}  {stage.node_status(node).faults}"
            )
        print(f"work without a pause: fault exhausted after {LIMITS_MS[0]} ms")
        print(*(alarm.text for alarm in stage.status().alarms), sep="\n")
        stage.clear()


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_resumed_in_time_next_to_hogs(node: Node) -> None:
    step = node.cgroups.make(STEP.format(1))
    node.cgroups.spawn(step, SLEEP)
    node.puppet.rotate((1,), (1,))
    until(lambda: (step / "freezer.state").read_text() == "FROZEN\n", 60, "held job")
    node.daemon.child.send_signal(signal.SIGSTOP)
    began_s = time.monotonic()
    hogs = [subprocess.Popen([sys.executable, "-c", HOG, str(core)]) for core in os.sched_getaffinity(0)]
    set_deadline()  # as the guardian, or we look late
    with (step / "freezer.state").open() as state:
        while state.seek(0) or state.read() != "THAWED\n":
            time.sleep(0.01)
    took_s = time.monotonic() - began_s
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    for hog in hogs:
        hog.wait()
    node.daemon.child.send_signal(signal.SIGCONT)
    print(f"\njob frozen for {took_s:.2f} s after its agent was stopped, FIFO 99 on all cores for 3 s")
    record("agent work", "job frozen beside FIFO 99 hogs", [took_s], "s", better="less")
    assert took_s < LEASE_NS / 1e9 + 1.0
