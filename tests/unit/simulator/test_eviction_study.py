"""Eviction: solvers and study."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.claims import ClaimRow, ClaimVerdict
from foundation.errors import InputError, UsageError
from simulator.eviction import EvictableJob, EvictionChoice, EvictionSolver, Question, cheapest, solve
from simulator.eviction.baselines import Columns
from simulator.eviction.eviction_problem import Checkpoints, Storage, overlapped_min, whole_losses
from simulator.eviction.programme_table import ProgrammeTable, job_items
from simulator.experiments import eviction_scenarios, eviction_survey
from simulator.experiments import eviction_scenarios as scenarios
from simulator.experiments.eviction_study import claim_rows, tables, world_of
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
        instant = eviction_scenarios.instant_of(None, scenario, np.random.default_rng(scenario))
        assert len(instant.nodes) == eviction_scenarios.JOBS[scenario]
        assert instant.nodes.sum() == eviction_scenarios.NODES
        assert (instant.nodes % 8 == 0).all()
        assert instant.nodes.min() > 0
        assert ((instant.elapsed_s >= 1800) & (instant.elapsed_s <= 12 * 3600)).all()

    def test_sizes_are_rescaled_in_proportion(self) -> None:
        assert eviction_scenarios.rescaled(np.array([100, 100, 200]), 4352).tolist() == [1088, 1088, 2176]
        assert eviction_scenarios.rescaled(np.array([1, 1, 10_000]), 4352).sum() == 4352

    def test_questions_of_one_instant_have_the_same_jobs_for_every_number_of_nodes(self) -> None:
        instant = eviction_scenarios.instant_of(None, 0, np.random.default_rng(1))
        first, second = (eviction_scenarios.question_of(instant, need, STORAGE, [1]) for need in (512, 2048))
        assert first.jobs == second.jobs
        other = eviction_scenarios.question_of(instant, 512, STORAGE, [2])
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
def theta(tmp_path: Path) -> eviction_scenarios.Theta:
    """Twelve jobs on 4,352 nodes from 3,000 s to 4,000 s; before and after that others."""
    lines = [line(number, 250 * number, 4000, 362) for number in range(11)]
    lines += [line(12, 3000, 4000, 370), line(13, 20_000, 600, 4392), line(14, 20_600, 100, 100)]
    (path := tmp_path / "theta.swf").write_text("\n".join(lines) + "\n")
    return eviction_scenarios.Theta(load_columns(path))


class TestTrace:
    def test_a_scenario_is_an_instant_at_which_its_jobs_run(self, theta: eviction_scenarios.Theta) -> None:
        (stretch,) = theta.stretches(12)
        assert (stretch.from_s, stretch.to_s, stretch.nodes.sum()) == (3000, 4000, 4352)
        for seed in range(5):
            instant = eviction_scenarios.instant_of(theta, 0, np.random.default_rng(seed))
            assert instant.nodes.tolist() == stretch.nodes.tolist()
            at = instant.elapsed_s + stretch.start_s
            assert at.min() == pytest.approx(at.max())
            assert 3000 <= at.min() <= 4000

    def test_what_a_trace_lacks_is_generated_from_its_sizes(self, theta: eviction_scenarios.Theta) -> None:
        assert theta.stretches(16) == []
        assert (
            eviction_scenarios.instant_of(theta, 1, np.random.default_rng(1)).nodes.sum()
            == eviction_scenarios.NODES
        )

    def test_short_jobs_and_more_nodes_than_the_machine_has_are_no_scenario(
        self, theta: eviction_scenarios.Theta
    ) -> None:
        assert theta.stretches(1) == []
        theta.nodes = theta.nodes * 2
        assert theta.stretches(12) == []

    def test_facts_are_counted_by_time(self, theta: eviction_scenarios.Theta) -> None:
        facts = eviction_scenarios.facts_of(theta)
        assert (facts.jobs, facts.busiest, facts.most_jobs) == (14, 4352, 12)
        assert facts.busiest_days == pytest.approx(1000 / 86_400)
        assert facts.full_days == pytest.approx(600 / 86_400)
        assert facts.short == pytest.approx(2 / 14)

    def test_a_trace_without_waits_is_reported(self, tmp_path: Path) -> None:
        path = tmp_path / "bare.swf"
        path.write_text("1 0 -1 -1 -1 -1 -1 4 60 -1 1 1 1 -1 -1 -1 -1 -1\n")
        with pytest.raises(InputError, match="no job with a wait"):
            eviction_scenarios.Theta(load_columns(path))


def measured(seed: int) -> eviction_survey.MeasuredEviction:
    """Return what agrees with every claim, a little different for each seed."""
    optimum = tuple(max(0.0, 100.0 + seed - 10 * minute) for minute in range(16))
    greedy = tuple(best + 50.0 + (2 + seed / 10) * minute for minute, best in enumerate(optimum))
    return eviction_survey.MeasuredEviction(
        optimum=optimum, greedy=greedy, skipping=greedy, table_s=1e-3, printed_s=2e-3, whole_s=2e-3,
        greedy_s=1e-6, backtracking_s=10 ** (seed / 10), backtracking=optimum,
    )  # fmt: skip


def world(change: dict[str, object] | None = None, growth: float = 1.0) -> eviction_survey.EvictionSurvey:
    settings = {
        setting: [replace(measured(seed), **(change or {})) for seed in range(10)]  # type: ignore[arg-type]
        for setting in eviction_survey.SETTINGS
    }
    first = eviction_survey.SETTINGS[0]
    settings[first] = [replace(one, backtracking_s=1e-4 + 1e-6 * n) for n, one in enumerate(settings[first])]
    slopes = {
        setting: [eviction_survey.slope(setting, one.relative) for one in measurements]
        for setting, measurements in settings.items()
    }
    return eviction_survey.EvictionSurvey(
        settings=settings,
        slopes=dict.fromkeys(eviction_survey.FILE_SYSTEMS_GB_S, slopes),
        bandwidths={width: [(1.0, 2.0), (1.5, 2.5)] for width in eviction_survey.NODE_BANDWIDTHS},
        worlds=10,
        worlds_alike=10,
        needs=5,
        needs_alike=5,
        growth={name: [growth, growth + 0.01] for name in ("jobs", "nodes", "deadline")},
    )


FACTS = eviction_scenarios.TraceFacts(
    name="theta", jobs=10, days=363.0, busiest=4352, busiest_days=32.0, full_days=0.0, most_jobs=29,
    common_jobs=15, short=0.3,
)  # fmt: skip


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

    def test_a_loss_that_falls_over_the_deadline_hangs_on_jobs_that_the_paper_only_draws(self) -> None:
        falls: dict[str, object] = {"greedy": tuple(200.0 - 12 * minute for minute in range(16))}
        (row,) = (row for row in claim_rows(world(falls), FACTS) if row.id == "V8")
        assert row.verdict is ClaimVerdict.NOT_COMPARABLE
        assert row.note.startswith("fails here")

    def test_the_world_is_compared_with_the_papers(self, theta: eviction_scenarios.Theta) -> None:
        assert [one.is_alike for one in world_of(None, None, 2)] == [True]
        facts = replace(FACTS, busiest=4000)
        assert [one.is_alike for one in world_of(theta, facts, 2)] == [True, False, False]

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
    effort = eviction_survey.EvictionEffort(limit_s=0.005, hardest_s=0.005, worlds=21, doublings=1)
    steps: list[str] = []
    found = eviction_survey.survey(None, 2, effort, steps.append)
    assert len(steps) == eviction_survey.steps_of(2)
    assert set(found.settings) == set(eviction_survey.SETTINGS)
    assert (found.worlds_alike, found.needs_alike) == (21, found.needs)
    for of in found.settings.values():
        for one in of:
            assert min(one.table_s, one.greedy_s, one.backtracking_s) > 0
            assert all(np.diff(one.optimum) <= 1e-9)
            assert min(one.relative) >= -1e-6
            if one.ended:
                assert one.backtracking == pytest.approx(one.optimum, abs=1e-4)
    assert verdicts(claim_rows(found, None))["V1"] is ClaimVerdict.HOLDS
    assert [table.name for table in tables(found)] == [
        "Loss",
        "Time",
        "Bandwidth of a node",
        "Bandwidth of the file system",
    ]
    from simulator.experiments.eviction_study import drawings, learnt

    assert "node-hours more than the optimum" in learnt(found)[0]
    assert len(drawings(found)) == 3


def test_the_machine_is_thetas() -> None:
    assert (scenarios.MACHINE_NODES, scenarios.NODE_GB, scenarios.ALL_GB_S) == (4392, 192.0, 250.0)


KILL, APP, SYSTEM = EvictionChoice.KILL, EvictionChoice.APP, EvictionChoice.SYSTEM


def job(
    name: str,
    nodes: int,
    loss: float | None,
    ts: float | None = None,
    ta: float | None = None,
    wait: float = 0,
) -> EvictableJob:
    return EvictableJob(name=name, nodes=nodes, loss=loss, ts_min=ts, ta_min=ta, wait_min=wait)


def ask(jobs: list[EvictableJob], need: int, deadline: float = 10, step: float = 1) -> Question:
    return Question(jobs=jobs, need=need, deadline_min=deadline, step_min=step)


def test_a_deadline_buys_checkpoints() -> None:
    jobs = [job("a", 4, 100, ts=3, ta=6), job("b", 4, 10, ts=5)]
    answers = solve(ask(jobs, 8, 8))
    assert [answer.loss for answer in answers] == [110, 110, 110, 10, 10, 10, 10, 10, 0]
    assert answers[2].choices == {"a": KILL, "b": KILL}
    assert answers[3].choices == {"a": SYSTEM, "b": KILL}
    assert answers[8].choices == {"a": SYSTEM, "b": SYSTEM}
    assert (answers[8].checkpoint_min, answers[8].nodes) == (8, 8)


def test_the_least_time_wins_among_equal_losses_then_the_fewest_nodes() -> None:
    slow, quick = job("a", 8, 50, ts=5), job("b", 16, 50, ts=2)
    assert solve(ask([slow, quick], 8))[-1].choices == {"b": SYSTEM}
    wide, narrow = job("a", 16, 50, ts=2), job("b", 8, 50, ts=2)
    assert solve(ask([wide, narrow], 8))[-1].choices == {"b": SYSTEM}


def test_an_application_checkpoint_is_better_than_a_system_one_that_takes_as_long() -> None:
    assert solve(ask([job("a", 8, 50, ts=2, ta=2)], 8))[-1].choices == {"a": APP}


def test_what_loses_nothing_is_killed_and_not_checkpointed() -> None:
    assert solve(ask([job("a", 8, 0, ts=0, ta=0)], 8))[0].choices == {"a": KILL}


def test_no_nodes_need_no_eviction() -> None:
    for need in (0, -5):
        answer = solve(ask([job("a", 8, 0)], need))[-1]
        assert (answer.loss, answer.nodes, dict(answer.choices)) == (0, 0, {})
    assert solve(ask([], 0))[0].possible


def test_a_job_that_may_not_be_killed_makes_short_deadlines_impossible() -> None:
    answers = solve(ask([job("a", 8, None, ts=3), job("b", 2, 1)], 9))
    assert [answer.possible for answer in answers[:4]] == [False, False, False, True]
    assert answers[3].choices == {"a": SYSTEM, "b": KILL}
    assert answers[0].loss is None


def test_times_are_rounded_up_one_by_one_so_that_no_deadline_is_missed() -> None:
    jobs = [job(name, 1, 10, ts=0.4) for name in "abc"]
    assert solve(ask(jobs, 3, 2))[-1].loss == 10
    fine = solve(ask(jobs, 3, 2, step=0.1))
    assert (fine[12].loss, fine[11].loss, fine[12].deadline_min) == (0, 10, 1.2)


def test_decimals_are_taken_as_written() -> None:
    """In binary 1.1 is more than eleven times 0.1."""
    assert solve(ask([job("a", 1, 5, ts=1.1)], 1, 1.1, step=0.1))[11].loss == 0


@pytest.mark.parametrize(
    ("deadline", "step", "words"),
    [
        (-1, 1, "zero or more"),
        (float("nan"), 1, "zero or more"),
        (float("inf"), 1, "zero or more"),
        (5, 0, "above zero"),
        (5, -1, "above zero"),
        (5, float("nan"), "above zero"),
        (5, 2, "no multiple"),
        (100, 0.001, "at most 10,000 steps"),
    ],
)
def test_times_that_make_no_sense_are_refused(deadline: float, step: float, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ask([job("a", 1, 1)], 1, deadline, step)


def test_more_nodes_than_there_are_are_refused() -> None:
    with pytest.raises(UsageError, match="the 1 job holds 4"):
        ask([job("a", 4, 1)], 5)


def test_a_table_that_is_too_large_is_refused_at_once() -> None:
    jobs = [job(str(number), 999_983 + number % 2, 1) for number in range(40)]
    with pytest.raises(UsageError, match="coarser granularity"):
        solve(ask(jobs, 30_000_000, 60))


def test_many_nodes_in_large_units_are_a_small_table() -> None:
    jobs = [job(str(number), 500_000, number) for number in range(4)]
    assert ProgrammeTable(ask(jobs, 1_000_000), job_items(ask(jobs, 1_000_000))).cells == 4 * 11 * 3


def test_losses_that_are_huge_do_not_overflow_in_their_sum() -> None:
    jobs = [job(str(number), 1, 1e12 - number) for number in range(1000)]
    question = ask(jobs, 1)
    wholes = [loss for loss in whole_losses(question) if loss is not None]
    assert sum(wholes) * (len(jobs) + 1) < 1 << 62
    assert solve(question)[0].choices == {"999": KILL}


class TestGreedy:
    def test_the_dearest_is_checkpointed_and_the_cheapest_killed(self) -> None:
        jobs = [job("a", 4, 100, ts=3, ta=6), job("b", 4, 50, ts=8), job("c", 4, 10), job("d", 4, 1)]
        answers = solve(ask(jobs, 12, 10), EvictionSolver.GREEDY)
        assert answers[0].choices == {"b": KILL, "c": KILL, "d": KILL}
        assert answers[10].choices == {"a": SYSTEM, "c": KILL, "d": KILL}

    def test_the_first_that_does_not_fit_ends_checkpointing_unless_it_is_skipped(self) -> None:
        jobs = [job("a", 4, 100, ts=8), job("b", 4, 50, ts=2), job("c", 4, 10)]
        question = ask(jobs, 8, 5)
        assert solve(question, EvictionSolver.GREEDY)[5].choices == {"b": KILL, "c": KILL}
        assert solve(question, EvictionSolver.GREEDY, skip=True)[5].choices == {"b": SYSTEM, "c": KILL}

    def test_it_stops_when_enough_is_free(self) -> None:
        jobs = [job("a", 4, 100, ts=1), job("b", 4, 50, ts=1)]
        assert solve(ask(jobs, 4), EvictionSolver.GREEDY)[5].choices == {"a": SYSTEM}

    def test_it_may_fail_where_jobs_may_not_be_killed(self) -> None:
        jobs = [job("a", 4, 100, ts=9), job("b", 4, None, ts=5)]
        assert solve(ask(jobs, 8, 9), EvictionSolver.GREEDY)[9].possible is False
        assert solve(ask(jobs, 8, 9))[9].possible


class TestBacktracking:
    def test_a_search_that_takes_too_long_is_reported(self) -> None:
        jobs = [job(str(number), 2, 1000 + number, ts=1, ta=2) for number in range(40)]
        question = ask(jobs, 80, 30)
        with pytest.raises(UsageError, match="take --solver optimal"):
            solve(question, EvictionSolver.BACKTRACKING, every_deadline=False, limit_s=0)


def test_the_call_of_a_scheduler_kills_what_is_cheapest_together() -> None:
    """Victims of 6, 5 and 5 nodes for 10: the cheapest alone would take the first and one more."""
    victims = [job("a", 6, 1.0), job("b", 5, 1.2), job("c", 5, 1.2), job("d", 10, 2.5)]
    assert cheapest(victims, 10).choices == {"a": KILL, "b": KILL}
    assert cheapest([*victims[1:], replace(victims[0], loss=3.0)], 10).choices == {"b": KILL, "c": KILL}


def test_waits_that_overlap_end_sooner() -> None:
    jobs = [job("a", 1, 1, ta=10, wait=8), job("b", 1, 1, ta=9, wait=5), job("c", 1, 1, ts=3)]
    assert overlapped_min(jobs, {"a": APP, "b": APP, "c": SYSTEM}) == 11
    assert overlapped_min(jobs, {"a": APP}) == 10
    assert overlapped_min(jobs, {"a": KILL}) == 0


def test_writes_that_leave_bandwidth_pass_side_by_side() -> None:
    jobs = [replace(job(name, 1, 1, ts=minutes), share=share) for name, minutes, share in WRITES]

    def done(*names: str) -> float:
        return overlapped_min(jobs, dict.fromkeys(names, SYSTEM))

    assert done("half", "other half") == 6  # each at its own speed
    assert done("half", "other half", "most") == 3 + 2 + 3.2  # the storage is the limit
    assert done("half", "long") == 20  # the longest alone
    late = replace(job("late", 1, 1, ta=8, wait=5), share=0.5)
    # At 5, the half write has one minute left; both fit.
    assert overlapped_min([*jobs, late], {"late": APP, "half": SYSTEM}) == 8


WRITES = (("half", 6.0, 0.5), ("other half", 4.0, 0.5), ("most", 4.0, 0.8), ("long", 20.0, 0.1))


def test_a_storage_gives_a_job_as_much_as_its_nodes_can_take() -> None:
    storage = Storage(all_gb_s=250.0, node_gb_s=1.0)
    assert [storage.share(nodes) for nodes in (1, 125, 250, 1024)] == [0.004, 0.5, 1.0, 1.0]
    assert Storage(all_gb_s=250.0, node_gb_s=None).share(1) == 1.0
    # Written alone, a job takes as long as its share says.
    assert storage.write_s(125, 10.0) == pytest.approx(125 * 10.0 / 250.0 / storage.share(125))


@pytest.mark.parametrize("seed", range(5))
def test_one_table_has_the_whole_surface_of_nodes_and_deadlines(seed: int) -> None:
    draw = random.Random(seed)
    jobs = [
        job(name, draw.choice([2, 4, 8]), draw.choice([None, 3.0, 10.25]), ts=draw.choice([None, 3, 6]))
        for name in "abcd"
    ]
    question = ask(jobs, 0, 9)
    needs, losses = ProgrammeTable(question, job_items(question), every_need=True).surface()
    for need, row in zip(needs.tolist(), losses.tolist(), strict=True):
        answers = solve(ask(jobs, need, 9))
        assert [answer.loss if answer.possible else None for answer in answers] == [
            None if math.isnan(loss) else pytest.approx(loss) for loss in row
        ]


@pytest.mark.parametrize("seed", range(20))
def test_the_optimum_with_overlapping_waits_is_that_of_all_sets(
    seed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(seed)
    jobs = []
    for name in "abcde":
        wait, write = draw.randint(0, 6), draw.choice([1, 2.5, 4])
        jobs.append(
            job(
                name, draw.choice([1, 4, 8]), draw.choice([None, 0.0, 3.0, 10.0, 25.5]),
                ts=draw.choice([None, 3, 6.5]), ta=draw.choice([None, wait + write]), wait=wait,
            )
        )  # fmt: skip
    jobs = [replace(one, share=draw.choice([0.3, 0.5, 1.0]) if seed % 2 else 1.0) for one in jobs]
    question = ask(jobs, draw.randint(0, sum(one.nodes for one in jobs)), 9)
    answers = solve(question, overlap=True)
    assert capfd.readouterr() == ("", "")
    for answer in answers:
        best = min(_losses_in_time(question, answer.deadline_min), default=None)
        assert answer.possible is (best is not None)
        if best is not None:
            assert answer.loss == pytest.approx(best)
            assert overlapped_min(jobs, answer.choices) <= answer.deadline_min + 1e-9


def _losses_in_time(question: Question, deadline_min: float) -> Iterator[float]:
    for chosen in itertools.product((None, KILL, APP, SYSTEM), repeat=len(question.jobs)):
        taken = [(one, choice) for one, choice in zip(question.jobs, chosen, strict=True) if choice]
        if any((minutes := one.minutes(choice)) is None or minutes > deadline_min for one, choice in taken):
            continue
        if sum(one.nodes for one, _ in taken) < question.need:
            continue
        if overlapped_min(question.jobs, {one.name: choice for one, choice in taken}) <= deadline_min:
            yield sum(one.loss or 0.0 for one, choice in taken if choice is KILL)


@pytest.mark.slow
def test_what_is_compiled_answers_as_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    for solver in EvictionSolver:
        for _ in range(15):
            jobs = [
                job(
                    str(number),
                    draw.randint(1, 40),
                    draw.choice([None, draw.uniform(0, 9)]),
                    ts=draw.choice([None, draw.uniform(0, 9)]),
                    ta=draw.uniform(0, 9),
                )
                for number in range(7)
            ]
            question = ask(jobs, draw.randint(0, sum(one.nodes for one in jobs)), 9)
            monkeypatch.setenv("OSUB_JIT", "0")
            plain = solve(question, solver)
            monkeypatch.setenv("OSUB_JIT", "1")
            assert solve(question, solver) == plain


def test_columns_report_what_cannot_be() -> None:
    columns = Columns.of(ask([job("a", 3, None, ts=2.5), job("b", 1, 0.5, ta=20)], 1))
    assert columns.losses.tolist() == [-1, 500_000]
    assert (columns.system.tolist(), columns.app.tolist()) == ([3, -1], [-1, 11])
