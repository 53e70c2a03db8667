"""A run in which jobs hung or failed is unfit as a reference, and the first line says which, and where."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest

from analysis.metrics import job_faults
from analysis.metrics.run_metrics import measure
from analysis.report_parts import answered
from analysis.verdict import verdict_of
from analysis.verdict.verdict_in_terminal import verdict_lines
from foundation.records import Run
from tests.unit.analysis.test_verdict import made_run


def with_fault(run: Run, state: str | None, *jobs: int, **columns: object) -> Run:
    """Return the run with jobs, 3 where none is named, that ended in ``state``, or have no end."""
    chosen = pl.col("trace_job").is_in(jobs or (3,))
    changed = {"state": state, **columns}
    return replace(
        run,
        jobs=run.jobs.with_columns(
            pl.when(chosen).then(pl.lit(value)).otherwise(pl.col(name)).alias(name)
            for name, value in changed.items()
        ),
    )


def said(run: Run, job: int, text: str) -> None:
    (run.path / "jobs").mkdir(exist_ok=True)
    (run.path / "jobs" / f"{job}.out").write_text(text, encoding="utf-8")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return made_run(tmp_path, "alone", wait_s=10, degradation=1.0, jobs=50)


def test_one_fault_below_a_hundred_jobs_is_reported_with_job_line_and_path(run: Run) -> None:
    said(run, 3, "MPI is up\nrrba: cannot reach rank 1\nsrun: error: n2: task 1: Killed\n")
    faults = job_faults(with_fault(run, "TIMEOUT"))
    assert faults is not None
    assert faults.startswith(
        "1 of 50 jobs hung, failed or never ended; job 3 first: killed at its time limit"
    )
    assert "its last line: rrba: cannot reach rank 1" in faults
    assert str(run.path / "jobs" / "3.out") in faults
    assert measure(with_fault(run, "TIMEOUT")).unfit == faults


def test_jobs_that_were_cancelled_with_their_replay_neither_hung_nor_failed(run: Run) -> None:
    (run.path / "log.jsonl").write_text('{"at":"x","kind":"cancelled","left":2,"after_s":32.4}\n')
    faults = job_faults(with_fault(run, "CANCELLED", 3, 9))
    assert faults is not None
    assert faults.startswith(
        "the replay was cancelled after 32 s, when 2 of 50 jobs had not ended; job 3 first"
    )
    said(run, 3, "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***\n")
    cancelled = job_faults(with_fault(run, "CANCELLED", 3, 9))
    assert cancelled is not None
    assert "CANCELLED AT" not in cancelled
    assert str(run.path / "jobs" / "3.out") in cancelled
    hung = job_faults(with_fault(with_fault(run, "CANCELLED", 9), "TIMEOUT", 3))
    assert hung is not None
    assert hung.startswith("2 of 50 jobs hung, failed or never ended")


def test_the_first_is_the_one_that_began_first(run: Run) -> None:
    hung = with_fault(with_fault(run, "CANCELLED", 7, 9), "CANCELLED", 2, start_s=None)
    faults = job_faults(hung)
    assert faults is not None
    assert faults.startswith("3 of 50 jobs")
    assert "job 7 first: cancelled after" in faults
    assert "it left no output" in faults


@pytest.mark.parametrize(
    ("state", "columns"),
    [
        ("COMPLETED", {}),
        ("REFUSED", {}),
        ("FAILED", {"app": "their-own"}),
        ("TIMEOUT", {"requested_s": 50.0}),  # it asked for less than it takes
        ("CANCELLED", {"preemptions": 1}),
    ],
)
def test_what_a_trace_or_a_user_or_a_policy_wants_is_no_fault(
    run: Run, state: str, columns: dict[str, object]
) -> None:
    assert job_faults(with_fault(run, state, **columns)) is None


@pytest.mark.parametrize(
    ("state", "columns", "reported_as"),
    [
        ("FAILED", {"app": "rrba", "exit_code": 9}, "failed with exit code 9"),
        ("NODE_FAIL", {}, "its node failed"),
        ("LOST", {"end_s": None}, "its end is not known"),
        (None, {"end_s": None}, "its end is not known"),
        ("CANCELLED", {"start_s": None}, "never started"),
    ],
)
def test_what_became_of_a_job_is_named(
    run: Run, state: str | None, columns: dict[str, object], reported_as: str
) -> None:
    faults = job_faults(with_fault(run, state, **columns))
    assert faults is not None
    assert f"job 3 first: {reported_as}" in faults


def test_more_than_one_per_cent_of_many_jobs_is_too_much(tmp_path: Path) -> None:
    run = made_run(tmp_path, "alone", wait_s=10, degradation=1.0, jobs=200)
    assert job_faults(with_fault(run, "TIMEOUT", 1, 2)) is None
    assert job_faults(with_fault(run, "TIMEOUT", 1, 2, 3)) is not None


def test_output_that_is_no_plain_file_is_neither_followed_nor_waited_for(run: Run, tmp_path: Path) -> None:
    (run.path / "jobs").mkdir()
    os.mkfifo(run.path / "jobs" / "3.out")
    assert "it left no output" in str(job_faults(with_fault(run, "TIMEOUT")))
    (tmp_path / "secret").write_text("rrba: hidden words\n", encoding="utf-8")
    (run.path / "jobs" / "3.out").unlink()
    (run.path / "jobs" / "3.out").symlink_to(tmp_path / "secret")
    assert "hidden words" not in str(job_faults(with_fault(run, "TIMEOUT")))


def test_the_first_line_says_it_and_blames_no_host(run: Run, tmp_path: Path) -> None:
    shared = made_run(tmp_path, "shared", wait_s=100, degradation=1.0, jobs=50, multiplicity=2)
    verdict = verdict_of([with_fault(run, "TIMEOUT"), shared])
    first = str(next(verdict_lines(verdict)))
    assert first.startswith("Nothing here can be concluded. alone is unfit to judge by: 1 of 50 jobs hung")
    assert "calm host" not in first
    assert (verdict.answer, verdict.findings[0].answer) == ("", "unclear")
    assert answered(verdict)[0].words == verdict.evidence[0]
    (alone,) = verdict_lines(verdict_of([with_fault(run, "TIMEOUT")]))
    assert str(alone).startswith("Unfit as a reference. alone is unfit to judge by: 1 of 50 jobs hung")


def test_a_simulated_run_has_no_job_faults(run: Run) -> None:
    simulated = replace(run, info=msgspec.structs.replace(run.info, kind="simulated"))
    assert measure(with_fault(simulated, "TIMEOUT")).unfit is None


def test_of_several_unfit_runs_the_reference_is_reported_whole_and_the_others_in_a_word(
    run: Run, tmp_path: Path
) -> None:
    shared = made_run(tmp_path, "shared", wait_s=100, degradation=1.0, jobs=50, multiplicity=2)
    verdict = verdict_of([with_fault(run, "TIMEOUT"), with_fault(shared, "LOST", 1, 2)])
    said = verdict.evidence[0]
    assert said.startswith(
        "alone is unfit to judge by: 1 of 50 jobs hung, failed or never ended; job 3 first"
    )
    assert "Unfit, too: shared (2 of 50 jobs hung, failed or never ended)." in said
    assert list(verdict.unfit) == ["alone", "shared"]


def test_a_run_that_goes_on_is_not_finished_and_its_open_jobs_are_no_faults(run: Run) -> None:
    live = replace(with_fault(run, None, 49, 50, end_s=None), complete=False)
    assert job_faults(live) is None
    assert measure(live).unfit == "it is not finished"
    assert job_faults(with_fault(live, "TIMEOUT")) is not None
