"""What the gang scheduler achieves on this host; prints a table, asserts nothing about time.

Run it on a calm host::

    OSUB_FIGURES=figures.md pytest -m benchmark -s tests/benchmarks/test_gang_figures.py

Two nodes of one core, each pinned to a CPU of its own; real ``rrba`` jobs of two ranks that exchange halos
every step, and real interactive jobs. ``OSUB_TRIALS`` (default 5) sets the number of interleaved trials,
``OSUB_TRIAL_S`` (default 9) how long two jobs share the cores in one of them.

Speeds are over the step time of a job that runs alone on a cluster without a gang scheduler in the same
trial. A pair's *work rate* is the sum of both speeds with no instant counted twice; see ``Shared``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import Gang, LocalCluster
from osub.analysis.slice_metrics import SliceMetrics, measure_slices
from osub.records import load_run
from tests.fixtures.gang_trials import (
    PYTHON,
    Bench,
    Figures,
    Shared,
    cluster_of,
    daemon_cpu_s,
    middle,
    noise,
)

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(1800)]

TRIALS = int(os.environ.get("OSUB_TRIALS", "5"))
SHARED_S = float(os.environ.get("OSUB_TRIAL_S", "9"))
SLURM_S = max(2.4 * SHARED_S, 4.0)
# Slurm's gang scheduler suspends a job that it has just started. Where that meets the launch of the job's
# step, the step stalls for one to two minutes; asleep for more than a slice, a job has its launch in a slice.
SLURM_LEAD_S = 7.0
NAIVE = "naive"
SLURM = "Slurm gang 5 s"
GANG_250, GANG_50 = "gangd 250 ms", "gangd 50 ms"
# Of two jobs without a gang scheduler: what is left of the cores, so that a trial is as long as the others.
NAIVE_RATE = 0.55
MINUTE = [(0, 14), (0, 10), (8, 8), (16, 6), (24, 8), (30, 6), (36, 5), (40, 4)]
"""Submit and run time (dedicated, s) of the jobs of a minute in which they come and go."""


@pytest.fixture(scope="module")
def figures() -> Iterator[Figures]:
    table = Figures()
    yield table
    print(f"\n\n{table.table()}")


@pytest.fixture(scope="module")
def step_s() -> float:
    """A step's dedicated time, roughly: for numbers of steps."""
    with cluster_of(Gang.NONE, 1) as cluster:
        return Bench(cluster.client(), cluster.folder).together(1, 4000)[0].step_s


def say(text: str) -> None:
    print(f"\n{text}", end="", flush=True)


def trial(gang: Gang, quantum_ms: float, jobs: int, steps: int, dedicated_step_s: float) -> Shared:
    with (
        cluster_of(gang, max(2, jobs), quantum_ms) as cluster,
        noise() as host,
    ):
        bench = Bench(cluster.client(), cluster.folder, SLURM_LEAD_S if gang is Gang.SLURM else 0.0)
        shared = Shared.of(bench.together(jobs, steps), dedicated_step_s)
    speeds = " + ".join(f"{speed:.3f}" for speed in shared.speeds)
    say(
        f"  {gang.value} {quantum_ms:g} ms, {jobs} jobs: {speeds}, work rate {shared.work_rate:.3f}, "
        f"ends {shared.ends_apart_s:.2f} s apart; {host}"
    )
    return shared


def dedicated(steps: int) -> float:
    """Return a step's time on dedicated cores."""
    with cluster_of(Gang.NONE, 1) as cluster, noise() as host:
        alone = Bench(cluster.client(), cluster.folder).together(1, steps)[0]
    say(f"  dedicated: {1e6 * alone.step_s:.1f} us a step, {alone.length_s:.2f} s; {host}")
    return alone.step_s


