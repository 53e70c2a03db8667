"""Commands of workloads, the page of traces, mixes of coupled jobs."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from foundation.errors import UsageError
from submitter.plan.replay_plan import read_apps
from tests.fixtures.cli import Cli
from workloads.rrba.calibration_kinds import kind_of, target_of
from workloads.swf import SwfJob
from workloads.trace.models.interactive_jobs import (
    BATCH_QUEUE,
    INTERACTIVE_QUEUE,
    JOBS_A_BLOCK,
    JOBS_A_PAIR,
    LEAST_BLOCKS,
    SHORTEST_S,
    START_S,
    coupled_mix,
)
from workloads.trace.scaling.miniature import fcfs_makespan_s

TRACE = "".join(
    f"{number} 0 -1 {seconds} {procs} -1 -1 {procs} 60 -1 1 1 1 -1 {queue} -1 -1 -1\n"
    for number, seconds, procs, queue in (
        (1, 100, 1, 1), (2, 50, 2, 1), (3, 70, 3, 1), (4, 10, 1, 0), (5, 0, 1, 1),
    )
)  # fmt: skip


def test_assigned_applications_are_a_table_for_the_replay(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "t.swf").write_text(TRACE)
    words = ["workloads", "assign", str(tmp_path / "t.swf"), "--out", str(tmp_path / "apps.csv")]
    answer = cli.json(*words, "--speedup", "10", "--class", "S", "--json")
    # Not the interactive job, nor the one that never ran.
    assert (answer["jobs"], sum(answer["applications"].values())) == (3, 3)
    choices = read_apps(tmp_path / "apps.csv")
    assert set(choices) == {1, 2, 3}
    assert [target_of(choices[job].args) for job in (1, 2, 3)] == [10.0, 5.0, 7.0]
    for job in (1, 2, 3):
        assert choices[job].app == "rrba"
        kind_of(choices[job].args, job, 1)
    assert kind_of(choices[3].args, 3, 1).app == "jacobi"


@pytest.mark.slow
def test_kernels_are_compiled_into_a_folder_that_is_named(cli: Cli) -> None:
    assert Path(cli.json("workloads", "compile", "--json")["folder"]).is_dir()


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        ([], 2, "nothing to calibrate"),
        (["--app", "bt.A", "--ranks", "2"], 2, "square number of ranks"),
        (["--app", "bt.Z"], 2, "bt has S, W, A, B, C"),
        (["--app", "lu.S"], 1, "has no slurm.conf"),
    ],
)
def test_calibration_that_cannot_be_made_is_refused(
    tmp_path: Path, cli: Cli, words: list[str], code: int, complaint: str
) -> None:
    where = ["--cluster", str(tmp_path), "--calibration", str(tmp_path / "steps.json")]
    assert complaint in cli("workloads", "calibrate", *where, *words, code=code).err
    assert not (tmp_path / "steps.json").exists()


PAGE = Path(__file__).resolve().parents[3] / "docs" / "traces.md"


@pytest.mark.slow
def test_examples_of_the_page_work() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("procs", [2, 3, 8, 12, 64])
@pytest.mark.parametrize("target_s", [13.0, 25.0, 53.0, 300.0])
def test_one_job_a_core_takes_about_the_time_asked_for(procs: int, target_s: float) -> None:
    mix = coupled_mix(procs, target_s)
    assert len(mix.trace.jobs) == mix.block_jobs * mix.blocks
    assert mix.blocks >= LEAST_BLOCKS
    assert (mix.block_jobs == JOBS_A_BLOCK) == (target_s > 52.8)
    assert mix.run_s >= SHORTEST_S
    assert 0.85 * target_s <= fcfs_makespan_s(mix.trace.jobs, mix.procs, START_S) <= 1.05 * target_s


def test_a_short_replay_has_pairs_alone_and_enough_of_them_for_an_interval() -> None:
    mix = coupled_mix(2, 20.0)
    assert (mix.blocks, mix.block_jobs, mix.run_s) == (4, JOBS_A_PAIR, 1.6)
    assert {job.procs for job in mix.trace.jobs} == {2}
    assert [job.submit_s for job in mix.trace.jobs] == [0.0, 0.1, 5.0, 5.1, 10.0, 10.1, 15.0, 15.1]


def described(job: SwfJob, begin_s: float) -> tuple[float, object]:
    return round(job.submit_s - begin_s, 1), (job.run_s, job.procs, job.queue, job.pattern)


def test_every_block_has_the_same_jobs_at_the_same_distances() -> None:
    mix = coupled_mix(4, 120.0)
    blocks = [mix.trace.jobs[at : at + JOBS_A_BLOCK] for at in range(0, len(mix.trace.jobs), JOBS_A_BLOCK)]
    assert len(blocks) == mix.blocks >= 5
    for block in blocks:
        begin_s = block[0].submit_s
        kinds = [described(job, begin_s) for job in block]
        first = [described(job, 0.0) for job in blocks[0]]
        # Submit times are rounded to a tenth of a second.
        assert [kind[1:] for kind in kinds] == [kind[1:] for kind in first]
        assert all(abs(one[0] - other[0]) < 0.15 for one, other in zip(kinds, first, strict=True))


def test_coupled_jobs_have_a_power_of_two_of_ranks_and_interactive_ones_are_mostly_idle() -> None:
    mix = coupled_mix(6, 90.0)
    coupled = [job for job in mix.trace.jobs if job.job_number in mix.coupled]
    assert {job.procs for job in coupled} == {4}
    assert {job.queue for job in coupled} == {BATCH_QUEUE}
    others = [job for job in mix.trace.jobs if job.job_number not in mix.coupled]
    assert {job.queue for job in others} == {INTERACTIVE_QUEUE}
    assert all(job.pattern is not None for job in others)
    assert coupled_mix(6, 90.0, seed=1).trace == mix.trace


def test_too_little_time_or_one_processor_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="too short for jobs that show anything; it takes 13 s at least"):
        coupled_mix(2, 5.0)
    with pytest.raises(UsageError, match="need two processors"):
        coupled_mix(1, 60.0)
