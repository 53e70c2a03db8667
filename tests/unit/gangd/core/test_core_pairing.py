"""Losses by pair that are learnt from CPU time, and what is decided by them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from math import inf, nan

import numpy as np
import pytest

from gangd.core.pairing import (
    MOST_OF_USER,
    MOST_OPPONENTS,
    MOST_VICTIMS,
    PairedJob,
    PairLearner,
    PairObserver,
    Victim,
)
from gangd.core.scheduler_events import CpuSample, NodeReport, SliceUse

LU, CHASE = Victim("ann", "lu", 1), Victim("bob", "chase", 1)


def job(number: int, victim: Victim, opponent: str | None = None, start_s: int = 0) -> PairedJob:
    return PairedJob(number, start_s, victim, victim.application if opponent is None else opponent)


def teach(
    learner: PairLearner, victim: Victim, opponent: str, loss: float, jobs: int, noise: float = 0.02
) -> None:
    """Let jobs end that ran with an opponent for a share of their time."""
    generator = np.random.default_rng(7)
    for exposed in np.linspace(0, 1, jobs):
        cpu_s = 100 * np.exp(generator.normal(0, noise)) / (1 - loss * exposed)
        learner.observe(victim, float(cpu_s), {opponent: float(exposed)})


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.4])
def test_a_loss_is_learnt_and_lies_in_its_interval(loss: float) -> None:
    learner = PairLearner(1)
    teach(learner, LU, "chase", loss, 40)
    found = learner.loss(LU, "chase")
    assert found.low < found.loss < found.high
    assert found.loss == pytest.approx(loss, abs=0.04)
    assert found.high - found.low < 0.12


def test_a_large_loss_that_is_not_expected_does_not_pass_for_noise() -> None:
    learner = PairLearner(1)
    for _ in range(3):
        learner.observe(LU, 5.0, {"quiet": 0.4})
    for _ in range(3):
        learner.observe(LU, 10.0, {"quiet": 0.3, "chase": 0.3})
    assert learner.loss(LU, "chase").low > learner.threshold
    assert learner.loss(LU, "quiet").loss < learner.threshold


def test_a_harmful_pair_alternates_and_a_harmless_one_runs_together() -> None:
    learner = PairLearner(1)
    assert not learner.alternate(job(1, LU), job(2, CHASE)) or learner.explore
    teach(learner, LU, "chase", 0.4, 12)
    teach(learner, LU, "sleep", 0.0, 40, noise=0.005)
    teach(learner, Victim("bob", "sleep", 1), "lu", 0.0, 40, noise=0.005)
    idle = Victim("bob", "sleep", 1)
    for number in range(3, 200):
        assert learner.alternate(job(1, LU), job(number, CHASE)), "what is certain is not tried"
        assert not learner.alternate(job(1, LU), job(number, idle))
    # He who loses nothing himself alternates, too: one of two is enough.
    assert learner.alternate(job(1, CHASE), job(2, LU))


def test_trials_are_as_many_as_the_administrator_lets_there_be_and_the_same_again() -> None:
    pairs = [(job(number, LU), job(number + 1, CHASE)) for number in range(1, 4001, 2)]
    learner = PairLearner(5, explore=0.1)
    tried = [learner.alternate(*pair) for pair in pairs]
    assert 0.03 < sum(tried) / len(tried) < 0.1
    assert [PairLearner(5).alternate(other, one) for one, other in pairs] == tried
    assert [PairLearner(6).alternate(*pair) for pair in pairs] != tried
    assert not any(PairLearner(5, explore=0.0).alternate(*pair) for pair in pairs)


def test_a_table_is_what_is_expected_at_first_and_yields_to_what_is_seen() -> None:
    learner = PairLearner(1)
    learner.set_policy({("lu", "chase"): 0.4, ("chase", "lu"): nan}, 0.05, 0.0)
    learner.set_policy({("lu", "chase"): 0.4}, 0.05, 0.0)
    assert learner.alternate(job(1, LU), job(2, CHASE, "bob:chase"))
    teach(learner, LU, "bob:chase", 0.0, 60)
    assert not learner.alternate(job(1, LU), job(2, CHASE, "bob:chase"))
    # A certain loss in the table, or a gain, is no number that breaks the arithmetic.
    for wild in (1.0, 7.0, -50.0):
        learner.set_policy({("lu", "chase"): wild}, 1.0, 0.1)
        assert all(map(np.isfinite, learner.loss(LU, "chase")))


def test_jobs_of_others_and_lies_about_names_do_not_touch_an_entry() -> None:
    learner = PairLearner(1, explore=0.0)
    teach(learner, LU, "bob:chase", 0.0, 40)
    before = learner.loss(LU, "bob:chase")
    mallory = Victim("mallory", "lu", 1)
    teach(learner, mallory, "bob:chase", 0.9, 40)  # the name of another's application
    teach(learner, LU, "mallory:chase", 0.5, 40)  # he really harms, under the name of a harmless one
    assert learner.loss(LU, "bob:chase").loss == pytest.approx(before.loss, abs=0.02)
    assert not learner.alternate(job(1, LU), job(2, CHASE, "bob:chase"))
    assert learner.alternate(job(1, LU), job(3, Victim("mallory", "chase", 1), "mallory:chase"))
    # In the table for placements, the lies of one of three users do not move the loss.
    teach(learner, Victim("carl", "lu", 1), "bob:chase", 0.02, 40)
    (row,) = [row for row in learner.table() if row[:2] == ("lu", "chase")]
    assert row[3] == 4
    assert row[2].loss < 0.05


def test_users_fill_no_more_than_their_share() -> None:
    learner = PairLearner(1)
    teach(learner, LU, "chase", 0.4, 12)
    for number in range(3 * MOST_OF_USER):
        learner.observe(Victim("mallory", f"a{number}", 1), 10.0, {f"o{number}": 1.0})
    assert sum(one.user == "mallory" for one in learner.state()) == MOST_OF_USER
    for number in range(2 * MOST_VICTIMS):
        learner.observe(Victim(f"u{number % 40}", f"a{number}", 1), 10.0, {})
    assert len(learner.state()) == MOST_VICTIMS
    for number in range(3 * MOST_OPPONENTS):
        learner.observe(LU, 100.0, {f"o{number}": 0.01})
    kept = {one.user: one for one in learner.state()}["ann"].opponents
    assert len(kept) == MOST_OPPONENTS
    assert "chase" in kept, "the one that is seen most stays"


def test_what_is_known_is_asked_for_at_any_time() -> None:
    learner = PairLearner(1)
    generator = np.random.default_rng(3)
    for _ in range(200):
        names = generator.choice(3 * MOST_OPPONENTS, 3)
        learner.observe(LU, float(generator.uniform(5, 9)), {f"o{name}": 0.3 for name in names})
        for name in names:
            found = learner.loss(LU, f"o{name}")
            assert found.low < found.loss < found.high
        assert len(list(learner.known())) <= MOST_OPPONENTS


@pytest.mark.parametrize("cpu_s", [0.0, -1.0, 1.9, nan, inf])
def test_a_job_that_used_next_to_nothing_teaches_nothing(cpu_s: float) -> None:
    learner = PairLearner(1)
    learner.observe(LU, cpu_s, {"chase": 1.0})
    assert learner.state() == []


def test_work_that_varies_leaves_a_pair_undecided() -> None:
    learner = PairLearner(1)
    teach(learner, LU, "chase", 0.1, 40, noise=1.0)
    found = learner.loss(LU, "chase")
    assert found.low < learner.threshold < found.high


def test_what_was_learnt_is_recalled_and_nonsense_is_not() -> None:
    learner = PairLearner(1)
    teach(learner, LU, "chase", 0.3, 10)
    teach(learner, LU, "sleep", 0.0, 10)
    again = PairLearner(1)
    again.recall(learner.state())
    assert again.loss(LU, "chase") == pytest.approx(learner.loss(LU, "chase"))
    (kept,) = learner.state()
    for damaged in (
        replace(kept, gram=kept.gram[:-1]),
        replace(kept, response=(*kept.response, 1.0)),
        replace(kept, opponents=("chase", "chase")),
        replace(kept, opponents=tuple(f"o{number}" for number in range(MOST_OPPONENTS + 1))),
        replace(kept, square=nan),
        replace(kept, square=-1.0),
        replace(kept, square=1e300),
        replace(kept, response=(inf, *kept.response[1:])),
        replace(kept, gram=tuple(-value for value in kept.gram)),
    ):
        with pytest.raises(ValueError, match="lu of ann"):
            PairLearner(1).recall([damaged])


def sample(number: int, cpu_s: float, span_s: float = 1.0) -> CpuSample:
    return CpuSample(number, round(cpu_s * 1e6), 0, round(span_s * 1e6), 1)


def seen_by(observer: PairObserver, reports: Iterable[NodeReport]) -> None:
    for report in reports:
        observer.report(report)


def test_exposure_is_the_share_of_cpu_time_in_which_an_opponent_ran() -> None:
    learner = PairLearner(1)
    observer = PairObserver(learner)
    observer.see([], [])
    lu, chase = job(1, LU), job(2, CHASE)
    observer.see([lu], [])
    alone = NodeReport(0, "n1", alone=(sample(1, 1.0),))
    both = NodeReport(0, "n1", alone=(sample(1, 1.0), sample(2, 1.0)))
    later = NodeReport(0, "n1", alone=(sample(1, 1.0),))  # the other is read another time
    idle = NodeReport(0, "n1", alone=(sample(1, 1.0), sample(2, 0.0)))
    # In slices of which each has half, or in half of which the other runs, too.
    turns = NodeReport(
        0,
        "n1",
        (SliceUse(1, 0, 0, (2,), ()), SliceUse(2, 0, 0, (1,), (sample(1, 1.0, 0.5), sample(2, 0.5, 0.5)))),
    )
    partly = NodeReport(
        0, "n1", (SliceUse(3, 0, 0, (2,), ()), SliceUse(4, 0, 0, (), (sample(1, 2.0), sample(2, 0.5, 0.5))))
    )
    seen_by(observer, [alone, alone])
    observer.see([lu, chase], [])
    seen_by(observer, [both, later, idle, turns, partly, NodeReport(0, "n1", alone=(sample(9, 5.0),))])
    observer.see([chase], [1])
    (kept,) = learner.state()
    assert (kept.user, kept.opponents) == ("ann", ("chase",))
    assert kept.response[0] == pytest.approx(np.log(8.0))
    assert kept.gram[1] == pytest.approx((1 + 1 + 0 + 0 + 1) / 8, abs=1e-3)


def test_jobs_of_several_nodes_and_of_arrays_count_by_themselves() -> None:
    learner = PairLearner(1)
    observer = PairObserver(learner)
    observer.see([], [])
    wide = Victim("ann", "lu", 4)
    jobs = [job(1, wide), job(2, wide), job(3, CHASE)]
    observer.see(jobs, [])
    seen_by(
        observer,
        [
            NodeReport(0, "n1", alone=(sample(1, 2.0), sample(3, 1.0))),
            NodeReport(0, "n2", alone=(sample(1, 2.0), sample(2, 4.0))),
        ],
    )
    observer.see([], [1, 2])
    (kept,) = learner.state()
    assert kept.gram[0] == pytest.approx(1.98), "two tasks of one array are two jobs"
    known = {opponent: loss.jobs for _, opponent, loss in learner.known()}
    assert known == {"chase": pytest.approx(0.49, abs=1e-3), "lu": pytest.approx(1.49, abs=1e-3)}


def test_only_whole_runs_that_ended_well_teach() -> None:
    learner = PairLearner(1)
    observer = PairObserver(learner)
    runs = [NodeReport(0, "n1", alone=(sample(1, 9.0),))]
    steps: list[tuple[list[PairedJob], list[int]]] = [
        ([job(1, LU)], []),  # it ran before
        ([], [1]),
        ([job(1, LU)], []),
        ([], []),  # it failed, or was cancelled
        ([job(1, LU)], []),
        ([job(1, LU, start_s=5)], []),  # requeued
        ([job(1, Victim("ann", "lu", 2), start_s=5)], []),  # shrunk
        ([], [1]),
    ]
    for (now, done), _ in pairwise([*steps, ([], [])]):
        observer.see(now, done)
        seen_by(observer, runs)
    assert learner.state() == []
    observer.see([job(1, LU)], [])
    observer.see([], [1])
    assert learner.state() == [], "no agent said what it used"
    observer.see([job(1, LU, start_s=8)], [])
    seen_by(observer, runs)
    observer.see([], [1])
    assert len(learner.state()) == 1
