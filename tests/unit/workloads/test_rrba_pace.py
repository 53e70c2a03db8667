from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.rrba.steps import step_plan

STEP_S = 0.001


def dedicated(steps: int) -> step_plan.StepTimes:
    """Steps of ``STEP_S``, a tenth of it communication, the first ones slow."""
    wall_s = np.full(steps, STEP_S)
    wall_s[: step_plan.WARM_UP_STEPS] *= 3
    return step_plan.StepTimes(wall_s, np.full(steps, 1e-6), 0.9 * wall_s)


@pytest.mark.parametrize(
    ("wall_s", "gap_s", "compute_s", "where", "source", "steps"),
    [
        (0, 0, 0, slice(0), "clean steps", 1),
        *((0.004, 0.004, 0, slice(0, None, every), "clean steps", 1) for every in (2, 3, 7)),
        # delays that reach a rank a step later, and delays of most steps that show no gap
        (0.02, 0, 0, slice(50, None, 10), None, 1),
        (0.003, 0, 0.003, slice(step_plan.WARM_UP_STEPS, 160), None, 1),
        (0.01, 0.01, 0, slice(None), "CPU time", 0.9),  # no step is undisturbed
    ],
)
def test_disturbed_steps_do_not_count(
    wall_s: float, gap_s: float, compute_s: float, where: slice, source: str | None, steps: float
) -> None:
    times = dedicated(200)
    times.wall_s[where] += wall_s
    times.gap_s[where] += gap_s
    times.compute_s[where] += compute_s
    pace = step_plan.estimate_pace(times)
    assert source in (None, pace.source)
    assert pace.step_s == pytest.approx(steps * STEP_S)


@pytest.mark.parametrize("steps", [1, 2, step_plan.WARM_UP_STEPS, step_plan.WARM_UP_STEPS + 1])
def test_few_steps_give_a_pace_too(steps: int) -> None:
    assert step_plan.estimate_pace(dedicated(steps)).step_s > 0


def test_times_are_joined_in_order() -> None:
    joined = step_plan.StepTimes.none().followed_by(dedicated(3)).followed_by(dedicated(2))
    assert joined.wall_s.shape == joined.gap_s.shape == joined.compute_s.shape == (5,)


@pytest.mark.parametrize(("target_s", "steps"), [(2.0, 1500), (0.01, 1), (0.3, 1), (0.5, 1), (0.5004, 1)])
def test_target_less_overhead_is_filled_with_steps_one_at_least(target_s: float, steps: int) -> None:
    plan = step_plan.plan_steps(target_s, overhead_s=0.5, step_s=0.001)
    assert (plan.steps, plan.clipped) == (steps, steps == 1)


@given(st.floats(0.01, 1e5), st.floats(0.0, 2.0), st.floats(1e-5, 1.0))
def test_planned_run_time_is_within_half_a_step_of_the_target(
    target_s: float, overhead_s: float, step_s: float
) -> None:
    plan = step_plan.plan_steps(target_s, overhead_s, step_s)
    if not plan.clipped:
        assert abs(overhead_s + plan.steps * step_s - target_s) <= 0.5 * step_s * (1 + 1e-6) + 1e-9


def test_start_up_on_a_shared_core_counts_as_on_its_own() -> None:
    # 0.4 s old, of which another job had the core for 0.2 s.
    assert step_plan.dedicated_startup_s(0.4, 0.2, 0.15) == pytest.approx(0.2)


def test_start_up_of_a_job_that_was_held_counts_its_cpu_time() -> None:
    assert step_plan.dedicated_startup_s(10.0, 0.0, 0.2) == pytest.approx(0.7)


@given(st.floats(0.0, 1e4), st.floats(1e-5, 10.0))
def test_sampling_ends_and_never_makes_more_steps_than_fit(available_s: float, step_s: float) -> None:
    done, pace, rounds = 0, None, 0
    while more := step_plan.sample_steps(available_s, done, pace):
        done += more
        pace = step_plan.StepPace(step_s, "clean steps")
        rounds += 1
        assert rounds < 20
    assert done <= max(1, available_s / step_s)


def test_nothing_is_sampled_where_there_is_no_time() -> None:
    assert step_plan.sample_steps(-0.1, 0, None) == 0


@given(st.floats(1e-4, 1.0), st.floats(0.0, 2.0))
def test_samples_on_a_line_give_that_line(step_s: float, overhead_s: float) -> None:
    lengths = (10, 40, 100)
    line = step_plan.fit_line(
        [step_plan.DedicatedRun(steps, overhead_s + step_s * steps) for steps in lengths]
    )
    assert line is not None
    assert line.step_s == pytest.approx(step_s, rel=1e-6)
    assert line.overhead_s == pytest.approx(overhead_s, rel=1e-5, abs=1e-9)
    assert line.worst < 1e-6


def test_scatter_shows_as_the_worst_distance() -> None:
    line = step_plan.fit_line(
        [step_plan.DedicatedRun(10, 1.0), step_plan.DedicatedRun(20, 2.2), step_plan.DedicatedRun(40, 4.0)]
    )
    assert line is not None
    assert 0.02 < line.worst < 0.1


def test_negative_overhead_is_none() -> None:
    line = step_plan.fit_line(
        [step_plan.DedicatedRun(10, 0.9), step_plan.DedicatedRun(20, 2.0), step_plan.DedicatedRun(40, 4.2)]
    )
    assert line is not None
    assert line.overhead_s == 0.0
    assert line.step_s == pytest.approx(0.1, rel=0.06)


def test_one_length_or_falling_times_are_no_line() -> None:
    assert step_plan.fit_line([step_plan.DedicatedRun(10, 1.0), step_plan.DedicatedRun(10, 1.1)]) is None
    assert step_plan.fit_line([step_plan.DedicatedRun(10, 2.0), step_plan.DedicatedRun(30, 1.0)]) is None


def test_lengths_are_apart_and_at_least_one_step() -> None:
    assert step_plan.sample_lengths(0.01, 4.0) == (80, 200, 400)
    assert step_plan.sample_lengths(10.0, 4.0) == (1,)
