from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gangd.agent.decide import STEPD_NS, SUSPEND_NS, HoldLimits, Situation, StepView, Why, decide
from gangd.freezer.holder import StepKey

BATCH, ZERO, OTHER = StepKey(1, "batch"), StepKey(1, "0"), StepKey(2, "batch")
LIMITS = HoldLimits(grace_ns=200, longest_ns=5_000)
OLD = tuple(StepView(key, 0) for key in (BATCH, ZERO, OTHER))
PLAIN = Situation(now_ns=1_000, open=True, planned=frozenset({1}), steps=OLD)


def test_holds_all_steps_of_planned_jobs_and_no_others() -> None:
    verdict = decide(PLAIN, LIMITS)
    assert verdict.hold == {BATCH, ZERO}
    assert verdict.spared == {}


def test_nothing_is_held_while_closed() -> None:
    verdict = decide(replace(PLAIN, open=False, ours={BATCH: 900}), LIMITS)
    assert verdict.hold == frozenset()
    assert verdict.spared == {BATCH: Why.CLOSED, ZERO: Why.CLOSED}


def test_dying_job_is_not_held() -> None:
    assert decide(replace(PLAIN, dying=frozenset({1})), LIMITS).hold == frozenset()


def test_step_with_slurmstepd_is_not_held_but_its_siblings_are() -> None:
    steps = (StepView(BATCH, 0, has_stepd=True), StepView(ZERO, 0))
    verdict = decide(replace(PLAIN, steps=steps, now_ns=STEPD_NS), LIMITS)
    assert verdict.hold == {ZERO}
    assert verdict.spared == {BATCH: Why.SLURMSTEPD}


def test_step_whose_tasks_slurmstepd_has_yet_to_start_is_launching() -> None:
    verdict = decide(replace(PLAIN, steps=(StepView(BATCH, 0, has_stepd=True),)), LIMITS)
    assert verdict.spared == {BATCH: Why.LAUNCHING}
    assert verdict.again_ns == STEPD_NS


def test_new_step_of_a_held_job_runs_for_its_launch_grace_and_no_longer() -> None:
    situation = replace(PLAIN, steps=(StepView(BATCH, 0), StepView(ZERO, 900)))
    verdict = decide(situation, LIMITS)
    assert verdict.hold == {BATCH}
    assert verdict.spared == {ZERO: Why.LAUNCHING}
    assert verdict.again_ns == 1_100
    assert decide(replace(situation, now_ns=1_100), LIMITS).hold == {BATCH, ZERO}


def test_stuck_step_runs() -> None:
    assert decide(replace(PLAIN, stuck=frozenset({ZERO})), LIMITS).hold == {BATCH}


def test_nothing_is_held_longer_than_the_limit() -> None:
    situation = replace(PLAIN, ours={BATCH: 500, ZERO: 600})
    assert decide(situation, LIMITS).again_ns == 5_500
    verdict = decide(replace(situation, now_ns=5_500), LIMITS)
    assert verdict.hold == {ZERO}
    assert verdict.spared == {BATCH: Why.LONG}


def test_site_may_let_extern_steps_run() -> None:
    extern = StepKey(1, "extern")
    situation = replace(PLAIN, steps=(*OLD, StepView(extern, 0)))
    assert extern in decide(situation, LIMITS).hold
    assert decide(situation, replace(LIMITS, hold_extern=False)).spared == {extern: Why.EXTERN}


def test_strangers_step_is_left_alone_and_its_siblings_are_thawed_after_a_while() -> None:
    situation = replace(PLAIN, ours={ZERO: 900}, strangers={BATCH: 950})
    verdict = decide(situation, LIMITS)
    assert verdict.hold == {ZERO}
    assert verdict.again_ns == 950 + SUSPEND_NS
    later = decide(replace(situation, now_ns=950 + SUSPEND_NS), LIMITS)
    assert later.hold == frozenset()
    assert later.spared == {BATCH: Why.STRANGER, ZERO: Why.STRANGER}


def test_strangers_job_is_not_frozen_anew() -> None:
    verdict = decide(replace(PLAIN, strangers={BATCH: 950}), LIMITS)
    assert verdict.hold == frozenset()


keys = st.builds(StepKey, st.integers(1, 4), st.sampled_from(["batch", "0", "extern"]))
situations = st.builds(
    Situation,
    now_ns=st.integers(0, 10_000),
    open=st.booleans(),
    planned=st.frozensets(st.integers(1, 4)),
    steps=st.lists(
        st.builds(StepView, keys, st.integers(0, 10_000), st.booleans()), unique_by=lambda view: view.key
    ).map(tuple),
    ours=st.dictionaries(keys, st.integers(0, 10_000)),
    dying=st.frozensets(st.integers(1, 4)),
    strangers=st.dictionaries(keys, st.integers(0, 10_000)),
    stuck=st.frozensets(keys),
)


@given(situations)
def test_whatever_the_situation_the_rules_hold(situation: Situation) -> None:
    verdict = decide(situation, LIMITS)
    views = {view.key: view for view in situation.steps}
    for key in verdict.hold:
        assert situation.open
        assert key in views
        assert key.job not in situation.dying
        assert key not in situation.strangers
        new = key not in situation.ours
        if new:
            assert key.job in situation.planned
            assert not views[key].has_stepd
            assert key not in situation.stuck
            assert situation.now_ns >= views[key].first_seen_ns + LIMITS.grace_ns
    assert not verdict.hold & verdict.spared.keys()
    assert verdict.again_ns is None or verdict.again_ns > situation.now_ns
