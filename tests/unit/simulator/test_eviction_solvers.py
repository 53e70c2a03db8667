"""The solvers of eviction on worlds whose answers can be worked out by hand."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from foundation.errors import UsageError
from simulator.eviction import EvictableJob, EvictionChoice, EvictionSolver, Question, cheapest, solve
from simulator.eviction.baselines import Columns
from simulator.eviction.eviction_problem import overlapped_min, whole_losses
from simulator.eviction.programme_table import ProgrammeTable, job_items

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
    losses = [answer.loss for answer in answers]
    assert losses == [110, 110, 110, 10, 10, 10, 10, 10, 0]
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
    assert fine[12].loss == 0
    assert fine[11].loss == 10
    assert fine[12].deadline_min == 1.2


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
    table = ProgrammeTable(ask(jobs, 1_000_000), job_items(ask(jobs, 1_000_000)))
    assert table.cells == 4 * 11 * 3


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
def test_the_optimum_with_overlapping_waits_is_that_of_all_sets(seed: int) -> None:
    draw = random.Random(seed)
    jobs = []
    for name in "abcde":
        wait, write = draw.randint(0, 6), draw.choice([1, 2.5, 4])
        jobs.append(
            job(
                name,
                draw.choice([1, 4, 8]),
                draw.choice([None, 0.0, 3.0, 10.0, 25.5]),
                ts=draw.choice([None, 3, 6.5]),
                ta=draw.choice([None, wait + write]),
                wait=wait,
            )
        )
    question = ask(jobs, draw.randint(0, sum(one.nodes for one in jobs)), 9)
    for answer in solve(question, overlap=True):
        best = min(_losses_in_time(question, answer.deadline_min), default=None)
        assert answer.possible is (best is not None)
        if best is not None:
            assert answer.loss == pytest.approx(best)
            assert overlapped_min(jobs, answer.choices) <= answer.deadline_min


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
    columns = Columns(ask([job("a", 3, None, ts=2.5), job("b", 1, 0.5, ta=20)], 1))
    assert columns.losses.tolist() == [-1, 500_000]
    assert (columns.system.tolist(), columns.app.tolist()) == ([3, -1], [-1, 11])
