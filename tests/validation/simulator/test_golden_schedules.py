"""EASY on one pool of processors: every job starts when independent implementations start it."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from simulator.setting_choices import setting_of
from simulator.simulation.one_simulation import simulate
from simulator.simulation.simulation_options import Cleaning
from simulator.simulation.trace_workload import make_workload
from simulator.simulation_spec import INSTANTS, SimulationSpec
from tests.fixtures.golden import SHARED, SMALL, small
from tests.fixtures.swf_jobs import write_jobs
from workloads.swf import load_columns

KTH, KTH_PROCS = "KTH-SP2-1996-2.1-cln", 100
WHOLE = [
    (KTH, KTH_PROCS, "easy_KTH-SP2_100", 28_467),
    ("UniLu-Gaia-2014-1", 1800, "easy_Gaia-1_1800", 51_859),
]  # the whole logs, which only some hosts have: trace, processors, schedule, its jobs


def simulated_starts(trace: Path, procs: int, instants: str = "one-by-one") -> dict[int, int]:
    """Return the start of each job in the trace's seconds."""
    setting = setting_of(SimulationSpec(system=f"N1C{procs}", instants=instants))
    workload = make_workload(load_columns(trace), setting.queues, Cleaning(), keep_origin=True)
    starts_us = simulate(workload, setting).start_us
    assert (starts_us % 1_000_000 == 0).all()
    return dict(zip(workload.number.tolist(), (starts_us // 1_000_000).tolist(), strict=True))


def golden_starts(schedule: Path) -> dict[int, int]:
    with gzip.open(schedule, "rt") as stream:
        return {int(row["trace_job"]): int(row["start_s"]) for row in csv.DictReader(stream)}


@pytest.mark.parametrize(
    ("trace", "procs", "golden", "jobs"),
    [one for one in WHOLE if (SHARED / "golden" / f"{one[2]}.csv.gz").exists()],
)
def test_every_job_starts_as_in_the_golden_schedule(trace: str, procs: int, golden: str, jobs: int) -> None:
    expected = golden_starts(SHARED / "golden" / f"{golden}.csv.gz")
    assert len(expected) == jobs
    assert simulated_starts(SHARED / "traces" / f"{trace}.swf.gz", procs) == expected


@pytest.mark.parametrize(
    ("golden", "instants"), [("easy_KTH-SP2_100", "one-by-one"), ("easy_KTH-SP2_100_together", "together")]
)
def test_every_job_of_the_small_set_starts_as_in_its_golden_schedule(golden: str, instants: str) -> None:
    expected = golden_starts(small(f"{golden}.csv.gz"))
    starts = simulated_starts(small(f"{KTH}.swf.gz"), KTH_PROCS, instants)
    assert len(expected) > 2_900
    assert {number: starts[number] for number in expected} == expected


@pytest.mark.parametrize("instants", INSTANTS)
@pytest.mark.parametrize(("trace", "procs"), [(KTH, KTH_PROCS), ("UniLu-Gaia-2014-1", 600)])
def test_every_job_of_the_small_set_starts_as_the_written_rules_say(
    trace: str, procs: int, instants: str
) -> None:
    path = SMALL / f"{trace}.swf.gz"
    starts = simulated_starts(path, procs, instants)
    assert len(starts) > 2_500
    assert starts == flat_easy(pool_jobs(path, procs), procs, together=instants == "together")


def pool_jobs(trace: Path, procs: int) -> list[tuple[int, int, int, int, int]]:
    """Return the jobs of a log as (number, submit, run, processors, requested), cleaned by the rules."""
    found = []
    with gzip.open(trace, "rt") as stream:
        for line in stream:
            if line.startswith(";"):
                continue
            fields = [int(float(word)) for word in line.split()]
            width = fields[7] if fields[7] > 0 else fields[4]
            run = fields[3]
            if run >= 1 and 1 <= width <= procs:
                found.append((fields[0], fields[1], run, width, max(run, fields[8])))
    return found


def shadow_of(wanted: int, free: int, now: int, running: list[tuple[int, int, int, int]]) -> tuple[int, int]:
    """Return when ``wanted`` processors are free by request, and how many more are free then."""
    shadow = now
    for _, _, end, width in sorted(running, key=lambda entry: entry[2]):
        if free >= wanted and end > shadow:
            break
        free, shadow = free + width, end
    return shadow, free - wanted


def flat_easy(
    jobs: list[tuple[int, int, int, int, int]], procs: int, *, together: bool = False
) -> dict[int, int]:
    """EASY on a pool, straight from the rules of the golden schedules.

    ``jobs`` are (number, submit, run, processors, requested); times are whole seconds. With ``together`` a
    pass follows all ends and arrivals of an instant, else each of them.
    """
    starts: dict[int, int] = {}
    free = procs
    queue: list[tuple[int, int, int, int, int]] = []
    running: list[tuple[int, int, int, int]] = []  # end, number, requested end, processors
    arrivals = sorted(jobs, key=lambda job: (job[1], job[0]))

    def start(job: tuple[int, int, int, int, int], now: int) -> None:
        nonlocal free
        starts[job[0]] = now
        free -= job[3]
        queue.remove(job)
        running.append((now + job[2], job[0], now + job[4], job[3]))

    def one_pass(now: int) -> None:
        while queue and queue[0][3] <= free:
            start(queue[0], now)
        if not queue:
            return
        shadow, extra = shadow_of(queue[0][3], free, now, running)
        for job in queue[1:]:
            if job[3] > free:
                continue
            if now + job[4] <= shadow:
                start(job, now)
            elif job[3] <= extra:
                extra -= job[3]
                start(job, now)

    while arrivals or running:
        ending = min(running, default=None)
        if ending is not None and (not arrivals or ending[0] <= arrivals[0][1]):
            running.remove(ending)
            free += ending[3]
            now = ending[0]
        else:
            queue.append(arrivals.pop(0))
            now = queue[-1][1]
        if not together or now not in {*(end for end, *_ in running), *(job[1] for job in arrivals[:1])}:
            one_pass(now)
    return starts


@pytest.mark.parametrize("instants", INSTANTS)
@pytest.mark.parametrize("seed", range(6))
def test_a_busy_pool_follows_the_written_rules(seed: int, instants: str, tmp_path: Path) -> None:
    rng = default_rng(seed)
    count, procs = 400, 32
    submit = np.sort(rng.integers(0, 4000, count))
    run = rng.integers(1, 300, count)
    width = rng.integers(1, procs + 1, count) // rng.integers(1, 9, count) + 1
    asked = run + rng.choice([0, 0, 10, 200], count)
    jobs = [
        (number + 1, int(submit[number]), int(run[number]), int(width[number]), int(asked[number]))
        for number in range(count)
        if width[number] <= procs
    ]
    trace = write_jobs(tmp_path / "random.swf", jobs)
    expected = flat_easy(jobs, procs, together=instants == "together")
    assert simulated_starts(trace, procs, instants) == expected
