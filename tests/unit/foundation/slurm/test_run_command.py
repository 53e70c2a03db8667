"""Running Slurm's commands: within bounds, and in an environment that says nothing of the caller's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from foundation.errors import HostError, UsageError
from foundation.slurm.run_command import command_environment, run_command, submit_environment

PATH = {"PATH": "/bin:/usr/bin"}

CALLER = {
    "PATH": "/bin",
    "HOME": "/root",
    "LD_LIBRARY_PATH": "/opt/lib",
    "TZ": "America/New_York",
    "LC_ALL": "de_DE.UTF-8",
    "SLURM_CONF": "/etc/a.conf",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_CLUSTERS": "other",
    "SLURM_JOB_ID": "7",
    "SQUEUE_FORMAT": "%j",
    "SQUEUE_STATES": "PD",
    "SBATCH_PARTITION": "night",
    "SCANCEL_STATE": "PENDING",
    "SINFO_FORMAT": "%n",
    "SCONTROL_ALL": "1",
}


def test_a_command_gets_its_stdin_and_gives_what_it_prints_as_it_is() -> None:
    answer = run_command(
        ["sh", "-c", "cat; printf 'a\\r\\nb\\377' >&2; exit 3"], "x\r\n" * 100_000, PATH, 10.0
    )
    assert answer.returncode == 3
    assert answer.stdout == "x\r\n" * 100_000, "no line end is made of another"
    assert answer.stderr == "a\r\nb\N{REPLACEMENT CHARACTER}"


def test_a_command_that_does_not_read_its_stdin_is_no_fault() -> None:
    assert run_command(["true"], "x" * (1 << 20), PATH, 10.0).returncode == 0


def test_a_missing_program_is_an_error_of_the_host() -> None:
    with pytest.raises(HostError, match="not installed"):
        run_command(["no-such-program-at-all"], None, {}, 1.0)


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["true", "a\0b"], None),
        (["true", "\ud800"], None),
        (["true"], "\ud800"),
        (["true", "x" * (1 << 20)], None),
    ],
)
def test_what_no_command_can_be_given_is_an_error_of_usage(words: list[str], stdin: str | None) -> None:
    with pytest.raises(UsageError, match="true cannot be given these words"):
        run_command(["true", *words], stdin, PATH, 1.0)


def test_a_command_that_hangs_is_killed() -> None:
    assert run_command(["sleep", "60"], None, PATH, 0.05).returncode is None


def test_what_a_command_that_hangs_has_complained_of_is_reported() -> None:
    answer = run_command(["sh", "-c", "echo no such file >&2; sleep 60"], None, PATH, 0.5)
    assert (answer.returncode, answer.stderr) == (None, "no answer within 0.5 s, but: no such file")


def test_a_command_that_closes_its_output_and_hangs_is_killed() -> None:
    assert run_command(["sh", "-c", "exec >&- 2>&-; sleep 60"], None, PATH, 0.2).returncode is None


@pytest.mark.parametrize("where", ["1", "2"])
def test_a_command_that_never_stops_talking_is_killed(where: str) -> None:
    answer = run_command(["sh", "-c", f"yes >&{where}"], None, PATH, 60.0, most_bytes=1 << 20)
    assert (answer.returncode, answer.too_long, answer.stdout) == (None, True, "")


def test_a_command_that_talks_for_too_long_is_killed() -> None:
    slowly = "import time\nwhile True: print('x', flush=True); time.sleep(0.001)"
    answer = run_command([sys.executable, "-c", slowly], None, PATH, 0.5)
    assert (answer.returncode, answer.too_long) == (None, False)


def test_slurms_variables_are_ours_and_which_slurm_it_is_the_callers() -> None:
    assert command_environment(CALLER, None) == {
        "PATH": "/bin",
        "HOME": "/root",
        "LD_LIBRARY_PATH": "/opt/lib",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "SLURM_CONF": "/etc/a.conf",
        "SLURM_TIME_FORMAT": "standard",
    }


def test_a_cluster_that_was_named_goes_before_the_callers() -> None:
    assert command_environment(CALLER, Path("/c/slurm.conf"))["SLURM_CONF"] == "/c/slurm.conf"


def test_a_job_gets_its_own_environment_and_what_it_takes_to_find_slurm() -> None:
    job = {"HOME": "/home/u", "TZ": "Asia/Tokyo", "SBATCH_QOS": "high", "SLURM_HINT": "x", "PATH": "/none"}
    assert submit_environment(job, command_environment(CALLER, None)) == {
        "HOME": "/home/u",
        "TZ": "Asia/Tokyo",
        "PATH": "/bin",
        "SLURM_CONF": "/etc/a.conf",
    }


@pytest.mark.parametrize("name", ["SLURMX", "MY_SLURM_X", "SQUEUE", "SRUNNER_X"])
def test_what_only_looks_like_slurms_is_left(name: str) -> None:
    assert name in command_environment({name: "1"}, None)


def test_ctrl_c_at_our_terminal_does_not_reach_a_command() -> None:
    program = """
import os, signal, threading
from foundation.slurm.run_command import run_command
signal.signal(signal.SIGINT, lambda *_: None)
threading.Timer(0.3, os.killpg, (0, signal.SIGINT)).start()
answer = run_command(["sh", "-c", "sleep 1; echo whole"], None, {"PATH": "/bin:/usr/bin"}, 30.0)
print(answer.returncode, answer.stdout, end="")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, start_new_session=True
    )
    assert (done.stdout, done.stderr) == ("0 whole\n", "")


def test_what_a_killed_command_has_started_is_killed_with_it() -> None:
    mark = f"3{os.getpid() % 10_000:04}.5"
    assert run_command(["sh", "-c", f"sleep {mark} & sleep {mark}"], None, PATH, 0.3).returncode is None
    assert not [one for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or ())]
