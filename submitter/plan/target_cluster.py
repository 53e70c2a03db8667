"""The cluster that a replay runs on, as far as a plan needs to know it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from foundation.errors import ClusterError, UsageError
from foundation.slurm import Partition, SlurmClient, SlurmNode
from workloads.job_shape import JobShape, job_shape

INTERACTIVE_PARTITION = "interactive"
BATCH_PARTITION = "batch"
_MOST_NAMED = 5


class DownNodes(StrEnum):
    """What to do about nodes that take no jobs."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPool:
    """Equal nodes behind one partition.

    Attributes
    ----------
    partition
        Its name.
    names
        Its nodes.
    cores, threads
        Cores of each node, and hardware threads of each core, which Slurm counts as CPUs.
    memory_mib
        Memory of the node with least.
    multiplicity
        Most jobs a core.
    shares_on_request
        Whether jobs must ask for sharing (OverSubscribe=YES).
    most_nodes, most_minutes
        Limits of the partition on each job, None for none.
    """

    partition: str
    names: tuple[str, ...]
    cores: int
    threads: int
    memory_mib: int
    multiplicity: int
    shares_on_request: bool = False
    most_nodes: int | None = None
    most_minutes: int | None = None

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.names)

    def shape(self, procs: int) -> JobShape | None:
        """Return the shape of a job of ``procs`` processors here, None where it can never run."""
        return job_shape(procs, min(self.nodes, self.most_nodes or self.nodes), self.cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCluster:
    """The pools for batch and for interactive jobs (one and the same in a single queue)."""

    node_names: tuple[str, ...]
    cores: int
    batch: PartitionPool
    interactive: PartitionPool
    left_out: tuple[str, ...] = ()

    @property
    def is_mq(self) -> bool:
        """Whether interactive jobs have nodes of their own."""
        return self.batch.partition != self.interactive.partition

    @property
    def system(self) -> str:
        """The system's name, such as N12C12."""
        return f"N{len(self.node_names)}C{self.cores}"

    def pool(self, partition: str) -> PartitionPool:
        """Return the pool behind a partition."""
        return self.interactive if partition == self.interactive.partition else self.batch

    def partitions(self) -> dict[str, tuple[str, ...]]:
        """Return the nodes of each partition."""
        return {pool.partition: pool.names for pool in (self.batch, self.interactive)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedTarget:
    """Which part of a cluster to use.

    Attributes
    ----------
    partition, interactive_partition
        Partitions for batch and interactive jobs. None: ``batch`` and ``interactive`` where there are both,
        else the default one; an interactive one only where it is named or found so.
    down_nodes
        Whether nodes that take no jobs are an error or left out.
    names
        The nodes of a run that was begun earlier, whatever their state is now.
    """

    partition: str | None = None
    interactive_partition: str | None = None
    down_nodes: DownNodes = DownNodes.FAIL
    names: tuple[str, ...] | None = None


def look_at_target(client: SlurmClient, wanted: RequestedTarget | None = None) -> TargetCluster:
    """Ask Slurm for its partitions and nodes.

    Nodes are in the order in which Slurm lists them, which is the order in which it tries them: with dynamic
    nodes (``slurmd -Z``) that of registration, not of names.

    Raises
    ------
    ClusterError
        Slurm does not answer, no partition is up, no node takes jobs, or the nodes differ in cores.
    UsageError
        A partition that is wanted does not exist.
    """
    wanted = wanted or RequestedTarget()
    batch, interactive = _choose(client.partitions(), wanted)
    nodes = {node.name: node for node in client.nodes()}
    members = [set(part.nodes) for part in (interactive, batch)]
    names = tuple(dict.fromkeys(name for part in members for name in nodes if name in part))
    if wanted.names is not None:
        down = tuple(name for name in names if name not in wanted.names)
        missing = [name for name in wanted.names if name not in names]
        if missing:
            raise ClusterError(f"nodes of the run that Slurm no longer has: {_listed(missing)}")
    else:
        down = tuple(name for name in names if not nodes[name].is_up)
        if down and (wanted.down_nodes is DownNodes.FAIL or len(down) == len(names)):
            raise ClusterError(
                f"nodes that take no jobs: {_listed(down)}; `sinfo -R` says why, --down-nodes skip leaves "
                "them out"
            )
    used = tuple(name for name in names if name not in down)
    cores = {nodes[name].cores for name in used}
    if len(cores) != 1:
        raise ClusterError(f"the nodes differ in cores ({sorted(cores)}): choose --partition of equal nodes")
    return TargetCluster(
        node_names=used,
        cores=cores.pop(),
        batch=_pool(batch, used, nodes),
        interactive=_pool(interactive, used, nodes),
        left_out=down,
    )


def _choose(known: Sequence[Partition], wanted: RequestedTarget) -> tuple[Partition, Partition]:
    """Return the partitions of batch and of interactive jobs."""
    every = {part.name: part for part in known}
    for option, name in (
        ("--partition", wanted.partition),
        ("--interactive-partition", wanted.interactive_partition),
    ):
        if name is not None and name not in every:
            raise UsageError(f"{option}: this Slurm has no partition {name}; it has {_listed(list(every))}")
    partitions = {part.name: part for part in known if part.is_up}
    for name in (wanted.partition, wanted.interactive_partition):
        if name is not None and name not in partitions:
            raise ClusterError(f"partition {name} is not up; see `sinfo`")
    if wanted.partition is None and {BATCH_PARTITION, INTERACTIVE_PARTITION} <= partitions.keys():
        batch = partitions[BATCH_PARTITION]
        return batch, partitions[wanted.interactive_partition or INTERACTIVE_PARTITION]
    default = [part for part in partitions.values() if part.is_default] or list(partitions.values())
    if not default:
        raise ClusterError("no partition of this Slurm is up; see `sinfo`")
    batch = partitions[wanted.partition] if wanted.partition is not None else default[0]
    return batch, partitions[wanted.interactive_partition] if wanted.interactive_partition else batch


def _pool(partition: Partition, used: tuple[str, ...], nodes: dict[str, SlurmNode]) -> PartitionPool:
    own = set(partition.nodes)
    names = tuple(name for name in used if name in own)
    if not names:
        raise ClusterError(f"no node of partition {partition.name} takes jobs; `sinfo -R` says why")
    members = [nodes[name] for name in names]
    return PartitionPool(
        partition=partition.name,
        names=names,
        cores=members[0].cores,
        threads=max(node.threads_per_core for node in members),
        memory_mib=min(node.memory_mib for node in members),
        multiplicity=partition.multiplicity,
        shares_on_request=partition.multiplicity > 1 and not partition.forced,
        most_nodes=partition.most_nodes,
        most_minutes=None if partition.most_time_s is None else partition.most_time_s // 60,
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
