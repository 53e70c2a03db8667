"""What a test cluster looks like, and lines of slurm.conf that every one has.

What a test cluster looks like, on this host or in containers: nodes, cores, queues and sharing.

Lines of slurm.conf that every test cluster has, wherever it runs (slurm.conf(5)).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from foundation.errors import UsageError

# A backslash at the end would join the next line to it, and a "#" would end it.
_SETTING = re.compile(r"[A-Za-z][A-Za-z0-9_]*=[^\x00-\x1f\x7f#]*[^\x00-\x20\x7f#\\]")
MOST_NODES = 512
MOST_CORES = 256
MOST_THREADS = 8
MOST_MULTIPLICITY = 8


# Virtual nodes declare the memory of the nodes in the thesis's Table 7.1.
_VIRTUAL_NODE_MIB = 65_536
_PHYSICAL_SHARE = 0.9


class GangKind(StrEnum):
    """Gang scheduler of shared cores: none, Slurm's, or gangd."""

    NONE = "none"
    SLURM = "slurm"
    OSUB = "osub"


class HoldSetting(StrEnum):
    """Hold mode of gangd: a suspended job is frozen, or runs on CPU time that the owner leaves idle."""

    FREEZE = "freeze"
    YIELD = "yield"


class QueueKind(StrEnum):
    """One queue over all nodes (SQ), or interactive and batch nodes apart (MQ)."""

    SQ = "sq"
    MQ = "mq"


class Scheduler(StrEnum):
    """Slurm's SchedulerType: ``sched/backfill`` or ``sched/builtin`` (first come, first served)."""

    BACKFILL = "backfill"
    BUILTIN = "builtin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A test cluster's shape.

    Attributes
    ----------
    nodes, cores
        Number of nodes, and cores on each.
    virtual
        Whether nodes may declare more cores than the host has; their jobs are then not pinned.
    threads
        Hardware threads a core, 1 to 8; several are declared only, and go with ``virtual``.
    multiplicity
        Most allocated jobs a core, M (in MQ: of the batch nodes, M_B), 1 to 8.
    gang
        Who takes turns on shared cores.
    hold
        How gangd holds jobs.
    quantum_ms
        Length of gangd's time slices, 20 to 5000 ms.
    queues
        SQ or MQ.
    interactive_nodes
        MQ: number of nodes for interactive jobs; None in SQ.
    multiplicity_interactive
        MQ: most jobs a core on them, M_I.
    scheduler
        Slurm's scheduler.
    settings
        Further ``Key=Value`` lines of slurm.conf; they win over our own.

    Raises
    ------
    UsageError
        A number is out of range, or two of them contradict each other.
    """

    nodes: int
    cores: int
    virtual: bool = False
    threads: int = 1
    multiplicity: int = 1
    gang: GangKind = GangKind.NONE
    hold: HoldSetting = HoldSetting.YIELD
    quantum_ms: float = 250.0
    queues: QueueKind = QueueKind.SQ
    interactive_nodes: int | None = None
    multiplicity_interactive: int = 4
    scheduler: Scheduler = Scheduler.BACKFILL
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _within("--nodes", self.nodes, MOST_NODES)
        _within("--cores", self.cores, MOST_CORES)
        _within("--threads", self.threads, MOST_THREADS)
        if self.threads > 1 and not self.virtual:
            raise UsageError("--threads declares hardware threads: it goes with --virtual")
        _within("--multiplicity", self.multiplicity, MOST_MULTIPLICITY)
        _within("--multiplicity-interactive", self.multiplicity_interactive, MOST_MULTIPLICITY)
        if not 20 <= self.quantum_ms <= 5000:
            raise UsageError(f"--quantum-ms must be 20 to 5000, not {self.quantum_ms:g}")
        if self.queues is QueueKind.MQ:
            if self.nodes < 2:
                raise UsageError("--queues mq needs at least 2 nodes: one interactive, one batch")
            if self.interactive_nodes is not None and not 1 <= self.interactive_nodes < self.nodes:
                raise UsageError(f"--interactive-nodes must be 1 to {self.nodes - 1} of {self.nodes} nodes")
        elif self.interactive_nodes is not None:
            raise UsageError("--interactive-nodes goes with --queues mq")
        for setting in self.settings:
            if not _SETTING.fullmatch(setting):
                raise UsageError(f"--set takes Key=Value, one line as in slurm.conf, not {setting!r}")

    def node_memory_mib(self, host_mib: int) -> int:
        """Return the memory a node declares, MiB: 90 % of the host's in equal parts, or as in the thesis."""
        return _VIRTUAL_NODE_MIB if self.virtual else int(host_mib * _PHYSICAL_SHARE) // self.nodes

    @property
    def system(self) -> str:
        """The shape in the notation of the literature, such as ``N12C12``."""
        return f"N{self.nodes}C{self.cores}"

    @property
    def interactive_count(self) -> int:
        """MQ: how many nodes are interactive (one unless it was said); SQ: 0."""
        return (self.interactive_nodes or 1) if self.queues is QueueKind.MQ else 0


