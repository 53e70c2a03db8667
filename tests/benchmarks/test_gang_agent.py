"""What a switch costs on this host; run with ``pytest -m benchmark -s tests/benchmarks/test_gang_agent.py``.

Real cgroups and processes; both cores, if there are two, are kept busy by other processes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foundation.files import live_folder
from gangd.freezer.cgroup_freezer import CgroupFreezer
from gangd.freezer.holder import StepKey, StepState
from gangd.freezer.tree import CGROUP1, CGROUP2, Dialect
from gangd.guardian.state_folders import state_path
from gangd.guardian.statefile import StateFile, Word
from tests.fixtures.bench import record
from tests.fixtures.gang_host import SPIN, V1_MOUNT, V2_MOUNTS, RealCgroups
from tests.fixtures.gang_puppet import Puppet
from tests.fixtures.gang_trials import guardian_pid, threads_of
from tests.fixtures.looks import until
from tests.fixtures.no_ledger import NoLedger

pytestmark = pytest.mark.benchmark
STEP = "slurm_a/uid_0/job_{}/step_0"
ACCOUNTS = Path("/sys/fs/cgroup/cpuacct")
SETTLED_S = 7.0
WATCHED_S = float(os.environ.get("OSUB_AGENT_S", "20"))
"""Agents look more often while steps are young, and until a job has been busy for a while."""
STEP2 = "system.slice/a_slurmstepd.scope/job_{}/step_0/user/task_0"


def percentiles(values: list[float]) -> str:
    ordered = sorted(values)
    p50, p99 = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.99))
    return f"p50 {p50:.0f}, p99 {p99:.0f}, most {ordered[-1]:.0f} (n={len(ordered)})"


@pytest.fixture
def spinners() -> Iterator[Callable[[int], None]]:
    """Keep each core busy with a number of ordinary processes."""
    started: list[subprocess.Popen[bytes]] = []

    def start(each: int) -> None:
        for cpu in os.sched_getaffinity(0):
            started.extend(subprocess.Popen(["taskset", "-c", str(cpu), *SPIN]) for _ in range(each))

    yield start
    for child in started:
        child.kill()
        child.wait()


def hierarchy(dialect: Dialect) -> RealCgroups:
    mount = (
        V1_MOUNT
        if dialect is CGROUP1
        else next((m for m in V2_MOUNTS if (m / "cgroup.controllers").exists()), None)
    )
    if os.geteuid() != 0 or mount is None or not (mount / "cgroup.procs").exists():
        pytest.skip(f"needs root and a {dialect.name} hierarchy")
    return RealCgroups(mount / f"osubbench_{os.getpid()}", dialect.control, dialect.thaw.decode())


@pytest.mark.parametrize("dialect", [CGROUP1, CGROUP2], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("tasks", [1, 16])
def test_freeze_and_thaw_latency(dialect: Dialect, tasks: int) -> None:
    cgroups = hierarchy(dialect)
    try:
        path = cgroups.make((STEP if dialect is CGROUP1 else STEP2).format(1))
        for _ in range(tasks):
            cgroups.spawn(path, ["taskset", "-c", "0", *SPIN])
        freezer = CgroupFreezer(cgroups.root, dialect, "a", NoLedger())
        freezer.adopt(freezer.look())
        key = StepKey(1, "0")
        written, frozen, thawed = [], [], []
        for _ in range(300):
            start = time.perf_counter_ns()
            freezer.hold(key)
            written.append((time.perf_counter_ns() - start) / 1e3)
            until(lambda: freezer.state(key) is StepState.FROZEN)
            frozen.append((time.perf_counter_ns() - start) / 1e3)
            start = time.perf_counter_ns()
            freezer.release(key)
            thawed.append((time.perf_counter_ns() - start) / 1e3)
            time.sleep(0.002)
        freezer.close()
    finally:
        cgroups.clean()
    print(f"\n{dialect.name}, {tasks} tasks, us: freeze written {percentiles(written)}")
    print(f"  seen frozen (looked at every 2 ms) {percentiles(frozen)}; thaw written {percentiles(thawed)}")


class AccountedSteps:
    """Steps with a freezer and an account each, where an agent of ``node`` looks for Slurm's."""

    def __init__(self, node: str) -> None:
        if os.geteuid() != 0 or not (V1_MOUNT / "cgroup.procs").exists():
            pytest.skip("needs root and a cgroup v1 freezer hierarchy")
        self._freezer = RealCgroups(V1_MOUNT / f"slurm_{node}", "freezer.state", "THAWED")
        self._account = RealCgroups(ACCOUNTS / f"slurm_{node}", "notify_on_release", "0")

    def spin(self, job: int, cpu: int) -> None:
        """Start a process of a job that keeps a core busy."""
        path = f"uid_0/job_{job}/step_0"
        pid = self._freezer.spawn(_made(self._freezer, path), ["taskset", "-c", str(cpu), *SPIN])
        (_made(self._account, path) / "cgroup.procs").write_text(str(pid))

    def clean(self) -> None:
        """End the processes and remove the cgroups."""
        self._freezer.clean()
        self._account.clean()


def agent_on(puppet: Puppet, folder: Path, root: Path, *words: str) -> subprocess.Popen[bytes]:
    common = ["--node", puppet.node, "--controller", puppet.address, "--keys", str(puppet.keys)]
    where = ["--freezer", "cgroup1", "--root", str(root), "--state", str(folder / "state")]
    with (folder / "agent.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "gangd.agent.main", *common, *where, *words], stderr=log
        )


