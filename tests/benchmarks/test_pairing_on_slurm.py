"""What keeping harmful pairs apart makes of jobs on a real Slurm; asserts no time.

Run it on a calm host, four minutes an order::

    pytest -m benchmark -s tests/benchmarks/test_pairing_on_slurm.py

Two nodes of one core, each pinned to a CPU of its own, M=2. Jobs are applications of one rank with a known
amount of work (``osub predict run``), so what takes longer than alone has lost. They come in an order that a
seed draws, and are replayed (``osub replay``) under three rules, one after the other, in turn:

* ``as Slurm has it``: wherever there is a free slot;
* ``no twins``: applications of one family never share (``--pairing``);
** ``apart``: no two jobs share a core where one of them loses more than 0.6, as measured.

The losses are measured first, on this host and in this hour (a minute and a half): those that another
host measured, or another hour, may be of the other side of the threshold.

``OSUB_PAIR_ORDERS`` (0,1), ``OSUB_PAIR_JOBS`` (12), ``OSUB_PAIR_S`` (4): seeds of the orders, jobs of each,
their seconds alone. Runs alone of each application bracket each order.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from deploy.local import LocalCluster, Shape
from foundation.records import load_run
from simulator.experiments.pairing_tables import family
from simulator.pairing import PairTable, read_pair_table, write_pair_table
from tests.fixtures.validation_runs import write_trace
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(3600)]

ORDERS = [int(word) for word in os.environ.get("OSUB_PAIR_ORDERS", "0,1").split(",")]
JOBS = int(os.environ.get("OSUB_PAIR_JOBS", "12"))
ALONE_S = float(os.environ.get("OSUB_PAIR_S", "4"))
# Half of the jobs lose their cache to most others; who takes it, and who cares for none, are the rest.
MIX = {"chase.2048K": 6, "stream.98304K": 2, "integer": 2, "lu.W": 2}
SLURM, TWINS, APART = "as Slurm has it", "no twins", "apart beyond 0.6"
MOST = 0.6


@dataclass(frozen=True)
class Outcome:
    """Losses of all jobs, their mean wait, and how many ended in an hour."""

    losses: list[float]
    wait_s: float
    jobs_an_hour: float


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path_factory.mktemp("pairing") / "c")
    try:
        made.up(Shape(nodes=2, cores=1, multiplicity=2))
        yield made
    finally:
        made.down()


def replay(
    cluster: LocalCluster, folder: Path, jobs: list[tuple[float, str]], *words: str
) -> list[dict[str, object]]:
    """Replay jobs, (submit, application), and return their records in that order."""
    folder.mkdir()
    trace = write_trace(folder / "log.swf", [(at, ALONE_S, 1) for at, _ in jobs], 600)
    (apps := folder / "apps.csv").write_text(
        "trace_job,app,args,application\n"
        + "".join(
            f"{number},{sys.executable},-m osub.cli.main predict run {name} --seconds {ALONE_S:g},{name}\n"
            for number, (_, name) in enumerate(jobs, start=1)
        )
    )
    command = [sys.executable, "-m", "osub.cli.main", "replay", str(trace), "--cluster", str(cluster.folder)]
    command += ["--out", str(folder / "run"), "--apps", str(apps), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = sorted(load_run(folder / "run").jobs.to_dicts(), key=lambda row: int(row["trace_job"]))
    assert [row["state"] for row in rows] == ["COMPLETED"] * len(jobs)
    return rows


def alone(cluster: LocalCluster, folder: Path) -> dict[str, float]:
    """Return how long each application takes alone; two at once, a node each."""
    gap_s = 2 * ALONE_S + 6
    jobs = [(gap_s * (number // 2), name) for number, name in enumerate(MIX)]
    rows = replay(cluster, folder, jobs)
    return {name: length_s(row) for (_, name), row in zip(jobs, rows, strict=True)}


def length_s(row: dict[str, object]) -> float:
    start_s, end_s = row["start_s"], row["end_s"]
    assert isinstance(start_s, float)
    assert isinstance(end_s, float)
    return end_s - start_s


def measured(folder: Path) -> Path:
    """Measure what these applications lose to each other here, now."""
    command = [sys.executable, "-m", "osub.cli.main", "predict", "measure", "--apps", ",".join(MIX)]
    command += ["--trials", "3", "--budget", "3m", "--cpus", "1", "--out", str(folder)]
    if os.geteuid() == 0:
        command += ["--nice", "-10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def tables(folder: Path) -> dict[str, list[str]]:
    """Return the words of each rule for ``osub replay``."""
    table = read_pair_table(measured(folder / "pairs"))
    for one, row in zip(table.applications, table.loss, strict=True):
        losses = (f"{loss:.2f} to {other}" for other, loss in zip(table.applications, row, strict=True))
        say(f"{one} loses {', '.join(losses)}")
    names = tuple(sorted(MIX))
    place = [table.applications.index(name) for name in names]
    write_pair_table(folder / "measured.csv", PairTable(names, table.loss[np.ix_(place, place)]))
    twins = np.array([[0.9 if family(one) == family(other) else 0.5 for other in names] for one in names])
    write_pair_table(folder / "twins.csv", PairTable(names, twins))
    limit = ["--pairing-threshold", f"{MOST:g}"]
    return {
        SLURM: [],
        TWINS: ["--pairing", str(folder / "twins.csv"), *limit],
        APART: ["--pairing", str(folder / "measured.csv"), *limit],
    }


def test_losses_with_and_without(cluster: LocalCluster, tmp_path: Path) -> None:
    rules = tables(tmp_path)
    made: dict[str, list[Outcome]] = {rule: [] for rule in rules}
    base = [alone(cluster, tmp_path / "alone-0")]
    say(f"alone: {', '.join(f'{name} {seconds:.1f} s' for name, seconds in base[0].items())}")
    rows: dict[tuple[int, str], tuple[list[str], list[dict[str, object]]]] = {}
    for number, seed in enumerate(ORDERS):
        names = [name for name, count in MIX.items() for _ in range(round(count * JOBS / sum(MIX.values())))]
        random.Random(seed).shuffle(names)
        jobs = [(0.5 * at, name) for at, name in enumerate(names)]
        order = list(rules)[seed % len(rules) :] + list(rules)[: seed % len(rules)]
        for rule in order:
            folder = tmp_path / f"{number}-{list(rules).index(rule)}"
            rows[number, rule] = names, replay(cluster, folder, jobs, *rules[rule])
        base.append(alone(cluster, tmp_path / f"alone-{number + 1}"))
    for (number, rule), (names, found) in rows.items():
        own = {name: (base[number][name] + base[number + 1][name]) / 2 for name in MIX}
        outcome = outcome_of(names, found, own)
        made[rule].append(outcome)
        say(f"order {ORDERS[number]}, {rule}: {summary(outcome)}  [load {os.getloadavg()[0]:.1f}]")
    say("\n| rule | mean loss | 95% lose at most | worst | mean wait (s) | jobs an hour |")
    say("| --- | --- | --- | --- | --- | --- |")
    for rule, outcomes in made.items():
        losses = [loss for one in outcomes for loss in one.losses]
        waits = float(np.mean([one.wait_s for one in outcomes]))
        pace = float(np.mean([one.jobs_an_hour for one in outcomes]))
        worst = float(np.mean([max(one.losses) for one in outcomes]))
        say(
            f"| {rule} | {np.mean(losses):.3f} | {np.quantile(losses, 0.95):.3f} | {worst:.3f} "
            f"| {waits:.1f} | {pace:.0f} |"
        )


def outcome_of(names: list[str], rows: list[dict[str, object]], own: dict[str, float]) -> Outcome:
    losses = [1 - own[name] / max(length_s(row), own[name]) for name, row in zip(names, rows, strict=True)]
    submits = [float(str(row["submit_s"])) for row in rows]
    starts = [float(str(row["start_s"])) for row in rows]
    ends = [float(str(row["end_s"])) for row in rows]
    waits = [start - submit for start, submit in zip(starts, submits, strict=True)]
    return Outcome(losses, float(np.mean(waits)), 3600 * len(rows) / (max(ends) - min(submits)))


def summary(one: Outcome) -> str:
    return (
        f"mean loss {np.mean(one.losses):.3f}, 95% {np.quantile(one.losses, 0.95):.3f}, worst "
        f"{max(one.losses):.3f}, wait {one.wait_s:.1f} s, {one.jobs_an_hour:.0f} jobs an hour"
    )
