"""Plans of replays: checks, scripts, dry runs."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import InputError, UsageError
from foundation.records import GangSettings
from osub.live.alone import _spread, check_jobs
from submitter.plan.replay_options import ReplayOptions
from submitter.plan.replay_plan import (
    AppChoice,
    PlanOptions,
    ReplayOversize,
    batch_script,
    left_out,
    make_plan,
    read_apps,
)
from submitter.plan.target_cluster import PartitionPool, TargetCluster
from submitter.replay.begin_run import draw_up, dry_run
from tests.fixtures.fake_slurm import FakeSlurm
from tests.fixtures.replay_world import planned, write_trace
from workloads.job_shape import JobShape, job_shape
from workloads.swf import InteractivePattern, SwfHeader, SwfJob, SwfTrace

POOL = PartitionPool(
    partition="main", names=("a", "b", "c", "d"), cores=8, threads=1, memory_mib=8000, multiplicity=2
)

TARGET = TargetCluster(node_names=("a", "b", "c", "d"), cores=8, batch=POOL, interactive=POOL)


def job(number: int = 1, **fields: object) -> SwfJob:
    known: dict[str, object] = {"submit_s": 0.0, "run_s": 10, "allocated_procs": 1, "queue": 1}
    return SwfJob(job_number=number, **(known | fields))  # type: ignore[arg-type]


def trace(*jobs: SwfJob) -> SwfTrace:
    return SwfTrace(SwfHeader(), jobs)


def test_a_batch_job_becomes_an_rrba_with_its_run_time() -> None:
    (planned,) = make_plan(
        trace(job(allocated_procs=16, run_s=90, requested_s=100)), TARGET, PlanOptions()
    ).jobs
    assert (planned.kind, planned.app, planned.args) == (
        "batch",
        "rrba",
        ("--app", "jacobi", "--target-s", "90"),
    )
    assert (planned.nodes, planned.cores_per_node, planned.limit_minutes) == (2, 8, 2)


def test_an_interactive_job_becomes_an_eiba_with_its_periods() -> None:
    """Thesis section 6.3.3: job B is "5 5 2 5 20 15": idle 5, busy 5, idle 15, busy 20, idle 5."""
    pattern = InteractivePattern(5, 5, (5, 20), (15,))
    session = job(queue=0, run_s=50, extension=pattern.to_extension())
    (planned,) = make_plan(trace(session), TARGET, PlanOptions()).jobs
    assert (planned.kind, planned.app) == ("interactive", "eiba")
    assert (planned.args, planned.busy_s) == (("5", "5", "5", "15", "20", "5"), 25)


def test_without_gang_scheduling_the_request_is_multiplied_and_rounded_up_to_minutes() -> None:
    one = make_plan(trace(job(requested_s=61)), TARGET, PlanOptions(request_factor=2)).jobs[0]
    assert (one.limit_minutes, one.requested_s) == (3, 61)


def test_a_request_below_the_run_time_is_raised_to_it() -> None:
    assert make_plan(trace(job(requested_s=1, run_s=10)), TARGET, PlanOptions()).jobs[0].requested_s == 10


def test_jobs_are_ordered_by_submission_and_ties_keep_their_order() -> None:
    jobs = trace(job(3, submit_s=5.0), job(2, submit_s=0.0), job(1, submit_s=5.0))
    assert [planned.trace_job for planned in make_plan(jobs, TARGET, PlanOptions()).jobs] == [2, 3, 1]


def test_jobs_that_do_not_run_are_counted() -> None:
    plan = make_plan(trace(job(1), job(2, run_s=0), job(3, run_s=None)), TARGET, PlanOptions())
    assert (len(plan.jobs), plan.skipped_empty) == (1, 2)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([job(7, allocated_procs=33)], r"job 7 asks for 33 cores .* --oversize skip or clip"),
        ([], "no job to replay"),
        ([job(run_s=0)], "no job to replay"),
        ([job(1), job(1)], "job 1 twice"),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_an_error(jobs: list[SwfJob], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_plan(trace(*jobs), TARGET, PlanOptions(oversize=ReplayOversize.FAIL))


def test_oversize_jobs_can_be_skipped_or_clipped() -> None:
    jobs = trace(job(1), job(7, allocated_procs=33))
    skipped = make_plan(jobs, TARGET, PlanOptions(oversize=ReplayOversize.SKIP))
    clipped = make_plan(jobs, TARGET, PlanOptions(oversize=ReplayOversize.CLIP))
    assert (len(skipped.jobs), skipped.skipped_oversize) == (1, 1)
    assert (clipped.jobs[1].cores, clipped.clipped_oversize) == (32, 1)


def test_some_oversize_jobs_are_left_out_and_reported_and_most_are_an_error() -> None:
    several = [job(number, allocated_procs=33 if number == 3 else 1) for number in (1, 2, 3)]
    plan = make_plan(trace(*several), TARGET, PlanOptions())
    assert len(plan.jobs) == 2
    assert left_out(plan) == ["1 of 3 jobs left out: larger than the cluster, they can never run"]
    several = [job(number, allocated_procs=1 if number == 3 else 33) for number in (1, 2, 3)]
    with pytest.raises(InputError, match=r"2 of 3 jobs of trace .* can never run on .* --fit .* --oversize"):
        make_plan(trace(*several), TARGET, PlanOptions())


def test_memory_is_asked_for_a_core_and_cut_to_what_a_node_has() -> None:
    jobs = trace(job(1, requested_memory_kib=1025.0), job(2, used_memory_kib=9e7, allocated_procs=8), job(3))
    plan = make_plan(jobs, TARGET, PlanOptions())
    assert [planned.memory_per_core_mib for planned in plan.jobs] == [2, 1000, None]
    assert plan.clipped_memory == 1


def test_a_table_of_applications_wins() -> None:
    choice = AppChoice("/opt/lu", ("a", "b c"))
    (planned,) = make_plan(trace(job(1)), TARGET, PlanOptions(), {1: choice}).jobs
    assert (planned.app, planned.args) == ("/opt/lu", ("a", "b c"))
    with pytest.raises(UsageError, match="such as 9"):
        make_plan(trace(job(1)), TARGET, PlanOptions(), {9: choice})


def test_the_table_is_read_and_its_faults_are_reported_with_the_line(tmp_path: Path) -> None:
    (table := tmp_path / "apps.csv").write_text('trace_job,app,args\n3,eiba,"2 0 1"\n')
    assert read_apps(table) == {3: AppChoice("eiba", ("2", "0", "1"))}
    for text, complaint in [
        ("job,app\n", "must begin"),
        ("trace_job,app,args\nx,eiba,\n", "line 2"),
        ("trace_job,app,args\n1,eiba,\n1,eiba,\n", "job 1 again"),
        ("trace_job,app,args\n1,eiba,'\n", "line 2"),
    ]:
        table.write_text(text)
        with pytest.raises(UsageError, match=complaint):
            read_apps(table)
    with pytest.raises(InputError):
        read_apps(tmp_path / "missing.csv")


def test_shapes_follow_the_thesis() -> None:
    """Section 5.2.4: 16 cores on eight-core nodes are n2c8; 15 are n3c5, and n5c3 where memory is short."""
    assert job_shape(16, 16, 8) == JobShape(2, 8)
    assert job_shape(15, 16, 8) == JobShape(3, 5)
    assert job_shape(15, 16, 8, memory_mib=1000, node_memory_mib=4000) == JobShape(5, 3)
    assert job_shape(17, 4, 8) is None


@given(st.integers(1, 200), st.integers(1, 12), st.integers(1, 16))
def test_a_shape_is_the_job_and_fits(procs: int, nodes: int, cores: int) -> None:
    shape = job_shape(procs, nodes, cores)
    if shape is None:
        assert not any(procs % n == 0 and procs // n <= cores for n in range(1, nodes + 1))
    else:
        assert shape.nodes * shape.cores == procs
        assert shape.nodes <= nodes
        assert shape.cores <= cores


LIMITED = replace(POOL, most_minutes=3, most_nodes=2)
SHORT = replace(TARGET, batch=LIMITED, interactive=LIMITED)


def test_a_job_that_can_never_start_for_its_limit_is_reported_before_anything_is_submitted() -> None:
    """120 s are within the partition's three minutes, twice as much is not."""
    ours = trace(job(requested_s=120))
    assert make_plan(ours, SHORT, PlanOptions()).jobs[0].limit_minutes == 2
    with pytest.raises(
        InputError, match=r"job 1 asks for 4 minutes, 2 times its own, .*main gives 3 at most"
    ):
        make_plan(ours, SHORT, PlanOptions(request_factor=2, oversize=ReplayOversize.FAIL))


