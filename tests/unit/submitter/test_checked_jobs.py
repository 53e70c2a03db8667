"""Which jobs are checked, where not all of them are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foundation.errors import InputError
from osub.live.alone import _spread, check_jobs


class Job:
    def __init__(self, dedicated_s: float) -> None:
        self.dedicated_s = dedicated_s


def chosen(most: int | None) -> list[float]:
    jobs: Any = [(s, Job(s), None) for s in (5.0, 1.0, 3.0, 4.0, 2.0)]
    return [target_s for target_s, _, _ in _spread(jobs, most)]


def test_some_jobs_are_spread_over_the_targets_and_one_is_the_middle_one() -> None:
    assert chosen(None) == chosen(9) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert chosen(3) == [1.0, 3.0, 5.0]
    assert chosen(2) == [1.0, 5.0]
    assert chosen(1) == [3.0]


def test_step_times_that_are_not_there_are_reported_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no .*steps.json: `osub workloads calibrate` makes one"):
        check_jobs(
            tmp_path,
            tmp_path / "t.swf",
            None,
            tmp_path / "steps.json",
            speedup=1.0,
            interactive_queue=0,
            most=1,
            tell=lambda _: None,
        )
