"""What the gang scheduler achieves on this host; prints a table, asserts nothing about time.

Run it on a calm host::

    OSUB_FIGURES=figures.md pytest -m benchmark -s tests/benchmarks/test_gang_figures.py

Two nodes of one core, each pinned to a CPU of its own; real MPI jobs of two ranks that exchange after every
few microseconds of computation, and real interactive jobs. ``OSUB_TRIALS`` (default 5) sets the number of
interleaved trials, ``OSUB_TRIAL_S`` (default 9) how long two jobs share the cores in one of them.

Speeds are over those of a job that runs alone on a cluster without a gang scheduler in the same trial, at the
pace that the core had at each moment (``Pace.work``) and raw: the clock rate of a virtual host drifts
by more than what is to be measured.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from analysis.metrics.slice_metrics import SliceMetrics, measure_slices
from deploy.local import GangKind, HoldSetting, LocalCluster
from foundation.records import load_run
from tests.fixtures.gang_compared import LAUNCH_S, SHARED_S, TRIALS, Compared, Trial, alone, side_by_side
from tests.fixtures.gang_trials import (
    PYTHON,
    SETTLE_S,
    Bench,
    Figures,
    Pace,
    cluster_of,
    daemon_cpu_s,
    middle,
    noise,
    thread_cpu_s,
    wait_slowly,
)
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(1800)]

SLURM_S = 20.0  # two slices of each of two jobs
NAIVE, NAIVE_YIELDING = "naive", "naive, waiting ranks yield"
SLURM = "Slurm gang 5 s"
GANG_250, GANG_50 = "gangd 250 ms", "gangd 50 ms"
GANG_20 = "gangd 20 ms"
YIELD = {f"{name}, yielding": name for name in (GANG_250, GANG_50, GANG_20)}
REACH = {
    NAIVE: "(0.50-0.59)", NAIVE_YIELDING: "(for comparison)", GANG_250: "at least 0.98",
    GANG_50: "at least 0.96", SLURM: "(for comparison)", GANG_20: "(for comparison)",
    **{name: f"within 1% of {frozen}" for name, frozen in YIELD.items()},
}  # fmt: skip
MINUTE = [(0, 14), (0, 10), (8, 8), (16, 6), (24, 8), (30, 6), (36, 5), (40, 4)]
"""Submit and run time (dedicated, s) of the jobs of a minute in which they come and go."""


def test_two_tightly_coupled_jobs(figures: Figures) -> None:
    settings = {
        NAIVE: (GangKind.NONE, 250.0, SHARED_S / 2),
        NAIVE_YIELDING: (GangKind.NONE, 250.0, SHARED_S / 2),
        GANG_250: (GangKind.OSUB, 250.0, SHARED_S),
        GANG_50: (GangKind.OSUB, 50.0, SHARED_S),
        GANG_20: (GangKind.OSUB, 20.0, SHARED_S),
        **{name: (GangKind.OSUB, float(frozen.split()[1]), SHARED_S) for name, frozen in YIELD.items()},
        SLURM: (GangKind.SLURM, 250.0, SLURM_S),
    }
    found: dict[str, list[Trial]] = {name: [] for name in settings}
    paces: list[Pace] = []
    for number in range(TRIALS):
        say(f"trial {number + 1} of {TRIALS}")
        with noise() as host:
            paces.append(alone(SHARED_S))
            # Another order in each trial, so that what drifts meets all settings alike.
            names = [*settings][number % len(settings) :] + [*settings][: number % len(settings)]
            for name in names:
                gang, quantum_ms, window_s = settings[name]
                try:
                    yields = name == NAIVE_YIELDING
                    hold = HoldSetting.YIELD if name in YIELD else HoldSetting.FREEZE
                    found[name].append(
                        side_by_side(gang, quantum_ms, 2, window_s, paces[-1], yielding=yields, hold=hold)
                    )
                except AssertionError as error:
                    if gang is not GangKind.SLURM:
                        raise
                    say(f"  Slurm's gang scheduler: a job did not begin in time ({error})")
        say(f"  whole trial: {host}")
    rates = [pace.steps_s for pace in paces]
    spread = (max(rates) - min(rates)) / statistics.median(rates)
    method = (
        f"median (range) of {TRIALS} interleaved trials, {SHARED_S:g} s shared (naive half of it, "
        f"Slurm's gang {SLURM_S:.0f} s in {len(found[SLURM])} trials); steps at the pace of the core over "
        f"those of the dedicated jobs (median); dedicated: {statistics.median(rates):.0f} steps/s, "
        f"range {spread:.1%}"
    )
    for name, made in found.items():
        if not made:
            figures.add(f"two tightly coupled jobs, {name}", "no launch in time", REACH[name], method)
            continue
        trials = Compared.all_of(made)
        figures.add(
            f"two tightly coupled jobs, {name}: speeds added up",
            f"{middle([each.total for each in trials])}; raw {middle([each.raw for each in trials])}",
            REACH[name],
            method,
        )
        each_job = " and ".join(middle([each.speeds[job] for each in trials]) for job in (0, 1))
        medians = [statistics.median([each.speeds[job] for each in trials]) for job in (0, 1)]
        figures.add(
            f"the same, {name}: each job's speed; medians apart",
            f"{each_job}; {abs(medians[0] - medians[1]) / statistics.fmean(medians):.1%}",
            "within 2% of each other" if name in (GANG_250, GANG_50) else "(for comparison)",
            f"within a trial (median) {statistics.median([each.apart for each in trials]):.1%} apart",
        )


@pytest.mark.parametrize("hold", [*HoldSetting])
@pytest.mark.parametrize("jobs", [3, 4])
def test_more_jobs_on_the_same_cores(figures: Figures, jobs: int, hold: HoldSetting) -> None:
    window_s = max(SHARED_S, 12 * jobs * 0.25)
    made = [
        side_by_side(GangKind.OSUB, 250.0, jobs, window_s, alone(SHARED_S), hold=hold) for _ in range(TRIALS)
    ]
    found = Compared.all_of(made)
    figures.add(
        f"{jobs} tightly coupled jobs, gangd 250 ms, {hold.value}: speeds added up",
        f"{middle([each.total for each in found])}; raw {middle([each.raw for each in found])}",
        "at least 0.97",
        f"median (range) of {TRIALS} trials, each with a dedicated one; speeds of a trial apart "
        f"{statistics.median([each.apart for each in found]):.1%} (median)",
    )


SPIN_LEAST = ["nice", "-n", "19", "sh", "-c", "while :; do :; done"]


@contextmanager
def foreign_processes(cluster: LocalCluster) -> Iterator[None]:
    """Run on each node's core a process of least priority that spins and is no job."""
    cpus = {cpu for node in cluster.state().layout.nodes for cpu in node.cpus or ()}
    spinners = [subprocess.Popen(["taskset", "-c", str(cpu), *SPIN_LEAST]) for cpu in sorted(cpus)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


@pytest.mark.parametrize("hold", [*HoldSetting])
@pytest.mark.parametrize(("coupled", "jobs"), [(1, 1), (2, 1), (2, 0)])
def test_coupled_jobs_next_to_a_spinning_process(
    figures: Figures, coupled: int, jobs: int, hold: HoldSetting
) -> None:
    """Co-located: a job of one process that spins on one of the nodes, or (``jobs`` 0) foreign processes.

    A process of another session has half of a core whatever its nice value, where the kernel groups tasks by
    session (``sched_autogroup_enabled``); so there speeds are relative to the
    same job with the same foreign processes, without gangd.
    """
    window_s = max(SHARED_S, 12 * (coupled + jobs) * 0.25)
    totals, raws = [], []
    for _ in range(TRIALS):
        with cluster_of(GangKind.NONE, 1) as cluster, noise() as host:
            bench = Bench(cluster.client(), cluster.folder)
            with nullcontext() if jobs else foreign_processes(cluster):
                alone_of = {True: bench.in_step(1, SHARED_S, LAUNCH_S)[0]}
            alone_of[False] = bench.in_step(0, SHARED_S, LAUNCH_S, spinning=1)[0]
        with cluster_of(GangKind.OSUB, coupled + 1, hold=hold) as cluster, noise() as host:
            bench = Bench(cluster.client(), cluster.folder)
            with nullcontext() if jobs else foreign_processes(cluster):
                paces = bench.in_step(coupled, window_s, LAUNCH_S + 1.5 * (coupled + jobs), spinning=jobs)
        kinds = [True] * coupled + [False] * jobs
        totals.append(sum(pace.work / alone_of[kind].work for pace, kind in zip(paces, kinds, strict=True)))
        raws.append(
            sum(pace.steps_s / alone_of[kind].steps_s for pace, kind in zip(paces, kinds, strict=True))
        )
        say(f"  {coupled} coupled, {jobs} spinning: {totals[-1]:.3f}, raw {raws[-1]:.3f}; {host}")
    other = "a job of one process that spins" if jobs else "a process of nice 19 that spins on each core"
    figures.add(
        f"{coupled} tightly coupled job{'s' * (coupled > 1)}, with {other}, gangd 250 ms, {hold.value}: "
        "speeds added up",
        f"{middle(totals)}; raw {middle(raws)}",
        "at least 0.95",
        f"median (range) of {TRIALS} trials, each over the same jobs alone"
        + ("" if jobs else ", with the same foreign processes"),
    )


@pytest.mark.parametrize("hold", [*HoldSetting])
def test_cpu_of_the_daemons_by_thread(figures: Figures, hold: HoldSetting) -> None:
    with cluster_of(GangKind.OSUB, 2, hold=hold) as cluster, noise() as host:
        bench = Bench(cluster.client(), cluster.folder)
        begin_s = time.time() + LAUNCH_S
        for _ in range(2):
            bench.coupled(begin_s, begin_s + 3 * SETTLE_S + 2 * SHARED_S + 1)
        wait_slowly(lambda: time.time() > begin_s + 3 * SETTLE_S, 60, "jobs that have gone on for a while")
        before, began_s = thread_cpu_s(cluster), time.monotonic()
        wait_slowly(lambda: time.monotonic() > began_s + 2 * SHARED_S, 600, "time to measure")
        after, length_s = thread_cpu_s(cluster), time.monotonic() - began_s
        bench.cancel()
    for role, threads in after.items():
        used = {name: cpu_s - before[role].get(name, 0.0) for name, cpu_s in threads.items()}
        parts = ", ".join(f"{name} {cpu_s / length_s:.3%}" for name, cpu_s in used.items() if cpu_s)
        figures.add(
            f"CPU of {'an agent with its guardian' if role != 'gangd' else 'the controller'}, by thread",
            f"{sum(used.values()) / length_s:.3%}: {parts}",
            "at most 0.5%" if role != "gangd" else "(for comparison)",
            f"two coupled jobs that go on, 250 ms, {hold.value}, {length_s:.0f} s of {role}; {host}",
        )


@pytest.mark.parametrize("hold", [*HoldSetting])
def test_a_minute_in_which_jobs_come_and_go(figures: Figures, tmp_path: Path, hold: HoldSetting) -> None:
    factor = min(1.0, SHARED_S / 9)
    (trace := tmp_path / "minute.swf").write_text(
        "".join(
            f"{number} {at * factor:g} -1 {run * factor:g} 2 -1 -1 2 600 -1 1 1 1 -1 1 -1 -1 -1\n"
            for number, (at, run) in enumerate(MINUTE, 1)
        )
    )
    with cluster_of(GangKind.OSUB, 4, hold=hold) as cluster, noise() as host:
        before, began_s = daemon_cpu_s(cluster), time.monotonic()
        metrics = _replay(trace, cluster, tmp_path / "run")
        length_s = time.monotonic() - began_s
        used = {role: cpu_s - before[role] for role, cpu_s in daemon_cpu_s(cluster).items()}
    replayed = (
        f"{len(MINUTE)} 2-rank rrbas in {length_s:.0f} s, M=4, 250 ms, {hold.value}, by osub replay; {host}"
    )
    figures.add(
        f"fairness, Jain's index, jobs come and go, {hold.value}",
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


@pytest.mark.parametrize("hold", [*HoldSetting])
def test_batch_job_next_to_an_idle_interactive_job(figures: Figures, hold: HoldSetting) -> None:
    window_s = SHARED_S / 2
    with cluster_of(GangKind.OSUB, 2, hold=hold) as cluster, noise() as host:
        bench = Bench(cluster.client(), cluster.folder)
        slowdowns: list[float] = []
        first = 0.0
        for _ in range(TRIALS):
            works = [bench.in_step(1, window_s, LAUNCH_S)[0].work]
            bench.eiba([0.99, 0.01] * 200)
            works += [bench.in_step(1, window_s, LAUNCH_S)[0].work for _ in range(2)]
            slow = [works[0] / work for work in works[1:]]
            say(f"  with an idle eiba: {slow[0]:.3f}, then {slow[1]:.3f}")
            bench.cancel()
            first = max(first, slow[0])
            slowdowns.append(slow[1])
    figures.add(
        f"batch job with an idle interactive job (1% busy), {hold.value}: its slowdown",
        middle(slowdowns),
        "at most 1.03",
        f"2-rank job for {window_s:g} s with an eiba, over the same alone before; the first job with an "
        f"eiba that is new: {first:.3f} at worst; {host}",
    )


@pytest.mark.parametrize("hold", [*HoldSetting])
def test_burst_of_an_interactive_job_next_to_a_busy_batch_gang(figures: Figures, hold: HoldSetting) -> None:
    bursts = max(2, min(10, round(SHARED_S)))
    program = Path(__file__).parents[1] / "fixtures" / "gang_burst.py"
    with cluster_of(GangKind.OSUB, 2, hold=hold) as cluster, noise() as host:
        bench = Bench(cluster.client(), cluster.folder)
        begin_s = time.time() + LAUNCH_S
        bench.coupled(begin_s, begin_s + 5.5 * bursts + 60)
        stem = bench.submit("burst", [sys.executable, str(program), "--bursts", str(bursts + 1)])
        bench.finished([stem])
        bench.cancel()
        # The first one is of a job that was never seen idle, and pays for the unknown.
        _, *found = json.loads(Path(f"{stem}.report").read_text())
    stretches = [each["wall_s"] / each["busy_s"] for each in found]
    first = [1000 * each["first_s"] for each in found]
    figures.add(
        f"1 s burst of an interactive job with a busy batch gang, {hold.value}: stretch",
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
