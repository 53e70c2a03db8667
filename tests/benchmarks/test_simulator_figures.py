"""How fast the simulator is: ``pytest -m benchmark -s tests/benchmarks/test_simulator_figures.py``.

Needs the traces of the Parallel Workloads Archive below ``OSUB_SHARED/traces``. Engine figures are in jobs a
CPU second (``engine_cpu_s``, in this process, compiled and cached), as a ratio to the plain-Python EASY of
the validation tests (Gaia on one pool of 1,800 processors), which is timed right after each run: the pace of
a host drifts, the ratio less. Whole commands are processes of their own: wall time, and peak memory as the
kernel counts it; *first* ones have an empty cache of compiled kernels. The table is printed in the end.

All of it takes about ten minutes on an idle host, compilation included. A part of it: ``-k one_pool``,
``oversubscription``, ``interactive``, ``many_nodes``, ``frontier``, ``growth``, ``whole``, ``first``; of
these, in more detail, ``-k 'growth and 0.85-1.25-2'`` and the like (``--collect-only -q`` lists them).
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
import venv
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from foundation.records import load_run
from foundation.units import US_PER_S
from simulator.experiments.edison import Edison
from simulator.experiments.thesis_cases import cleaned, with_interactive_jobs, with_patterns
from simulator.setting_choices import setting_of
from simulator.simulation.one_simulation import simulate
from simulator.simulation.simulation_options import Cleaning, SimulationSetting
from simulator.simulation.trace_workload import Workload, make_workload
from simulator.simulation_spec import SimulationSpec
from tests.fixtures.gang_trials import Figures, middle
from tests.fixtures.swf_jobs import write_jobs
from tests.fixtures.voice import say
from tests.validation.simulator.test_golden_schedules import flat_easy
from workloads.swf import SwfColumns, load_columns

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("OSUB_SHARED", ROOT.parent / "shared"))
GAIA = SHARED / "traces" / "UniLu-Gaia-2014-1.swf.gz"
CURIE = SHARED / "traces" / "CEA-Curie-2011-2.1-cln.swf.gz"
THETA = SHARED / "traces" / "theta_2022.swf.gz"
SIZES = (10_000, 30_000, 100_000, 300_000)


def needed(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"no trace {path}")
    return path


def note(figures: Figures, measure: str, measured: str, reach: str, method: str) -> None:
    """Add a row to the table, and tell it and the load of the host at once."""
    say(f"{measure}: {measured} (reach {reach}; {method}) [load {os.getloadavg()[0]:.1f}]")
    figures.add(measure, measured, reach, method)


class Plain:
    """The plain-Python EASY on Gaia."""

    def __init__(self) -> None:
        setting = setting_of(SimulationSpec(system="N1C1800"))
        workload = make_workload(load_columns(needed(GAIA)), setting.queues, Cleaning(), keep_origin=True)
        names = ("number", "submit_us", "run_us", "cores", "requested_us")
        columns = (getattr(workload, name).tolist() for name in names)
        self.jobs = list(zip(*columns, strict=True))

    def rate(self) -> float:
        """Return how many jobs it schedules in a CPU second."""
        began = time.process_time()
        flat_easy(self.jobs, 1800)
        return len(self.jobs) / (time.process_time() - began)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process all is compiled, however short; commands decide for themselves."""
    monkeypatch.setenv("OSUB_JIT", "1")


@pytest.fixture(scope="module")
def plain() -> Plain:
    return Plain()


