"""Whether a fitted Slurm explains the waits of a real one; prints a table, asserts nothing about time.

Jobs that sleep 3 to 15 s on four virtual nodes of four cores, whose limits are one to three minutes, so that
decisions and waits are all that is tested. Each trace is replayed on a cluster that was idle before. ``fit``
is what options and latencies are taken from; ``judge``, another trace, is simulated; ``again`` is the same
trace replayed once more: two replays of one trace differ, too::

    OSUB_VALIDATION=folder pytest -m benchmark -s tests/benchmarks/test_slurm_fit.py -k replay
    OSUB_VALIDATION=folder pytest -m benchmark -s tests/benchmarks/test_slurm_fit.py -k judge

The replays of one part may run side by side (``-k 'replay and fit'``, ...): they mostly sleep. Runs that are
there already are not repeated.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from deploy.local import Shape
from osub.analysis.job_by_job import pair
from osub.records import Run, load_run
from submitter.options import ReplayOptions
from tests.fixtures.validation_runs import FOLDER, arrivals, child, replay, write_apps, write_trace
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(1800)]

SYSTEM, NODES, CORES = "N4C4", 4, 4
SIZES = (1, 1, 2, 2, 4, 4, 8, 16)
LIMITS_S = (60, 60, 60, 120, 120, 180)
JOBS, GAP_S, IDLE_S = 60, 3.3, 35.0
THIRDS = "SchedulerParameters=sched_interval=20,batch_sched_delay=1,bf_interval=10,bf_resolution=20"
PRIORITY = (
    "PriorityType=priority/multifactor",
    "PriorityWeightJobSize=1000",
    "PriorityWeightAge=1000",
    "PriorityMaxAge=10",
    "PriorityCalcPeriod=1",
)
PERIODS = {
    "embedded": (),
    "thirds": (THIRDS,),
    "slurms": ("SchedulerParameters=sched_interval=60,batch_sched_delay=3,bf_interval=30",),
    "priority": (THIRDS, *PRIORITY),
}
SEEDS = {"fit": 21, "judge": 22, "again": 22}
AT_ONCE = ["tick=0", "delay=0", "every=0", "ends=at-once", "interval=0.001", "resolution=1"]
SLEEPERS = '''class Sleepers:
    """Jobs that sleep do not slow each other."""

    scale = 1

    def core_speed(self, job, others, node):
        return 1
'''
settings = pytest.mark.parametrize("multiplicity", [1, 2])


def run_of(part: str, periods: str, multiplicity: int) -> Path:
    """Return the RUN of a part, made now if need be."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    seed = SEEDS[part]
    jobs = arrivals(seed, JOBS * multiplicity, GAP_S / multiplicity, (3.0, 15.0), SIZES)
    rng = random.Random(seed)
    name = f"slurm-{periods}-m{multiplicity}-{part}"
    trace = write_trace(FOLDER / f"{name}.swf", jobs, [rng.choice(LIMITS_S) for _ in jobs])
    apps = write_apps(FOLDER / f"{name}.csv", [f"sleep,{run_s:.2f}" for _, run_s, _ in jobs])
    logged = ("SlurmctldDebug=debug", "DebugFlags=Backfill")
    shape = Shape(
        nodes=NODES,
        cores=CORES,
        virtual=True,
        multiplicity=multiplicity,
        settings=(*PERIODS[periods], *logged),
    )
    options = ReplayOptions(use_memory=False, label=name)
    return replay(name, shape, trace, options, apps, idle_s=IDLE_S)[0]


def simulated(real: Path, multiplicity: int, name: str, *words: object) -> Run:
    out = FOLDER / f"{real.name}-{name}"
    shutil.rmtree(out, ignore_errors=True)
    sleepers = FOLDER / "sleepers.py"
    sleepers.write_text(SLEEPERS)
    sharing = ["--sharing", f"{sleepers}:Sleepers"] if multiplicity > 1 else []
    setting = ["--system", SYSTEM, "--multiplicity", multiplicity, *sharing, "--out", out]
    child("osub.cli.main", "simulate", real, *setting, *words)
    return load_run(out)


def tell(name: str, real: Run, other: Run) -> None:
    """Print how far the waits of another run are from the real ones, and in how many pairs the order is."""
    both = pair(real, other).drop_nulls(["start_s", "start_s_other"])
    errors = both["wait_error_s"].to_numpy()
    one, later = np.triu_indices(both.height, 1)
    orders = [
        np.sign(starts[one] - starts[later])
        for starts in (both["start_s"].to_numpy(), both["start_s_other"].to_numpy())
    ]
    say(
        f"| {real.info.label} | {name} | {both.height} | {both['wait_s'].to_numpy().mean():.1f} "
        f"| {both['wait_s_other'].to_numpy().mean():.1f} | {np.median(np.abs(errors)):.2f} "
        f"| {np.percentile(np.abs(errors), 95):.1f} | {np.abs(errors).mean():.2f} "
        f"| {(orders[0] == orders[1]).mean():.1%} |"
    )


@settings
@pytest.mark.parametrize("periods", PERIODS)
@pytest.mark.parametrize("part", SEEDS)
def test_replay(part: str, periods: str, multiplicity: int) -> None:
    run = load_run(run_of(part, periods, multiplicity))
    completed = run.jobs.filter(pl.col("state") == "COMPLETED").height
    say(f"{run.info.label}: {completed} of {run.jobs.height} jobs, load {os.getloadavg()[1]:.1f}")


@settings
@pytest.mark.parametrize("periods", PERIODS)
def test_judge(periods: str, multiplicity: int) -> None:
    fit, judge, again = (run_of(part, periods, multiplicity) for part in ("fit", "judge", "again"))
    median = ("--latency", run_of("fit", periods, 1))
    real = load_run(judge)
    at_once = [word for setting in AT_ONCE for word in ("--set", setting)]
    slurm = ("--policy", "slurm")
    limits = ("--set", f"limits={multiplicity}")
    tell("easy, median latency", real, simulated(judge, multiplicity, "easy", "--policy", "easy", *median))
    tell(
        "slurm at once, median latency",
        real,
        simulated(judge, multiplicity, "at-once", *slurm, *at_once, *limits, *median),
    )
    tell("slurm, fitted", real, simulated(judge, multiplicity, "fitted", *slurm, "--fit", fit))
    tell("replayed again", real, load_run(again))
