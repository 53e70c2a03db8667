from __future__ import annotations

import pytest

from foundation.errors import UsageError
from workloads.eiba.eiba_options import parse_options, parse_periods


def test_periods_alternate_and_the_first_is_idle() -> None:
    periods = parse_periods(["5", "1", "2.5", "3", "0.25", "0"])
    assert periods.seconds == (1.0, 2.5, 3.0, 0.25, 0.0)
    assert (periods.idle_s, periods.busy_s) == (4.0, 2.75)
    assert [periods.is_busy(index) for index in range(5)] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "no periods given"),
        (["0"], "at least 1"),
        (["-1", "2"], "at least 1"),
        (["1.0", "2"], "whole number"),
        (["²", "2"], "whole number"),
        (["2", "1"], "2 periods announced, 1 given"),
        (["1", "1", "2"], "1 periods announced, 2 given"),
        (["1", "-0.5"], "t0 is '-0.5'"),
        (["2", "1", "nan"], "t1 is 'nan'"),
        (["1", "inf"], "t0 is 'inf'"),
        (["1", "long"], "t0 is 'long'"),
    ],
)
def test_wrong_periods_are_refused_with_what_is_wrong(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_periods(words)


def test_negative_period_on_the_command_line_is_a_period_not_an_option() -> None:
    with pytest.raises(UsageError, match="t0 is '-1'"):
        parse_options(["1", "-1"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workers", "0", "1", "0"],
        ["--workers", "two", "1", "0"],
        ["--workers", "100000", "1", "0"],
        ["--rendezvous-wait-s", "0", "1", "0"],
        ["--rendezvous-wait-s", "nan", "1", "0"],
        ["--kernel", "none-such", "1", "0"],
        ["--unknown", "1", "0"],
        ["--work", "1", "1", "0"],
    ],
)
def test_wrong_options_are_refused(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_options(arguments)


def test_options_without_a_word_leave_the_workers_to_slurm() -> None:
    options = parse_options(["2", "0.5", "1"])
    assert options.workers is None
    assert options.report is None
    assert options.periods.seconds == (0.5, 1.0)
