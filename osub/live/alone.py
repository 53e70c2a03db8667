"""Jobs alone on a live cluster: kinds of a trace, a runner for them, their times against their targets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import InputError, UsageError
from osub.live.cluster import find_cluster
from osub.live.gang import AUTO, find_gang
from submitter.calibration import LoneJobs
from submitter.plan import RRBA, PlannedJob, ReplayOptions, look_at_target, make_plan, read_apps
from submitter.replay import prepare_trace
from workloads.rrba.calibration_kinds import CalibrationKind, kind_from_words, kind_of, target_of
from workloads.rrba.solvers.applications import APPLICATIONS
from workloads.swf import read_swf

AIM_SHARE, AIM_S = 0.05, 0.5
"""The aim: within 5% or half a second."""


def kinds_named(names: list[str], ranks: list[int], nodes: int, npb: list[str]) -> set[CalibrationKind]:
    """Return the kinds of all ``names`` (``lu``, ``lu.A``) on all ``ranks``."""
    kinds = set()
    for name in names:
        application, _, grid_class = name.partition(".")
        kinds |= {kind_from_words(application, grid_class or None, count, nodes, npb) for count in ranks}
    return kinds


def batch_jobs(
    cluster: Path, trace: Path, apps: Path | None, speedup: float, interactive_queue: int
) -> list[tuple[PlannedJob, CalibrationKind]]:
    """Return the rrba jobs that a replay of the trace would submit, with their kinds."""
    client, embedded = find_cluster(cluster)
    target = look_at_target(client)
    options = ReplayOptions(
        speedup=speedup,
        interactive_queue=interactive_queue,
        gang=find_gang(AUTO, embedded, client.config(), target.node_names).settings,
    )
    plan = make_plan(
        prepare_trace(read_swf(trace), options),
        target,
        options.plan_options(target.batch.multiplicity, target.interactive.multiplicity),
        read_apps(apps) if apps else None,
    )
    return [(job, kind_of(job.args, job.cores, job.nodes)) for job in plan.jobs if job.app == RRBA]


@contextmanager
def lone_jobs(cluster: Path) -> Iterator[LoneJobs]:
    """Give a runner of lone jobs on the cluster; its files are gone afterwards."""
    client, embedded = find_cluster(cluster)
    pin = embedded is not None and not embedded.shape.virtual and embedded.shape.cores > 1
    if any(application.classes for application in APPLICATIONS.values()):
        from workloads.rrba.solvers.compiled_solvers import compile_all

        compile_all()
    # In the cluster's own folder, which every node sees; what a kill leaves there goes with the cluster.
    place = cluster.resolve() if embedded is None else Path(embedded.layout.state, "scratch")
    with tempfile.TemporaryDirectory(prefix="workloads-", dir=place) as folder:
        jobs = LoneJobs(client, look_at_target(client), Path(folder), pin=pin, one_host=embedded is not None)
        jobs.check_idle()
        yield jobs


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
        Called with each job that is run.

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
    jobs: list[tuple[float, PlannedJob, CalibrationKind]], most: int | None
) -> list[tuple[float, PlannedJob, CalibrationKind]]:
    """Return ``most`` of the jobs, from the shortest to the longest."""
    ordered = sorted(jobs, key=lambda one: one[1].dedicated_s)
    if most is None or most >= len(ordered):
        return ordered
    if most == 1:
        return [ordered[len(ordered) // 2]]
    return [ordered[round(place * (len(ordered) - 1) / (most - 1))] for place in range(most)]
