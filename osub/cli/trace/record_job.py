"""``osub trace record``: the utilisation of a running job, for patterns of one's own."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import InputError, UsageError
from foundation.interruption import on_signals
from foundation.units import counted
from osub.cli.terminal import Console
from osub.cli.trace.files import AsJson, Force, check_free, print_json
from workloads.behaviour.behaviour_sampler import (
    CgroupsUsage,
    CgroupUsage,
    TreeUsage,
    Usage,
    job_cgroups,
    record,
    write_as_taken,
)
from workloads.behaviour.period_model import THRESHOLD_CORES, busy_idle
from workloads.behaviour.utilisation_series import SAMPLE_S


def record_job(
    out: Annotated[Path, typer.Option("--out", help="CSV file to write.", metavar="FILE")],
    job: Annotated[int | None, typer.Option(min=1, help="Slurm job, by its cgroups on this node.")] = None,
    pid: Annotated[int | None, typer.Option(min=1, help="Process, with its descendants.")] = None,
    cgroup: Annotated[Path | None, typer.Option(help="Folder of a cgroup, v1 or v2.", metavar="DIR")] = None,
    every: Annotated[float, typer.Option(help="Seconds from sample to sample.")] = SAMPLE_S,
    most: Annotated[
        float | None, typer.Option("--for", help="Seconds to record; by default until the job ends.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the job in the file.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Sample the CPU utilisation of a running job until it ends, Ctrl-C, or --for is over.

    Every sample is in the file as soon as it was taken. A folder of such files is what
    `osub trace interactive --patterns` takes.
    """
    check_free(out, force)
    usage, found = _usage(job, pid, cgroup)
    stop = threading.Event()
    with on_signals(lambda _: stop.set()), Console(stderr=True).status("recording") as spinner:
        taken = record(usage, time.monotonic, stop.wait, every, float("inf") if most is None else most)
        series = write_as_taken(
            out,
            name or found,
            taken,
            lambda one: spinner.update(f"{one.elapsed_s:.0f} s, {one.cores:.2f} cores; Ctrl-C ends it"),
        )
    if series is None:
        raise InputError(f"the job was over before the first sample of {every:g} s: nothing was recorded")
    pattern = busy_idle(series, THRESHOLD_CORES)
    if as_json:
        print_json(
            {
                "series": str(out),
                "name": series.name,
                "samples": len(series.cores),
                "length_s": series.total_s,
                "mean_cores": series.mean_cores,
                "busy_periods": len(pattern.activations_s),
                "busy_s": pattern.busy_s,
            }
        )
        return
    typer.echo(
        f"{out}: {counted(len(series.cores), 'sample')} over {series.total_s:.0f} s, {series.mean_cores:.2f} "
        f"cores on average, {counted(len(pattern.activations_s), 'busy period')} of {pattern.busy_s:.0f} s "
        "in all"
    )


def _usage(job: int | None, pid: int | None, cgroup: Path | None) -> tuple[Usage, str]:
    if sum(given is not None for given in (job, pid, cgroup)) != 1:
        raise UsageError("say what to record with one of --job, --pid and --cgroup")
    if job is not None:
        return CgroupsUsage(job_cgroups(job)), f"job-{job}"
    if pid is not None:
        return TreeUsage(pid), f"process-{pid}"
    assert cgroup is not None
    return CgroupUsage(cgroup), cgroup.name