def test_jobs_beyond_the_limit_are_left_out_or_get_what_there_is() -> None:
    ours = trace(job(1, requested_s=600), job(2, requested_s=60))
    left = make_plan(ours, SHORT, PlanOptions(oversize=ReplayOversize.SKIP))
    assert ([one.trace_job for one in left.jobs], left.skipped_limit) == ([2], 1)
    cut = make_plan(ours, SHORT, PlanOptions(oversize=ReplayOversize.CLIP))
    assert ([one.limit_minutes for one in cut.jobs], cut.clipped_limit) == ([3, 1], 1)
    assert cut.jobs[0].requested_s == 600


def test_a_job_that_needs_more_nodes_than_its_partition_gives_can_never_run() -> None:
    with pytest.raises(InputError, match="can never run"):
        make_plan(trace(job(allocated_procs=24)), SHORT, PlanOptions())
    assert make_plan(trace(job(allocated_procs=16)), SHORT, PlanOptions()).jobs[0].nodes == 2


def test_interactive_jobs_are_given_time_for_their_own_nodes_multiplicity() -> None:
    ours = trace(job(1, queue=0, requested_s=60), job(2, requested_s=60))
    plan = make_plan(ours, TARGET, PlanOptions(request_factor=2, interactive_factor=4))
    assert [one.limit_minutes for one in plan.jobs] == [4, 2]
    assert ReplayOptions().plan_options(2, 4) == PlanOptions(request_factor=2, interactive_factor=4)
    gang = ReplayOptions(gang=GangSettings(kind="osub")).plan_options(2, 4)
    assert (gang.factor(interactive=True), gang.factor(interactive=False)) == (1, 1)


