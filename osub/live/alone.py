"""Jobs alone on a live cluster: which kinds a trace has, and a runner for them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from osub.live.cluster import find_cluster
from osub.live.gang import AUTO, find_gang
from submitter.calibration import LoneJobs
from submitter.plan import RRBA, PlannedJob, ReplayOptions, look_at_target, make_plan, read_apps
from submitter.replay import prepare_trace
from workloads.rrba.calibration_kinds import Kind, kind_from_words, kind_of
from workloads.rrba.solvers.applications import APPLICATIONS
from workloads.swf import read_swf


def kinds_named(names: list[str], ranks: list[int], nodes: int, npb: list[str]) -> set[Kind]:
    """Return the kinds of all ``names`` (``lu``, ``lu.A``) on all ``ranks``."""
    kinds = set()
    for name in names:
        application, _, grid_class = name.partition(".")
        kinds |= {kind_from_words(application, grid_class or None, count, nodes, npb) for count in ranks}
    return kinds


def batch_jobs(
    cluster: Path, trace: Path, apps: Path | None, speedup: float, interactive_queue: int
) -> list[tuple[PlannedJob, Kind]]:
    """Return the rrba jobs that a replay of the trace would submit, with their kinds."""
    client, embedded = find_cluster(cluster)
    target = look_at_target(client)
    options = ReplayOptions(
        speedup=speedup,
        interactive_queue=None if interactive_queue < 0 else interactive_queue,
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
        from workloads.rrba.solvers.kernels.compiled_solvers import compile_all

        compile_all()
    # In the cluster's own folder, which every node sees; what a kill leaves there goes with the cluster.
    place = cluster.resolve() if embedded is None else Path(embedded.layout.state, "scratch")
    with tempfile.TemporaryDirectory(prefix="workloads-", dir=place) as folder:
        jobs = LoneJobs(client, look_at_target(client), Path(folder), pin=pin)
        jobs.check_idle()
        yield jobs
