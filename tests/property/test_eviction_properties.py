"""Eviction against brute force over every choice of every job, on random small worlds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.eviction import (
    EvictableJob,
    EvictionAnswer,
    EvictionChoice,
    EvictionSolver,
    Question,
    cheapest,
    solve,
)
from simulator.eviction.eviction_problem import whole_losses
from simulator.eviction.programme_table import ProgrammeTable, job_items
from tests.fixtures.tier import examples

EVERY: tuple[EvictionChoice | None, ...] = (
    EvictionChoice.KILL,
    EvictionChoice.APP,
    EvictionChoice.SYSTEM,
    None,
)
Taken = tuple[EvictionChoice | None, ...]

minutes = st.none() | st.integers(0, 8) | st.floats(0, 8).map(lambda value: round(value, 2))
losses = st.none() | st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0, 2.5]) | st.floats(0, 100)


@st.composite
def worlds(draw: st.DrawFn, most_jobs: int = 6) -> Question:
    unit = draw(st.sampled_from([1, 1, 4]))
    jobs = [
        EvictableJob(
            name=f"j{number}",
            nodes=unit * draw(st.integers(1, 9)),
            loss=draw(losses),
            ts_min=draw(minutes),
            ta_min=draw(minutes),
        )
        for number in range(min(most_jobs, draw(st.sampled_from([2, 3, 4, 5, 6, 6, 6, 0]))))
    ]
    step = draw(st.sampled_from([1.0, 1.0, 0.5, 2.0]))
    return Question(
        jobs=jobs,
        need=sum(job.nodes for job in jobs) * draw(st.integers(0, 8)) // 8
        - draw(st.sampled_from([0, 0, 1, 3])),
        deadline_min=step * draw(st.sampled_from([8, 7, 6, 5, 4, 3, 2, 1, 0])),
        step_min=step,
    )


def feasible(question: Question) -> Iterator[tuple[tuple[int, ...], Taken]]:
    """Yield every set that frees enough nodes, under loss, time and what else sets are compared by."""
    counted = whole_losses(question)
    steps = [
        {choice: question.steps_of(job.minutes(choice)) for choice in EvictionChoice} for job in question.jobs
    ]
    for taken in product(EVERY, repeat=len(question.jobs)):
        chosen = [(place, choice) for place, choice in enumerate(taken) if choice is not None]
        nodes = sum(question.jobs[place].nodes for place, _ in chosen)
        times = [steps[place][choice] for place, choice in chosen]
        if nodes >= question.need and None not in times:
            loss = sum(counted[place] or 0 for place, choice in chosen if choice is EvictionChoice.KILL)
            spent = sum(time or 0 for time in times)
            yield (loss, spent, nodes, len(chosen), *map(EVERY.index, taken)), taken


def brute_force(question: Question) -> list[Taken | None]:
    """Return the best set for every deadline in steps."""
    sets = sorted(feasible(question), key=lambda one: one[0])
    return [
        next((taken for key, taken in sets if key[1] <= step), None) for step in range(question.steps + 1)
    ]


def named(question: Question, taken: Taken) -> dict[str, EvictionChoice]:
    return {job.name: choice for job, choice in zip(question.jobs, taken, strict=True) if choice is not None}


@examples(100)
@given(worlds())
def test_the_optimum_is_that_of_brute_force_down_to_the_last_tie(question: Question) -> None:
    for answer, best in zip(solve(question), brute_force(question), strict=True):
        if best is None:
            assert not answer.possible
            assert (answer.loss, answer.nodes, answer.choices) == (None, None, {})
        else:
            assert answer.choices == named(question, best)
            check(question, answer)


def check(question: Question, answer: EvictionAnswer) -> None:
    """Check that what an answer says of itself is so, and that it does what was asked."""
    assert answer.possible
    jobs = {job.name: job for job in question.jobs}
    spent = 0
    for name, choice in answer.choices.items():
        steps = question.steps_of(jobs[name].minutes(choice))
        assert steps is not None
        spent += steps
    killed = [jobs[name].loss for name, choice in answer.choices.items() if choice is EvictionChoice.KILL]
    assert None not in killed
    assert answer.nodes == sum(jobs[name].nodes for name in answer.choices)
    assert answer.nodes >= question.need
    assert answer.checkpoint_min == question.minutes_of(spent)
    assert answer.checkpoint_min <= answer.deadline_min
    assert answer.loss == pytest.approx(sum(loss or 0 for loss in killed))


@examples(60)
@given(worlds(), st.booleans())
def test_greedy_is_feasible_and_never_better(question: Question, skip: bool) -> None:
    greedy = solve(question, EvictionSolver.GREEDY, skip=skip)
    for mine, best in zip(greedy, solve(question), strict=True):
        if mine.possible:
            check(question, mine)
            assert best.possible
            assert mine.loss is not None
            assert best.loss is not None
            assert mine.loss >= best.loss - 1e-6


@examples(60)
@given(worlds())
def test_backtracking_loses_as_little_as_the_optimum(question: Question) -> None:
    for mine, best in zip(solve(question, EvictionSolver.BACKTRACKING), solve(question), strict=True):
        assert mine.possible == best.possible
        if mine.possible:
            check(question, mine)
            assert mine.loss == pytest.approx(best.loss, abs=2e-6)


@examples(60)
@given(worlds())
def test_more_time_never_costs_more(question: Question) -> None:
    answers = solve(question)
    for earlier, later in pairwise(answers):
        assert later.possible >= earlier.possible
        if earlier.loss is not None and later.loss is not None:
            assert later.loss <= earlier.loss


@examples(60)
@given(worlds(), st.randoms(use_true_random=False))
def test_what_is_lost_does_not_depend_on_the_order_of_the_jobs(question: Question, random: object) -> None:
    shuffled = list(question.jobs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for one, other in zip(solve(question), solve(replace(question, jobs=shuffled)), strict=True):
        assert (one.possible, one.checkpoint_min, one.nodes, len(one.choices)) == (
            other.possible,
            other.checkpoint_min,
            other.nodes,
            len(other.choices),
        )
        assert one.loss == pytest.approx(other.loss)


@examples(30)
@given(worlds(5))
def test_one_table_answers_every_number_of_nodes(question: Question) -> None:
    whole = ProgrammeTable(question, job_items(question), every_need=True)
    for need in range(sum(job.nodes for job in question.jobs) + 1):
        alone = ProgrammeTable(replace(question, need=need), job_items(question))
        assert whole.by_deadline(need) == alone.by_deadline()


@examples(30)
@given(worlds())
def test_the_call_for_schedulers_is_the_last_deadlines(question: Question) -> None:
    last = solve(question)[-1]
    assert cheapest(question.jobs, question.need, question.deadline_min, question.step_min) == last
