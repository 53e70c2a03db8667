"""A job that names a preceding one is submitted when that one has ended and its think time is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foundation.records import load_run
from submitter.plan.replay_options import ReplayOptions
from submitter.plan.replay_plan import left_out
from submitter.replay.begin_run import draw_up, dry_run
from submitter.replay.replay_progress import ReplayProgress, Wish
from tests.fixtures.fake_slurm import FakeSlurm, SubmitFault
from tests.fixtures.replay_world import World, make_world, planned, rows
from workloads.swf import read_swf

RUN_S = 3.0
LATE_S = 1.5  # an end is learnt of with the next answer, a second later at most


def linked(path: Path, *jobs: tuple[float, int, float], run_s: float = RUN_S) -> Path:
    """Write jobs of (submit, preceding, think)."""
    path.write_text(
        "".join(
            f"{number} {submit} -1 {run_s} 1 -1 -1 1 60 -1 1 1 1 -1 1 -1 {before} {think}\n"
            for number, (submit, before, think) in enumerate(jobs, start=1)
        )
    )
    return path


CHAIN = ((0, -1, -1), (1, 1, 5), (2, 2, 0), (30, -1, -1), (40, 1, 2))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return linked(tmp_path / "chain.swf", *CHAIN)


def check(found: Sequence[dict[str, Any]]) -> None:
    ends = {row["trace_job"]: row["end_s"] for row in found}
    dues = {row["trace_job"]: row["due_s"] for row in found}
    assert dues == {1: 0, 2: pytest.approx(ends[1] + 5), 3: pytest.approx(ends[2]), 4: 30, 5: ends[1] + 2}
    for row in found:
        assert row["state"] == "COMPLETED"
        assert 0 <= row["submitted_s"] - row["due_s"] < LATE_S


def test_the_submission_waits_for_the_preceding_end_and_the_think_time(trace: Path, tmp_path: Path) -> None:
    run = make_world(tmp_path, run_s=RUN_S).replay(trace)
    check(rows(run))
    assert [job.preceding_job for job in read_swf(run.path / "trace.swf.gz").jobs] == [None, 1, 2, None, 1]


def test_without_dependencies_the_trace_of_the_run_has_none(trace: Path, tmp_path: Path) -> None:
    run = make_world(tmp_path, run_s=RUN_S).replay(trace, ReplayOptions(dependencies=False))
    assert [row["due_s"] for row in rows(run)] == [0, 1, 2, 30, 40]
    assert {job.preceding_job for job in read_swf(run.path / "trace.swf.gz").jobs} == {None}


@pytest.mark.parametrize("at_s", [1.0, 4.5, 9.2, 20.0])
def test_a_resumed_replay_goes_on_with_the_chain(trace: Path, tmp_path: Path, at_s: float) -> None:
    world = make_world(tmp_path, run_s=RUN_S)
    began = world.now

    def detach(_: ReplayProgress) -> Wish:
        return Wish.DETACH if world.now > began + at_s else Wish.GO_ON

    assert not world.begin(trace).run(detach)
    assert world.resume().run(world.limit(200.0))
    check(rows(load_run(world.out)))


def test_an_answer_lost_for_a_dependent_job_makes_no_second_one(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=RUN_S)
    world.slurm.faults.extend([None, SubmitFault.LOST_ANSWER, None])
    assert [row["state"] for row in rows(world.replay(trace))] == ["COMPLETED"] * 5


def test_a_preceding_job_that_was_refused_holds_none_back(tmp_path: Path) -> None:
    world: World = make_world(tmp_path, run_s=RUN_S)
    world.slurm.faults.append(SubmitFault.REFUSED)
    trace = linked(tmp_path / "t.swf", (0, -1, -1), (2, 1, 50), (3, 1, -1))
    found = rows(world.replay(trace))
    assert [(row["state"], row["due_s"]) for row in found] == [
        ("REFUSED", 0),
        ("COMPLETED", 2),
        ("COMPLETED", 3),
    ]


def test_links_to_no_earlier_job_of_the_plan_are_counted(tmp_path: Path) -> None:
    jobs = ((0, 3, 5), (1, 2, 5), (2, 9, 5), (3, 1, 7), (4, 5, -1))
    trace = linked(tmp_path / "t.swf", *jobs)
    slurm, options = FakeSlurm(nodes=2, cores=1, multiplicity=2), ReplayOptions(run_id="feed")
    drawn = draw_up(trace, slurm, options, None)
    assert [job.after for job in drawn.plan.jobs] == [None, None, None, 1, None]
    assert drawn.plan.unlinked == 3
    assert any("3 of 5 jobs submitted at their own times" in line for line in left_out(drawn.plan))
    shown = list(dry_run(drawn.plan, drawn.target, options, tmp_path / "a run"))
    assert shown[3].startswith("# 7.000 s after the end of job 1: sbatch")


def test_when_a_job_is_due_after_another() -> None:
    job = planned(2, due_s=20.0, after=1, think_s=4.0)
    assert [job.due_after(end_s) for end_s in (None, 10.0, 30.0)] == [20.0, 14.0, 34.0]
    unknown = replace(job, think_s=None)
    assert [unknown.due_after(end_s) for end_s in (None, 10.0, 30.0)] == [20.0, 20.0, 30.0]
