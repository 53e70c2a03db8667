"""How fast the simulator is: ``pytest -m benchmark -s tests/benchmarks/test_simulator_figures.py``.

Needs the traces of the Parallel Workloads Archive below ``OSUB_SHARED/traces``. Engine figures are the best
of some runs in this process, compiled and cached, in jobs a CPU second (``engine_cpu_s``), and as a ratio to
the plain-Python EASY of the validation tests (Gaia on one pool of 1,800 processors), which is timed right
beside: the pace of a host drifts, the ratio less. Whole commands are processes of their own: wall time, and
peak memory as the kernel counts it; *first* ones have an empty cache of compiled kernels.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from osub.units import US_PER_S
from simulator.choices import Words, setting_of
from simulator.experiments.datasets import cleaned, with_interactive_jobs, with_patterns
from simulator.options import Cleaning
from simulator.simulate import simulate
from simulator.workload import Workload, make_workload
from tests.fixtures.voice import say
from tests.validation.simulator.test_golden_schedules import flat_easy
from workloads.swf import SwfColumns, load_columns

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1200)]
SHARED = Path(os.environ.get("OSUB_SHARED", Path(__file__).parents[3] / "shared"))
GAIA = SHARED / "traces" / "UniLu-Gaia-2014-1.swf.gz"
CURIE = SHARED / "traces" / "CEA-Curie-2011-2.1-cln.swf.gz"
THETA = SHARED / "traces" / "theta_2022.swf.gz"
SIZES = (10_000, 30_000, 100_000, 300_000)


def tell(text: str) -> None:
    """Print a row with the load of the host."""
    say(f"{text}  [load {os.getloadavg()[0]:.1f}]")


def needed(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"no trace {path}")
    return path


def engine_cpu_s(trace: SwfColumns, words: Words, runs: int = 5) -> tuple[int, float]:
    """Return how many jobs there are, and the least CPU time of the engine."""
    setting = setting_of(words)
    workload = make_workload(trace, setting.queues, Cleaning())
    best = min(simulate(workload, setting).engine_cpu_s for _ in range(runs + 1))
    return workload.count, best


def plain_rate() -> float:
    """Return how many jobs of Gaia the plain-Python EASY schedules in a CPU second."""
    setting = setting_of(Words(system="N1C1800"))
    workload = make_workload(load_columns(needed(GAIA)), setting.queues, Cleaning(), keep_origin=True)
    columns = (workload.number, workload.submit_us, workload.run_us, workload.cores, workload.requested_us)
    jobs = list(zip(*(column.tolist() for column in columns), strict=True))
    began = time.process_time()
    flat_easy(jobs, 1800)
    return len(jobs) / (time.process_time() - began)


def tell_rate(name: str, trace: SwfColumns, words: Words, runs: int = 5) -> None:
    jobs, cpu_s = engine_cpu_s(trace, words, runs)
    rate, plain = jobs / cpu_s, plain_rate()
    tell(
        f"{name}: {jobs:,} jobs in {cpu_s:.3f} s, {rate:,.0f} jobs a CPU second, {rate / plain:.1f} x plain "
        f"({plain:,.0f})"
    )


def test_easy_on_one_pool() -> None:
    trace = load_columns(needed(GAIA))
    for placement in ("lln", "thesis"):
        tell_rate(f"EASY, M=1, N1C1800, {placement}", trace, Words(system="N1C1800", placement=placement))


@pytest.mark.parametrize("multiplicity", [1, 2, 4])
def test_oversubscription_with_core_placement(multiplicity: int) -> None:
    trace = load_columns(needed(GAIA))
    for placement in ("thesis", "lln"):
        words = Words(system="N150C12", multiplicity=multiplicity, placement=placement)
        tell_rate(f"EASY, M={multiplicity}, N150C12, {placement}", trace, words)


@pytest.mark.parametrize("multiplicity", [2, 4])
def test_oversubscription_with_interactive_jobs(multiplicity: int) -> None:
    trace = with_patterns(with_interactive_jobs(cleaned(load_columns(needed(GAIA)), 12), 6_500, 1), 1)
    for placement in ("thesis", "lln"):
        words = Words(system="N150C12", multiplicity=multiplicity, placement=placement)
        tell_rate(f"the same, M={multiplicity}, 6,500 interactive, {placement}", trace, words)


def command(trace: Path, out: Path, *options: str, cache: Path | None = None) -> tuple[float, float]:
    """Return wall time and peak memory (MiB) of ``osub simulate``, with a cache of compiled kernels."""
    words = ["-m", "osub.cli.main", "simulate", str(trace), "--out", str(out), *options]
    began = time.perf_counter()
    kept = {} if cache is None else {"NUMBA_CACHE_DIR": str(cache)}
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.DEVNULL, env=os.environ | kept
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def short_trace(folder: Path, jobs: int) -> Path:
    rng = np.random.default_rng(1)
    path = folder / "short.swf"
    lines = []
    for number in range(1, jobs + 1):
        run, procs = int(rng.exponential(3000)) + 1, int(rng.integers(1, 64))
        lines.append(
            f"{number} {number * 60} -1 {run} {procs} -1 -1 {procs} {run * 2} -1 1 1 1 -1 1 -1 -1 -1"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def test_whole_commands(tmp_path: Path) -> None:
    cases = [
        ("1,000 jobs, N150C12, M=2", short_trace(tmp_path, 1000), ("N150C12", "2")),
        ("Gaia, N150C12, M=1", needed(GAIA), ("N150C12", "1")),
        ("Gaia, N150C12, M=2", GAIA, ("N150C12", "2")),
        ("Curie, N5544C16, M=1", needed(CURIE), ("N5544C16", "1")),
    ]
    for number, (name, trace, (system, multiplicity)) in enumerate(cases):
        options = ("--system", system, "--multiplicity", multiplicity)
        runs = [command(trace, tmp_path / f"{number}-{turn}", *options) for turn in range(3)]
        wall_s, memory_mib = min(wall for wall, _ in runs), max(memory for _, memory in runs)
        tell(f"whole command, {name}: {wall_s:.2f} s, {memory_mib:.0f} MiB")


@pytest.mark.parametrize("multiplicity", ["1", "2"])
def test_the_first_command_of_all(tmp_path: Path, multiplicity: str) -> None:
    """A newcomer's first run, with nothing compiled; then the same again, as a second clone would."""
    options = ("--system", "N150C12", "--multiplicity", multiplicity)
    for name, trace in (("1,000 jobs", short_trace(tmp_path, 1000)), ("Gaia", needed(GAIA))):
        cache = tmp_path / f"cache-{name}"
        first_s, _ = command(trace, tmp_path / f"{name}-first", *options, cache=cache)
        again_s, _ = command(trace, tmp_path / f"{name}-again", *options, cache=cache)
        tell(f"first command, {name}, N150C12, M={multiplicity}: {first_s:.1f} s; again {again_s:.1f} s")


