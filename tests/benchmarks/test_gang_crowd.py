"""Ten thousand agents at one controller: ``pytest -m benchmark -s tests/benchmarks/test_gang_crowd.py``.

``-k deciding`` has what decisions cost without agents, ``-k hearing`` what their reports and beats to them
cost without sockets, as CPU time, which a busy host does not change. ``-k very`` has the real controller, its
reader of Slurm (100,000 jobs, of which some end and begin all the time) in a process of its own, and agents
over CURVE sockets of their own in several processes on the same host, which take most of its CPUs: first with
slices of 1 s, then of 250 ms, for which two CPUs are too few. By default that takes five minutes.

``OSUB_CROWD`` sets the number of nodes (ten jobs each), ``OSUB_CROWD_QUANTUM_MS`` the one slice to try,
``OSUB_CROWD_CHURN`` the jobs that end a second, ``OSUB_CROWD_PROCESSES`` the processes,
``OSUB_CROWD_PACE`` the agents that begin in a second, ``OSUB_CROWD_JOIN`` for how long is waited for all to
join, ``OSUB_CROWD_SECONDS`` for how long is measured.
"""

from __future__ import annotations

import os
import pstats
import time
from collections import deque
from pathlib import Path
from typing import Any, cast

import pytest

from gangd.controller.command_executor import CommandExecutor
from gangd.controller.controller_config import Config
from gangd.controller.fanout import Fanout
from gangd.controller.intake import Intake
from gangd.controller.job_policy import policy_of
from gangd.controller.slurm_view import ClusterView
from gangd.controller.uplink import Uplink
from gangd.core.cores import CoreMap
from gangd.core.scheduler import GangScheduler
from gangd.core.scheduler_events import AgentJoined, Exempt, Publish, SlurmChanges, SlurmSnapshot, Tick
from gangd.daemon_process import calm_collector
from gangd.wire.messages import Bounds, ControllerIdentity, Hello, JobSample, Report, SliceReport
from gangd.wire.sockets import ControllerSockets, Received
from gangd.wire.wire_frames import encode, encode_down
from tests.fixtures.bench import record
from tests.fixtures.gang_crowd_run import CrowdRun, Plan, Use, share
from tests.fixtures.gang_crowd_slurm import CORES, Crowd

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

NODES = int(os.environ.get("OSUB_CROWD", "10000"))
QUANTA_MS = [float(one) for one in os.environ.get("OSUB_CROWD_QUANTUM_MS", "1000 250").split()]
CHURN = int(os.environ.get("OSUB_CROWD_CHURN", "25"))
PROCESSES = int(os.environ.get("OSUB_CROWD_PROCESSES", "3"))
PACE = float(os.environ.get("OSUB_CROWD_PACE", "250"))
JOIN_S, SETTLE_S = float(os.environ.get("OSUB_CROWD_JOIN", "75")), 15.0
MEASURED_S = float(os.environ.get("OSUB_CROWD_SECONDS", "40"))


@pytest.mark.parametrize("by_changes", [False, True], ids=["all jobs", "changes of jobs"])
def test_cost_of_deciding(by_changes: bool) -> None:
    crowd = Crowd(NODES, CHURN)
    cores = CoreMap({f"n{number}": CORES for number in range(NODES)})
    view = ClusterView(cores, policy_of(Config()))
    settings = Config(quantum_ms=QUANTA_MS[0]).settings()
    scheduler = GangScheduler(settings, 0, cores)
    bounds = Bounds(settings.freeze_cap_ns, 0)
    fanout = Fanout(ControllerIdentity(b"c" * 16, 1), cores, scheduler.time, settings.lease_ns, bounds)
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
    known = "changes of jobs" if by_changes else "all jobs"
    print(f"\n{known}; {len(crowd.all)} jobs on {NODES} nodes, {CHURN} end and begin a slice; CPU time, ms")
    print(f"  first decision, all jobs new {decisions[0]:.0f}; first look {looks[0]:.0f}")
    known = "changes of jobs" if by_changes else "all jobs"
    record(
        "crowd", f"a decision for {len(crowd.all)} jobs on {NODES} nodes, {known}", decisions[10:],
        "ms of CPU", better="less", baseline="the slice", baseline_trials=[float(QUANTA_MS[0])],
        method=f"{CHURN} jobs end and begin in each slice; all jobs new at first",
    )  # fmt: skip
    for what, values in (("decision", decisions[10:]), ("look at Slurm's answer", looks[10:])):
        print(f"  {what}: {spread(values)}")


class IdleSockets:
    """Sockets to agents that are not there: their messages wait, and messages to them are dropped."""

    def __init__(self) -> None:
        self.said: deque[Received] = deque()

    def receive(self) -> Received | None:
        return self.said.popleft() if self.said else None

    def reply(self, *_: object) -> bool:
        return True

    def tell(self, *_: object) -> None: ...

    ask = mark = tell


