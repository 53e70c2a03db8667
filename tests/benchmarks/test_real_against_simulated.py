"""The embedded real Slurm against the simulator; prints tables, asserts nothing about time.

Run it on a calm host, in pieces if need be; runs that are there already are not repeated::

    OSUB_VALIDATION=folder pytest -m benchmark -s tests/benchmarks/test_real_against_simulated.py -k place
    OSUB_VALIDATION=folder pytest -m benchmark -s tests/benchmarks/test_real_against_simulated.py -k builtin

Places: 300 random short jobs of 1 to 24 cores, which sleep, on 12 virtual nodes of 12 cores, M = 1 to 4.

Times: rrba jobs of 20 to 30 s on two nodes of one core, each pinned to a CPU, under M=1, M=2 shared by the
operating system, M=2 under gangd. Latencies and C_o are measured on the runs of one trace (``fit``), the
simulation is judged on those of another (``judge``).

What each part of the model is worth, on a trace that ``osub replay --fit`` scales to two nodes of one core:
three replays naively and three under gangd, each judged with latencies of a run with M=1 and with what
sharing costs in the next replay, never with what it tells itself. It takes fifteen minutes for 120 s. RUNs
stay, so that a change of the model is judged on the same ones. Each job finds its own number of steps; with
``OSUB_STORED_STEPS=1`` step times are calibrated once, and every replay of a job does the same ones::

    OSUB_VALIDATION=folder OSUB_TRACE=log.swf.gz OSUB_FIT=120 \\
        pytest -m benchmark -s tests/benchmarks/test_real_against_simulated.py -k cause

``OSUB_CONTAINERS=1`` makes the clusters of that in containers of a Docker engine.

The clock rate of a virtual host drifts: the same steps on a dedicated core take more or less time from one
minute to the next. A second line for each setting tells the errors at the pace that each job recorded.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
import polars as pl
import pytest

from analysis.comparison.comparison_tables import pair, run_errors
from analysis.metrics import host_use, unfit
from analysis.quantiles import quantile
from deploy.compose.cluster import ComposeCluster, Options
from deploy.compose.engine import EngineName
from deploy.local import GangKind, LocalCluster, Shape
from deploy.shape import Scheduler
from foundation.errors import InputError
from foundation.records import Run, load_run
from simulator.fit.fit_parameters import IDLE_PARTS
from simulator.fit.measured_run import measure_latencies, measure_overhead
from submitter.plan.replay_options import ReplayOptions
from tests.fixtures.container_engine import docker_engine
from tests.fixtures.slurm_decisions import SETTINGS, Places
from tests.fixtures.validation_runs import FOLDER, arrivals, child, replay, write_apps, write_trace
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(1800)]

PLACED_JOBS, PLACED_SEED = 300, int(os.environ.get("OSUB_SEED", "5"))
# Sizes that the rule of equal parts can put on nodes of 12 cores.
SIZES = [size for size in range(1, 25) if size not in (13, 17, 19, 23)]
FIT_SEED, JUDGE_SEED = 11, 12
TIMED_JOBS = 7
SHARING = {"m1": (1, GangKind.NONE), "gangd": (2, GangKind.OSUB), "naive": (2, GangKind.NONE)}
LEAST_RUN_S = 19.0


@pytest.mark.parametrize("multiplicity", [1, 2, 3, 4])
def test_share_of_jobs_at_the_same_place(multiplicity: int) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    jobs = arrivals(PLACED_SEED, PLACED_JOBS, 0.4 / multiplicity, (1.0, 4.0), SIZES)
    trace = write_trace(FOLDER / f"place-{multiplicity}.swf", jobs, 600)
    apps = write_apps(FOLDER / "place.csv", [f"sleep,{run_s:.2f}" for _, run_s, _ in jobs])
    shape = Shape(
        nodes=12, cores=12, virtual=True, multiplicity=multiplicity, scheduler=Scheduler.BUILTIN,
        settings=SETTINGS,
    )  # fmt: skip
    run, log = replay(f"place-m{multiplicity}", shape, trace, ReplayOptions(memory=False), apps)
    found = msgspec.json.decode(child("tests.fixtures.slurm_decisions", run, log), type=Places)
    say(
        f"| M={multiplicity} | {found.jobs} | {found.same_place / found.jobs:.1%} "
        f"| {found.same_nodes / found.jobs:.1%} | {found.next_to_completing} |"
    )


def calibrated() -> Path:
    """Return stored step times of rrba on one core and on two nodes."""
    path = FOLDER / "calibration.json"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        trace = write_trace(FOLDER / "calibrate.swf", [(0, 9, 1), (12, 9, 2)], 60)
        words = f"rrba,--app jacobi --calibrate-s 6 --calibration {path}"
        apps = write_apps(FOLDER / "calibrate.csv", [words, words])
        replay("calibrate", Shape(nodes=2, cores=1), trace, ReplayOptions(memory=False), apps)
    return path


def timed(part: str, scheduler: Scheduler, sharing: str) -> Path:
    """Return the RUN of the part's trace."""
    calibration = calibrated()
    seed = FIT_SEED if part == "fit" else JUDGE_SEED
    jobs = arrivals(seed, TIMED_JOBS, 9.0, (20.0, 30.0), (1, 1, 2))
    trace = write_trace(FOLDER / f"{part}.swf", jobs, 60)
    multiplicity, gang = SHARING[sharing]
    shape = Shape(nodes=2, cores=1, multiplicity=multiplicity, gang=gang, scheduler=scheduler)
    name = f"{part}-{scheduler.value}-{sharing}"
    options = ReplayOptions(memory=False, calibration=calibration, label=name)
    return replay(name, shape, trace, options)[0]


