"""Whether a fitted Slurm explains the waits of a real one; prints a table, asserts nothing about time.

Jobs that sleep 3 to 15 s on four virtual nodes of four cores, whose limits are one to three minutes, so that
decisions and waits are all that is tested. Each trace is replayed on a cluster that was idle before. ``fit``
is what options and latencies are taken from; ``judge``, another trace, is simulated; ``again`` is the same
trace replayed once more: two replays of one trace differ, too::

    OSUB_VALIDATION=folder pytest -m benchmark -s tests/benchmarks/test_slurm_fit.py -k test_replay
    OSUB_VALIDATION=folder pytest -m benchmark -s tests/benchmarks/test_slurm_fit.py -k test_judge

The replays of one part may run side by side (``-k 'test_replay and fit'``, ...): they mostly sleep. Runs
that are there already are not repeated.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from analysis.comparison.comparison_tables import pair
from deploy.local import Shape
from foundation.records import Run, load_run
from submitter.plan.replay_options import ReplayOptions
from tests.fixtures.validation_runs import FOLDER, arrivals, child, replay, write_apps, write_trace
from tests.fixtures.voice import say

Floats = npt.NDArray[np.float64]
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
AGAIN = "replayed again"
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
    options = ReplayOptions(memory=False, label=name)
    return replay(name, shape, trace, options, apps, idle_s=IDLE_S)[0]


def simulated(real: Path, multiplicity: int, name: str, *words: object) -> Run:
    out = FOLDER / f"{real.name}-{name}"
    shutil.rmtree(out, ignore_errors=True)
    (sleepers := FOLDER / "sleepers.py").write_text(SLEEPERS)
    sharing = ["--sharing", f"{sleepers}:Sleepers"] if multiplicity > 1 else []
    setting = ["--system", SYSTEM, "--multiplicity", multiplicity, *sharing, "--out", out]
    child("osub.cli.main", "simulate", real, *setting, *words)
    return load_run(out)


def errors(real: Run, other: Run) -> tuple[Floats, float, float]:
    """Return how far each wait is off, the mean wait's error, and the share of pairs that start in order."""
    both = pair(real, other).drop_nulls(["start_s", "start_s_other"])
    one, later = np.triu_indices(both.height, 1)
    starts, others = both["start_s"].to_numpy(), both["start_s_other"].to_numpy()
    same = np.sign(starts[one] - starts[later]) == np.sign(others[one] - others[later])
    off = both["wait_error_s"].to_numpy()
    return np.abs(off), float(off.mean()), float(same.mean())


def tell(label: str, name: str, found: Sequence[tuple[Floats, float, float]]) -> None:
    off = np.concatenate([one[0] for one in found])
    say(
        f"| {label} | {name} | {len(off)} | {np.median(off):.2f} | {np.percentile(off, 95):.1f} "
        f"| {off.mean():.2f} | {np.mean([abs(one[1]) for one in found]):.2f} "
        f"| {np.mean([one[2] for one in found]):.1%} |"
    )


@settings
@pytest.mark.parametrize("periods", PERIODS)
@pytest.mark.parametrize("part", SEEDS)
def test_replay(part: str, periods: str, multiplicity: int) -> None:
    run = load_run(run_of(part, periods, multiplicity))
    completed = run.jobs.filter(pl.col("state") == "COMPLETED").height
    say(f"{run.info.label}: {completed} of {run.jobs.height} jobs, load {os.getloadavg()[1]:.1f}")


def candidates(fit: str, judged: str, periods: str, multiplicity: int) -> Iterator[tuple[str, Run]]:
    """Yield what is to be as the judged run is."""
    judge = run_of(judged, periods, multiplicity)
    median = ("--latency", run_of(fit, periods, 1))
    slurm = ("--policy", "slurm")
    at_once = [word for setting in (*AT_ONCE, f"limits={multiplicity}") for word in ("--set", setting)]
    yield "EASY, median latency", simulated(judge, multiplicity, "easy", "--policy", "easy", *median)
    yield "slurm at once, median latency", simulated(judge, multiplicity, "once", *slurm, *at_once, *median)
    fitted = ("--fit", run_of(fit, periods, multiplicity))
    yield "slurm, fitted", simulated(judge, multiplicity, "fitted", *slurm, *fitted)
    if judged == "judge":
        yield AGAIN, load_run(run_of("again", periods, multiplicity))


def test_judge() -> None:
    """Each of the two traces is judged by what is fitted on the other."""
    pooled: dict[str, list[tuple[Floats, float, float]]] = {}
    for periods, multiplicity in product(PERIODS, (1, 2)):
        for fit, judged in (("fit", "judge"), ("judge", "fit")):
            real = load_run(run_of(judged, periods, multiplicity))
            for name, other in candidates(fit, judged, periods, multiplicity):
                found = errors(real, other)
                tell(real.info.label, name, [found])
                pooled.setdefault(name, []).append(found)
    for name, found_all in pooled.items():
        tell("all", name, found_all)
    # The judges are every other run, and were replayed again.
    for name, found_all in pooled.items():
        tell("all judges", name, found_all if name == AGAIN else found_all[::2])