def _within(option: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise UsageError(f"{option} must be 1 to {most}, not {value}")


def natural_shape(host_cpus: int) -> tuple[int, int]:
    """Return (nodes, cores a node) that split a host's CPUs: 2 nodes, 4 from 16 CPUs on, 1 for one CPU."""
    nodes = 1 if host_cpus < 2 else 2 if host_cpus < 16 else 4
    return nodes, host_cpus // nodes


def fitting_shape(host_cpus: int, nodes: int | None, cores: int | None) -> tuple[int, int]:
    """Return (nodes, cores a node) where one of them, or neither, is said: as much as fits this host."""
    natural_nodes, natural_cores = natural_shape(host_cpus)
    if nodes is None:
        nodes = natural_nodes if cores is None else max(1, natural_nodes * natural_cores // max(1, cores))
    if cores is None:
        cores = max(1, natural_nodes * natural_cores // max(1, nodes))
    return nodes, cores


def pin_cpus(shape: Shape, host_cpus: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the host CPUs of each node, disjoint; empty tuples for a virtual cluster.

    Raises
    ------
    UsageError
        The host has fewer CPUs than the cluster declares cores.
    """
    if shape.virtual:
        return ((),) * shape.nodes
    if shape.nodes * shape.cores > len(host_cpus):
        raise UsageError(
            f"{shape.system} needs {shape.nodes * shape.cores} CPUs and this host has {len(host_cpus)}: "
            "ask for fewer, or add --virtual (cores are then declared, not pinned)"
        )
    return tuple(host_cpus[index * shape.cores : (index + 1) * shape.cores] for index in range(shape.nodes))


_JOB_RANGES, _JOBS_A_RANGE = 60_000, 1000


def common_lines(shape: Shape, cluster_name: str) -> dict[str, str]:
    """Return how jobs are scheduled, shared and numbered."""
    return {
        "ClusterName": cluster_name,
        "MailProg": "/bin/true",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "ReturnToService": "2",
        "JobRequeue": "0",
        "EnforcePartLimits": "ALL",
        "MaxJobCount": "200000",
        "MinJobAge": "3600",
        "FirstJobId": str(first_job_id(cluster_name)),
        "TaskPlugin": "task/none",
        "SlurmdParameters": "config_overrides",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory,CR_LLN",
        "SchedulerType": f"sched/{'backfill' if shape.scheduler is Scheduler.BACKFILL else 'builtin'}",
        "SchedulerParameters": "sched_interval=1,batch_sched_delay=1,bf_interval=1,bf_resolution=1,"
        "bf_job_part_count_reserve=1,default_queue_depth=10000",
        "PreemptType": "preempt/none",
        "PreemptMode": "GANG" if shape.gang is GangKind.SLURM else "OFF",
        "SchedulerTimeSlice": "5",
    }


def sharing_words(jobs_a_core: int, memory_per_cpu_mib: int | None) -> str:
    """Return what a partition's line says of cores, and of memory if that is known."""
    share = f"OverSubscribe={f'FORCE:{jobs_a_core}' if jobs_a_core > 1 else 'NO'}"
    return share if memory_per_cpu_mib is None else f"{share} DefMemPerCPU={memory_per_cpu_mib}"


def with_settings(lines: Mapping[str, str], settings: Iterable[str]) -> dict[str, str]:
    """Return the lines with the user's own ``Key=Value``, which win over ours."""
    result = dict(lines)
    for setting in settings:
        key, _, value = setting.partition("=")
        result = {name: text for name, text in result.items() if name.lower() != key.lower()}
        result[key] = value
    return result


def first_job_id(cluster_name: str) -> int:
    """Return the number of a cluster's first job, another one for (almost) every cluster.

    MPICH names the shared memory of a job's ranks after Slurm's job and step and nothing else. Two clusters
    of one host that both count from 1 would have their jobs write into each other's messages.
    """
    return _JOBS_A_RANGE * (1 + zlib.crc32(cluster_name.encode()) % _JOB_RANGES) + 1
