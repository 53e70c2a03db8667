"""Why a job failed is told in its own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.one_line import last_words

UNREADABLE = """\
rrba: cannot read calibration c.json: No such file or directory
srun: error: n1: task 0: Exited with exit code 1
"""
NO_MPI = """\
Fatal error in internal_Init_thread: Other MPI error, error stack:
shm_open failed: Permission denied
Abort(15) on node 0
srun: error: n1: tasks 0-1: Exited with exit code 15

"""


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (UNREADABLE, "rrba: cannot read calibration c.json: No such file or directory"),
        (NO_MPI, "shm_open failed: Permission denied"),
        ("slurmstepd: error: killed\n", "slurmstepd: error: killed"),
        ("", None),
        ("\n\n", None),
    ],
)
def test_the_jobs_own_words_come_before_the_launchers(tmp_path: Path, output: str, told: str | None) -> None:
    (tmp_path / "1.out").write_text(output)
    assert last_words(tmp_path / "1.out") == told


def test_an_output_that_is_not_there_or_endless_is_no_obstacle(tmp_path: Path) -> None:
    assert last_words(tmp_path / "none.out") is None
    (tmp_path / "1.out").write_bytes(b"\xff" * 1_000_000 + b"\nrrba: the end\n")
    assert last_words(tmp_path / "1.out") == "rrba: the end"