@pytest.mark.parametrize("quantum_s", [0.25, 0.05])
@pytest.mark.parametrize("words", [(), ("--no-native",), ("--no-realtime",)], ids=["", "python", "ordinary"])
@pytest.mark.parametrize("yielding", [False, True], ids=["freeze", "yield"])
def test_lateness_and_own_cpu_with_busy_cores(
    tmp_path: Path, spinners: Callable[[int], None], quantum_s: float, words: tuple[str, ...], yielding: bool
) -> None:
    turns(tmp_path, spinners, quantum_s, words, yielding=yielding)


@pytest.mark.parametrize("yielding", [False, True], ids=["freeze", "yield"])
@pytest.mark.parametrize("each", [1, 32])
def test_turns_of_jobs_with_2_and_64_processes(
    tmp_path: Path, spinners: Callable[[int], None], each: int, yielding: bool
) -> None:
    turns(tmp_path, spinners, 0.25, (), each=each, yielding=yielding)


def turns(
    tmp_path: Path,
    spinners: Callable[[int], None],
    quantum_s: float,
    words: tuple[str, ...],
    *,
    each: int = 1,
    yielding: bool = False,
) -> None:
    """Let two jobs of ``each`` processes a core take turns; print what the agent used and how late it was."""
    node = f"osubbench{os.getpid()}"
    steps = AccountedSteps(node)
    puppet = Puppet(tmp_path, node, quantum_s=quantum_s)
    agent = agent_on(puppet, tmp_path, V1_MOUNT, *words)
    try:
        for job in (1, 2):
            for cpu in [*os.sched_getaffinity(0)] * each:
                steps.spin(job, cpu)
        spinners(1)
        puppet.rotate((1,), (2,), yielding=yielding)
        until(lambda: len(puppet.slices()) > SETTLED_S / quantum_s, 30, "the first slices")
        first = len(puppet.slices())
        pids = [agent.pid, guardian_pid(tmp_path / "state", node)]
        before, began = threads_of(pids), time.monotonic()
        until(lambda: time.monotonic() - began > WATCHED_S, 3 * WATCHED_S)
        length_s = time.monotonic() - began
        used = {name: cpu_s - before.get(name, 0.0) for name, cpu_s in threads_of(pids).items()}
        slices = [row for report in puppet.reports for row in report.slices][first:]
    finally:
        agent.terminate()
        agent.wait()
        puppet.close()
        steps.clean()
    parts = ", ".join(f"{name} {cpu_s / length_s:.3%}" for name, cpu_s in used.items() if cpu_s)
    held = f"{each} processes a core and job, {'yielding' if yielding else 'frozen'}"
    print(f"\n{' '.join((*words, held))}, {1e3 * quantum_s:.0f} ms slices: agent and guardian use")
    print(f"  {sum(used.values()) / length_s:.3%} of a core: {parts}")
    print(f"  switch began late by, us: {percentiles([float(row.skew_us) for row in slices])}")
    record(
        "lateness",
        f"switch of {held}, {1e3 * quantum_s:.0f} ms slices",
        [float(row.skew_us) for row in slices],
        "us",
        better="less",
        baseline="the slice",
        baseline_trials=[1e6 * quantum_s],
        method=f"agent with both cores busy; {sum(used.values()) / length_s:.2%} of a core used",
    )
    print(f"  instant to last thaw, us: {percentiles([float(row.freeze_us) for row in slices])}")


def _made(cgroups: RealCgroups, path: str) -> Path:
    return cgroups.root / path if (cgroups.root / path).exists() else cgroups.make(path)


@pytest.mark.parametrize("busy", [0, 2])
def test_guardian_reaction(tmp_path: Path, spinners: Callable[[int], None], busy: int) -> None:
    cgroups = hierarchy(CGROUP1)
    puppet = Puppet(tmp_path, quantum_s=0.25)
    step = cgroups.make(STEP.format(1))
    cgroups.spawn(step, SPIN)
    control = step / "freezer.state"
    spinners(busy)
    puppet.rotate((1,), (1,))
    reactions = []
    try:
        for _ in range(10):
            agent = agent_on(puppet, tmp_path, cgroups.root)
            until(lambda: control.read_text() == "FROZEN\n", 30, "held job")
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))  # so that the watcher is not late
            start = time.perf_counter_ns()
            agent.kill()
            while control.read_text() != "THAWED\n":
                time.sleep(0.0001)
            reactions.append((time.perf_counter_ns() - start) / 1e3)
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            agent.wait()
            shutil.rmtree(live_folder(tmp_path / "state"))
    finally:
        puppet.close()
        cgroups.clean()
    print(f"\nSIGKILL of the agent to thaw, {busy} spinners a core, us: {percentiles(reactions)}")


def test_guardian_reaction_to_a_stopped_agent(tmp_path: Path) -> None:
    cgroups = hierarchy(CGROUP1)
    puppet = Puppet(tmp_path, quantum_s=0.25)
    step = cgroups.make(STEP.format(1))
    cgroups.spawn(step, SPIN)
    puppet.rotate((1,), (1,))
    agent = agent_on(puppet, tmp_path, cgroups.root)
    late = []
    try:
        for _ in range(3):
            until(lambda: (step / "freezer.state").read_text() == "FROZEN\n", 30, "held job")
            agent.send_signal(19)
            state = StateFile.open(state_path(tmp_path / "state", "a"))
            lease_ns = state.word(Word.LEASE_NS)
            state.close()
            until(lambda: (step / "freezer.state").read_text() == "THAWED\n", 5, "thaw")
            late.append((time.monotonic_ns() - lease_ns) / 1e3)
            agent.send_signal(18)
    finally:
        agent.send_signal(18)
        agent.terminate()
        agent.wait()
        puppet.close()
        cgroups.clean()
    print(f"\nend of the lease to thaw, agent stopped, us (looked at every 2 ms): {percentiles(late)}")
