"""The layouts that the study compares (thesis 7.4.1), how each is recognised, and the places of Table 7.8.

Nothing computes: jobs sleep, so one host can declare 144 cores. All times are divided by one number, small
enough that what Slurm takes to start and to release a job (a second) is less than the gaps that decide a
place, but for one: job 2829 ends eleven seconds before job 2849 comes, and in the thesis it was still there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from deploy.local import GangKind, QueueKind, Shape
from foundation.records import GangSettings, parse_cores
from submitter.plan import TargetCluster
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


INTERACTIVE_CAP = 4
"""Jobs a core on MQ's interactive nodes (thesis 7.4.1)."""
MOST_INTERACTIVE_NODES = 4
SLURM_SLICE_S = 5
"""The shortest slice that Slurm's own gang scheduler has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingLayout:
    """One way to share the cluster.

    Attributes
    ----------
    key
        Part of the names of its runs.
    label
        As the thesis has it.
    multiplicity
        M of the nodes that batch jobs use.
    interactive_nodes
        MQ: nodes for interactive jobs; None in SQ.
    gang
        Who takes turns on shared cores.
    """

    key: str
    label: str
    multiplicity: int
    interactive_nodes: int | None = None
    gang: GangKind = GangKind.NONE

    def shape(self, nodes: int, cores: int) -> Shape:
        """Return the embedded cluster of this layout."""
        is_mq = self.interactive_nodes is not None
        settings = (f"SchedulerTimeSlice={SLURM_SLICE_S}",) if self.gang is GangKind.SLURM else ()
        return Shape(
            nodes=nodes,
            cores=cores,
            multiplicity=self.multiplicity,
            gang=self.gang,
            queues=QueueKind.MQ if is_mq else QueueKind.SQ,
            interactive_nodes=self.interactive_nodes,
            multiplicity_interactive=INTERACTIVE_CAP,
            settings=settings,
        )

    def batch_nodes(self, nodes: int) -> int:
        """Return how many of the nodes batch jobs may use."""
        return nodes - (self.interactive_nodes or 0)


DEDICATED = SharingLayout(key="sq-m1", label="SQ M=1", multiplicity=1)
NAIVE = SharingLayout(key="sq-m2-naive", label="SQ M=2 naive", multiplicity=2)
SLURM_GANG = SharingLayout(key="sq-m2-slurm", label="SQ M=2 Slurm gang", multiplicity=2, gang=GangKind.SLURM)
GANGD = SharingLayout(key="sq-m2-gangd", label="SQ M=2 gangd", multiplicity=2, gang=GangKind.OSUB)
SINGLE_QUEUE = (DEDICATED, NAIVE, SLURM_GANG, GANGD)


def multiple_queues(interactive_nodes: int, nodes: int) -> SharingLayout:
    """Return MQ with so many interactive nodes of all."""
    return SharingLayout(
        key=f"mq-{interactive_nodes}",
        label=f"MQ {interactive_nodes}+{nodes - interactive_nodes}",
        multiplicity=1,
        interactive_nodes=interactive_nodes,
    )


def layouts_of(nodes: int) -> tuple[SharingLayout, ...]:
    """Return every layout that so many nodes allow; the dedicated one first, for it gives jobs their work."""
    most = min(MOST_INTERACTIVE_NODES, nodes - 1)
    return (*SINGLE_QUEUE, *(multiple_queues(count, nodes) for count in range(1, most + 1)))


def layout_found(target: TargetCluster, gang: GangSettings) -> SharingLayout | None:
    """Return the layout that a cluster has, None where it is none of the study's."""
    nodes = len(target.node_names)
    for layout in layouts_of(nodes):
        if layout.multiplicity != target.batch.multiplicity or layout.gang != gang.kind:
            continue
        if layout.interactive_nodes is None and not target.is_mq:
            return layout
        if target.is_mq and layout.interactive_nodes == target.interactive.nodes:
            return layout
    return None