SCONTROL = """#!/bin/sh
case "$*" in
"show -d job 7") cat <<'END'
JobId=7 JobName=x Nodes=a CPU_IDs=1 Mem=1
   JOB_GRES=(null)
     Nodes=n[1-2] CPU_IDs=0-1 Mem=64 GRES=
     Nodes=n4 CPU_IDs=3 Mem=32 GRES=
   Command=/run/x Nodes=b CPU_IDs=2 Mem=1
   WorkDir=/run/x Nodes=c CPU_IDs=3 Mem=1
END
;;
"show hostnames n[1-2]") echo n1; echo n2 ;;
"show hostnames n4") echo n4 ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac
"""


def run(folder: Path, tools: Path, *, pin: bool = False) -> subprocess.CompletedProcess[str]:
    (folder / "jobs").mkdir(parents=True)
    job = planned(3, app="sh", args=("-c", 'printf %s "$OSUB_JOB_CORES"; exit 4'))
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    return subprocess.run(
        ["sh"], input=batch_script(job, folder, pin=pin), env=environment, capture_output=True,
        text=True, timeout=30, check=False,
    )  # fmt: skip


def test_a_folder_of_any_name_gets_the_stamps_and_runs_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a\ntouch proof #'\"; $(touch proof)\n"
    done = run(folder, tmp_path)
    assert (done.returncode, done.stderr) == (4, "")
    assert json.loads((folder / "jobs" / "3.end").read_text())["exit_code"] == 4
    assert not Path("proof").exists()


def test_cores_are_read_from_slurms_own_lines(tmp_path: Path) -> None:
    (tool := tmp_path / "scontrol").write_text(SCONTROL)
    tool.chmod(0o755)
    done = run(tmp_path / "run", tmp_path, pin=True)
    assert (done.stdout, done.stderr) == ("n1:0-1;n2:0-1;n4:3", "")


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
            tmp_path, tmp_path / "t.swf", None, tmp_path / "steps.json", speedup=1.0,
            interactive_queue=0, most=1, tell=lambda _: None,
        )  # fmt: skip


def test_each_job_is_shown_with_its_instant_its_words_and_its_script(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.swf", (1, 0, 5, 2), (2, 3, 5, 1))
    slurm, options = FakeSlurm(nodes=2, cores=1, multiplicity=2), ReplayOptions(run_id="feed")
    drawn = draw_up(trace, slurm, options, None)
    first, second = dry_run(drawn.plan, drawn.target, options, tmp_path / "a run")
    assert first.startswith("# second 0.000: sbatch --parsable")
    assert "--nodes=2 --ntasks=2" in first
    assert second.startswith("# second 3.000: sbatch")
    assert "workloads.rrba --app" in second
    assert not slurm.jobs().jobs
    assert [path.name for path in tmp_path.iterdir()] == ["t.swf"]
    # The scripts are comments and here-documents: a shell reads them without doing anything.
    script = f"cat() {{ :; }}\n{first}{second}"
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
