"""Gangs that yield against gangs that are frozen, trial by trial; prints tables, asserts nothing about time.

Run it on a calm host::

    OSUB_FIGURES=holds.md pytest -m benchmark -s tests/benchmarks/test_yield_against_freeze.py

In each trial the same jobs run under both holds, one after the other, now this one first and now that one;
the figure is the median of the trials' ratios, with the speeds themselves. The ratios are of raw speeds:
what a job that yields does in others' slices it does in pieces: the length of a step does not tell the
pace of its core there. ``OSUB_TRIALS`` and ``OSUB_TRIAL_S`` are as in ``test_gang_figures``.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local import GangKind, HoldSetting
from tests.fixtures.gang_compared import LAUNCH_S, SHARED_S, TRIALS, Compared, Trial, alone, side_by_side
from tests.fixtures.gang_trials import SETTLE_S, Bench, Figures, cluster_of, middle, noise
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(3600)]

MEMORY_MIB = 64
SHARES = Path(__file__).parents[1] / "fixtures" / "gang_shares.py"


def in_turn(run: Callable[[HoldSetting], Trial]) -> dict[HoldSetting, list[Trial]]:
    """Run the trials of both holds, so that what drifts meets both alike."""
    found: dict[HoldSetting, list[Trial]] = {hold: [] for hold in HoldSetting}
    for number in range(TRIALS):
        for hold in [*HoldSetting] if number % 2 == 0 else reversed([*HoldSetting]):
            found[hold].append(run(hold))
    return found


def add_ratio(figures: Figures, measure: str, found: dict[HoldSetting, list[Trial]]) -> None:
    everything = Compared.all_of([*found[HoldSetting.FREEZE], *found[HoldSetting.YIELD]])
    frozen, yielding = (
        everything[: len(found[HoldSetting.FREEZE])],
        everything[len(found[HoldSetting.FREEZE]) :],
    )
    for name, made in (("freeze", frozen), ("yield", yielding)):
        figures.add(
            f"{measure}, {name}: speeds added up",
            f"{middle([each.total for each in made])}; raw {middle([each.raw for each in made])}",
            "(for comparison)",
            f"speeds of a trial apart {statistics.median([each.apart for each in made]):.1%} (median)",
        )
    ratios = [a.raw / b.raw for a, b in zip(yielding, frozen, strict=True)]
    figures.add(
        f"{measure}: yield over freeze",
        middle(ratios),
        "at least 0.99",
        f"median (range) of the ratios of {TRIALS} interleaved trials, raw",
    )


@pytest.mark.parametrize("quantum_ms", [250.0, 50.0, 20.0])
@pytest.mark.parametrize("jobs", [2, 3, 4])
def test_coupled_gangs(figures: Figures, jobs: int, quantum_ms: float) -> None:
    dedicated = alone(SHARED_S)
    with noise() as host:
        found = in_turn(
            lambda hold: side_by_side(GangKind.OSUB, quantum_ms, jobs, SHARED_S, dedicated, hold=hold)
        )
    add_ratio(figures, f"{jobs} coupled jobs, {quantum_ms:g} ms", found)
    say(f"  {host}")


def test_gangs_that_go_through_memory(figures: Figures) -> None:
    dedicated = alone(SHARED_S, MEMORY_MIB)
    found = in_turn(
        lambda hold: side_by_side(
            GangKind.OSUB, 250.0, 2, SHARED_S, dedicated, hold=hold, memory_mib=MEMORY_MIB
        )
    )
    add_ratio(figures, f"2 coupled jobs that go through {MEMORY_MIB} MiB a rank, 250 ms", found)


def test_a_gang_next_to_a_job_of_one_percent(figures: Figures) -> None:
    """A gang of two ranks shares one of its cores with a job of one process that computes 10 ms a second."""
    settings = {
        "operating system alone": (GangKind.NONE, HoldSetting.FREEZE),
        **{f"gangd, {hold.value}": (GangKind.OSUB, hold) for hold in HoldSetting},
    }
    found: dict[str, list[float]] = {name: [] for name in settings}
    for number in range(TRIALS):
        names = [*settings]
        for name in names[number % 3 :] + names[: number % 3]:
            found[name].append(with_one_percent(*settings[name]))
            say(f"  {name}: {found[name][-1]:.3f}")
    for name, speeds in found.items():
        figures.add(
            f"gang of two ranks with a job of 1 % on one of its cores, {name}: speed",
            middle(speeds),
            "at least 0.97" if name != "operating system alone" else "(for comparison)",
            "median (range) over the same gang on the same cluster before the other job began",
        )


def with_one_percent(gang: GangKind, hold: HoldSetting) -> float:
    with cluster_of(gang, 2, hold=hold) as cluster:
        bench = Bench(cluster.client(), cluster.folder)
        (before,) = bench.in_step(1, SHARED_S, LAUNCH_S)
        bench.submit("idle", [sys.executable, str(SHARES), "--pattern", "idle", "--until", "4000000000"])
        (co_located,) = bench.in_step(1, SHARED_S, LAUNCH_S + SETTLE_S)
        bench.cancel()
    return co_located.work / before.work
