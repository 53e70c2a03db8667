"""Jobs that run alone on a cluster, one after another: what calibration and its check are made of."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundation.errors import ClusterError, HostError
from foundation.slurm import SlurmClient, SubmitRequest
from submitter.follow import last_words, read_stamps
from submitter.plan import RRBA, PlannedJob, Target, batch_script
from workloads.rrba.calibration_kinds import Kind

_POLL_S = 0.05
_LOOK_S = 5.0
# A job that Slurm no longer knows and that left no end is given so long for its files to appear.
_GRACE_S = 5.0
# A replay's jobs have the same.
_ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
    "HOME": os.environ.get("HOME", "/"),
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A job's run time between its wrapper's stamps, and rrba's report."""

    run_s: float
    report: dict[str, Any]

    @property
    def core_share(self) -> float | None:
        """CPU time over wall time in steps, of the rank with least; None where a benchmark does not tell."""
        share = self.report["core_share"]
        return None if share is None else float(share)


class LoneJobs:
    """Runs jobs one at a time on a cluster that nobody else uses meanwhile.

    Parameters
    ----------
    client, target
        The cluster.
    folder
        For scripts and stamps; every node sees it.
    pin
        Whether ranks bind themselves to Slurm's cores, as in a replay.
    """

    def __init__(self, client: SlurmClient, target: Target, folder: Path, *, pin: bool) -> None:
        self._client = client
        self._target = target
        self._folder = folder
        self._pin = pin
        self._count = 0
        self._run_id = secrets.token_hex(3)
        (folder / "jobs").mkdir(parents=True, exist_ok=True)

    def check_idle(self) -> None:
        """Refuse a cluster with jobs.

        Raises
        ------
        ClusterError
            There are some.
        """
        snapshot = self._client.jobs()
        active = sum(not job.state.is_over for job in snapshot.jobs) + len(snapshot.unreadable)
        if active:
            raise ClusterError(f"{active} jobs are on the cluster; wait until it is idle, or cancel them")

    def run(self, kind: Kind, length: Sequence[str], calibration: Path | None = None) -> Outcome:
        """Run rrba as ``kind`` says with ``length`` (such as ``--itr 100``); return when it has ended.

        Raises
        ------
        HostError
            It failed; the message has its last words.
        ClusterError
            Slurm lost it.
        """
        self._count += 1
        job = PlannedJob(
            trace_job=self._count,
            kind="batch",
            app=RRBA,
            args=(*kind.arguments, *length),
            partition=self._target.batch.partition,
            nodes=kind.nodes,
            cores_per_node=kind.ranks // kind.nodes,
            due_s=0.0,
            memory_per_core_mib=None,
            requested_s=None,
            limit_minutes=None,
            dedicated_s=0.0,
            busy_s=0.0,
            user=None,
        )
        output = self._folder / "jobs" / f"{self._count}.out"
        job_id = self._client.submit(
            SubmitRequest(
                script=batch_script(job, self._folder, pin=self._pin, calibration=calibration),
                name=f"osub-{self._run_id}-{self._count}",
                nodes=job.nodes,
                tasks_per_node=job.cores_per_node,
                partition=job.partition,
                output=output,
                comment="osub workloads",
                environment=_ENVIRONMENT,
            )
        )
        try:
            self._wait(job_id)
        except BaseException:
            self._client.cancel([job_id])
            raise
        return self._outcome(output)

    def _wait(self, job_id: int) -> None:
        folder, looked_s, over_s = self._folder / "jobs", time.monotonic(), None
        while read_stamps(folder, self._count).end_ms is None:
            time.sleep(_POLL_S)
            now_s = time.monotonic()
            if now_s - looked_s < _LOOK_S:
                continue
            looked_s = now_s
            job = self._client.job(job_id)
            if job is not None and not job.state.is_over:
                continue
            over_s = over_s or now_s
            if now_s - over_s > _GRACE_S:
                raise ClusterError(f"Slurm job {job_id} left no end; see {folder / f'{self._count}.out'}")
        # The next job must not start beside the end of this one.
        deadline_s = time.monotonic() + 60.0
        while time.monotonic() < deadline_s:
            job = self._client.job(job_id)
            if job is None or job.state.is_over:
                return
            time.sleep(_POLL_S)

    def _outcome(self, output: Path) -> Outcome:
        folder = self._folder / "jobs"
        stamps = read_stamps(folder, self._count)
        if stamps.exit_code != 0 or stamps.start_ms is None or stamps.end_ms is None:
            raise HostError(f"rrba ended with code {stamps.exit_code}: {last_words(output) or 'no output'}")
        report = json.loads((folder / f"{self._count}.report").read_text(encoding="utf-8"))
        return Outcome((stamps.end_ms - stamps.start_ms) / 1000, report)
