from __future__ import annotations

import math

import pytest

from foundation.errors import InputError
from workloads.swf import InteractivePattern, SwfJob

EXAMPLE = (-1, -1, -1, 5, 5, 2, 5, 20, 15)
"""Job B of thesis section 6.3.3, as section 6.3.4 writes it."""


def test_thesis_example_reads_as_described() -> None:
    pattern = SwfJob(1, 0, extension=EXAMPLE).pattern
    assert pattern == InteractivePattern(5, 5, (5, 20), (15,))
    assert pattern.periods_s == (5, 5, 15, 20, 5)
    assert (pattern.busy_s, pattern.idle_s, pattern.total_s) == (25, 25, 50)
    assert pattern.to_extension() == EXAMPLE


def test_job_without_the_columns_has_no_pattern() -> None:
    assert SwfJob(1, 0).pattern is None
    assert SwfJob(1, 0, extension=(1, 2, 3)).pattern is None
    assert SwfJob(1, 0, extension=(-1,) * 6).pattern is None


def test_job_that_is_never_busy_is_one_idle_period() -> None:
    pattern = InteractivePattern(3, 4, (), ())
    assert pattern.periods_s == (7,)
    assert InteractivePattern.from_extension(pattern.to_extension()) == pattern


@pytest.mark.parametrize(
    ("extension", "words"),
    [
        ((0, 0, 0, 5, 5), "columns 22, 23 and 24"),
        ((0, 0, 0, 5, 5, 1.5, 1), "columns 22, 23 and 24"),
        ((0, 0, 0, 5, 5, 2, 5, 20), "3 columns must follow"),
        ((0, 0, 0, 5, 5, 1, -5), "period of -5"),
    ],
)
def test_columns_that_do_not_fit_are_an_input_error(extension: tuple[float, ...], words: str) -> None:
    with pytest.raises(InputError, match=f"job 17: .*{words}"):
        _ = SwfJob(17, 0, extension=extension).pattern


def test_impossible_patterns_are_refused() -> None:
    with pytest.raises(InputError, match="has 1 idle"):
        InteractivePattern(0, 0, (1, 2), ())
    with pytest.raises(InputError, match="nan"):
        InteractivePattern(math.nan, 0, (), ())
