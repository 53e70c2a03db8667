"""Ten thousand agents at one controller: ``pytest -m benchmark -s tests/benchmarks/test_gang_crowd.py``.

``-k deciding`` has what decisions cost without agents, as CPU time, which a busy host does not change. Else
the real controller over an in-memory Slurm with 100,000 jobs of which some end and begin all the time; agents
over CURVE sockets of their own (``tests.fixtures.gang_crowd``) in several processes on the same host, which
takes most of its CPUs. ``OSUB_CROWD`` sets the number of nodes (ten jobs each), ``OSUB_CROWD_QUANTUM_MS`` the
slice, ``OSUB_CROWD_CHURN`` the jobs that end a second, ``OSUB_CROWD_PROCESSES`` the processes.
"""

from __future__ import annotations

import json
import os
import pstats
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from foundation.errors import InputError
from gangd.config import Config
from gangd.controller.fanout import Fanout
from gangd.controller.memory import calm_collector
from gangd.controller.sayings import policy_of
from gangd.controller.status import read_status
from gangd.controller.view import ClusterView
from gangd.core import AgentJoined, CoreMap, Exempt, GangScheduler, Publish, SlurmChanges, SlurmSnapshot, Tick
from gangd.curve_keys import SHARED_AGENT, make_keys
from gangd.wire import Bounds, Controller, encode_down
from gangd.wire.sockets import RESERVED_FILES
from tests.fixtures.gang_crowd_controller import CORES, Crowd
from tests.fixtures.gang_host import until

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

NODES = int(os.environ.get("OSUB_CROWD", "10000"))
QUANTUM_MS = float(os.environ.get("OSUB_CROWD_QUANTUM_MS", "1000"))
CHURN = int(os.environ.get("OSUB_CROWD_CHURN", "25"))
PROCESSES = int(os.environ.get("OSUB_CROWD_PROCESSES", "4"))
JOIN_S, SETTLE_S, MEASURED_S = 180.0, 15.0, float(os.environ.get("OSUB_CROWD_SECONDS", "60"))