@pytest.mark.parametrize("sharing", ["m1", "naive"])
def test_fit_builtin(sharing: str) -> None:
    timed("fit", Scheduler.BUILTIN, sharing)


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("scheduler", [Scheduler.BUILTIN, Scheduler.BACKFILL])
def test_judge_m1_gangd_and_naive(scheduler: Scheduler, sharing: str) -> None:
    real = timed("judge", scheduler, sharing)
    alone, naive = timed("fit", Scheduler.BUILTIN, "m1"), timed("fit", Scheduler.BUILTIN, "naive")
    for overhead in (naive, "1.2"):
        out = FOLDER / f"{real.name}-sim-{'measured' if overhead == naive else overhead}"
        shutil.rmtree(out, ignore_errors=True)
        words = ["simulate", real, "--system", "N2C1", "--multiplicity", SHARING[sharing][0], "--out", out]
        words += ["--policy", "fcfs" if scheduler is Scheduler.BUILTIN else "easy"]
        words += ["--latency", alone, "--overhead", overhead]
        words += ["--slices", 250] if sharing == "gangd" else []
        child("osub.cli.main", *words)
        simulated = load_run(out)
        found = run_errors(load_run(real), simulated, LEAST_RUN_S)
        share = f"{found.same_place:.0%}" if found.same_place is not None else "-"
        say(
            f"| {real.name} | {simulated.info.options['overhead']} | {found.compared} "
            f"| {found.run_time.median:.1%} | {found.run_time.p95:.1%} | {found.run_time.bias:+.1%} "
            f"| {found.start_s.median:.2f} | {found.start_s.p95:.2f} | {share} |"
        )
        at_pace = found.run_time_at_pace
        if at_pace.median is not None:
            say(
                f"  at the pace that jobs recorded: median {at_pace.median:.1%}, p95 {at_pace.p95:.1%}, "
                f"bias {at_pace.bias:+.1%}"
            )


TRACE = os.environ.get("OSUB_TRACE")
FIT_S = float(os.environ.get("OSUB_FIT", "120"))
TRIALS = int(os.environ.get("OSUB_TRIALS", "3"))
IN_CONTAINERS = "OSUB_CONTAINERS" in os.environ
STORED_STEPS = "OSUB_STORED_STEPS" in os.environ
LONG_S = 10.0  # jobs that run as long in the real run, and shorter ones, have figures of their own
BEFORE = "before: EASY, medians, one C_o"
MODELS = {
    BEFORE: "",
    "+ waits of start-up and tear-down": "idle",
    "+ C_o by kind of job, cost of slices": "idle costs",
    "+ Slurm's schedulers, fitted": "idle costs slurm",
    "+ Slurm's order of starts and ends": "idle costs order",
}
AGAIN = "the same replayed again"


def replays(
    name: str, multiplicity: int, gang: GangKind, seconds: float, trials: int, seed: int = 1
) -> list[Path]:
    """Return the RUNs of a trace scaled to so many seconds, all on one cluster; those that are there stay."""
    assert TRACE is not None
    stem = Path(TRACE).name.partition(".")[0]
    stem += "-containers" * IN_CONTAINERS + "-stored-steps" * STORED_STEPS
    runs = [FOLDER / f"{stem}-{seconds:g}-{name}-{trial}" for trial in range(1, trials + 1)]
    missing = [run for run in runs if not ((run / "run.json").exists() and load_run(run).complete)]
    if not missing:
        return runs
    FOLDER.mkdir(parents=True, exist_ok=True)
    shape = Shape(nodes=2, cores=1, multiplicity=multiplicity, gang=gang)
    with ExitStack() as stack:
        state = stack.enter_context(tempfile.TemporaryDirectory(prefix="osub-"))
        cluster: LocalCluster | ComposeCluster
        if IN_CONTAINERS:
            stack.enter_context(docker_engine())
            cluster = ComposeCluster(Path(state, "c"))
            start: Callable[[], object] = partial(cluster.up, EngineName.DOCKER, shape, Options())
        else:
            cluster = LocalCluster(Path(state, "c"))
            start = partial(cluster.up, shape)
        try:
            start()
            steps = ["--calibration", stored_steps(Path(state, "c"))] if STORED_STEPS else []
            for run in missing:
                where = ["--cluster", Path(state, "c"), "--out", run, "--force", "--label", run.name]
                how = ["--fit", seconds, "--seed", seed, "--trial", runs.index(run) + 1]
                child("osub.cli.main", "replay", TRACE, *where, *how, *steps)
        finally:
            cluster.down()
    return runs


