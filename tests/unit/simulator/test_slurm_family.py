"""The family of Slurm's schedulers: each option does what Slurm's does, on schedules checked by hand."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from osub.cli.main import run

Line = tuple[int, int, int, int, int, int]  # number, submit, run, processors, request, user


def starts(tmp_path: Path, lines: list[Line], *settings: str, system: str = "N2C1") -> dict[int, float]:
    path = tmp_path / "trace.swf"
    path.write_text(
        "".join(
            f"{number} {submit} -1 {run_s} {procs} -1 -1 {procs} {request} -1 1 {user} 1 -1 1 -1 -1 -1\n"
            for number, submit, run_s, procs, request, user in lines
        )
    )
    words = [word for setting in settings for word in ("--set", setting)]
    out = tmp_path / "run"
    assert (
        run(["simulate", str(path), "--system", system, "--policy", "slurm", "--out", str(out), *words]) == 0
    )
    rows = pl.read_parquet(out / "jobs.parquet")
    return dict(zip(rows.get_column("trace_job"), rows.get_column("start_s"), strict=True))


BACKFILLABLE = [(1, 0, 100, 1, 100, 1), (2, 1, 50, 2, 50, 1), (3, 2, 40, 1, 40, 1), (4, 3, 300, 1, 300, 1)]


@pytest.mark.parametrize(("interval", "third_s"), [("30", 30), ("7", 7), ("60", 60)])
def test_a_job_is_backfilled_when_the_backfill_scheduler_runs(
    tmp_path: Path, interval: str, third_s: float
) -> None:
    assert starts(tmp_path, BACKFILLABLE, f"interval={interval}") == {1: 0, 2: 100, 3: third_s, 4: 150}


def test_no_job_beyond_the_depth_is_backfilled(tmp_path: Path) -> None:
    assert starts(tmp_path, BACKFILLABLE, "depth=1")[3] == 150


def test_the_main_scheduler_waits_for_its_tick(tmp_path: Path) -> None:
    found = starts(tmp_path, [(1, 0, 5, 1, 5, 1), (2, 3, 5, 1, 5, 1), (3, 15, 5, 1, 5, 1)], "tick=10")
    assert found == {1: 0, 2: 10, 3: 20}


def test_nodes_of_a_job_that_has_ended_complete_before_another_starts(tmp_path: Path) -> None:
    lines = [(1, 0, 10, 2, 10, 1), (2, 1, 10, 2, 10, 1)]
    assert starts(tmp_path, lines, "completing=4") == {1: 0, 2: 14}


def test_who_has_used_less_goes_first_by_fair_share(tmp_path: Path) -> None:
    lines = [(1, 0, 100, 2, 100, 1), (2, 1, 10, 2, 10, 1), (3, 2, 10, 2, 10, 2)]
    assert starts(tmp_path, lines) == {1: 0, 2: 100, 3: 110}
    (tmp_path / "fair").mkdir()
    assert starts(tmp_path / "fair", lines, "fair=1000") == {1: 0, 2: 110, 3: 100}


def test_large_jobs_go_first_by_size_and_old_ones_by_age(tmp_path: Path) -> None:
    lines = [(1, 0, 100, 2, 100, 1), (2, 1, 10, 1, 10, 1), (3, 2, 10, 2, 10, 1)]
    for name, settings, expected in (
        ("size", ["size=10"], {1: 0, 2: 110, 3: 100}),
        ("age", ["size=1", "age=1000000"], {1: 0, 2: 100, 3: 110}),
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
