"""Why a job failed is told in its own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.one_line import last_words, launch_fault
from foundation.records import load_run
from tests.fixtures.replay_world import make_world, rows, write_trace

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
        (NO_MPI, "MPI_Init failed: shm_open failed: Permission denied"),
        ("rrba: own\n" + NO_MPI, "rrba: own"),
        ("slurmstepd-n1: error: killed\ndone\nsrun: error: n1\n", "done"),
        ("slurmstepd: error: killed\n", "slurmstepd: error: killed"),
        (
            '{"app":"rrba","state":"terminated"}\nsrun: error: n1: task 0: 143\n',
            "srun: error: n1: task 0: 143",
        ),
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


CUT = """\
slurmstepd-n2: error: mpi/pmi2: value not properly terminated in client request
slurmstepd-n2: error: mpi/pmi2: request not begin with 'cmd='
slurmstepd-n2: error: mpi/pmi2: full request is: 8D58A01B
cmd=put kvsname=1.0 key=-allgather-1-0-seg-8/9 value=A223
slurmstepd-n2: error: mpi/pmi2: invalid client request
rrba: MPI_Init did not end within 30.2 s on node n1
"""
WAITS = """\
srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)
slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***
"""


@pytest.mark.parametrize("line", CUT.splitlines()[:2] + CUT.splitlines()[4:5])
def test_a_start_that_slurm_cut_is_recognised_by_each_of_its_lines(tmp_path: Path, line: str) -> None:
    output = tmp_path / "1.out"
    output.write_text(f"begun\n{line}\n" + 100_000 * "0 2\n")
    fault = launch_fault(output)
    assert fault is not None
    assert all(word in fault for word in ("mpi/pmi2", "node n2", "MPIR_CVAR_CH4_NETMOD=ofi"))
    output.write_text(f"it says {line}\n")
    assert launch_fault(output) is None


def test_the_cause_comes_before_the_words_of_its_victims(tmp_path: Path) -> None:
    output = tmp_path / "1.out"
    output.write_text(CUT)
    assert last_words(output) == launch_fault(output)
    output.write_text("rrba: late\nsrun: error: mpi/pmi2: failed to send temp kvs to compute nodes\n")
    assert "suspended while it started" in str(last_words(output))
    output.write_text(WAITS)
    assert "step creation temporarily disabled" in str(last_words(output))
    output.write_text(WAITS.splitlines()[0] + "\nsrun: Step created for job 7\nrrba: no file\n")
    assert last_words(output) == "rrba: no file"


def test_a_job_that_ends_well_after_a_cut_start_has_failed(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    session = world.begin(write_trace(tmp_path / "t.swf", (1, 0, 3, 2), (2, 10, 3, 1), (3, 20, 3, 1)))

    def print_out(job: int, text: str) -> None:
        (world.out / "jobs" / f"{job}.out").write_text(text)

    world.at(1.0, lambda: print_out(1, "".join(CUT.splitlines(keepends=True)[:-1])))
    world.at(11.0, lambda: print_out(2, WAITS))
    assert session.run(world.limit(600))
    states = {row["trace_job"]: (row["state"], row["exit_code"]) for row in rows(load_run(world.out))}
    assert states == {1: ("FAILED", 0), 2: ("COMPLETED", 0), 3: ("COMPLETED", 0)}
    (reason,) = session.reasons()
    assert "mpi/pmi2" in reason
    assert reason in str(session.failure())
    assert (world.out / "jobs" / "1.out").exists()


def test_a_job_that_hangs_after_a_cut_start_is_ended_long_before_its_limit(tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=3000.0)
    session = world.begin(write_trace(tmp_path / "t.swf", (1, 0, 3000, 2)))

    def print_out() -> None:
        (world.out / "jobs" / "1.out").write_text(CUT)

    world.at(2.0, print_out)
    assert session.run(world.limit(60))
    (row,) = rows(load_run(world.out))
    assert row["state"] == "FAILED"
    (reason,) = session.reasons()
    assert "mpi/pmi2" in reason
