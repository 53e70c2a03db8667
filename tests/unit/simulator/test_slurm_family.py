"""The family of Slurm's schedulers: each option does what Slurm's does, on schedules checked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from osub.cli.main import run

Line = tuple[int, float, int, int, int, int]  # number, submit, run, processors, request, user
AT_ONCE = {"tick": "0", "delay": "0", "every": "0", "resolution": "1", "calc": "0"}
"""Slurm without its looks, and as exact as can be."""


def starts(
    tmp_path: Path,
    lines: Sequence[Line],
    *settings: str,
    system: str = "N2C1",
    multiplicity: int = 1,
    policy: str = "slurm",
) -> dict[int, float]:
    path = tmp_path / "trace.swf"
    path.write_text(
        "".join(
            f"{number} {submit} -1 {run_s} {procs} -1 -1 {procs} {request} -1 1 {user} 1 -1 1 -1 -1 -1\n"
            for number, submit, run_s, procs, request, user in lines
        )
    )
    given = (AT_ONCE if policy == "slurm" else {}) | dict(setting.split("=") for setting in settings)
    words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    words += ["--system", system, "--multiplicity", str(multiplicity), "--policy", policy]
    out = tmp_path / f"run-{multiplicity}"
    assert run(["simulate", str(path), "--out", str(out), *words]) == 0
    rows = pl.read_parquet(out / "jobs.parquet")
    return dict(zip(rows.get_column("trace_job"), rows.get_column("start_s"), strict=True))


BACKFILLABLE = [(1, 0, 100, 1, 100, 1), (2, 1, 50, 2, 50, 1), (3, 2, 40, 1, 40, 1), (4, 3, 300, 1, 300, 1)]


@pytest.mark.parametrize(("interval", "third_s"), [("30", 30), ("7", 7), ("59", 59)])
def test_a_job_is_backfilled_when_the_backfill_scheduler_runs(
    tmp_path: Path, interval: str, third_s: float
) -> None:
    assert starts(tmp_path, BACKFILLABLE, f"interval={interval}") == {1: 0, 2: 100, 3: third_s, 4: 150}


def test_no_job_beyond_the_depth_is_backfilled(tmp_path: Path) -> None:
    assert starts(tmp_path, BACKFILLABLE, "depth=1")[3] == 150


def test_a_job_that_comes_after_a_quiet_time_is_backfilled_at_once(tmp_path: Path) -> None:
    lines = [(1, 0, 300, 1, 300, 1), (2, 150, 50, 2, 50, 1), (3, 260, 30, 1, 30, 1), (4, 261, 20, 1, 20, 1)]
    assert starts(tmp_path, lines, "interval=60") == {1: 0, 2: 300, 3: 260, 4: 350}


@pytest.mark.parametrize(("others", "fourth_s"), [(1, 160), (2, 200)])
def test_in_a_crowd_looks_are_changes_and_the_backfill_scheduler_keeps_its_rhythm(
    tmp_path: Path, others: int, fourth_s: float
) -> None:
    """Every 20 s the main scheduler looks at the first that waits: a change, if another is behind it."""
    wide = [(number, 1, 50, 2, 50, 1) for number in range(2, 2 + others)]
    lines = [(1, 0, 300, 1, 300, 1), *wide, (9, 160, 30, 1, 30, 1)]
    assert starts(tmp_path, lines, "every=20", "interval=50")[9] == fourth_s


def test_the_backfill_scheduler_begins_at_its_phase(tmp_path: Path) -> None:
    assert starts(tmp_path, BACKFILLABLE, "interval=30", "phase=11")[3] == 11


def test_without_backfilling_no_one_overtakes(tmp_path: Path) -> None:
    assert starts(tmp_path, BACKFILLABLE, "backfill=no")[3] == 150


def test_arrivals_wait_for_a_look_and_for_the_time_between_two_that_found_any(tmp_path: Path) -> None:
    lines = [(1, 0, 5, 1, 5, 1), (2, 0.9, 50, 1, 50, 1), (3, 1.1, 5, 2, 5, 1), (4, 80, 5, 1, 5, 1)]
    assert starts(tmp_path, lines, "tick=1", "backfill=no") == {1: 0.5, 2: 1.5, 3: 52.5, 4: 80.5}
    (tmp_path / "delay").mkdir()
    found = starts(tmp_path / "delay", lines, "tick=1", "delay=10", "backfill=no")
    assert found == {1: 0.5, 2: 10.5, 3: 61.5, 4: 81.5}


def test_the_main_scheduler_runs_every_so_often_while_jobs_wait(tmp_path: Path) -> None:
    lines = [(1, 0, 5, 1, 5, 1), (2, 1, 50, 1, 50, 1)]
    assert starts(tmp_path, lines, "delay=100", "every=20", "backfill=no") == {1: 0, 2: 20}


def test_ends_wait_for_a_look_or_do_not(tmp_path: Path) -> None:
    lines = [(1, 0, 10, 2, 10, 1), (2, 1, 10, 2, 10, 1)]
    for ends, second_s in (("wait", 20), ("at-once", 14)):
        (tmp_path / ends).mkdir()
        assert starts(tmp_path / ends, lines, "tick=8", "backfill=no", f"ends={ends}") == {1: 4, 2: second_s}


def test_the_main_scheduler_keeps_its_distance_from_itself(tmp_path: Path) -> None:
    lines = [(1, 0, 5, 1, 5, 1), (2, 3, 5, 1, 5, 1), (3, 15, 5, 1, 5, 1)]
    assert starts(tmp_path, lines, "spacing=10", "backfill=no") == {1: 0, 2: 10, 3: 20}


def test_nodes_are_kept_from_the_last_whole_resolution_on(tmp_path: Path) -> None:
    assert starts(tmp_path, BACKFILLABLE, "resolution=60")[3] == 150


def test_no_nodes_are_kept_beyond_the_window(tmp_path: Path) -> None:
    """When job 3 has ended the start of job 2 is 10 s away, and job 4 takes its node for 300 s."""
    assert starts(tmp_path, BACKFILLABLE, "window=5")[4] == 90


def test_only_so_many_jobs_are_kept_nodes(tmp_path: Path) -> None:
    """Job 2 is kept two nodes from 100 to 150, job 3 all three from then on: job 4 would be in its way."""
    lines = [(1, 0, 100, 2, 100, 1), (2, 1, 50, 2, 50, 1), (3, 2, 200, 3, 200, 1), (4, 3, 160, 1, 160, 1)]
    assert starts(tmp_path, lines, "interval=1", system="N3C1") == {1: 0, 2: 100, 3: 150, 4: 350}
    (tmp_path / "one").mkdir()
    assert starts(tmp_path / "one", lines, "interval=1", "reserve=1", system="N3C1")[4] == 3


def test_kept_nodes_are_kept_whole(tmp_path: Path) -> None:
    """Job 2 takes one of two cores from second 100 on, and job 3 may not have the other for longer."""
    lines = [(1, 0, 100, 2, 100, 1), (2, 1, 50, 1, 50, 1), (3, 2, 50, 1, 50, 1)]
    assert starts(tmp_path, lines, "interval=1", system="N1C2") == {1: 0, 2: 100, 3: 100}


def test_limits_are_whole_minutes(tmp_path: Path) -> None:
    lines = [(1, 0, 100, 1, 100, 1), (2, 1, 50, 2, 50, 1), (3, 2, 40, 1, 61, 1)]
    assert starts(tmp_path, lines, "interval=10")[3] == 10
    (tmp_path / "minutes").mkdir()
    assert starts(tmp_path / "minutes", lines, "interval=10", "limits=1")[3] == 150


def test_limits_of_jobs_that_share_cores_are_times_on_the_wall(tmp_path: Path) -> None:
    """Jobs 1 and 3 share a core until 144; their limits end at 120, and that of job 5 at 131 or later."""
    lines = [
        *((number, 0, 60, 1, 60, 1) for number in (1, 2, 3)),
        (4, 1, 50, 2, 60, 1),
        (5, 71, 10, 1, 20, 1),
    ]
    found = starts(tmp_path, lines, "interval=5", "limits=2", multiplicity=2)
    assert (found[4], found[5]) == (144, 144)
    (tmp_path / "work").mkdir()
    assert starts(tmp_path / "work", lines, "interval=5", multiplicity=2)[5] < 80


def test_nodes_of_a_job_that_has_ended_complete_before_another_starts(tmp_path: Path) -> None:
    lines = [(1, 0, 10, 2, 10, 1), (2, 1, 10, 2, 10, 1)]
    assert starts(tmp_path, lines, "completing=4", "backfill=no") == {1: 0, 2: 14}


def test_who_has_used_less_goes_first_by_fair_share(tmp_path: Path) -> None:
    lines = [(1, 0, 100, 2, 100, 1), (2, 1, 10, 2, 10, 1), (3, 2, 10, 2, 10, 2)]
    assert starts(tmp_path, lines) == {1: 0, 2: 100, 3: 110}
    (tmp_path / "fair").mkdir()
    assert starts(tmp_path / "fair", lines, "fair=1000") == {1: 0, 2: 110, 3: 100}


def test_large_jobs_go_first_by_size_and_old_ones_by_age(tmp_path: Path) -> None:
    lines = [(1, 0, 100, 2, 100, 1), (2, 1, 10, 1, 10, 1), (3, 2, 10, 2, 10, 1)]
    for name, settings, expected in (
        ("size", ["size=10"], {1: 0, 2: 110, 3: 100}),
        ("small", ["size=10", "favour=small"], {1: 0, 2: 100, 3: 110}),
        ("age", ["size=1", "age=1000000"], {1: 0, 2: 100, 3: 110}),
        ("age-not-looked-at", ["size=1", "age=1000000", "calc=1000"], {1: 0, 2: 110, 3: 100}),
    ):
        (tmp_path / name).mkdir()
        assert starts(tmp_path / name, lines, *settings) == expected


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("interval=0", "--set interval takes a number from 0.001 to 1e+09, not '0'"),
        ("depth=many", "--set depth takes a whole number from 0 to 1e+09, not 'many'"),
        ("fair=-1", "--set fair takes a number from 0"),
        ("sorcery=1", "policy slurm has no option 'sorcery'"),
    ],
)
def test_values_that_cannot_be_are_refused(
    setting: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.swf").write_text("1 0 -1 5 1 -1 -1 1 5 -1 1 1 1 -1 1 -1 -1 -1\n")
    words = ["--system", "N1C1", "--policy", "slurm", "--set", setting, "--out", str(tmp_path / "run")]
    assert run(["simulate", str(tmp_path / "t.swf"), *words]) == 2
    assert told in capsys.readouterr().err


STREAM = [(1, 0, 1000, 1, 1000, 1), (2, 0, 200, 1, 200, 1), (3, 10, 100, 2, 100, 2)]
STREAM += [(4 + at, 20 + 100 * at, 300, 1, 300, 3) for at in range(20)]


@pytest.mark.parametrize("policy", ["easy", "easy-elsewhere"])
def test_a_wide_job_keeps_its_reservation_in_a_stream_of_small_ones(tmp_path: Path, policy: str) -> None:
    """Job 3 needs both nodes: no small job starts that would still run when the first node is free."""
    found = starts(tmp_path, STREAM, policy=policy)
    assert [found[job] for job in range(1, 8)] == [0, 0, 1000, 200, 500, 1100, 1100]
    assert [found[job] for job in range(8, 24)] == [1400 + 300 * (at // 2) for at in range(16)]


def test_slurm_keeps_nodes_for_a_wide_job_in_a_stream_of_small_ones(tmp_path: Path) -> None:
    found = starts(tmp_path, STREAM)
    assert found[3] == 1000
    assert not any(700 < found[job] < 1000 for job in range(4, 24))
    assert starts(tmp_path, STREAM, multiplicity=2)[3] == 10
