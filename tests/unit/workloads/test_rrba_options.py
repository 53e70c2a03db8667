from __future__ import annotations

import pytest

from foundation.errors import UsageError
from workloads.rrba.main import launch_s
from workloads.rrba.rrba_options import parse_options
from workloads.task.process_clock import ProcessStart


def test_target_leaves_the_grid_to_the_ranks() -> None:
    options = parse_options(["--app", "jacobi", "--target-s", "2.5"])
    assert (options.application.name, options.target_s, options.steps, options.grid) == (
        "jacobi",
        2.5,
        None,
        None,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--app", "jacobi"],
        ["--target-s", "1"],
        ["--app", "none-such", "--steps", "1"],
        ["--app", "jacobi", "--steps", "1", "--target-s", "1"],
        ["--app", "jacobi", "--steps", "0"],
        ["--app", "jacobi", "--steps", "1.5"],
        ["--app", "jacobi", "--steps", "9999999999999"],
        ["--app", "jacobi", "--target-s", "0"],
        ["--app", "jacobi", "--target-s", "-1"],
        ["--app", "jacobi", "--target-s", "nan"],
        ["--app", "jacobi", "--target-s", "inf"],
        ["--app", "jacobi", "--steps", "1", "--grid", "x"],
        ["--app", "jacobi", "--calibrate-s", "1"],
        ["--app", "jacobi", "--steps", "1", "--calibration", "file"],
        ["--app", "jacobi", "--steps", "1", "surplus"],
    ],
)
def test_wrong_options_are_refused(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_options(arguments)


@pytest.mark.parametrize(
    ("stamp", "seconds"), [("9750", 0.25), ("10001", 0.0), ("1", 0.0), ("soon", 0.0), ("", 0.0)]
)
def test_launch_counts_from_the_wrappers_stamp_if_it_can_be_true(stamp: str, seconds: float) -> None:
    begin = ProcessStart(monotonic_s=1.0, epoch_ms=10_000)
    assert launch_s({"OSUB_WRAPPER_START_MS": stamp}, begin) == seconds
    assert launch_s({}, begin) == 0.0
