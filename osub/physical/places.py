"""Table 7.8 on a real Slurm: where the first fifteen jobs are put, on twelve declared nodes.

Nothing computes: jobs sleep, so one host can declare 144 cores. All times are divided by one number, small
enough that what Slurm takes to start and to release a job (a second) is less than the gaps that decide a
place, but for one: job 2829 ends eleven seconds before job 2849 comes, and in the thesis it was still there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from deploy.local import Shape
from foundation.records import parse_cores
from workloads.swf import SwfHeader, SwfJob, SwfTrace
from workloads.trace.scaling import BATCH_QUEUE, CORES, FIRST_JOBS, NODES

DIVIDED_BY = 75.0
_AFTER_LAST_S = 400
SHAPE = Shape(nodes=NODES, cores=CORES, virtual=True, multiplicity=2)


def places_trace() -> SwfTrace:
    """Return the fifteen jobs, cut where they run on after the last has come, which moves no place."""
    last_s = FIRST_JOBS[-1].arrival_s + _AFTER_LAST_S
    jobs = [
        SwfJob(
            job_number=job.number,
            submit_s=round(job.arrival_s / DIVIDED_BY, 3),
            run_s=round(min(job.run_s, last_s - job.arrival_s) / DIVIDED_BY, 3),
            allocated_procs=job.cores,
            requested_procs=job.cores,
            requested_s=600.0,
            status=1,
            queue=BATCH_QUEUE,
        )
        for job in FIRST_JOBS
    ]
    return SwfTrace(SwfHeader(()), tuple(jobs), "table-7.8")


def full_trace() -> SwfTrace:
    """Return the fifteen jobs as the thesis has them."""
    plain = places_trace()
    jobs = [
        replace(job, submit_s=known.arrival_s, run_s=known.run_s, requested_s=known.run_s)
        for job, known in zip(plain.jobs, FIRST_JOBS, strict=True)
    ]
    return replace(plain, jobs=tuple(jobs))


def places_of(jobs: pl.DataFrame, names: Mapping[str, int]) -> dict[int, str]:
    """Return each job's place as Table 7.8 writes it: nodes by number, each with its cores."""
    found = {}
    for number, placement in jobs.select("trace_job", "placement").drop_nulls().iter_rows():
        parts = sorted((names[entry["node"]], parse_cores(entry["cores"])) for entry in placement)
        found[number] = " ".join(f"{node}({_cores(cores)})" for node, cores in parts)
    return found


def same_places(mine: Mapping[int, str], other: Mapping[int, str]) -> int:
    """Return how many jobs lie in the same place."""
    return sum(mine.get(number) == place for number, place in other.items())


def _cores(cores: list[int] | tuple[int, ...]) -> str:
    ids = sorted(cores)
    consecutive = ids == list(range(ids[0], ids[-1] + 1))
    return f"{ids[0]}-{ids[-1]}" if consecutive and len(ids) > 1 else ",".join(map(str, ids))
