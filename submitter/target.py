"""The cluster that a replay runs on, as far as a plan needs to know it."""

from __future__ import annotations

from dataclasses import dataclass

from osub.errors import ClusterError
from osub.slurm import Node, Partition, SlurmClient
from workloads.job_shape import JobShape, job_shape

INTERACTIVE_PARTITION = "interactive"
BATCH_PARTITION = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Equal nodes behind one partition."""

    partition: str
    nodes: int
    cores: int
    memory_mib: int
    multiplicity: int

    def shape(self, procs: int) -> JobShape | None:
        """Return the shape of a job of ``procs`` processors here, None where it can never run."""
        return job_shape(procs, self.nodes, self.cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The pools for batch and for interactive jobs (one and the same in a single queue)."""

    node_names: tuple[str, ...]
    cores: int
    batch: Pool
    interactive: Pool

    @property
    def is_mq(self) -> bool:
        """Whether interactive jobs have nodes of their own."""
        return self.batch.partition != self.interactive.partition

    @property
    def system(self) -> str:
        """The system's name, such as N12C12."""
        return f"N{len(self.node_names)}C{self.cores}"


def look_at_target(client: SlurmClient) -> Target:
    """Ask Slurm for its partitions and nodes.

    A cluster with partitions ``batch`` and ``interactive`` has two queues; any other has one, its default
    partition.

    Raises
    ------
    ClusterError
        Slurm does not answer, no partition is up, no node takes jobs, or the nodes differ in cores.
    """
    partitions = {part.name: part for part in client.partitions() if part.is_up}
    nodes = {node.name: node for node in client.nodes()}
    if {BATCH_PARTITION, INTERACTIVE_PARTITION} <= partitions.keys():
        batch, interactive = partitions[BATCH_PARTITION], partitions[INTERACTIVE_PARTITION]
    else:
        default = [part for part in partitions.values() if part.is_default] or list(partitions.values())
        if not default:
            raise ClusterError("no partition of this Slurm is up; see `sinfo`")
        batch = interactive = default[0]
    used = [name for part in dict.fromkeys([interactive.name, batch.name]) for name in partitions[part].nodes]
    names = tuple(dict.fromkeys(used))
    down = [name for name in names if not nodes[name].is_up]
    if down:
        raise ClusterError(f"nodes that take no jobs: {', '.join(down)}; `sinfo -R` says why")
    cores = {nodes[name].cores for name in names}
    if len(cores) != 1:
        raise ClusterError(f"the nodes differ in cores ({sorted(cores)}): choose partitions of equal nodes")
    return Target(
        node_names=names,
        cores=cores.pop(),
        batch=_pool(batch, nodes),
        interactive=_pool(interactive, nodes),
    )


def _pool(partition: Partition, nodes: dict[str, Node]) -> Pool:
    members = [nodes[name] for name in partition.nodes]
    return Pool(
        partition=partition.name,
        nodes=len(members),
        cores=members[0].cores,
        memory_mib=min(node.memory_mib for node in members),
        multiplicity=partition.multiplicity,
    )
