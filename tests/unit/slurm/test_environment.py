"""What of the caller's environment reaches Slurm's commands, and jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.slurm.calling.clean_environment import command_environment, submit_environment

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
