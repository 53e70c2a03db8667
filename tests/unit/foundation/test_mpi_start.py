"""How MPI is started: variables by which it does on any network, and a deadline that ends what hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foundation.mpi_start import is_lone, late_start, mpi_environment, start_limit_s

HANGS = """
import sys, time
from foundation.mpi_start import start_deadline
with start_deadline(float(sys.argv[1]), "late\\n", lambda pid: print("clean", pid, flush=True)):
    print("in", flush=True)
    time.sleep(float(sys.argv[2]))
print("through", flush=True)
"""


def started(limit_s: float, block_s: float) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", HANGS, str(limit_s), str(block_s)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_users_choice_of_network_is_kept_and_else_ofi_is_taken() -> None:
    assert mpi_environment({"PATH": "/bin"}) == {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
    assert mpi_environment({}, one_host=True)["FI_PROVIDER"] == "shm"
    # Settings of UCX do not choose it.
    tuned = mpi_environment({"UCX_TLS": "dc_x"})
    assert tuned == {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "UCX_TLS": "dc_x"}
    assert mpi_environment({"MPIR_CVAR_CH4_NETMOD": "ucx"}) == {"MPIR_CVAR_CH4_NETMOD": "ucx"}
    assert mpi_environment({"FI_PROVIDER": "verbs"}, one_host=True)["FI_PROVIDER"] == "verbs"


@pytest.mark.parametrize("name", ["PMI_SIZE", "PMI_FD", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE"])
def test_a_process_of_a_launcher_is_not_alone(name: str) -> None:
    assert not is_lone({name: "1"})
    assert is_lone({"SLURM_JOB_ID": "1", "MPI_HOME": "/opt"})


def test_the_deadline_grows_with_the_ranks_and_can_be_set() -> None:
    assert (start_limit_s({}, 2), start_limit_s({}, 1000)) == (30.2, 130.0)
    assert start_limit_s({"OSUB_MPI_START_S": "7.5"}, 2) == 7.5
    assert {start_limit_s({"OSUB_MPI_START_S": odd}, 0) for odd in ("", "x", "nan", "inf", "-1")} == {30.0}


def test_a_late_start_names_node_netmod_and_remedy() -> None:
    said = late_start({"SLURMD_NODENAME": "n7", "MPIR_CVAR_CH4_NETMOD": "ucx"}, 1, 4, 30.4)
    assert "\n" not in said
    assert all(
        word in said for word in ("MPI_Init", "30.4 s", "node n7", "rank 1 of 4", "netmod ucx", "to ofi")
    )
    ofi = late_start({"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}, 0, 2, 30.2)
    assert "osub doctor --cluster" in ofi
    assert "does tcp not reach" in ofi


def test_a_block_that_is_late_ends_with_its_line_and_one_in_time_goes_on() -> None:
    late = started(0.3, 60)
    out, err = late.communicate(timeout=60)
    assert (late.returncode, err) == (-signal.SIGKILL, f"late\nclean {late.pid}\n")
    assert out == "in\n"
    soon = started(60, 0.1)
    assert (*soon.communicate(timeout=60), soon.returncode) == ("in\nthrough\n", "", 0)


@pytest.mark.slow
def test_time_in_which_the_process_is_stopped_does_not_count() -> None:
    process = started(3.0, 60)
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    os.kill(process.pid, signal.SIGSTOP)
    began_s = time.monotonic()
    while time.monotonic() < began_s + 4.5:
        time.sleep(0.1)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGCONT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[0]) == (-signal.SIGKILL, "late")


@pytest.mark.slow
def test_a_process_that_dies_leaves_no_watch() -> None:
    process = started(600, 600)
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    process.kill()
    process.communicate(timeout=60)
    deadline_s = time.monotonic() + 60
    while Path("/proc", children[0]).exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
