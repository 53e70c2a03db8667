"""What Slurm says of jobs, nodes and partitions, as values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from foundation.errors import ClusterError

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")


def instant_of(text: str) -> int | None:
    """Return the epoch second that Slurm printed under TZ=UTC; None where the text is no time."""
    if _TIME.fullmatch(text) is None:
        return None
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


class SlurmUnreachableError(ClusterError):
    """Slurm's controller did not answer: it is down, restarting, or too busy."""


class SlurmRefusedError(ClusterError):
    """Slurm understood and said no; doing the same again will not help."""


class UnreadableJobError(ClusterError):
    """Slurm has a job and its record cannot be read: whether it runs is not known."""


class UnknownFormatError(ClusterError):
    """Slurm printed what this version of the toolkit cannot read."""


class AnswerTooLongError(ClusterError):
    """Slurm printed more than is read; users can make it so."""


class SubmitUncertainError(ClusterError):
    """A submission timed out: the job may or may not exist. Look for its name before another try."""


class SlurmJobState(StrEnum):
    """Slurm's base job states (``scontrol show job``, JobState; squeue(1), JOB STATE CODES)."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETING = "COMPLETING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    REQUEUED = "REQUEUED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    REQUEUE_FED = "REQUEUE_FED"
    RESIZING = "RESIZING"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    REVOKED = "REVOKED"
    SIGNALING = "SIGNALING"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    STAGE_OUT = "STAGE_OUT"
    STOPPED = "STOPPED"

    @property
    def holds_cores(self) -> bool:
        """Whether a job in this state has cores allocated."""
        return self in _WITH_CORES

    @property
    def is_over(self) -> bool:
        """Whether a job in this state will never run again."""
        return self in _OVER


STATES = {str(state): state for state in SlurmJobState}
"""States by Slurm's word for them."""
_WITH_CORES = frozenset(
    {
        SlurmJobState.CONFIGURING,
        SlurmJobState.RUNNING,
        SlurmJobState.SUSPENDED,
        SlurmJobState.COMPLETING,
        SlurmJobState.RESIZING,
        SlurmJobState.SIGNALING,
        SlurmJobState.STAGE_OUT,
        SlurmJobState.STOPPED,
    }
)
_OVER = frozenset(
    {
        SlurmJobState.COMPLETED,
        SlurmJobState.CANCELLED,
        SlurmJobState.FAILED,
        SlurmJobState.TIMEOUT,
        SlurmJobState.NODE_FAIL,
        SlurmJobState.PREEMPTED,
        SlurmJobState.BOOT_FAIL,
        SlurmJobState.DEADLINE,
        SlurmJobState.OUT_OF_MEMORY,
        SlurmJobState.REVOKED,
    }
)


@dataclass(frozen=True, slots=True)
class NodeCores:
    """The cores of one node that a job holds.

    Attributes
    ----------
    node
        Slurm's NodeName.
    cores
        Core indices in Slurm's abstract numbering, ascending, from 0. (Slurm prints CPU ids;
        with T threads a core, CPU id c belongs to core c // T.)
    memory_mib
        Memory allocated on the node, MiB; None where memory is not a resource.
    """

    node: str
    cores: tuple[int, ...]
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """One job.

    All of it is Slurm's, but for ``name``, ``comment`` and ``features``: users write these, any character may
    be in them, and they are None where they are not set or not known. So do they ``account``, where Slurm
    does not enforce it (AccountingStorageEnforce). ``admin_comment`` is written by
    operators and plugins, any character may be in it too. ``extra`` is the user's or an operator's, empty
    where it is not set, and None where it is not known (before Slurm 23.02 jobs have none). Times are seconds
    since the Unix epoch and whole, as Slurm stamps them; None where Slurm says Unknown. ``time_limit_s`` is
    None for UNLIMITED.
    ``array_job_id`` and ``het_job_id`` are None for jobs that are neither. ``exit_code`` is the batch
    script's, ``exit_signal`` the signal that ended it (None for none). ``preempt_time`` is known from when
    Slurm preempts the job until it is back in the queue, and not by every source. ``reservation`` is the one
    that the job runs in.
    """

    job_id: int
    name: str | None
    user: str
    uid: int
    partition: str
    state: SlurmJobState
    reason: str
    num_nodes: int
    cores: tuple[NodeCores, ...] = ()
    array_job_id: int | None = None
    array_task_id: int | None = None
    het_job_id: int | None = None
    het_job_offset: int | None = None
    submit_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    time_limit_s: int | None = None
    restarts: int = 0
    preempt_time: int | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    features: str | None = None
    comment: str | None = None
    admin_comment: str | None = None
    batch_host: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    extra: str | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes the job holds, in Slurm's order."""
        return tuple(held.node for held in self.cores)

    @property
    def spec(self) -> str:
        """The id by which Slurm's commands address this job alone.

        The id of an array's first task is that of the whole array, and a component of a heterogeneous job is
        addressed by its leader (squeue(1), JOB ARRAYS; Slurm's page on heterogeneous jobs).
        """
        if self.array_job_id is not None and self.array_task_id is not None:
            return f"{self.array_job_id}_{self.array_task_id}"
        return str(self.het_job_id if self.het_job_id is not None else self.job_id)


