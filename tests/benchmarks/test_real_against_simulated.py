"""The embedded real Slurm against the simulator; prints tables, asserts nothing about time.

Run it on a calm host, in pieces if need be; runs that are there already are not repeated::

    OSUB_VALIDATION=folder pytest -m benchmark -s tests/benchmarks/test_real_against_simulated.py -k place
    OSUB_VALIDATION=folder pytest -m benchmark -s tests/benchmarks/test_real_against_simulated.py -k builtin

Places: 300 random short jobs of 1 to 24 cores, which sleep, on 12 virtual nodes of 12 cores, M = 1 to 4.

Times: rrba jobs of 20 to 30 s on two nodes of one core, each pinned to a CPU, under M=1, M=2 shared by the
operating system, M=2 under gangd. Latencies and C_o are measured on the runs of one trace (``fit``), the
simulation is judged on those of another (``judge``).

The clock rate of a virtual host drifts: the same steps on a dedicated core take more or less time from one
minute to the next. A second line for each setting tells the errors at the pace that each job recorded.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from analysis.comparison.job_by_job import run_errors
from deploy.local import Gang, Shape
from deploy.shape import Scheduler
from foundation.records import load_run
from submitter.plan.replay_options import ReplayOptions
from tests.fixtures.slurm_decisions import SETTINGS, Places
from tests.fixtures.validation_runs import FOLDER, arrivals, child, replay, write_apps, write_trace
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(1800)]

PLACED_JOBS, PLACED_SEED = 300, int(os.environ.get("OSUB_SEED", "5"))
# Sizes that the rule of equal parts can put on nodes of 12 cores.
SIZES = [size for size in range(1, 25) if size not in (13, 17, 19, 23)]
FIT_SEED, JUDGE_SEED = 11, 12
TIMED_JOBS = 7
SHARING = {"m1": (1, Gang.NONE), "gangd": (2, Gang.OSUB), "naive": (2, Gang.NONE)}
LEAST_RUN_S = 19.0


@pytest.mark.parametrize("multiplicity", [1, 2, 3, 4])
def test_share_of_jobs_at_the_same_place(multiplicity: int) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    jobs = arrivals(PLACED_SEED, PLACED_JOBS, 0.4 / multiplicity, (1.0, 4.0), SIZES)
    trace = write_trace(FOLDER / f"place-{multiplicity}.swf", jobs, 600)
    apps = write_apps(FOLDER / "place.csv", [f"sleep,{run_s:.2f}" for _, run_s, _ in jobs])
    shape = Shape(
        nodes=12,
        cores=12,
        virtual=True,
        multiplicity=multiplicity,
        scheduler=Scheduler.BUILTIN,
        settings=SETTINGS,
    )
    run, log = replay(f"place-m{multiplicity}", shape, trace, ReplayOptions(use_memory=False), apps)
    found = msgspec.json.decode(child("tests.fixtures.slurm_decisions", run, log), type=Places)
    say(
        f"| M={multiplicity} | {found.jobs} | {found.same_place / found.jobs:.1%} "
        f"| {found.same_nodes / found.jobs:.1%} | {found.beside_completing} |"
    )


def calibrated() -> Path:
    """Return stored step times of rrba on one core and on two nodes."""
    path = FOLDER / "calibration.json"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        trace = write_trace(FOLDER / "calibrate.swf", [(0, 9, 1), (12, 9, 2)], 60)
        words = f"rrba,--app jacobi --calibrate-s 6 --calibration {path}"
        apps = write_apps(FOLDER / "calibrate.csv", [words, words])
        replay("calibrate", Shape(nodes=2, cores=1), trace, ReplayOptions(use_memory=False), apps)
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
    options = ReplayOptions(use_memory=False, calibration=calibration, label=name)
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