def note_rate(
    figures: Figures,
    plain: Plain,
    name: str,
    trace: SwfColumns,
    words: SimulationSpec,
    reach: str,
    runs: int = 7,
) -> None:
    """Add how many jobs the engine schedules, as the median of ratios to the plain EASY of the same trial."""
    setting = setting_of(words)
    workload = make_workload(trace, setting.queues, Cleaning())
    simulate(first_jobs(workload, 100), setting)  # compiled, or loaded
    ratios, rates = [], []
    for _ in range(runs):
        rates.append(workload.count / simulate(workload, setting).engine_cpu_s)
        ratios.append(rates[-1] / plain.rate())
    spread = f" ({min(ratios):.1f}-{max(ratios):.1f})" if runs > 1 else ""
    measured = f"{statistics.median(ratios):.3g} x plain{spread}"
    note(figures, name, measured, reach, f"{workload.count:,} jobs, up to {max(rates):,.0f} a CPU second")


@pytest.mark.parametrize("placement", ["lln", "thesis"])
def test_easy_on_one_pool(figures: Figures, plain: Plain, placement: str) -> None:
    words = SimulationSpec(system="N1C1800", placement=placement)
    trace = load_columns(needed(GAIA))
    note_rate(figures, plain, f"EASY, M=1, Gaia, N1C1800, {placement}", trace, words, "20-40")


@pytest.mark.parametrize("placement", ["lln", "thesis"])
@pytest.mark.parametrize(("multiplicity", "reach"), [(1, "-"), (2, "6 (15)"), (4, "6 (15)")])
def test_oversubscription(
    figures: Figures, plain: Plain, placement: str, multiplicity: int, reach: str
) -> None:
    words = SimulationSpec(system="N150C12", multiplicity=multiplicity, placement=placement)
    name = f"EASY, M={multiplicity}, Gaia, N150C12, {placement}"
    note_rate(figures, plain, name, load_columns(needed(GAIA)), words, reach)


@pytest.mark.parametrize("placement", ["lln", "thesis"])
@pytest.mark.parametrize("multiplicity", [2, 4])
def test_oversubscription_with_interactive_jobs(
    figures: Figures, plain: Plain, placement: str, multiplicity: int
) -> None:
    trace = with_patterns(with_interactive_jobs(cleaned(load_columns(needed(GAIA)), 12), 6_500, 1), 1)
    words = SimulationSpec(system="N150C12", multiplicity=multiplicity, placement=placement)
    name = f"the same with 6,500 interactive jobs, M={multiplicity}, C_o=1.2, {placement}"
    note_rate(figures, plain, name, trace, words, "4")


@pytest.mark.parametrize("placement", ["lln", "thesis"])
def test_many_nodes(figures: Figures, plain: Plain, placement: str) -> None:
    words = SimulationSpec(system="N4360C1", multiplicity=2, placement=placement)
    name = f"EASY, M=2, theta_2022, N4360C1, {placement}"
    note_rate(figures, plain, name, load_columns(needed(THETA)), words, "1 (5)", runs=1)