@dataclass(frozen=True, slots=True)
class UnreadableJob:
    """A job that Slurm has, and whose record cannot be read or believed.

    It is not known to run, nor to be gone: gangd leaves it alone, and a caller that waits for its end
    goes on waiting.

    Attributes
    ----------
    job_id
        Its id; None where even that cannot be read.
    why
        What is wrong with the record, in a line that can be printed.
    """

    job_id: int | None
    why: str

    def __str__(self) -> str:
        return f"{'a job' if self.job_id is None else f'job {self.job_id}'}: {self.why}"


@dataclass(frozen=True, slots=True)
class SnapshotDifference:
    """How a snapshot differs from an earlier one of its source: who knows that one need not look at all jobs.

    Attributes
    ----------
    number, since
        Of this snapshot and of the earlier one.
    changed
        Jobs that are new or not as they were.
    gone
        Jobs that were there, and are not.
    """

    number: int
    since: int
    changed: tuple[SlurmJob, ...]
    gone: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """What Slurm said of its jobs at one instant.

    Attributes
    ----------
    jobs
        Every job whose record could be read, finished ones within MinJobAge included.
    unreadable
        The others. A job in neither is one that Slurm does not know (any more).
    difference
        To the snapshot before; None where the source does not tell.
    """

    jobs: tuple[SlurmJob, ...]
    unreadable: tuple[UnreadableJob, ...] = ()
    difference: SnapshotDifference | None = field(default=None, compare=False)

    def is_unreadable(self, job_id: int) -> bool:
        """Whether Slurm has, or may have, this job without telling of it; a record without id may be any."""
        if not self.unreadable or any(job.job_id == job_id for job in self.jobs):
            return False
        return any(one.job_id is None or one.job_id == job_id for one in self.unreadable)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """One node: ``states`` is the set of state and flags, such as {"IDLE", "DRAIN"}.

    ``cores`` are those of all its sockets, numbered through. ``version`` is its slurmd's, None while it is
    away.
    """

    name: str
    states: frozenset[str]
    cores: int
    threads_per_core: int
    memory_mib: int
    cpus_allocated: int
    features: frozenset[str]
    reason: str | None = None
    address: str | None = None
    sockets: int = 1
    version: str | None = None

    @property
    def cores_per_socket(self) -> int:
        """Cores of one socket."""
        return self.cores // self.sockets

    @property
    def is_up(self) -> bool:
        """Whether the node can take a job, now or when it has free resources."""
        bad = {"DOWN", "DRAIN", "FAIL", "FAILING", "UNKNOWN", "NOT_RESPONDING", "FUTURE", "MAINT"}
        return not self.states & bad


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are set aside for a while, for maintenance or for some users; times in epoch seconds."""

    name: str
    start_s: int
    end_s: int
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition.

    ``multiplicity`` is the cap on allocated jobs a core (OverSubscribe=FORCE:M or YES:M), 1
    where cores are not shared; ``forced`` tells FORCE from YES. ``most_time_s`` and ``most_nodes`` limit each
    job; None where there is no limit. ``default_memory`` tells whether a job that asks for no memory gets
    less than all of its nodes', by the partition's own setting.
    """

    name: str
    nodes: tuple[str, ...]
    multiplicity: int
    forced: bool
    is_default: bool
    is_up: bool
    preempt_mode: str
    most_time_s: int | None = None
    most_nodes: int | None = None
    default_memory: bool = False


@dataclass(frozen=True, slots=True)
class AccountingNames:
    """The names that Slurm's accounting knows."""

    qos: frozenset[str]
    accounts: frozenset[str]
