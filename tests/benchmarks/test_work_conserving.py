"""CPU share of a busy job co-located with one that mostly idles, second by second; prints tables.

Run it on a calm host::

    OSUB_FIGURES=conserving.md pytest -m benchmark -s tests/benchmarks/test_work_conserving.py

Settings are interleaved: the operating system alone, gangd with held gangs frozen and yielding, and Slurm's
gang scheduler. "Unused" is what the kernel counts as idle of the node's CPU (``/proc/stat``) while the
busy job, which could always use it, runs. ``OSUB_TRIALS`` (default 3) sets the number of trials,
``OSUB_DAY_S`` (default 150) into how many seconds a day of interactive work is compressed.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pytest

from deploy.local import GangKind, LocalCluster
from deploy.shape import HoldSetting
from foundation.slurm import SlurmJobState
from tests.fixtures.gang_trials import Bench, Figures, cluster_of, middle, noise, wait_slowly
from tests.fixtures.voice import say
from workloads.swf import InteractivePattern
from workloads.trace.models.interactive_jobs import sample_sessions_s, synthesize_patterns

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(3600)]

TRIALS = int(os.environ.get("OSUB_TRIALS", "3"))
DAY_S = float(os.environ.get("OSUB_DAY_S", "150"))
PROGRAM = Path(__file__).parents[1] / "fixtures" / "gang_shares.py"
BEFORE_S, AFTER_S = 8.0, 11.0
ARRIVALS_S = 4.0
SETTINGS: dict[str, tuple[GangKind, HoldSetting]] = {
    "operating system alone": (GangKind.NONE, HoldSetting.FREEZE),
    "gangd, freeze": (GangKind.OSUB, HoldSetting.FREEZE),
    "gangd, yield": (GangKind.OSUB, HoldSetting.YIELD),
    "Slurm's gang scheduler, 5 s": (GangKind.SLURM, HoldSetting.FREEZE),
}


def cluster_under(setting: str, nodes: int, multiplicity: int) -> AbstractContextManager[LocalCluster]:
    """Nodes of one core each under one of the settings; gone afterwards."""
    gang, hold = SETTINGS[setting]
    return cluster_of(gang, multiplicity, hold=hold, nodes=nodes)


@dataclass
class IdleTime:
    """Idle time of some CPUs, looked at ten times a second."""

    cpus: tuple[int, ...]
    looks: list[tuple[float, tuple[float, ...]]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def watched(cls, *cpus: int) -> Iterator[IdleTime]:
        """Watch while the block runs."""
        found, over = cls(cpus), threading.Event()

        def watch() -> None:
            while not over.wait(0.1):
                times = psutil.cpu_times(percpu=True)
                found.looks.append((time.time(), tuple(times[cpu].idle + times[cpu].iowait for cpu in cpus)))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()

    def between(self, from_s: float, to_s: float) -> float:
        """Idle seconds of all the CPUs between two instants."""
        inside = [idle for at_s, idle in self.looks if from_s <= at_s <= to_s]
        return sum(inside[-1]) - sum(inside[0])


@dataclass(frozen=True, slots=True)
class Shared:
    """How a busy job fared: its share in the seconds that matter, and CPU time left unused in them."""

    shares: tuple[float, ...]
    unused_s: float


def serial(bench: Bench, pattern: str, until_s: float) -> Path:
    return bench.submit(
        pattern, [sys.executable, str(PROGRAM), "--pattern", pattern, "--until", f"{until_s:.3f}"]
    )


def report(stem: Path) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = json.loads(Path(f"{stem}.report").read_text())
    return found


def begun_s(bench: Bench, stem: Path) -> float:
    """Wait until a job runs; when it began to (whole seconds would not do)."""
    client, job = bench.client, bench.id_of(stem)

    def runs() -> bool:
        known = client.job(job)
        return known is not None and known.state is SlurmJobState.RUNNING

    wait_slowly(runs, 60, f"job {job} runs")
    return time.time()


def side_by_side(setting: str, first: str, then: str, measured: str) -> Shared:
    """Run a job, ``BEFORE_S`` later another, and see how the busy one fares for ten seconds."""
    with (
        cluster_under(setting, 1, 2) as cluster,
        IdleTime.watched(*cluster.state().layout.nodes[0].cpus) as idle,
    ):
        bench = Bench(cluster.client(), cluster.folder)
        until_s = time.time() + BEFORE_S + AFTER_S + 12
        stems = {first: serial(bench, first, until_s)}
        begun_s(bench, stems[first])
        time.sleep(BEFORE_S)
        stems[then] = serial(bench, then, until_s)
        joined_s = begun_s(bench, stems[then])
        bench.finished(list(stems.values()))
        seconds = [
            (at_s, share) for at_s, share in report(stems[measured])["seconds"] if at_s >= joined_s - 2
        ]
        from_s = seconds[0][0]
        shares = tuple(share for _, share in seconds[:10])
        return Shared(shares, idle.between(from_s, from_s + len(shares)))


def gang_slurm(setting: str) -> bool:
    return SETTINGS[setting][0] is GangKind.SLURM


def table_of(found: dict[str, list[Shared]]) -> None:
    for setting, trials in found.items():
        columns = zip(*(each.shares for each in trials), strict=False)
        say(f"  {setting:24s} " + " ".join(f"{statistics.median(column):.2f}" for column in columns))


def interleaved(first: str, then: str, measured: str) -> dict[str, list[Shared]]:
    found: dict[str, list[Shared]] = {name: [] for name in SETTINGS}
    names = [*SETTINGS]
    for number in range(TRIALS):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            found[name].append(side_by_side(name, first, then, measured))
    table_of(found)
    return found


def summary(figures: Figures, measure: str, found: dict[str, list[Shared]], share: str, unused: str) -> None:
    for name, trials in found.items():
        means = [statistics.fmean(each.shares) for each in trials]
        by_second = zip(*(each.shares for each in trials), strict=False)
        seconds = " ".join(f"{statistics.median(column):.2f}" for column in by_second)
        figures.add(
            f"{measure}, {name}",
            f"share {middle(means)}; unused {middle([each.unused_s for each in trials])} s",
            f"{share}; {unused} s" if name == "gangd, yield" else "(for comparison)",
            f"second by second: {seconds}",
        )


def test_a_busy_job_starts_next_to_one_that_idles(figures: Figures) -> None:
    with noise() as host:
        found = interleaved("idle", "busy", "busy")
    summary(figures, "busy job starts on the core of one that has idled for 8 s", found, "0.97", "0.2")
    say(f"  {host}")


def test_an_idle_job_joins_a_busy_one(figures: Figures) -> None:
    with noise() as host:
        found = interleaved("busy", "idle", "busy")
    summary(figures, "an idle job joins a busy one", found, "0.97", "0.2")
    say(f"  {host}")


def test_a_burst_next_to_a_busy_job(figures: Figures) -> None:
    found: dict[str, list[tuple[float, float, float, Shared]]] = {name: [] for name in SETTINGS}
    with noise() as host:
        for _ in range(TRIALS):
            for name in SETTINGS:
                found[name] += burst_under(name)
    for name, trials in found.items():
        by_second = zip(*(each[3].shares for each in trials), strict=False)
        figures.add(
            f"burst of 1 s with a busy job, {name}",
            f"stretch {middle([each[0] for each in trials])}; first progress "
            f"{middle([each[1] for each in trials])} ms; "
            f"the neighbour loses {middle([each[2] for each in trials])} s; "
            f"unused {middle([each[3].unused_s for each in trials])} s",
            "as alone; unused 0.2 s" if name == "gangd, yield" else "(for comparison)",
            "neighbour, second by second: "
            + " ".join(f"{statistics.median(column):.2f}" for column in by_second)
            + f"; {host}",
        )


def burst_under(setting: str) -> list[tuple[float, float, float, Shared]]:
    """Stretch, first progress (ms), the neighbour's loss (s) and shares around each burst."""
    with (
        cluster_under(setting, 1, 2) as cluster,
        IdleTime.watched(*cluster.state().layout.nodes[0].cpus) as idle,
    ):
        bench = Bench(cluster.client(), cluster.folder)
        until_s = time.time() + 34
        stems = [serial(bench, pattern, until_s) for pattern in ("busy", "burst")]
        bench.finished(stems)
        busy, bursts = report(stems[0])["seconds"], report(stems[1])["bursts"]
    found = []
    for burst in bursts:
        due_s, wall_s, cpu_s, first_s = (burst[key] for key in ("due_s", "wall_s", "cpu_s", "first_s"))  # type: ignore[call-overload]
        around = [(at_s, share) for at_s, share in busy if due_s - 1 <= at_s < due_s + 6]
        if first_s is None or len(around) < 7 or cpu_s < 0.99:
            continue
        shares = tuple(share for _, share in around)
        lost_s = sum(0.99 - share for share in shares)
        unused_s = idle.between(around[0][0], around[-1][0] + 1)
        found.append((wall_s / cpu_s, 1000 * first_s, lost_s, Shared(shares, unused_s)))
    return found


