"""The layouts that the study compares (thesis 7.4.1), and how a cluster of each is recognised."""

from __future__ import annotations

from dataclasses import dataclass

from deploy.local import GangKind, QueueKind, Shape
from foundation.records import GangSettings
from submitter.plan import TargetCluster

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
        mine = {GangKind.NONE: "none", GangKind.SLURM: "slurm", GangKind.OSUB: "osub"}[layout.gang]
        if layout.multiplicity != target.batch.multiplicity or mine != gang.kind:
            continue
        if layout.interactive_nodes is None and not target.is_mq:
            return layout
        if target.is_mq and layout.interactive_nodes == target.interactive.nodes:
            return layout
    return None