def stored_steps(cluster: Path) -> Path:
    """Return the step times of a fitted trace's jobs, measured on a cluster without other jobs if need be."""
    path = FOLDER / f"steps{'-containers' * IN_CONTAINERS}.json"
    if not path.exists():
        for cores in (1, 2):
            kind = ["--app", "jacobi", "--ranks", cores, "--nodes", cores, "--calibration", path]
            child("osub.cli.main", "workloads", "calibrate", "--cluster", cluster, *kind)
    return path


def simulated_as(real: Path, parts: str, alone: Path, other: Path) -> Run:
    """Simulate the jobs of ``real`` with what ``alone`` (M=1) and ``other``, of the same setting, tell."""
    out = FOLDER / f"{real.name}-sim-{parts.replace(' ', '-') or 'before'}"
    shutil.rmtree(out, ignore_errors=True)
    info = load_run(real).info
    usual = measure_latencies(load_run(alone))
    if "idle" not in parts:
        usual = msgspec.structs.replace(usual, **dict.fromkeys(IDLE_PARTS, 0.0))
    (latencies := out.with_suffix(".json")).write_bytes(msgspec.json.encode(usual))
    under_gangd = info.gang.kind == "osub"
    costs: object = "1.0"
    if "costs" in parts:
        costs = other
    elif not under_gangd:
        costs = max(1.0, measure_overhead(load_run(other), usual))
    words = ["simulate", real, "--system", info.system, "--multiplicity", info.multiplicity, "--out", out]
    words += ["--latency", latencies, "--overhead", costs]
    words += ["--slices", 250] if under_gangd else []
    words += ["--policy", "slurm", "--fit", alone] if "slurm" in parts else []
    words += ["--order-of", real] if "order" in parts else []
    child("osub.cli.main", *words)
    return load_run(out)


def share_of(flags: pl.Series) -> str:
    known = flags.drop_nulls()
    return f"{float(known.sum()) / len(known):.0%} of {len(known)}" if len(known) else "-"


def fidelity(model: str, setting: str, two: Sequence[tuple[Run, Run]]) -> str:
    """Return a line of the table: errors of all pairs of a real run and what is to be as it."""
    jobs = pl.concat([pair(real, other) for real, other in two])
    done = jobs.filter((pl.col("state") == "COMPLETED") & (pl.col("state_other") == "COMPLETED"))
    cells = []
    for some in (done.filter(pl.col("run_s") >= LONG_S), done.filter(pl.col("run_s") < LONG_S)):
        off = some["run_error"].drop_nulls()
        figures = [quantile(off.abs(), 0.5), quantile(off.abs(), 0.95), quantile(off, 0.5)]
        cells += [f"{len(off)}: " + ", ".join("-" if one is None else f"{one:+.1%}" for one in figures)]
    starts = done["start_error_s"].drop_nulls().abs()
    ends = [(real.jobs["end_s"].max(), other.jobs["end_s"].max()) for real, other in two]
    spans = [abs(theirs / ours - 1) for ours, theirs in ends]  # type: ignore[operator]
    cells += [
        f"{quantile(starts, 0.5):.2f}, {quantile(starts, 0.95):.2f}",
        share_of(jobs["same_place"]),
        share_of(jobs.filter(pl.col("alike").fill_null(value=False))["same_place"]),
        ", ".join(f"{span:.1%}" for span in spans),
    ]
    return f"| {setting} | {model} | {' | '.join(cells)} |"


@pytest.mark.skipif(TRACE is None, reason="OSUB_TRACE names no trace")
def test_fidelity_by_cause() -> None:
    """What each part of the model is worth, each run judged with what another one tells."""
    alone = replays("alone", 1, GangKind.NONE, FIT_S / 2, 1, seed=2)[0]
    settings = {"naive": GangKind.NONE, "gangd": GangKind.OSUB}
    runs = {name: replays(name, 2, gang, FIT_S, TRIALS) for name, gang in settings.items()}
    for path in (alone, *(path for several in runs.values() for path in several)):
        run = load_run(path)
        why = "; ".join(one.brief for one in unfit(run)) or "fit"
        say(f"{run.info.label}: {run.jobs.height} jobs, {why}, pace {host_use(run).pace}")
    say(f"| setting | model | jobs of {LONG_S:g} s and more: median, p95, bias | shorter ones |")
    say("| | | start: median, p95 [s] | same place | same place, same jobs | makespan of each trial |")
    for setting, several in runs.items():
        two = [(path, several[(place + 1) % len(several)]) for place, path in enumerate(several)]
        for model, parts in MODELS.items():
            if setting == "gangd" and "slurm" in parts:  # exact slices take no policy that sets timers
                continue
            try:
                judged = [(load_run(path), simulated_as(path, parts, alone, other)) for path, other in two]
            except (InputError, AssertionError) as error:
                say(f"| {setting} | {model} | not fitted: {error} |")
                continue
            say(fidelity(model, setting, judged))
        if len(several) > 1:
            say(fidelity(AGAIN, setting, [(load_run(one), load_run(other)) for one, other in two]))
