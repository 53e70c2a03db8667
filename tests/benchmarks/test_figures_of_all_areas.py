"""One figure or two of each area, with a baseline of the same run: what ``make bench`` asks for.

A part of it by itself: ``pytest -m benchmark -s tests/benchmarks/test_figures_of_all_areas.py -k sweep``.
Trials of a figure and of its baseline are interleaved, for the pace of a host drifts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from importlib.metadata import distribution
from pathlib import Path

import pytest

from deploy.local import GangKind, HoldSetting
from foundation.slurm.json_jobs import JsonReader
from foundation.slurm.site_configuration import read_nodes
from osub.sweep.points import measure, point_of
from osub.sweep.run import SweepStore, run_sweep
from osub.sweep.spec import Parameters
from osub.sweep.workers import Processes
from predictor.data import MODEL
from predictor.model import read_model
from simulator.setting_choices import setting_of
from simulator.simulation.one_simulation import simulate
from simulator.simulation.simulation_options import Cleaning
from simulator.simulation.trace_workload import make_workload
from simulator.simulation_spec import SimulationSpec
from tests.fixtures.bench import choose, record
from tests.fixtures.gang_compared import Compared, Trial, alone, side_by_side
from tests.fixtures.golden import small, whole_or_small
from tests.fixtures.installed import PACKAGES, PROJECT
from tests.fixtures.licences import closure
from tests.fixtures.voice import say
from tests.validation.simulator.test_golden_schedules import flat_easy, pool_jobs
from workloads.swf import load_columns

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

KTH, GAIA = small("KTH-SP2-1996-2.1-cln.swf.gz"), small("UniLu-Gaia-2014-1.swf.gz")
SLURM = Path(__file__).parents[1] / "fixtures" / "slurm"
ROOT = Path(__file__).parents[2]
EXTRAS = ("sim", "replay", "traces", "predict", "sweep")


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    call()
    return clock() - began


def run_s(command: list[str]) -> float:
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def test_import_times() -> None:
    modules = {
        "gang-agent": "gangd.agent.assemble",
        "gangd": "gangd.main",
        "import osub": "osub",
        "osub": "osub.cli.main",
    }
    trials = choose(1, 7, 25)
    took: dict[str, list[float]] = {name: [] for name in ("", *modules)}
    for _ in range(trials):
        for name in took:
            text = f"import {modules[name]}" if name else "pass"
            took[name].append(run_s([sys.executable, "-c", text]))
    for name in modules:
        record(
            "imports", name, took[name], "s", better="less", baseline="an empty Python",
            baseline_trials=took[""], method="a process that imports it, files cached",
        )  # fmt: skip


def test_install_sizes() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    groups = {
        "agent": PROJECT["project"]["dependencies"],
        "controller": [*PROJECT["project"]["dependencies"], *extras["controller"]],
        "simulation": [*PROJECT["project"]["dependencies"], *extras["sim"]],
    }
    everything = [text for name in ("controller", "metrics", *EXTRAS) for text in extras[name]]
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*")]
    own = sum(path.stat().st_size for path in sources if path.is_file() and path.suffix != ".pyc")
    whole = own + bytes_of(closure([*PROJECT["project"]["dependencies"], *everything]))
    for name, wanted in groups.items():
        record(
            "install", name, [(own + bytes_of(closure(wanted))) / 1e6], "MB", better="less",
            baseline="osub[all]", baseline_trials=[whole / 1e6],
            method="files of osub and of its dependencies, without compiled Python",
        )  # fmt: skip


def bytes_of(names: Iterable[str]) -> int:
    found = 0
    for name in set(names):
        one = distribution(name)
        paths = [Path(str(one.locate_file(path))) for path in one.files or () if path.suffix != ".pyc"]
        found += sum(path.stat().st_size for path in paths if path.is_file())
    return found


def test_simulator_next_to_the_plain_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSUB_JIT", "1")
    setting = setting_of(SimulationSpec(system="N1C100", policy="easy", multiplicity=1))
    workload = make_workload(load_columns(KTH), setting.queues, Cleaning(), keep_origin=True)
    jobs = pool_jobs(KTH, 100)
    simulate(workload, setting)  # compiled, or loaded
    engine, plain = [], []
    for _ in range(choose(1, 7, 15)):
        engine.append(workload.count / simulate(workload, setting).engine_cpu_s)
        plain.append(len(jobs) / seconds(lambda: flat_easy(jobs, 100), time.process_time))
    record(
        "simulator", "EASY, M=1, KTH-SP2", engine, "jobs/CPU s", better="more",
        baseline="plain EASY in Python", baseline_trials=plain,
        method=f"{workload.count:,} jobs on one pool of 100 cores, compiled",
    )  # fmt: skip
    shared = setting_of(SimulationSpec(system="N10C10", policy="easy", multiplicity=2))
    rates = [workload.count / simulate(workload, shared).engine_cpu_s for _ in range(choose(1, 3, 7))]
    record(
        "simulator", "EASY, M=2, KTH-SP2", rates, "jobs/CPU s", better="more",
        baseline="plain EASY in Python, M=1", baseline_trials=plain,
        method="the same on N10C10, two jobs a core",
    )  # fmt: skip


def test_a_report_s_size_and_time(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [sys.executable, "-m", "osub.command"]
    system = ("--system", "N150C12", "--multiplicity", "2", "--out", str(run))
    subprocess.run([*words, "simulate", str(GAIA), *system], check=True, capture_output=True)
    page = tmp_path / "report.html"
    drawn, started = [], []
    for _ in range(choose(1, 3, 9)):
        drawn.append(run_s([*words, "report", str(run), "--html", str(page), "--force"]))
        started.append(run_s([*words, "--version"]))
    record(
        "report", "time of `osub report`", drawn, "s", better="less", baseline="osub --version",
        baseline_trials=started, method="2,588 jobs of Gaia on N150C12",
    )  # fmt: skip
    plotly = (
        (Path(str(distribution("plotly").locate_file("plotly"))) / "package_data/plotly.min.js")
        .stat()
        .st_size
    )
    record(
        "report", "size of the page", [page.stat().st_size / 1e6], "MB", better="less",
        baseline="Plotly's script alone", baseline_trials=[plotly / 1e6], method="the same page",
    )  # fmt: skip


def test_the_predictor_s_answers() -> None:
    model = read_model(MODEL)
    names = sorted(model.applications)
    counters = model.counters_of([names[number % len(names)] for number in range(100)])
    pairs = choose(10, 500, 5_000)
    one, many, reading = [], [], []
    for _ in range(choose(1, 7, 25)):
        one.append(1e3 * seconds(lambda: [model.forecast(names[0], names[1]) for _ in range(pairs)]) / pairs)
        many.append(1e3 * seconds(lambda: model.matrix(counters, counters)) / 100**2)
        reading.append(1e3 * seconds(lambda: read_model(MODEL)))
    record(
        "predictor", "one pair", one, "ms", better="less", method="by name, the model that comes with osub"
    )
    record(
        "predictor", "a pair of a matrix of 100 x 100", many, "ms", better="less",
        baseline="one pair at a time", baseline_trials=one, method="all in one array",
    )  # fmt: skip
    record("predictor", "reading the model", reading, "ms", better="less", method="a JSON file")


def test_a_snapshot_of_slurm_s_jobs() -> None:
    printed = json.loads((SLURM / "jobs.json").read_text())
    (pattern, *_) = printed["jobs"]
    count = choose(50, 2_000, 20_000)
    printed["jobs"] = [dict(pattern, job_id=number) for number in range(1, count + 1)]
    text = json.dumps(printed)
    nodes = {node.name: node for node in read_nodes((SLURM / "nodes.txt").read_text())}

    def anew() -> None:
        reader = JsonReader()
        reader.open(text)
        reader.read(nodes.get)

    ours, plain = [], []
    for _ in range(choose(1, 7, 15)):
        ours.append(1e3 * seconds(anew, time.process_time))
        plain.append(1e3 * seconds(lambda: json.loads(text), time.process_time))
    record(
        "snapshot", "squeue --json read and judged", ours, "ms of CPU", better="less",
        baseline="json.loads alone", baseline_trials=plain,
        method=f"{count:,} jobs, every record anew",
    )  # fmt: skip


def test_a_sweep_s_overhead(tmp_path: Path) -> None:
    """Points of Gaia on two processes: what the sweep adds to the sum of what its points took."""
    count, workers = choose(4, 60, 1_000), 2
    log = choose(GAIA, GAIA, whole_or_small(GAIA.name))
    base: Parameters = {"trace": str(log), "system": "N150C12", "multiplicity": 2, "node_noise": 0.01}
    points = [point_of({**base, "seed": seed}) for seed in range(1, count + 1)]
    measure(points[0].parameters)  # kernels are compiled, or loaded
    sweep = run_sweep(points, SweepStore(tmp_path / "out"), Processes(measure, workers))
    assert not sweep.failures
    record(
        "sweep",
        f"overhead of {count} points of Gaia on {workers} processes",
        [100 * (sweep.wall_s * workers / sweep.work_s - 1)],
        "% of the work",
        better="less",
        baseline="wanted at most",
        baseline_trials=[3.0],
        method=f"{sweep.wall_s:.0f} s of wall time for {sweep.work_s:.0f} s of work, start included",
    )


@pytest.mark.slurm
def test_coupled_jobs_under_each_gang_scheduler() -> None:
    """Two jobs of two ranks that exchange all the time, as LU does, on the same two cores."""
    window_s = choose(1.5, 8.0, 12.0)
    trials = choose(1, 3, 7)
    speeds: dict[str, list[float]] = {"naive": [], "gangd, 250 ms": [], "Slurm's gang scheduler": []}
    settings = {
        "naive": (GangKind.NONE, window_s / 2),
        "gangd, 250 ms": (GangKind.OSUB, window_s),
        "Slurm's gang scheduler": (GangKind.SLURM, choose(11.0, 22.0, 66.0)),
    }
    made: dict[str, list[Trial]] = {name: [] for name in settings}
    for number in range(trials):
        dedicated = alone(window_s)
        for name in [*settings][number % 3 :] + [*settings][: number % 3]:
            gang, length_s = settings[name]
            try:
                made[name].append(side_by_side(gang, 250.0, 2, length_s, dedicated, hold=HoldSetting.YIELD))
            except AssertionError as error:
                if gang is not GangKind.SLURM:
                    raise
                say(f"  Slurm's gang scheduler: a job did not begin in time ({error})")
    for name, found in made.items():
        speeds[name] = [one.total for one in Compared.all_of(found)] if found else []
    for name, other in (
        ("gangd, 250 ms", "naive"),
        ("gangd, 250 ms", "Slurm's gang scheduler"),
        ("naive", None),
    ):
        if not speeds[name]:
            continue
        record(
            "gangd",
            f"two coupled jobs under {name}: speeds added up" + (f", beside {other}" if other else ""),
            speeds[name],
            "of a dedicated job",
            better="more",
            baseline=other if other and speeds[other] else None,
            baseline_trials=speeds[other] if other else (),
            method=f"N2C1, {window_s:g} s together, {trials} interleaved trials",
        )
