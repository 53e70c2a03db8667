"""What two solvers make of cores that they share, as thesis Tables 4.4, 4.5 and 4.6; asserts no time.

Run it on a calm host, about five minutes::

    pytest -m benchmark -s tests/benchmarks/test_solver_pairs.py

Two nodes of one core, each pinned to a CPU of its own. LU and MG run on two ranks, one on each node. BT and
SP run on squares only, and four ranks would need four cores: here they are the serial jobs that share one
core of a parallel one. ``OSUB_PAIR_S`` (default 6) is the dedicated length of a job.

A speed is the dedicated time of the steps that a job made while both stepped, over that while; the tables of
the thesis give the same relative to a half, so 0.5 is their 0%.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

from deploy.local import GangKind
from tests.fixtures.gang_trials import PYTHON, Bench, Stepping, cluster_of, noise, stepping
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(900)]

PAIR_S = float(os.environ.get("OSUB_PAIR_S", "6"))
# Without time slices some solvers hardly progress: shorter, that the trial may end.
NAIVE_SHARE = 0.4
SLURM_SHARE = 4.0  # Slurm's least slice is 5 s: several turns of each job
NODES = {"lu": 2, "mg": 2, "bt": 1, "sp": 1}
# Of ``OSUB_PAIR_CLASSES``; small ones spend most of a step on messages between the two nodes.
CLASSES = dict(zip(NODES, os.environ.get("OSUB_PAIR_CLASSES", "AWWW"), strict=True))
PAIRS = (("lu", "lu"), ("mg", "mg"), ("lu", "mg"))
PARTIAL = (("lu", "bt"), ("lu", "sp"), ("mg", "bt"), ("mg", "sp"))


@dataclass
class Speeds:
    """The tables, as they grow, and the dedicated step times by application.

    Those are measured before the pairs of each cluster, for the clock rate of a shared host drifts.
    """

    step_s: dict[str, float] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def measure(self, bench: Bench, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.step_s:
                # The first steps tell how many make the length.
                self.step_s[name] = run_pair(bench, (name,), [20])[0].step_s
            steps = max(20, round(0.5 * PAIR_S / self.step_s[name]))
            self.step_s[name] = run_pair(bench, (name,), [steps])[0].step_s
            say(f"{name}.{CLASSES[name]} x{NODES[name]}: {1e3 * self.step_s[name]:.3f} ms")

    def add(self, how: str, names: tuple[str, str], speeds: list[float], host: object) -> None:
        pair = " with ".join(f"{name}.{CLASSES[name]} x{NODES[name]}" for name in names)
        message = " and ".join(f"{speed:.3f} ({2 * speed - 1:+.0%})" for speed in speeds)
        self.lines.append(f"| {how} | {pair} | {message} | {host} |")
        say(self.lines[-1])


@pytest.fixture(scope="module")
def speeds() -> Iterator[Speeds]:
    table = Speeds()
    yield table
    print("\n\n| sharing | jobs | speeds (against a half) | host |\n| --- | --- | --- | --- |")
    print("\n".join(table.lines))


def run_pair(bench: Bench, names: tuple[str, ...], steps: list[int]) -> list[Stepping]:
    """Run one job of each name at once; return how each stepped."""
    stems = [
        bench.submit(
            name,
            [*PYTHON, "-m", "workloads.rrba", "--app", name, "--class", CLASSES[name], "--itr", str(count)],
            NODES[name],
        )
        for name, count in zip(names, steps, strict=True)
    ]
    return [stepping(stem) for stem in bench.finished(stems)]


def share(bench: Bench, speeds: Speeds, names: tuple[str, str], how: str, length_s: float) -> None:
    steps = [max(1, round(length_s / speeds.step_s[name])) for name in names]
    with noise() as host:
        pair = run_pair(bench, names, steps)
    both_s = min(each.end_s for each in pair) - max(each.start_s for each in pair)
    assert both_s > 0, "the one was done before the other began"
    found = []
    for name, each in zip(names, pair, strict=True):
        dedicated_s = each.steps * speeds.step_s[name]
        found.append((dedicated_s - (each.length_s - both_s)) / both_s)  # alone it went at full speed
    speeds.add(how, names, found, f"{both_s:.0f} s, {host}")


def test_dedicated_steps_and_one_core_shared(speeds: Speeds) -> None:
    """Table 4.4: one rank's core is shared, the other has its own."""
    with cluster_of(GangKind.NONE, 2) as cluster:
        bench = Bench(cluster.client(), cluster.folder)
        speeds.measure(bench, NODES)
        for names in PARTIAL:
            share(bench, speeds, names, "one core of two, naive", PAIR_S * NAIVE_SHARE)
        for names in PAIRS:
            share(bench, speeds, names, "all cores, naive", PAIR_S * NAIVE_SHARE)


@pytest.mark.parametrize(
    ("gang", "how", "length"),
    [
        (GangKind.OSUB, "all cores, gangd 250 ms", 1.0),
        (GangKind.SLURM, "all cores, Slurm gang 5 s", SLURM_SHARE),
    ],
)
def test_all_cores_shared_in_turns(speeds: Speeds, gang: GangKind, how: str, length: float) -> None:
    """Table 4.6, and the same under Slurm's own gang scheduler."""
    with cluster_of(gang, 2) as cluster:
        speeds.measure(Bench(cluster.client(), cluster.folder), ("lu", "mg"))
        bench = Bench(cluster.client(), cluster.folder, gang is GangKind.SLURM)
        for names in PAIRS:
            share(bench, speeds, names, how, PAIR_S * length)
