from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.rrba.steps.step_samples import Sample, fit_line, sample_lengths


@given(st.floats(1e-4, 1.0), st.floats(0.0, 2.0))
def test_samples_on_a_line_give_that_line(step_s: float, overhead_s: float) -> None:
    lengths = (10, 40, 100)
    line = fit_line([Sample(steps, overhead_s + step_s * steps) for steps in lengths])
    assert line is not None
    assert line.step_s == pytest.approx(step_s, rel=1e-6)
    assert line.overhead_s == pytest.approx(overhead_s, rel=1e-5, abs=1e-9)
    assert line.worst < 1e-6


def test_scatter_shows_as_the_worst_distance() -> None:
    line = fit_line([Sample(10, 1.0), Sample(20, 2.2), Sample(40, 4.0)])
    assert line is not None
    assert 0.02 < line.worst < 0.1


def test_negative_overhead_is_none() -> None:
    line = fit_line([Sample(10, 0.9), Sample(20, 2.0), Sample(40, 4.2)])
    assert line is not None
    assert line.overhead_s == 0.0
    assert line.step_s == pytest.approx(0.1, rel=0.06)


def test_one_length_or_falling_times_are_no_line() -> None:
    assert fit_line([Sample(10, 1.0), Sample(10, 1.1)]) is None
    assert fit_line([Sample(10, 2.0), Sample(30, 1.0)]) is None


def test_lengths_are_apart_and_at_least_one_step() -> None:
    assert sample_lengths(0.01, 4.0) == (80, 200, 400)
    assert sample_lengths(10.0, 4.0) == (1,)
