"""What a slice costs the controller: ``pytest -m benchmark -s tests/benchmarks/test_gang_core.py``.

10,000 jobs on 5,000 nodes of 12 cores, at most two jobs a core, in two layouts: 5,000 pairs, each on a node
of its own; and jobs of 1 to 8 nodes and 2 to 6 cores on each strewn over all nodes, which ties most of them
into one group that never repeats. Times are CPU time of the process, and wall time in brackets.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from gangd.controller.fanout import Fanout
from gangd.controller.uplink import Times, Uplink
from gangd.core import scheduler_events as core
from gangd.core.cores import CoreMap
from gangd.core.gang_settings import CoreSettings
from gangd.core.scheduler import GangScheduler
from gangd.core.states import AgentState
from gangd.daemon_process import calm_collector
from gangd.wire import messages as wire
from gangd.wire.wire_frames import decode_up, encode, encode_down

pytestmark = pytest.mark.benchmark
JOBS, NODES, CORES, MULTIPLICITY = 10_000, 5_000, 12, 2
QUANTUM_NS = 250_000_000
STEADY_SLICES = 240


@dataclass(frozen=True)
class Cost:
    """CPU and wall time, ms."""

    cpu: float
    wall: float

    def __str__(self) -> str:
        return f"{self.cpu:.1f} ms ({self.wall:.1f})"


def cost(action: Callable[[], object]) -> Cost:
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    action()
    return Cost((time.process_time_ns() - cpu) / 1e6, (time.perf_counter_ns() - wall) / 1e6)


def spread(costs: list[Cost]) -> str:
    def of(values: list[float]) -> str:
        p50, p99, most = np.percentile(values, [50, 99, 100])
        return f"p50 {p50:.1f}, p99 {p99:.1f}, most {most:.1f}"

    return f"{of([one.cpu for one in costs])} ms (wall {of([one.wall for one in costs])})"


def pairs(cores: CoreMap) -> tuple[core.JobView, ...]:
    return tuple(
        core.JobView(job, job, cores.pack({f"n{(job - 1) % NODES}": range(CORES)}))
        for job in range(1, JOBS + 1)
    )


def strewn(cores: CoreMap) -> tuple[core.JobView, ...]:
    dice = np.random.default_rng(1)
    load = np.zeros((NODES, CORES), dtype=int)
    views: list[core.JobView] = []
    while len(views) < JOBS:
        wide, width = int(dice.choice([1, 1, 1, 1, 1, 2, 2, 4, 8])), int(dice.choice([2, 3, 4, 6]))
        placement: dict[str, list[int]] = {}
        for node in dice.choice(NODES, size=wide, replace=False):
            chosen = np.argsort(load[node], kind="stable")[:width]
            if (load[node][chosen] < MULTIPLICITY).all():
                load[node][chosen] += 1
                placement[f"n{node}"] = chosen.tolist()
        if placement:
            views.append(core.JobView(len(views) + 1, len(views) + 1, cores.pack(placement)))
    return tuple(views)


class Site:
    def __init__(self, layout: Callable[[CoreMap], tuple[core.JobView, ...]]) -> None:
        self.cores = CoreMap({f"n{index}": CORES for index in range(NODES)})
        self.jobs = layout(self.cores)
        self.scheduler = GangScheduler(CoreSettings(grace_ns=0), 0, self.cores)
        self.slice = 0
        self.commands: list[core.Command] = []
        calm_collector()
        for name in self.cores:
            self.scheduler.handle(core.AgentJoined(0, name))

    @property
    def now_ns(self) -> int:
        return self.slice * QUANTUM_NS + 1

    def snapshot(self) -> None:
        self.commands = self.scheduler.handle(core.SlurmSnapshot(self.now_ns, self.now_ns, 0.0, self.jobs))

    def tick(self) -> Cost:
        self.scheduler.agents._heard_ns[:] = self.now_ns  # every agent has reported
        taken = cost(self._tick)
        self.slice += 1
        return taken

    def _tick(self) -> None:
        self.commands = self.scheduler.handle(core.Tick(self.now_ns))

    def rebuild(self) -> Cost:
        """Conflict graph, groups, slices and commands of everything."""
        graph, rotation = self.scheduler._graph, self.scheduler._rotation
        first = cost(lambda: graph._rebuild({}))
        rotation.touch_all()
        second = self.tick()
        return Cost(first.cpu + second.cpu, first.wall + second.wall)


@pytest.mark.parametrize("layout", [pairs, strewn])
def test_cost_of_slices(layout: Callable[[CoreMap], tuple[core.JobView, ...]]) -> None:
    site = Site(layout)
    cold = cost(site.snapshot)
    first = site.tick()
    groups = site.scheduler._rotation.all_groups()
    sizes = sorted((group.end - group.begin for group in groups), reverse=True)
    print(f"\n{layout.__name__}: {len(site.jobs)} jobs on {NODES} nodes")
    print(f"{len(groups)} groups, largest {sizes[:3]}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    print(f"  first snapshot (all jobs new) {cold}, first slice {first}")
    print(f"  steady slice: {spread([site.tick() for _ in range(STEADY_SLICES)])}")
    print(f"  unchanged snapshot: {spread([cost(site.snapshot) for _ in range(10)])}")
    print(f"  full rebuild: {spread([site.rebuild() for _ in range(10)])}")
    changes = []
    for _ in range(10):
        site.jobs = site.jobs[:-1]
        changes.append((cost(site.snapshot), site.tick()))
    print(f"  one job ends: snapshot {spread([one for one, _ in changes])}")
    print(f"                slice {spread([other for _, other in changes])}")


def test_cost_of_telling_everybody() -> None:
    site = Site(pairs)
    site.snapshot()
    site.tick()
    fanout = Fanout(
        wire.ControllerIdentity(b"c" * 16, 1),
        site.cores,
        site.scheduler.time,
        2_000_000_000,
        wire.Bounds(5_000_000_000, 0),
    )
    [publish] = [command for command in site.commands if isinstance(command, core.Publish)]
    print(f"\n{len(publish.tracks)} tracks to {NODES} nodes; load {os.getloadavg()[0]:.1f}")
    print(f"  tracks by node: {cost(lambda: fanout.publish(publish))}")
    messages: list[wire.DownMessage] = []
    print(f"  messages: {cost(lambda: messages.extend(fanout.messages(0, 2)))}")
    frames: list[list[bytes]] = []
    print(f"  encoding: {cost(lambda: frames.extend(map(encode_down, messages)))}")
    sizes = [len(frame[1]) for frame in frames]
    print(f"  {len(frames)} messages, {np.median(sizes):.0f} bytes each, most {max(sizes)}")
    beats: list[list[bytes]] = []
    encoded = cost(lambda: beats.extend(map(encode_down, fanout.beats(site.cores, 0, 2))))
    print(f"  beats, encoded: {encoded}")


def test_cost_of_reports() -> None:
    site = Site(pairs)
    site.snapshot()
    site.tick()
    controller = wire.ControllerIdentity(b"c" * 16, 1)
    uplink = Uplink(controller, site.cores, site.scheduler.time, site.scheduler.place)
    times = Times(QUANTUM_NS, 2_000_000_000, 2)
    bodies = []
    for index, name in enumerate(site.cores):
        hello = wire.Hello(
            node=name, incarnation=b"a" * 16, boot_id="b", pid=1, agent_version="1", freezer="recording"
        )
        uplink.on_message(hello, 0, 0, times, AgentState.JOINED)
        samples = (wire.JobSample(index + 1, 240_000, 0, 250_000, 3),)
        one = wire.SliceReport(0, 1, 0, 5, 100, (index + 1 + NODES,), samples)
        bodies.append(
            (
                name,
                encode(
                    wire.Report(
                        node=name, incarnation=b"a" * 16, follows=b"c" * 16, seq=1, offset_ns=0,
                        rtt_us=9, slices=(one,),
                    )
                ),
            )
        )  # fmt: skip
    site.scheduler.settings = replace(site.scheduler.settings, record=True)

    def take() -> None:
        for name, body in bodies:
            message = decode_up(body, name)
            reaction = uplink.on_message(message, site.now_ns, site.now_ns, times, AgentState.JOINED)
            for event in reaction.events:
                site.scheduler.handle(event)

    taken = cost(take)
    print(f"\n{len(bodies)} reports of a slice: {taken}, {1000 * taken.cpu / len(bodies):.0f} µs CPU each")