def test_cost_of_hearing() -> None:
    crowd, cores = Crowd(NODES, 0), CoreMap({f"n{number}": CORES for number in range(NODES)})
    settings = Config(quantum_ms=QUANTA_MS[0]).settings()
    scheduler = GangScheduler(settings, 0, cores)
    controller = ControllerIdentity(b"c" * 16, 1)
    fanout = Fanout(controller, cores, scheduler.time, settings.lease_ns, Bounds(settings.freeze_cap_ns, 0))
    inbox, clock = IdleSockets(), Hand()
    sockets = cast("ControllerSockets", inbox)
    uplink = Uplink(controller, cores, scheduler.time, scheduler.place, scheduler.is_home)
    orders = CommandExecutor(scheduler, fanout, sockets, cast("Any", inbox), None, clock)
    orders.version_of = uplink.version
    intake = Intake(sockets, cores, scheduler, uplink, orders, lambda: None, fanout.resend, clock)
    jobs: dict[str, list[int]] = {node: [] for node in cores}
    for job in crowd.all:
        for held in job.cores:
            jobs[held.node].append(job.job_id)
    calm_collector()
    for node in cores:
        inbox.said.append(Received(node.encode(), node, encode(greeting(node))))
    clock.now_ns = settings.quantum_ns
    intake.take()
    snapshot = crowd.jobs()
    orders.tell(
        SlurmSnapshot(
            clock.now_ns, clock.now_ns, 0.0, ClusterView(cores, policy_of(Config())).views(snapshot)
        )
    )
    heard_us: list[float] = []
    beaten_us: list[float] = []
    for number in range(1, 12):
        clock.now_ns = (number + 1) * settings.quantum_ns + 1
        orders.tell(Tick(clock.now_ns))
        for node in cores:
            inbox.said.append(Received(node.encode(), node, encode(report_of(node, number, jobs[node][:6]))))
        began_s = time.process_time()
        intake.take()
        while intake.has_more or inbox.said:
            intake.take()
        heard_s = time.process_time()
        orders.publish(fanout.beats(list(uplink.agents), clock.now_ns, scheduler.horizon))
        heard_us.append(1e6 * (heard_s - began_s) / NODES)
        beaten_us.append(1e6 * (time.process_time() - heard_s) / NODES)
    assert not orders.dropped
    print(f"\n{NODES} nodes, CPU time of one, us")
    print(f"  its report of six jobs: {spread(heard_us[1:])}; a beat to it: {spread(beaten_us[1:])}")
    method = "no sockets; six jobs on a node that were busy in the slice"
    record("crowd", "a report of a node judged", heard_us[1:], "us of CPU", better="less", method=method)
    record("crowd", "a beat to a node made", beaten_us[1:], "us of CPU", better="less", method=method)


class Hand:
    """A clock that stops until it is set."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def greeting(node: str) -> Hello:
    return Hello(
        node=node, incarnation=node.encode().ljust(16, b"."), boot_id="crowd", pid=1,
        agent_version="crowd", freezer="recording", yields="cgroup2",
    )  # fmt: skip


def report_of(node: str, number: int, jobs: list[int]) -> Report:
    samples = tuple([JobSample(job, 1_000_000, 0, 1_000_000, 2) for job in jobs])
    applied_ns = int(number * QUANTA_MS[0] * 1e6)
    return Report(
        node=node, incarnation=node.encode().ljust(16, b"."), follows=b"c" * 16, seq=number,
        offset_ns=0, rtt_us=200,
        slices=(SliceReport(number, 1, applied_ns, 100, 200, (), samples),),
    )  # fmt: skip


@pytest.mark.parametrize("quantum_ms", QUANTA_MS)
def test_very_many_agents(tmp_path: Path, quantum_ms: float) -> None:
    with CrowdRun(tmp_path, Plan(NODES, quantum_ms, CHURN, PROCESSES, PACE)) as run:
        took_s = run.join(JOIN_S, all_of_them=False)
        at_first = run.joined()
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
    print(f"  joined within {took_s:.1f} s: {at_first} ({PACE:g} began in a second); at the end: {joined}")
    print(f"  {len(measured)} decisions in {MEASURED_S:g} s, ms")
    print(f"    took           {spread([1000 * one.took_s for one in measured])}")
    print(f"    CPU time of it {spread([1000 * one.cpu_s for one in measured])}")
    first: dict[int, float] = {}
    for one in measured:  # more follow in a slice, where something is to count sooner
        first.setdefault(one.slice, 1000 * one.done_s)
    print(f"    the first of each slice done after its start {spread(list(first.values()))}")
    print(f"  {used(after.since(before))}; controller {memory_mib} MiB")
    print(f"  of a node and slice: {per_node(after.since(before), quantum_ms)}")
    print(f"  the crowd, from beginning to end: {counted}")
    alarms = [(one.kind, one.text, one.count) for one in status.alarms][:6]
    print(f"  dropped {status.dropped}; Slurm's answer {status.slurm_age_s} s old; alarms {alarms}")
    if (tmp_path / "profile").exists():
        pstats.Stats(str(tmp_path / "profile")).sort_stats("tottime").print_stats(32)
    assert measured


def spread(values: list[float]) -> str:
    return f"p50 {share(values, 0.5):.0f}, p99 {share(values, 0.99):.0f}, most {max(values):.0f}"


def per_node(use: Use, quantum_ms: float) -> str:
    slices = use.at_ns / 1e6 / quantum_ms
    all_us = {name: 1e6 * one / slices / NODES for name, one in use.threads.items()}
    message = ", ".join(f"{name} {one:.0f}" for name, one in sorted(all_us.items()) if one >= 1)
    crowd_us = 1e6 * use.crowd / slices / NODES
    return f"controller {sum(all_us.values()):.0f} us of CPU ({message}), crowd {crowd_us:.0f}"


def used(use: Use) -> str:
    for_s = use.at_ns / 1e9
    threads = ", ".join(
        f"{name} {100 * one / for_s:.0f}%" for name, one in sorted(use.threads.items()) if one
    )
    return (
        f"of a core: controller {100 * sum(use.threads.values()) / for_s:.0f}% ({threads}), reader of Slurm "
        f"{100 * use.reader / for_s:.0f}%, crowd {100 * use.crowd / for_s:.0f}%"
    )