def test_two_tightly_coupled_jobs(figures: Figures, step_s: float) -> None:
    settings = {
        NAIVE: (Gang.NONE, 250.0, SHARED_S * NAIVE_RATE),
        GANG_250: (Gang.OSUB, 250.0, SHARED_S),
        GANG_50: (Gang.OSUB, 50.0, SHARED_S),
        SLURM: (Gang.SLURM, 250.0, SLURM_S),
    }
    found: dict[str, list[Shared]] = {name: [] for name in settings}
    steps_s: list[float] = []
    for number in range(TRIALS):
        say(f"trial {number + 1} of {TRIALS}")
        with noise() as host:
            alone_s = dedicated(round(SHARED_S / 2 / step_s))
            steps_s.append(alone_s)
            # Another order in each trial, so that what drifts meets all settings alike.
            names = [*settings][number % len(settings) :] + [*settings][: number % len(settings)]
            for name in names:
                gang, quantum_ms, work_s = settings[name]
                found[name].append(trial(gang, quantum_ms, 2, round(work_s / 2 / step_s), alone_s))
        say(f"  whole trial: {host}")
    spread = (max(steps_s) - min(steps_s)) / statistics.median(steps_s)
    method = (
        f"median (range) of {TRIALS} interleaved trials of two 2-rank rrbas, {SHARED_S:g} s shared "
        f"(Slurm's gang {SLURM_S:.0f} s, after {SLURM_LEAD_S:g} s asleep, for it stalls launches); "
        f"dedicated step {1e6 * statistics.median(steps_s):.0f} us, "
        f"range {spread:.1%} of it"
    )
    reach = {
        NAIVE: "(0.50-0.59)",
        GANG_250: "at least 0.98",
        GANG_50: "at least 0.96",
        SLURM: "(for comparison)",
    }
    for name, trials in found.items():
        figures.add(
            f"two tightly coupled jobs, {name}: speeds added up (work rate)",
            middle([each.work_rate for each in trials]),
            reach[name],
            method,
        )
        each_job = " and ".join(middle([each.speeds[job] for each in trials]) for job in (0, 1))
        medians = [statistics.median([each.speeds[job] for each in trials]) for job in (0, 1)]
        apart = abs(medians[0] - medians[1]) / statistics.fmean(medians)
        figures.add(
            f"the same, {name}: each job's speed; medians apart",
            f"{each_job}; {apart:.1%}",
            "within 2% of each other" if name in (GANG_250, GANG_50) else "(for comparison)",
            f"own first step to own last; one slice is {_slice_share(name):.1%} of such a trial",
        )


def _slice_share(name: str) -> float:
    """How much of a trial one slice is: no rotation can bring ends closer together."""
    return {GANG_250: 0.25 / SHARED_S, GANG_50: 0.05 / SHARED_S, SLURM: 5 / SLURM_S}.get(name, 0.0)


@pytest.mark.parametrize("jobs", [3, 4])
def test_more_jobs_on_the_same_cores(figures: Figures, step_s: float, jobs: int) -> None:
    trials = (TRIALS + 1) // 2
    found: list[Shared] = []
    for _ in range(trials):
        alone_s = dedicated(round(SHARED_S / 2 / step_s))
        found.append(trial(Gang.OSUB, 250.0, jobs, round(SHARED_S / jobs / step_s), alone_s))
    figures.add(
        f"{jobs} tightly coupled jobs, gangd 250 ms: speeds added up (work rate)",
        middle([each.work_rate for each in found]),
        "at least 0.97",
        f"median (range) of {trials} trials, each with a dedicated one; speeds of a trial apart "
        f"{statistics.median([each.apart for each in found]):.1%} (median)",
    )


