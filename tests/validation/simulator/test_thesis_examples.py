"""The worked examples of the thesis, to the second."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from simulator.engine.pool_run import PoolRun, run_pool
from simulator.engine.run_rules import RunRules
from simulator.model.jobs import PoolJobs
from simulator.model.system import NodePool
from simulator.placement import PlacementRule, SlurmPlacement, ThesisPlacement
from simulator.policies.easy.plain_policies import Easy
from simulator.sharing import Proportional

SECOND = 1_000_000


@dataclass(frozen=True)
class Sketch:
    """A job of a worked example, in seconds."""

    nodes: int
    cores: int
    periods_s: tuple[int, ...]
    submit_s: int = 0
    request_s: int | None = None
    phases_us: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "phases_us", tuple(period * SECOND for period in self.periods_s))


def busy(nodes: int, cores: int, run_s: int, submit_s: int = 0) -> Sketch:
    return Sketch(nodes, cores, (0, run_s), submit_s)


def run(
    jobs: list[Sketch], nodes: int, cores: int, multiplicity: int, overhead: str, placement: PlacementRule
) -> PoolRun:
    def column(values: list[int]) -> np.ndarray:
        return np.array(values, dtype=np.int64)

    totals = [sum(job.phases_us) for job in jobs]
    arrays = PoolJobs(
        submit_us=column([job.submit_s * SECOND for job in jobs]),
        requested_us=column(totals),
        nodes=column([job.nodes for job in jobs]),
        cores=column([job.cores for job in jobs]),
        memory_kib=column([0] * len(jobs)),
        app=column([0] * len(jobs)),
        phase_at=np.cumsum([0, *(len(job.phases_us) for job in jobs)]),
        phase_us=column([period for job in jobs for period in job.phases_us]),
    )
    pool = NodePool(name="main", first=0, nodes=nodes, cores=cores, multiplicity=multiplicity)
    rules = RunRules(policy=Easy(), placement=placement, sharing=Proportional.of(overhead))
    return run_pool(arrays, np.arange(len(jobs)), pool, rules)


def ends_s(result: PoolRun) -> list[float]:
    return [end / SECOND for end in result.end_us.tolist()]


def starts_s(result: PoolRun) -> list[float]:
    return [start / SECOND for start in result.start_us.tolist()]


@pytest.mark.parametrize("placement", [ThesisPlacement(), SlurmPlacement()])
def test_figure_5_2_slowest_core_decides(placement: PlacementRule) -> None:
    result = run([busy(1, 4, 30), busy(1, 2, 10, submit_s=10)], 1, 4, 2, "1.0", placement)
    assert ends_s(result) == [40, 30]
    assert result.cores_of(1) == {0: [0, 1]}


def test_section_6_3_3_idle_time_is_not_stretched_and_does_not_disturb() -> None:
    # Job B is "5 5 2 5 20 15" in columns 22 and up: prologue, epilogue, N, activations, idles.
    batch, interactive = busy(1, 1, 100), Sketch(1, 1, (5, 5, 15, 20, 5))
    assert ends_s(run([batch, interactive], 1, 1, 2, "1.2", ThesisPlacement())) == [135, 85]


TABLE_7_8 = [
    "", "2814,0,1800,1,2,1800,0(0-1)", "2815,173,2724,1,2,2897,1(0-1)",
    "2816,234,113,1,2,347,2(0-1)", "2817,280,13,1,2,293,3(0-1)", "2818,473,527,1,2,1000,2(0-1)",
    "2819,571,14410,1,12,14981,3(0-11)", "2823,2250,14410,1,12,16660,0(0-11)",
    "2829,3444,3511,1,12,6955,1(0-11)", "2835,3772,14410,1,12,18182,2(0-11)",
    "2838,4138,14410,1,12,18548,4(0-11)", "2839,4140,14410,1,12,18550,5(0-11)",
    "2842,5211,2703,1,4,7914,6(0-3)", "2844,5679,2938,2,9,8617,7(0-8) 8(0-8)",
    "2849,6966,3072,1,8,10038,1(0-7)", "2854,8942,154,1,4,9096,6(0-3)", "",
][1:-1]  # fmt: skip


@pytest.mark.parametrize("placement", [ThesisPlacement(), SlurmPlacement()])
def test_table_7_8_ends_and_places(placement: PlacementRule) -> None:
    rows = [row.split(",") for row in TABLE_7_8]
    jobs = [busy(int(row[3]), int(row[4]), int(row[2]), submit_s=int(row[1])) for row in rows]
    result = run(jobs, 12, 12, 2, "1.2", placement)
    places = [
        " ".join(f"{node}({ids[0]}-{ids[-1]})" for node, ids in result.cores_of(job).items())
        for job in range(len(jobs))
    ]
    assert [(str(int(end)), place) for end, place in zip(ends_s(result), places, strict=True)] == [
        (row[5], row[6]) for row in rows
    ]


class TestFigure53a:
    """Case 1: the candidate shares cores only with a job that is slowed already.

    On N2C2 with M = 2, job 0 has every core and job 1 shares core 0 of node 0 with it, so job 0 runs at half
    speed. Job 2 wants all cores and waits for job 1, which ends at 40. Job 3 would share core 1 of node 0 and
    core 0 of node 1 with job 0, which it slows no further.
    """

    @staticmethod
    def start_of_candidate(run_s: int) -> tuple[float, float]:
        jobs = [busy(2, 2, 100), busy(1, 1, 20), busy(2, 2, 5, submit_s=1), busy(2, 1, run_s, submit_s=10)]
        result = run(jobs, 2, 2, 2, "1.0", ThesisPlacement())
        return starts_s(result)[2], starts_s(result)[3]

    def test_a_candidate_that_ends_by_the_heads_start_is_backfilled(self) -> None:
        assert self.start_of_candidate(15) == (40, 10)

    def test_a_candidate_that_would_still_be_there_waits(self) -> None:
        head, candidate = self.start_of_candidate(16)
        assert head == 40
        assert candidate > 40


class TestFigure53b:
    """Case 2: the candidate slows a job that has its cores to itself.

    On N2C2 with M = 2, job 0 and job 2 share core 0 of both nodes and job 1 has core 1 of both. The head, job
    3, wants all cores and waits for job 2, which ends at 40. Job 4 would share core 1 with job 1; the head
    finds a slot there at 40 if either of the two has ended by then.
    """

    @staticmethod
    def starts(victim_s: int, candidate_s: int) -> tuple[float, float]:
        jobs = [
            busy(2, 1, 100),
            busy(2, 1, victim_s),
            busy(2, 1, 20),
            busy(2, 2, 5, submit_s=0),
            busy(2, 1, candidate_s, submit_s=0),
        ]
        result = run(jobs, 2, 2, 2, "1.0", ThesisPlacement())
        return starts_s(result)[3], starts_s(result)[4]

    def test_backfilled_if_the_candidate_ends_in_time(self) -> None:
        assert self.starts(victim_s=40, candidate_s=10) == (40, 0)

    def test_backfilled_if_the_victim_ends_in_time(self) -> None:
        assert self.starts(victim_s=15, candidate_s=30) == (40, 0)

    def test_not_backfilled_if_both_are_still_there(self) -> None:
        head, candidate = self.starts(victim_s=40, candidate_s=25)
        assert head == 40
        assert candidate > 0
