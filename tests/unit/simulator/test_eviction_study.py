"""CoSim's study: the checkpoint model, scenarios from a trace, and how each claim is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.claims import ClaimRow, ClaimVerdict
from foundation.errors import InputError
from simulator.eviction.eviction_problem import Checkpoints, Storage
from simulator.experiments import eviction_scenarios as scenarios
from simulator.experiments.eviction_scenarios import (
    JOBS,
    NODES,
    Theta,
    TraceFacts,
    facts_of,
    instant_of,
    question_of,
    rescaled,
)
from simulator.experiments.eviction_study import claim_rows, tables
from simulator.experiments.eviction_survey import (
    FILE_SYSTEMS_GB_S,
    NODE_BANDWIDTHS,
    SETTINGS,
    EvictionEffort,
    EvictionSurvey,
    MeasuredEviction,
    slope,
    steps_of,
    survey,
)
from workloads.swf import load_columns

STORAGE = Storage(all_gb_s=250.0, node_gb_s=1.0)


class TestCheckpoints:
    def test_a_large_job_is_bound_by_the_file_system_and_a_small_one_by_its_nodes(self) -> None:
        """A 512-node job at 65% of 192 GB writes 63.9 TB in 256 s."""
        assert STORAGE.write_s(512, 124.8) == pytest.approx(255.6, abs=0.1)
        assert STORAGE.write_s(10, 124.8) == pytest.approx(124.8)
        assert Storage(all_gb_s=250.0, node_gb_s=None).write_s(10, 124.8) == pytest.approx(4.99, abs=0.01)

    def test_losses_count_from_the_last_hour_and_waits_to_the_next(self) -> None:
        sizes = Checkpoints(system_gb=100.0, app_gb=50.0)
        assert sizes.loss(8, 2.25 * 3600) == pytest.approx(2.0)
        assert sizes.wait_min(2.25 * 3600) == pytest.approx(45)
        assert sizes.ta_min(500, 2.25 * 3600, STORAGE) == pytest.approx(45 + 100 / 60)
        assert sizes.ts_min(500, STORAGE) == pytest.approx(200 / 60)


class TestScenarios:
    @pytest.mark.parametrize("scenario", range(3))
    def test_generated_jobs_fill_the_machine_in_steps_of_eight(self, scenario: int) -> None:
        instant = instant_of(None, scenario, np.random.default_rng(scenario))
        assert len(instant.nodes) == JOBS[scenario]
        assert instant.nodes.sum() == NODES
        assert (instant.nodes % 8 == 0).all()
        assert instant.nodes.min() > 0
        assert ((instant.elapsed_s >= 1800) & (instant.elapsed_s <= 12 * 3600)).all()

    def test_sizes_are_rescaled_in_proportion(self) -> None:
        assert rescaled(np.array([100, 100, 200]), 4352).tolist() == [1088, 1088, 2176]
        assert rescaled(np.array([1, 1, 10_000]), 4352).sum() == 4352

    def test_questions_of_one_instant_have_the_same_jobs_for_every_number_of_nodes(self) -> None:
        instant = instant_of(None, 0, np.random.default_rng(1))
        first, second = (question_of(instant, need, STORAGE, [1]) for need in (512, 2048))
        assert first.jobs == second.jobs
        other = question_of(instant, 512, STORAGE, [2])
        assert [job.loss for job in other.jobs] == [job.loss for job in first.jobs]
        assert [job.ts_min for job in other.jobs] != [job.ts_min for job in first.jobs]
        for job in first.jobs:
            assert job.loss is not None
            assert job.ta_min is not None
            assert 0 <= job.loss <= job.nodes
            assert job.ta_min > job.wait_min


def line(number: int, start: int, run: int, nodes: int) -> str:
    return f"{number} {start} 0 {run} {nodes} -1 -1 {nodes} {run} -1 1 1 1 -1 -1 -1 -1 -1"


@pytest.fixture
def theta(tmp_path: Path) -> Theta:
    """Twelve jobs on 4,352 nodes from 3,000 s to 4,000 s; before and after that others."""
    lines = [line(number, 250 * number, 4000, 362) for number in range(11)]
    lines += [line(12, 3000, 4000, 370), line(13, 20_000, 600, 4392), line(14, 20_600, 100, 100)]
    path = tmp_path / "theta.swf"
    path.write_text("\n".join(lines) + "\n")
    return Theta(load_columns(path))


class TestTrace:
    def test_a_scenario_is_an_instant_at_which_its_jobs_run(self, theta: Theta) -> None:
        (stretch,) = theta.stretches(12)
        assert (stretch.from_s, stretch.to_s, stretch.nodes.sum()) == (3000, 4000, 4352)
        for seed in range(5):
            instant = instant_of(theta, 0, np.random.default_rng(seed))
            assert instant.nodes.tolist() == stretch.nodes.tolist()
            at = instant.elapsed_s + stretch.start_s
            assert at.min() == pytest.approx(at.max())
            assert 3000 <= at.min() <= 4000

    def test_what_a_trace_lacks_is_generated_from_its_sizes(self, theta: Theta) -> None:
        assert theta.stretches(16) == []
        assert instant_of(theta, 1, np.random.default_rng(1)).nodes.sum() == NODES

    def test_short_jobs_and_more_nodes_than_the_machine_has_are_no_scenario(self, theta: Theta) -> None:
        assert theta.stretches(1) == []
        theta.nodes = theta.nodes * 2
        assert theta.stretches(12) == []

    def test_facts_are_counted_by_time(self, theta: Theta) -> None:
        facts = facts_of(theta)
        assert (facts.jobs, facts.busiest, facts.most_jobs) == (14, 4352, 12)
        assert facts.busiest_days == pytest.approx(1000 / 86_400)
        assert facts.full_days == pytest.approx(600 / 86_400)
        assert facts.short == pytest.approx(2 / 14)

    def test_a_trace_without_waits_is_reported(self, tmp_path: Path) -> None:
        path = tmp_path / "bare.swf"
        path.write_text("1 0 -1 -1 -1 -1 -1 4 60 -1 1 1 1 -1 -1 -1 -1 -1\n")
        with pytest.raises(InputError, match="no job with a wait"):
            Theta(load_columns(path))


def measured(seed: int) -> MeasuredEviction:
    """Return what agrees with every claim, a little different for each seed."""
    optimum = tuple(max(0.0, 100.0 + seed - 10 * minute) for minute in range(16))
    greedy = tuple(best + 50.0 + (2 + seed / 10) * minute for minute, best in enumerate(optimum))
    return MeasuredEviction(
        optimum=optimum,
        greedy=greedy,
        skipping=greedy,
        table_s=1e-3,
        printed_s=2e-3,
        whole_s=2e-3,
        greedy_s=1e-6,
        backtracking_s=10 ** (seed / 10),
        backtracking=optimum,
    )


def world(change: dict[str, object] | None = None, growth: float = 1.0) -> EvictionSurvey:
    settings = {
        setting: [replace(measured(seed), **(change or {})) for seed in range(10)]  # type: ignore[arg-type]
        for setting in SETTINGS
    }
    first = SETTINGS[0]
    settings[first] = [replace(one, backtracking_s=1e-4 + 1e-6 * n) for n, one in enumerate(settings[first])]
    slopes = {
        setting: [slope(setting, one.relative) for one in measurements]
        for setting, measurements in settings.items()
    }
    return EvictionSurvey(
        settings=settings,
        slopes=dict.fromkeys(FILE_SYSTEMS_GB_S, slopes),
        bandwidths={width: [(1.0, 2.0), (1.5, 2.5)] for width in NODE_BANDWIDTHS},
        worlds=10,
        worlds_alike=10,
        needs=5,
        needs_alike=5,
        growth={name: [growth, growth + 0.01] for name in ("jobs", "nodes", "deadline")},
    )


FACTS = TraceFacts(
    name="theta",
    jobs=10,
    days=363.0,
    busiest=4352,
    busiest_days=32.0,
    full_days=0.0,
    most_jobs=29,
    common_jobs=15,
    short=0.3,
)


def verdicts(rows: list[ClaimRow]) -> dict[str, ClaimVerdict]:
    return {row.id: row.verdict for row in rows}


class TestClaims:
    def test_every_claim_is_there_once_and_holds_where_all_agrees(self) -> None:
        rows = claim_rows(world(), FACTS)
        assert sorted(int(row.id[1:]) for row in rows) == list(range(1, 17))
        assert {key: value for key, value in verdicts(rows).items() if value is not ClaimVerdict.HOLDS} == {
            "V13": ClaimVerdict.NOT_COMPARABLE,
            "V14": ClaimVerdict.NOT_COMPARABLE,
        }

    @pytest.mark.parametrize(
        ("change", "fails"),
        [
            ({"greedy": tuple([0.0] * 16)}, {"V7", "V9", "V16"}),
            ({"greedy": tuple(200.0 - 12 * minute for minute in range(16))}, {"V8"}),
            ({"optimum": tuple([50.0 + m for m in range(16)]), "backtracking": ()}, {"V9", "V10"}),
            ({"backtracking": tuple([99.0] * 16)}, {"V1"}),
            ({"greedy_s": 1e-4}, {"V3"}),
            ({"whole_s": 2.0}, {"V6", "V16"}),
            ({"printed_s": 1e-6}, {"V3"}),
            ({"table_s": 1e-6}, {"V4"}),
            ({"backtracking_s": 1e-5}, {"V5"}),
        ],
    )
    def test_what_does_not_agree_fails_or_ties(self, change: dict[str, object], fails: set[str]) -> None:
        found = verdicts(claim_rows(world(change), FACTS))
        wrong = {key for key, value in found.items() if value in {ClaimVerdict.FAILS, ClaimVerdict.TIE}}
        assert fails <= wrong

    def test_time_that_grows_faster_than_the_sizes_fails(self) -> None:
        assert verdicts(claim_rows(world(growth=2.0), FACTS))["V11"] is ClaimVerdict.FAILS

    def test_without_a_trace_three_claims_are_not_comparable_and_say_so(self) -> None:
        rows = {row.id: row for row in claim_rows(world(), None)}
        for key in ("V12", "V13", "V14"):
            assert rows[key].verdict is ClaimVerdict.NOT_COMPARABLE
            assert rows[key].note == "no trace was named"

    def test_another_machine_is_not_comparable(self) -> None:
        rows = claim_rows(world(), replace(FACTS, busiest=128))
        assert verdicts(rows)["V12"] is ClaimVerdict.NOT_COMPARABLE


@pytest.mark.slow
def test_a_small_survey_measures_every_setting() -> None:
    effort = EvictionEffort(limit_s=0.005, hardest_s=0.005, worlds=21, doublings=1)
    steps: list[str] = []
    found = survey(None, 2, effort, steps.append)
    assert len(steps) == steps_of(2)
    assert set(found.settings) == set(SETTINGS)
    assert (found.worlds_alike, found.needs_alike) == (21, found.needs)
    for of in found.settings.values():
        for one in of:
            assert min(one.table_s, one.greedy_s, one.backtracking_s) > 0
            assert all(np.diff(one.optimum) <= 1e-9)
            assert min(one.relative) >= -1e-6
            if one.ended:
                assert one.backtracking == pytest.approx(one.optimum, abs=1e-4)
    rows = claim_rows(found, None)
    assert verdicts(rows)["V1"] is ClaimVerdict.HOLDS
    assert [table.name for table in tables(found)] == [
        "Loss",
        "Time",
        "Bandwidth of a node",
        "Bandwidth of the file system",
    ]
    from simulator.experiments.eviction_study import drawings

    assert len(drawings(found)) == 3


def test_the_machine_is_thetas() -> None:
    assert (scenarios.MACHINE_NODES, scenarios.NODE_GB, scenarios.ALL_GB_S) == (4392, 192.0, 250.0)
