"""The batch script of a job, run by a shell: paths and words that read like something else."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from submitter.plan.replay_plan import PlannedJob, batch_script

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
    job = PlannedJob(
        trace_job=3,
        kind="batch",
        app="sh",
        args=("-c", 'printf %s "$OSUB_JOB_CORES"; exit 4'),
        partition="main",
        nodes=1,
        cores_per_node=1,
        due_s=0.0,
        memory_per_core_mib=None,
        requested_s=None,
        limit_minutes=None,
        dedicated_s=0.0,
        busy_s=0.0,
        user=None,
    )
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    return subprocess.run(
        ["sh"],
        input=batch_script(job, folder, pin=pin),
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_folder_of_any_name_gets_the_stamps_and_runs_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a\ntouch proof #'\"; $(touch proof)\n"
    done = run(folder, tmp_path)
    assert (done.returncode, done.stderr) == (4, "")
    assert json.loads((folder / "jobs" / "3.end").read_text())["exit_code"] == 4
    assert not Path("proof").exists()


def test_cores_are_read_from_slurms_own_lines(tmp_path: Path) -> None:
    tool = tmp_path / "scontrol"
    tool.write_text(SCONTROL)
    tool.chmod(0o755)
    done = run(tmp_path / "run", tmp_path, pin=True)
    assert (done.stdout, done.stderr) == ("n1:0-1;n2:0-1;n4:3", "")