def test_a_minute_in_which_jobs_come_and_go(figures: Figures, tmp_path: Path) -> None:
    factor = min(1.0, SHARED_S / 9)
    trace = tmp_path / "minute.swf"
    trace.write_text(
        "".join(
            f"{number} {at * factor:g} -1 {run * factor:g} 2 -1 -1 2 600 -1 1 1 1 -1 1 -1 -1 -1\n"
            for number, (at, run) in enumerate(MINUTE, 1)
        )
    )
    with cluster_of(Gang.OSUB, 4) as cluster, noise() as host:
        before, began_s = daemon_cpu_s(cluster), time.monotonic()
        metrics = _replay(trace, cluster, tmp_path / "run")
        length_s = time.monotonic() - began_s
        used = {role: cpu_s - before[role] for role, cpu_s in daemon_cpu_s(cluster).items()}
    replayed = f"{len(MINUTE)} 2-rank rrbas in {length_s:.0f} s, M=4, 250 ms, by osub replay; {host}"
    figures.add(
        "fairness, Jain's index, jobs come and go",
        f"{metrics.fairness:.4f} ({metrics.contended_jobs} jobs)",
        "at least 0.99",
        f"slice record: {replayed}",
    )
    skew = metrics.skew_us
    figures.add(
        "lateness of a slice's start, cores busy",
        f"p50 {skew.p50:.0f} us, p99 {skew.p99:.0f} us, most {skew.max:.0f} us",
        "p99 at most 1 ms",
        f"{skew.known} switches in the same minute",
    )
    figures.add(
        "share of a slice lost to switching",
        f"{metrics.switching_share:.3%}",
        "at most 0.5%",
        "instant to last thaw written, over the slice; the same minute",
    )
    agents = [cpu_s / length_s for role, cpu_s in used.items() if role != "gangd"]
    figures.add(
        "CPU of an agent with its guardian, and of the controller, at 250 ms",
        f"{max(agents):.2%} (worst agent), {used['gangd'] / length_s:.2%} of a core",
        "at most 1% (agent)",
        "CPU times of the processes over the same minute",
    )


def _replay(trace: Path, cluster: LocalCluster, out: Path) -> SliceMetrics:
    words = [*PYTHON, "-m", "osub.cli.main", "replay", str(trace), "--cluster", str(cluster.folder)]
    done = subprocess.run([*words, "--out", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = load_run(out)
    assert run.slices is not None
    return measure_slices(run.slices, run.jobs)


def test_batch_job_beside_an_idle_interactive_job(figures: Figures, step_s: float) -> None:
    work_s = SHARED_S / 2
    steps = round(work_s / step_s)
    with cluster_of(Gang.OSUB, 2) as cluster, noise() as host:
        bench = Bench(cluster.client(), cluster.folder)
        slowdowns: list[float] = []
        first = 0.0
        for _ in range((TRIALS + 1) // 2):
            alone_s = bench.together(1, steps)[0].step_s
            bench.eiba([0.99, 0.01] * 200)
            slow = [bench.together(1, steps)[0].step_s / alone_s for _ in range(2)]
            say(f"  beside an idle eiba: {slow[0]:.3f} in its first seconds, then {slow[1]:.3f}")
            bench.cancel()
            first = max(first, slow[0])
            slowdowns.append(slow[1])
    figures.add(
        "batch job beside an idle interactive job (1% busy): its slowdown",
        middle(slowdowns),
        "at most 1.03",
        f"step time of a 2-rank rrba of {work_s:g} s beside an eiba, over the same alone before; the first "
        f"job beside an eiba that was never seen idle: {first:.3f} at worst; {host}",
    )


def test_burst_of_an_interactive_job_beside_a_busy_batch_gang(figures: Figures, step_s: float) -> None:
    bursts = max(2, min(10, round(SHARED_S)))
    program = Path(__file__).parents[1] / "fixtures" / "gang_burst.py"
    with cluster_of(Gang.OSUB, 2) as cluster, noise() as host:
        bench = Bench(cluster.client(), cluster.folder)
        bench.rrba(round((5.5 * bursts + 30) / step_s))
        stem = bench.submit("burst", [sys.executable, str(program), "--bursts", str(bursts + 1)])
        bench.finished([stem])
        bench.cancel()
        # The first one is of a job that was never seen idle, and pays for the unknown.
        _, *found = json.loads(Path(f"{stem}.report").read_text())
    stretches = [each["wall_s"] / each["busy_s"] for each in found]
    first = [1000 * each["first_s"] for each in found]
    figures.add(
        "1 s burst of an interactive job beside a busy batch gang: stretch",
        middle(stretches),
        "at most 2.1",
        f"{bursts} bursts, 2.5 s apart; wall time from its due instant over its CPU time; {host}",
    )
    figures.add(
        "the same: first progress, ms",
        middle(first),
        "within 50 ms",
        "due instant to half a millisecond of CPU time",
    )