def test_a_day_of_interactive_work_next_to_a_gang(figures: Figures) -> None:
    names = [name for name in SETTINGS if not gang_slurm(name)]  # its launches stall
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with noise() as host:
        for number in range(TRIALS):
            for name in names:
                found[name].append(day_under(name, seed=number))
    for name, days in found.items():
        figures.add(
            f"a day of interactive work with a gang, N2C1, M=3, {name}",
            f"unused {middle([100 * unused for unused, _ in days])} %; "
            f"steps of the gang {middle([steps for _, steps in days])} a second",
            "at most 3 %" if name == "gangd, yield" else "(for comparison)",
            f"idle time of both CPUs while a spinning gang of two ranks runs; a day in {DAY_S:g} s; {host}",
        )


def periods_of(pattern: InteractivePattern) -> list[float]:
    """Idle and busy seconds in turn, idle first."""
    pairs = zip((pattern.prologue_s, *pattern.idles_s), pattern.activations_s, strict=False)
    return [*(each for pair in pairs for each in pair), pattern.epilogue_s]


def day_under(setting: str, seed: int) -> tuple[float, float]:
    """Share of both CPUs that is left unused, and steps a second of the gang that always could have."""
    dice = np.random.default_rng(seed)
    with cluster_under(setting, 2, 3) as cluster:
        cpus = [cpu for node in cluster.state().layout.nodes for cpu in node.cpus]
        bench = Bench(cluster.client(), cluster.folder, gang_slurm(setting))
        with IdleTime.watched(*cpus) as idle:
            begin_s = time.time() + 3
            until_s = begin_s + DAY_S
            gang = bench.coupled(begin_s, until_s)
            while time.time() < until_s - 5:
                sessions_s = np.maximum(1.0, sample_sessions_s(1, dice) * DAY_S / 86_400)
                (pattern,) = synthesize_patterns(sessions_s, dice)
                bench.eiba(periods_of(pattern))
                time.sleep(dice.exponential(ARRIVALS_S))
            pace = bench.pace_of(gang, begin_s + 3, until_s - 1)
            unused_s = idle.between(begin_s + 3, until_s - 1)
            bench.cancel()
    return unused_s / (len(cpus) * (DAY_S - 4)), pace.steps_s