@pytest.mark.parametrize("jobs", [5_000, 50_000, 500_000])
def test_a_year_of_frontiers_size(figures: Figures, tmp_path: Path, jobs: int) -> None:
    """The first part of a year of 500,000 jobs, drawn as the study of time-sharing draws Edison's."""
    nodes, days = 9408, 365
    drawn = Edison(
        nodes=nodes, days=days, warm_up_days=0, spell_day=days // 2, jobs_a_day=500_000 // days, load=0.8
    ).draw(1)
    times = zip(*((values // US_PER_S).tolist() for values in (drawn.submit_us, drawn.run_us)), strict=True)
    rows = zip(times, drawn.nodes.tolist(), (drawn.request_us // US_PER_S).tolist(), strict=True)
    lines = ((number, *times, *asked) for number, (times, *asked) in enumerate(islice(rows, jobs), start=1))
    trace = write_jobs(tmp_path / "frontier.swf", lines)
    del drawn
    words = ("--system", f"N{nodes}C1", "--multiplicity", "2", "--placement", "lln")
    wall_s, peak_mib = command(trace, tmp_path / "run", *words)
    cpu_s = load_run(tmp_path / "run").info.engine_cpu_s
    measured = f"engine {cpu_s:.1f} s of CPU, command {wall_s:.1f} s, {peak_mib:,.0f} MiB"
    name = f"Frontier's size, first {jobs:,} jobs of a year, N{nodes}C1, M=2, lln"
    note(figures, name, measured, "500,000 jobs: 60 s (15 s), 2 GiB", "a command, compiled before")


def command(
    trace: Path, out: Path, *options: str, cache: Path | None = None, sources: Path | None = None
) -> tuple[float, float]:
    """Return wall time and peak memory (MiB) of ``osub simulate``.

    ``cache`` is where compiled kernels are kept, ``sources`` a folder with other sources than these.
    """
    words = ["-m", "osub.cli.main", "simulate", str(trace), "--out", str(out), *options]
    env = {name: value for name, value in os.environ.items() if name != "OSUB_JIT"}
    if cache is not None:
        env["NUMBA_CACHE_DIR"] = str(cache)
    if sources is not None:
        env["PYTHONPATH"] = str(sources)
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.DEVNULL, env=env, cwd=out.parent
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


@pytest.mark.parametrize(
    ("name", "system", "multiplicity", "reach"),
    [
        ("1,000 jobs", "N150C12", "2", "1.5 s"),
        ("Gaia", "N150C12", "1", "2.5 s"),
        ("Gaia", "N150C12", "2", "2.5 s"),
        ("Curie", "N5544C16", "1", "15 s, 600 MiB"),
    ],
)
def test_whole_commands(
    figures: Figures, tmp_path: Path, name: str, system: str, multiplicity: str, reach: str
) -> None:
    traces = {"1,000 jobs": short_trace(tmp_path, 1000), "Gaia": GAIA, "Curie": CURIE}
    options = ("--system", system, "--multiplicity", multiplicity)
    runs = [command(needed(traces[name]), tmp_path / f"{turn}", *options) for turn in range(4)][1:]
    measured = f"{middle([wall_s for wall_s, _ in runs])} s, {max(mib for _, mib in runs):.0f} MiB"
    note(figures, f"whole command, {name}, {system}, M={multiplicity}", measured, reach, "caches warm; wall")


@pytest.mark.parametrize("multiplicity", ["1", "2"])
def test_the_first_short_command_of_all(figures: Figures, tmp_path: Path, multiplicity: str) -> None:
    options = ("--system", "N150C12", "--multiplicity", multiplicity)
    trace = short_trace(tmp_path, 1000)
    walls = [
        command(trace, tmp_path / f"{turn}", *options, cache=tmp_path / f"cache-{turn}")[0]
        for turn in range(3)
    ]
    measure = f"first command, 1,000 jobs, N150C12, M={multiplicity}"
    note(figures, measure, f"{middle(walls)} s", "3 s (2)", "nothing compiled; wall")


def clone(folder: Path) -> Path:
    """Return a clean clone of what is committed here."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


def installed(folder: Path, source: Path) -> Path:
    """Return where a wheel of ``source`` is installed; what it needs is that of this interpreter."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("osub-*.whl")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)], check=True)
    (found,) = (folder / "venv").glob("lib/python*/site-packages")
    return found


@pytest.mark.parametrize("multiplicity", ["1", "2"])
def test_the_first_command_in_a_clone(figures: Figures, tmp_path: Path, multiplicity: str) -> None:
    """Gaia with nothing compiled; then in a second clone, and from a wheel, with what the first compiled."""
    options = ("--system", "N150C12", "--multiplicity", multiplicity)
    cache = tmp_path / "cache"
    first = clone(tmp_path / "first")
    copies = {
        "in a clean clone, nothing compiled": (first, "20 s (5)"),
        "in a second clone": (clone(tmp_path / "second"), "3 s (2)"),
        "from a wheel": (installed(tmp_path / "wheel", first), "3 s (2)"),
    }
    for number, (where, (sources, reach)) in enumerate(copies.items()):
        wall_s, _ = command(needed(GAIA), tmp_path / f"{number}", *options, cache=cache, sources=sources)
        measure = f"first command, Gaia, N150C12, M={multiplicity}, {where}"
        note(figures, measure, f"{wall_s:.1f} s", reach, "wall")


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


def steady_load(folder: Path, jobs: int, cores: int, share: float, narrowest: int = 1) -> SwfColumns:
    """Return jobs that come at random and ask for a share of the cores' time, however many they are."""
    rng = np.random.default_rng(2)
    procs = np.minimum(narrowest * 2 ** rng.integers(0, 7, jobs), cores)
    run_s = np.ceil(rng.lognormal(math.log(1200), 1.5, jobs))
    submit_s = np.cumsum(rng.exponential(float((procs * run_s).mean()) / (share * cores), jobs)).astype(int)
    lengths = run_s.astype(int)
    columns = (np.arange(1, jobs + 1), submit_s, lengths, procs, 2 * lengths)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return load_columns(write_jobs(folder / "steady.swf", rows))


def costs_of(whole: Workload, setting: SimulationSetting, runs: int = 3) -> dict[int, float]:
    """Return the engine's CPU time by the number of the first jobs that were simulated."""
    sizes = [min(size, whole.count) for size in SIZES]
    simulate(first_jobs(whole, 100), setting)
    return {
        size: min(simulate(first_jobs(whole, size), setting).engine_cpu_s for _ in range(runs))
        for size in sizes
    }


def note_growth(figures: Figures, name: str, costs_s: dict[int, float], reach: str) -> None:
    message = ", ".join(f"{size:,}: {cost_s:.3f} s" for size, cost_s in costs_s.items())
    slope = exponent(list(costs_s), list(costs_s.values()))
    note(figures, f"growth, {name}", f"exponent {slope:.2f}", reach, message)


@pytest.mark.parametrize("multiplicity", [1, 2])
@pytest.mark.parametrize(("share", "reach"), [(0.6, "-"), (0.85, "1.25")])
def test_growth(figures: Figures, tmp_path: Path, multiplicity: int, share: float, reach: str) -> None:
    """With 60% of N150C12 asked for the queue stays short; with 85% it grows with the trace."""
    setting = setting_of(SimulationSpec(system="N150C12", multiplicity=multiplicity))
    whole = make_workload(steady_load(tmp_path, SIZES[-1], 1800, share), setting.queues, Cleaning())
    name = f"{share:.0%} of N150C12 asked for, M={multiplicity}"
    note_growth(figures, name, costs_of(whole, setting), reach)


@pytest.mark.parametrize("multiplicity", [1, 2])
def test_growth_with_nodes(figures: Figures, tmp_path: Path, multiplicity: int) -> None:
    """The same 20,000 jobs on machines of one core a node: each is as large a part of every machine."""
    costs_s: dict[int, float] = {}
    for nodes in (1_000, 3_000, 10_000, 30_000, 100_000):
        spec = SimulationSpec(system=f"N{nodes}C1", multiplicity=multiplicity, placement="lln")
        setting = setting_of(spec)
        load = steady_load(tmp_path, 20_000, nodes, 0.85, nodes // 500)
        whole = make_workload(load, setting.queues, Cleaning())
        simulate(first_jobs(whole, 100), setting)
        costs_s[nodes] = min(simulate(whole, setting).engine_cpu_s for _ in range(3))
    note_growth(figures, f"by nodes, 20,000 jobs, M={multiplicity}", costs_s, "-")


def test_growth_along_a_real_trace(figures: Figures) -> None:
    setting = setting_of(SimulationSpec(system="N5544C16"))
    whole = make_workload(load_columns(needed(CURIE)), setting.queues, Cleaning())
    days = float(np.ptp(whole.submit_us)) / US_PER_S / 86_400
    note_growth(figures, f"first jobs of Curie, {days:.0f} days in all", costs_of(whole, setting), "-")
