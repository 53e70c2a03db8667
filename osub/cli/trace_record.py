"""``osub trace record``: the utilisation of a running job, for patterns of one's own."""

from __future__ import annotations

import csv
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from foundation.errors import InputError, OutputError, UsageError
from osub.cli.terminal import Console
from osub.cli.trace_files import AsJson, Force, check_free, print_json
from workloads.behaviour.model import THRESHOLD_CORES, busy_idle
from workloads.behaviour.record import Sample, record
from workloads.behaviour.series import HEADING, SAMPLE_S, UtilisationSeries, series_row
from workloads.behaviour.usage import CgroupsUsage, CgroupUsage, TreeUsage, Usage, job_cgroups


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
    samples = _written(out, usage, name or found, every, float("inf") if most is None else most)
    if not samples:
        raise InputError(f"the job was over before the first sample of {every:g} s: nothing was recorded")
    series = UtilisationSeries(
        name or found,
        tuple(sample.length_s for sample in samples),
        tuple(sample.cores for sample in samples),
    )
    pattern = busy_idle(series, THRESHOLD_CORES)
    if as_json:
        print_json(
            {
                "series": str(out),
                "name": series.name,
                "samples": len(samples),
                "length_s": series.total_s,
                "mean_cores": series.mean_cores,
                "busy_periods": len(pattern.activations_s),
                "busy_s": pattern.busy_s,
            }
        )
        return
    typer.echo(
        f"{out}: {len(samples)} samples over {series.total_s:.0f} s, {series.mean_cores:.2f} cores on "
        f"average, {len(pattern.activations_s)} busy periods of {pattern.busy_s:.0f} s in all"
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


def _written(out: Path, usage: Usage, name: str, every: float, most: float) -> list[Sample]:
    """Record, and write every sample as it is taken."""
    samples: list[Sample] = []
    console = Console(stderr=True)
    status = console.status("recording") if console.is_terminal else None
    with _interrupts() as stop:
        taken = record(usage, time.monotonic, stop.wait, every, most)
        first = next(taken, None)
        if first is None:
            return samples
        try:
            with out.open("w", newline="", encoding="utf-8", buffering=1) as stream:
                writer = csv.writer(stream, lineterminator="\n")
                writer.writerow(HEADING)
                if status is not None:
                    status.start()
                for sample in _chained(first, taken):
                    samples.append(sample)
                    writer.writerow(series_row(name, sample.elapsed_s, sample.cores))
                    if status is not None:
                        status.update(f"{sample.elapsed_s:.0f} s, {sample.cores:.2f} cores; Ctrl-C ends it")
        except OSError as error:
            raise OutputError(f"cannot write {out}: {error.strerror}") from error
        finally:
            if status is not None:
                status.stop()
    return samples


def _chained(first: Sample, rest: Iterator[Sample]) -> Iterator[Sample]:
    yield first
    yield from rest


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into an event while the context lasts: what was recorded is kept."""
    event = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        event.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
