"""The batch script of one job: stamps real start and end in milliseconds around the application.

The stamps lie in the RUN's ``jobs`` folder, which every node must see: ``<job>.start`` with the Slurm job
id, ``<job>.end`` with the exit code, ``<job>.report`` with the application's own account, ``<job>.out`` with
what it printed. A job that Slurm starts again stamps ``<job>.life1.start`` and so on. ``<job>.claim`` is a
link that the first copy to start makes, so that a second one does nothing. ``sh``, ``date`` and ``ln`` are
all it needs, and cost about 3 ms. A stamp is one write of one line, and a reader of half of it reads
nothing.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from submitter.plan.replay_plan import EIBA, RRBA, PlannedJob

_HEAD = """\
#!/bin/sh
# Job {trace_job} of a replay
at={stem}
stamp() {{ date +%s%3N; }}
note() {{ printf '%s\\n' "$2" > "$at.$1"; }}
OSUB_WRAPPER_START_MS=$(stamp)
export OSUB_WRAPPER_START_MS
if [ ! -d "${{at%/*}}" ]; then
  echo "${{at%/*}} is not there: the replay is over, or $(hostname) does not see its folder" >&2
  exit 1
fi
if ! ln -s "$SLURM_JOB_ID" "$at.claim" 2>/dev/null; then
  owner=$(readlink "$at.claim")
  if [ -n "$owner" ] && [ "$owner" != "$SLURM_JOB_ID" ]; then
    echo "a second copy of job {trace_job}, which belongs to $owner: nothing to do" >&2
    exit 0
  fi
fi
[ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] || at=$at.life$SLURM_RESTART_COUNT
note start "{{\\"slurm_job\\":$SLURM_JOB_ID,\\"ms\\":$OSUB_WRAPPER_START_MS}}"
"""

_PIN = """\
OSUB_PIN=1
OSUB_JOB_CORES=$(scontrol show -d job "$SLURM_JOB_ID" |
  sed -n 's/^ *Nodes=\\([^ ]*\\) CPU_IDs=\\([^ ]*\\) Mem=.*/\\1 \\2/p' |
  while read -r nodes ids; do
    for node in $(scontrol show hostnames "$nodes"); do
      printf '%s:%s;' "$node" "$ids"
    done
  done)
OSUB_JOB_CORES=${OSUB_JOB_CORES%;}
export OSUB_PIN OSUB_JOB_CORES
"""

_TAIL = """\
{command} &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
note end "{{\\"ms\\":$(stamp),\\"exit_code\\":$code}}"
exit "$code"
"""


def job_environment(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a job; of the caller's only ``chosen`` reaches it."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        **chosen,
    }


def batch_script(job: PlannedJob, run: Path, *, pin: bool = False, calibration: Path | None = None) -> str:
    """Return the batch script of a job.

    Parameters
    ----------
    job
        The planned job.
    run
        The RUN folder, absolute.
    pin
        Whether ranks and workers bind themselves to the cores that Slurm gave them (nodes of an embedded
        cluster with several cores, where Slurm itself can't).
    calibration
        Stored step times for rrba.
    """
    stem = run / "jobs" / str(job.trace_job)
    head = _HEAD.format(trace_job=job.trace_job, stem=shlex.quote(str(stem)))
    command = shlex.join(_command(job, stem, calibration))
    return head + (_PIN if pin else "") + _TAIL.format(command=command)


def _command(job: PlannedJob, stem: Path, calibration: Path | None) -> list[str]:
    report = ["--report", f"{stem}.report"]
    nodes, cores = str(job.nodes), str(job.cores_per_node)
    if job.app == EIBA:
        eiba = [sys.executable, "-P", "-m", "workloads.eiba", "--workers", cores, *report]
        if job.nodes == 1:
            return [*eiba, *job.args]
        across = ["srun", "--nodes", nodes, "--ntasks", nodes, "--ntasks-per-node", "1"]
        return [*across, *eiba, "--rendezvous", f"{stem}.rendezvous", *job.args]
    if job.app == RRBA:
        known = ["--calibration", str(calibration)] if calibration else []
        rrba = [sys.executable, "-P", "-m", "workloads.rrba", *job.args, *known, *report]
        if job.cores == 1:
            return rrba
        ranks = [
            "srun",
            "--mpi=pmi2",
            "--kill-on-bad-exit=1",  # a rank that fails in MPI_Init leaves others in it
            "--nodes",
            nodes,
            "--ntasks",
            str(job.cores),
            "--ntasks-per-node",
            cores,
        ]
        return [*ranks, *rrba]
    return [job.app, *job.args]