def test_many_nodes() -> None:
    trace = load_columns(needed(THETA))
    tell_rate("EASY, M=2, theta_2022 on N4360C1, lln", trace, Words(system="N4360C1", multiplicity=2), runs=0)


def exponent(sizes: list[int], costs_s: list[float]) -> float:
    """Return the slope of cost over size, both logarithmic."""
    return float(np.polyfit(np.log(sizes), np.log(costs_s), 1)[0])


def first_jobs(workload: Workload, count: int) -> Workload:
    """Return the first jobs of a workload."""
    chosen = np.arange(min(count, workload.count))
    fields = ("number", "interactive", "submit_us", "requested_us", "asked_us", "run_us", "nodes", "cores")
    taken = {name: getattr(workload, name)[chosen] for name in fields}
    others = ("memory_kib", "user", "queue", "timed_out")
    taken |= {name: getattr(workload, name)[chosen] for name in others}
    return replace(workload, periods=workload.periods.select(chosen), **taken)


def steady_load(folder: Path, jobs: int, cores: int) -> SwfColumns:
    """Return jobs that come at random and ask for 0.6 of the cores' time, however many jobs there are."""
    rng = np.random.default_rng(2)
    procs = np.minimum(2 ** rng.integers(0, 7, jobs), cores)
    run_s = np.ceil(rng.lognormal(math.log(1200), 1.5, jobs))
    submit_s = np.cumsum(rng.exponential(float((procs * run_s).mean()) / (0.6 * cores), jobs)).astype(int)
    path = folder / "steady.swf"
    rows = zip(submit_s.tolist(), run_s.astype(int).tolist(), procs.tolist(), strict=True)
    path.write_text(
        "".join(
            f"{number} {submit} -1 {run} {width} -1 -1 {width} {2 * run} -1 1 1 1 -1 1 -1 -1 -1\n"
            for number, (submit, run, width) in enumerate(rows, start=1)
        )
    )
    return load_columns(path)


@pytest.mark.parametrize("multiplicity", [1, 2])
def test_growth_under_a_steady_load(tmp_path: Path, multiplicity: int) -> None:
    setting = setting_of(Words(system="N150C12", multiplicity=multiplicity))
    whole = make_workload(steady_load(tmp_path, SIZES[-1], 1800), setting.queues, Cleaning())
    costs = []
    for size in SIZES:
        part = first_jobs(whole, size)
        costs.append(min(simulate(part, setting).engine_cpu_s for _ in range(2)))
    told = ", ".join(f"{size:,}: {cost:.3f} s" for size, cost in zip(SIZES, costs, strict=True))
    slope = exponent(list(SIZES), costs)
    tell(f"growth, steady load, N150C12, M={multiplicity}: exponent {slope:.2f} ({told})")


def test_growth_along_a_real_trace() -> None:
    setting = setting_of(Words(system="N5544C16"))
    whole = make_workload(load_columns(needed(CURIE)), setting.queues, Cleaning())
    sizes = [*SIZES[:-1], whole.count]
    costs = [simulate(first_jobs(whole, size), setting).engine_cpu_s for size in sizes]
    days = [float(np.ptp(first_jobs(whole, size).submit_us)) / US_PER_S / 86_400 for size in sizes]
    told = ", ".join(
        f"{size:,} ({day:.0f} d): {cost:.2f} s" for size, day, cost in zip(sizes, days, costs, strict=True)
    )
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in whole.left_out.items())
    tell(f"growth, first jobs of Curie: exponent {exponent(sizes, costs):.2f} ({told}; left out: {left_out})")
