"""Ten thousand agents at one controller: ``pytest -m benchmark -s tests/benchmarks/test_gang_crowd.py``.

``-k deciding`` has what decisions cost without agents, as CPU time, which a busy host does not change. Else
the real controller, its reader of Slurm (100,000 jobs, of which some end and begin all the time) in a process
of its own, and agents over CURVE sockets of their own in several processes on the same host, which take most
of its CPUs: first with slices of 1 s, then of 250 ms. ``OSUB_CROWD`` sets the number of nodes (ten jobs
each), ``OSUB_CROWD_QUANTUM_MS`` the one slice to try, ``OSUB_CROWD_CHURN`` the jobs that end a second,
``OSUB_CROWD_PROCESSES`` the processes, ``OSUB_CROWD_PACE`` the agents that begin in a second,
``OSUB_CROWD_SECONDS`` for how long is measured.
"""

from __future__ import annotations

import os
import pstats
import time
from pathlib import Path

import pytest

from gangd.controller.nodes.fanout import Fanout
from gangd.controller.site.controller_config import Config
from gangd.controller.site.sayings import policy_of
from gangd.controller.site.slurm_view import ClusterView
from gangd.core import AgentJoined, CoreMap, Exempt, GangScheduler, Publish, SlurmChanges, SlurmSnapshot, Tick
from gangd.process_setup import calm_collector
from gangd.wire import Bounds, Controller, encode_down
from tests.fixtures.bench import record
from tests.fixtures.gang_crowd_run import CrowdRun, Plan, Use, share
from tests.fixtures.gang_crowd_slurm import CORES, Crowd

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

NODES = int(os.environ.get("OSUB_CROWD", "10000"))
QUANTA_MS = [float(one) for one in os.environ.get("OSUB_CROWD_QUANTUM_MS", "1000 250").split()]
CHURN = int(os.environ.get("OSUB_CROWD_CHURN", "25"))
PROCESSES = int(os.environ.get("OSUB_CROWD_PROCESSES", "4"))
PACE = float(os.environ.get("OSUB_CROWD_PACE", "250"))
JOIN_S, SETTLE_S, MEASURED_S = 180.0, 15.0, float(os.environ.get("OSUB_CROWD_SECONDS", "60"))


@pytest.mark.parametrize("by_changes", [False, True], ids=["all jobs told", "changes told"])
def test_cost_of_deciding(by_changes: bool) -> None:
    crowd = Crowd(NODES, CHURN)
    cores = CoreMap({f"n{number}": CORES for number in range(NODES)})
    view = ClusterView(cores, policy_of(Config()))
    settings = Config(quantum_ms=QUANTA_MS[0]).settings()
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
    told = "changes told" if by_changes else "all jobs told"
    record(
        "crowd",
        f"a decision for {len(crowd.all)} jobs on {NODES} nodes, {told}",
        decisions[10:],
        "ms of CPU",
        better="less",
        baseline="the slice",
        baseline_trials=[float(QUANTA_MS[0])],
        method=f"{CHURN} jobs end and begin in each slice; everybody told",
    )
    for what, values in (("decision", decisions[10:]), ("look at Slurm's answer", looks[10:])):
        print(f"  {what}: {spread(values)}")


@pytest.mark.parametrize("quantum_ms", QUANTA_MS)
def test_very_many_agents(tmp_path: Path, quantum_ms: float) -> None:
    with CrowdRun(tmp_path, Plan(NODES, quantum_ms, CHURN, PROCESSES, PACE)) as run:
        took_s = run.join(JOIN_S)
        time.sleep(SETTLE_S)
        before = run.use()
        time.sleep(MEASURED_S)
        after, status, load = run.use(), run.status(), os.getloadavg()[0]
        memory_mib = run.memory_mib()
        decisions, counted = run.end()
    assert status is not None
    measured = [one for one, done_ns in decisions if before.at_ns <= done_ns <= after.at_ns]
    print(
        f"\n{NODES} nodes, agents in {PROCESSES} processes ({run.together} nodes share connections), "
        f"{status.running_jobs} jobs, {status.shared_jobs} share; {CHURN} end and begin at each look; slices "
        f"of {quantum_ms:g} ms; load {load:.1f} on {os.cpu_count()} CPUs"
    )
    joined = sum(node.agent == "joined" for node in status.nodes)
    print(f"  all joined within {took_s:.1f} s ({PACE:g} began in a second); joined at the end: {joined}")
    print(f"  {len(measured)} decisions in {MEASURED_S:g} s, ms")
    print(f"    took           {spread([1000 * one.took_s for one in measured])}")
    print(f"    CPU time of it {spread([1000 * one.cpu_s for one in measured])}")
    first: dict[int, float] = {}
    for one in measured:  # more follow in a slice, where something is to count sooner
        first.setdefault(one.slice, 1000 * one.done_s)
    print(f"    the first of each slice done after its start {spread(list(first.values()))}")
    print(f"  {used(after.since(before))}; controller {memory_mib} MiB")
    print(f"  the crowd, from beginning to end: {counted}")
    alarms = [(one.kind, one.text, one.count) for one in status.alarms][:6]
    print(f"  dropped {status.dropped}; Slurm's answer {status.slurm_age_s} s old; alarms {alarms}")
    if (tmp_path / "profile").exists():
        pstats.Stats(str(tmp_path / "profile")).sort_stats("tottime").print_stats(32)
    assert measured


def spread(values: list[float]) -> str:
    return f"p50 {share(values, 0.5):.0f}, p99 {share(values, 0.99):.0f}, most {max(values):.0f}"


def used(use: Use) -> str:
    for_s = use.at_ns / 1e9
    threads = ", ".join(
        f"{name} {100 * one / for_s:.0f}%" for name, one in sorted(use.threads.items()) if one
    )
    return (
        f"of a core: controller {100 * sum(use.threads.values()) / for_s:.0f}% ({threads}), reader of Slurm "
        f"{100 * use.reader / for_s:.0f}%, crowd {100 * use.crowd / for_s:.0f}%"
    )
