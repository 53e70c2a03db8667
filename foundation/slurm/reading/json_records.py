"""The records of ``squeue --json`` as typed structs: unknown fields are passed over, known ones are checked.

Slurm has printed three shapes of them. 21.08 and 22.05 (openapi/v0.0.37 and v0.0.38) have plain numbers, 0 or
null for what is not set, and cores in objects within objects; from 23.02 on (data_parser/v0.0.39) a number
that may be missing is an object; from 24.05 on (data_parser/v0.0.41) so are the resources. A type here takes
all of them. Sources: src/plugins/openapi/v0.0.38/jobs.c and src/plugins/data_parser/*/parsers.c of Slurm.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Whole = Annotated[int, Meta(ge=0, le=1 << 53)]
Id = Annotated[int, Meta(ge=1, le=(1 << 32) - 1)]
Index = Annotated[int, Meta(ge=0, le=1 << 16)]


class Amount(msgspec.Struct, frozen=True):
    """A number that may be missing or infinite, or an exit code taken apart."""

    set: bool = True
    infinite: bool = False
    number: Whole | None = None
    return_code: Amount | Whole | None = None
    signal: Signal | None = None


class Signal(msgspec.Struct, frozen=True):
    """The signal that ended a process; under 23.02 the id has another name."""

    id: Amount | Whole | None = None
    signal_id: Amount | Whole | None = None


Number = Amount | Whole | None


class SocketCores(msgspec.Struct, frozen=True):
    """Cores of a socket by index, "allocated" or "allocated_and_in_use"; others are not named."""

    cores: dict[str, str]


class Core(msgspec.Struct, frozen=True):
    """A core since 24.05; one that is not the job's has the status UNALLOCATED."""

    index: Index
    status: list[str]


class Socket(msgspec.Struct, frozen=True):
    """A socket since 24.05."""

    index: Index
    cores: list[Core]


class Memory(msgspec.Struct, frozen=True):
    """Memory on a node since 24.05, MiB."""

    allocated: Whole = 0


class NodeShare(msgspec.Struct, frozen=True):
    """What a job holds of a node; the name and the memory have another place since 24.05."""

    sockets: dict[str, SocketCores] | list[Socket]
    nodename: str | None = None
    name: str | None = None
    memory_allocated: Whole = 0
    memory: Memory | None = None


class Nodes(msgspec.Struct, frozen=True):
    """The nodes of a job since 24.05."""

    allocation: list[NodeShare] = []


class Resources(msgspec.Struct, frozen=True):
    """What a job holds; ``nodes`` is a host list before 24.05, and not needed."""

    nodes: str | Nodes | None = None
    allocated_nodes: list[NodeShare] = []


class Record(msgspec.Struct, frozen=True):
    """One job."""

    job_id: Id
    job_state: str | list[str]
    user_id: Whole
    partition: str
    submit_time: Number
    start_time: Number
    end_time: Number
    time_limit: Number
    exit_code: Number
    node_count: Number
    array_job_id: Number = None
    array_task_id: Number = None
    het_job_id: Number = None
    het_job_offset: Number = None
    restart_cnt: Number = None
    preempt_time: Number = None
    user_name: str | None = None
    state_reason: str | None = None
    state_description: str | None = None
    batch_host: str | None = None
    name: str | None = None
    comment: str | None = None
    admin_comment: str | None = None
    extra: str | None = None
    features: str | None = None
    account: str | None = None
    qos: str | None = None
    resv_name: str | None = None
    job_resources: Resources | None = None


class Identity(msgspec.Struct, frozen=True):
    """The least that a record may say."""

    job_id: Id


class Fault(msgspec.Struct, frozen=True):
    """An error of the command itself, which ends with exit code 0 nevertheless."""

    error: str | None = None
    description: str | None = None


class Document(msgspec.Struct, frozen=True):
    """All of it; a record is decoded by itself, so that a bad one harms no other."""

    jobs: list[msgspec.Raw]
    errors: list[Fault] = []
