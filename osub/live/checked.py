"""A trace's batch jobs run alone, one after another, beside their targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import InputError, UsageError
from osub.live.alone import batch_jobs, lone_jobs
from submitter.plan import PlannedJob
from workloads.rrba.calibration_kinds import Kind, target_of

AIM_SHARE, AIM_S = 0.05, 0.5
"""The aim: within 5% or half a second."""


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One job: its target, what it took, and whether that is near enough."""

    job: int
    name: str
    ranks: int
    target_s: float
    measured_s: float
    steps: int
    clipped: bool
    calibration: str | None
    warnings: list[str]

    @property
    def error_s(self) -> float:
        """Measured minus target."""
        return self.measured_s - self.target_s

    @property
    def is_near(self) -> bool:
        """Whether it is within 5% or 0.5 s."""
        return abs(self.error_s) <= max(AIM_SHARE * self.target_s, AIM_S)


def check_jobs(
    cluster: Path,
    trace: Path,
    apps: Path | None,
    calibration: Path,
    *,
    speedup: float,
    interactive_queue: int,
    most: int | None,
    tell: Callable[[str], object],
) -> list[CheckRow]:
    """Run the batch jobs of a trace that have a target, each alone on the cluster.

    Parameters
    ----------
    cluster
        Folder with slurm.conf.
    trace, apps, speedup, interactive_queue
        As for a replay.
    calibration
        The stored step times.
    most
        At most so many jobs, spread over the targets; None: all.
    tell
        Is told which job is run.

    Raises
    ------
    InputError
        There is no such file of step times.
    UsageError
        No batch job has a target.
    ClusterError, HostError
        The cluster has other jobs; a job failed.
    """
    if not calibration.is_file():
        raise InputError(f"there is no {calibration}: `osub workloads calibrate` makes one")
    pairs = batch_jobs(cluster, trace, apps, speedup, interactive_queue)
    targets = [(target_s, job, kind) for job, kind in pairs if (target_s := target_of(job.args)) is not None]
    if not targets:
        raise UsageError(f"{trace} has no batch job with a target; see --apps and --interactive-queue")
    chosen = _spread(targets, most)
    rows = []
    with lone_jobs(cluster) as jobs:
        for number, (target_s, job, kind) in enumerate(chosen, start=1):
            tell(f"job {job.trace_job}, {target_s:.1f} s, {number} of {len(chosen)}")
            outcome = jobs.run(kind, ("--target-s", str(target_s)), calibration.resolve())
            report = outcome.report
            rows.append(
                CheckRow(
                    job.trace_job,
                    kind.name,
                    kind.ranks,
                    target_s,
                    outcome.run_s,
                    int(report["steps"]),
                    bool(report["clipped"]),
                    report["calibration"],
                    list(report["warnings"]),
                )
            )
    return rows


def _spread(
    jobs: list[tuple[float, PlannedJob, Kind]], most: int | None
) -> list[tuple[float, PlannedJob, Kind]]:
    """Return ``most`` of the jobs, from the shortest to the longest."""
    ordered = sorted(jobs, key=lambda one: one[1].dedicated_s)
    if most is None or most >= len(ordered):
        return ordered
    if most == 1:
        return [ordered[len(ordered) // 2]]
    return [ordered[round(place * (len(ordered) - 1) / (most - 1))] for place in range(most)]