def raised_files() -> int:
    """Raise the bound on open files as far as this host allows; returns what agents may connect by."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - RESERVED_FILES - 144


def share(values: list[float], of: float) -> float:
    return sorted(values)[min(len(values) - 1, int(of * len(values)))]


def cpu_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)


def threads_cpu_s(pid: int) -> dict[str, float]:
    """CPU time by thread."""
    found: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        text = (task / "stat").read_text()
        name, fields = text[text.find("(") + 1 : text.rfind(")")], text[text.rfind(")") + 2 :].split()
        found[name] = found.get(name, 0.0) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


@pytest.mark.parametrize("by_changes", [False, True], ids=["all jobs told", "changes told"])
def test_cost_of_deciding(by_changes: bool) -> None:
    crowd = Crowd(NODES, CHURN)
    cores = CoreMap({f"n{number}": CORES for number in range(NODES)})
    view = ClusterView(cores, policy_of(Config()))
    settings = Config(quantum_ms=QUANTUM_MS).settings()
    scheduler = GangScheduler(settings, 0, cores)
    bounds = Bounds(settings.freeze_cap_ns, 0)
    fanout = Fanout(Controller(b"c" * 16, 1), cores, scheduler.time, settings.lease_ns, bounds)
    calm_collector()
    for node in cores:
        scheduler.handle(AgentJoined(0, node))
    looks: list[float] = []
    decisions: list[float] = []
    for number in range(1, 80):
        now_ns = number * settings.quantum_ns + 1
        snapshot = crowd.jobs()
        asked_s = time.process_time()
        changes = view.changes(snapshot) if by_changes else None
        commands = list(
            scheduler.handle(
                SlurmSnapshot(now_ns, now_ns, 0.0, view.views(snapshot))
                if changes is None
                else SlurmChanges(now_ns, now_ns, 0.0, *changes)
            )
        )
        looked_s = time.process_time()
        scheduler.agents._heard_ns[:] = now_ns  # every agent has reported
        commands += scheduler.handle(Tick(now_ns))
        for command in commands:
            if isinstance(command, Publish):
                fanout.publish(command)
            elif isinstance(command, Exempt):
                fanout.exempt(command)
        for message in fanout.messages(now_ns, scheduler.horizon):
            encode_down(message)
        looks.append(1000 * (looked_s - asked_s))
        decisions.append(1000 * (time.process_time() - looked_s))
    told = "what changed is told" if by_changes else "all jobs are told"
    print(
        f"\n{told}; {len(crowd.all)} jobs on {NODES} nodes, {CHURN} end and begin in each slice; CPU time, ms"
    )
    print(f"  first decision, everybody told {decisions[0]:.0f}; first look {looks[0]:.0f}")
    for what, values in (("decision", decisions[10:]), ("look at Slurm's answer", looks[10:])):
        print(
            f"  {what}: p50 {share(values, 0.5):.0f}, p99 {share(values, 0.99):.0f}, most {max(values):.0f}"
        )


def test_very_many_agents(tmp_path: Path) -> None:
    agents = min(NODES, raised_files() // 2)
    make_keys(tmp_path / "keys", [SHARED_AGENT])
    (tmp_path / "state").mkdir()
    module = "tests.fixtures.gang_crowd"
    words = [str(tmp_path), str(NODES), str(QUANTUM_MS), str(CHURN)]
    controller = subprocess.Popen([sys.executable, "-m", f"{module}_controller", *words])
    crowd: list[subprocess.Popen[bytes]] = []
    address = tmp_path / "address"
    seconds = JOIN_S + SETTLE_S + MEASURED_S + 30
    try:
        until(lambda: address.exists() and "," in address.read_text(), 60, "the controller")
        common = ["--keys", str(tmp_path / "keys"), "--controller", address.read_text()]
        common += ["--seconds", str(seconds), "--jobs", str(tmp_path / "jobs")]
        began_s = time.monotonic()
        for part in range(PROCESSES):
            count = len(range(part, agents, PROCESSES))
            numbers = [str(part), str(count), str(PROCESSES)]
            crowd.append(
                subprocess.Popen([sys.executable, "-m", module, *common, *numbers], stdout=subprocess.PIPE)
            )

        def joined() -> int:
            with suppress(InputError):  # no status yet
                return sum(node.agent == "joined" for node in read_status(tmp_path / "state").nodes)
            return 0

        until(lambda: joined() >= agents * 0.99, JOIN_S, "99 of 100 agents have joined")
        took_s = time.monotonic() - began_s
        time.sleep(SETTLE_S)
        before, before_s, from_ns = threads_cpu_s(controller.pid), cpu_s(controller.pid), time.monotonic_ns()
        time.sleep(MEASURED_S)
        until_ns, after = time.monotonic_ns(), threads_cpu_s(controller.pid)
        used = (cpu_s(controller.pid) - before_s) / ((until_ns - from_ns) / 1e9)
        status = read_status(tmp_path / "state")
        load = os.getloadavg()[0]
        controller.send_signal(signal.SIGTERM)
        controller.wait(60)
    finally:
        for child in crowd:
            child.kill()
        controller.kill()
        for child in (*crowd, controller):
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
    told = json.loads((tmp_path / "told").read_text())
    took = [1000 * one[0] for one in told if from_ns <= one[2] <= until_ns]
    done = [1000 * one[1] for one in told if from_ns <= one[2] <= until_ns]
    by = {name: f"{100 * (after[name] - before.get(name, 0)) / MEASURED_S:.0f}%" for name in after}
    states: dict[str, int] = {}
    for job in status.jobs:
        states[job.state] = states.get(job.state, 0) + 1
    print(
        f"\n{NODES} nodes, {agents} agents in {PROCESSES} processes, {status.running_jobs} jobs, "
        f"{status.shared_jobs} share; {CHURN} end and begin at each look; slices of {QUANTUM_MS:g} ms; "
        f"load {load:.1f} on {os.cpu_count()} CPUs"
    )
    print(
        f"  99 of 100 joined within {took_s:.1f} s; joined at the end: "
        f"{sum(node.agent == 'joined' for node in status.nodes)}"
    )
    print(
        f"  {len(took)} decisions in {MEASURED_S:g} s took, ms: p50 {share(took, 0.5):.1f}, "
        f"p99 {share(took, 0.99):.1f}, most {max(took):.1f}"
    )
    print(
        f"  done after the slice's start, ms: p50 {share(done, 0.5):.0f}, p99 {share(done, 0.99):.0f}, "
        f"most {max(done):.0f}"
    )
    print(f"  controller {100 * used:.0f}% of a core: {by}")
    print(
        f"  dropped {status.dropped}, alarms {[(one.kind, one.text, one.count) for one in status.alarms][:6]}"
    )
    print(f"  states of those shown {states}; status {len(msgspec.json.encode(status)) / 1e6:.1f} MB")
    if (tmp_path / "profile").exists():
        pstats.Stats(str(tmp_path / "profile")).sort_stats("tottime").print_stats(32)
    assert took
