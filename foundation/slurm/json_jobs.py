"""Jobs from ``squeue --json``, in which what users write cannot be taken for what Slurm writes.

First the records as typed structs: unknown fields are passed over, known ones are checked. Slurm has printed
three shapes of them. 21.08 and 22.05 (openapi/v0.0.37 and v0.0.38) have plain numbers, 0 or null for what is
not set, and cores in objects within objects; from 23.02 on (data_parser/v0.0.39) a number that may be missing
is an object; from 24.05 on (data_parser/v0.0.41) so are the resources. A type here takes all of them.
Sources: src/plugins/openapi/v0.0.38/jobs.c and src/plugins/data_parser/*/parsers.c of Slurm.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from foundation.one_line import one_line
from foundation.slurm.hosts import BadRecordError, FindNode, each_once, place, snapshot_of
from foundation.slurm.slurm_types import (
    STATES,
    JobSnapshot,
    NodeCores,
    SlurmJob,
    SlurmJobState,
    SlurmUnreachableError,
    UnknownFormatError,
    UnreadableJob,
)

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


class JsonMemory(msgspec.Struct, frozen=True):
    """Memory on a node since 24.05, MiB."""

    allocated: Whole = 0


class NodeShare(msgspec.Struct, frozen=True):
    """What a job holds of a node; the name and the memory have another place since 24.05."""

    sockets: dict[str, SocketCores] | list[Socket]
    nodename: str | None = None
    name: str | None = None
    memory_allocated: Whole = 0
    memory: JsonMemory | None = None


class JsonNodes(msgspec.Struct, frozen=True):
    """The nodes of a job since 24.05."""

    allocation: list[NodeShare] = []


class Resources(msgspec.Struct, frozen=True):
    """What a job holds; ``nodes`` is a host list before 24.05, and not needed."""

    nodes: str | JsonNodes | None = None
    allocated_nodes: list[NodeShare] = []


class JsonJob(msgspec.Struct, frozen=True):
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


class JsonFault(msgspec.Struct, frozen=True):
    """An error of the command itself, which ends with exit code 0 nevertheless."""

    error: str | None = None
    description: str | None = None


class Document(msgspec.Struct, frozen=True):
    """All of it; a record is decoded by itself, so that a bad one harms no other."""

    jobs: list[msgspec.Raw]
    errors: list[JsonFault] = []


_DOCUMENT = msgspec.json.Decoder(Document)
_RECORD = msgspec.json.Decoder(JsonJob)
_IDENTITY = msgspec.json.Decoder(Identity)

# Of the flags and the base state that a job has at once Slurm prints the first (job_state_string of
# src/common/slurm_protocol_defs.c); newer versions list them all.
_FLAGS = (
    SlurmJobState.COMPLETING,
    SlurmJobState.STAGE_OUT,
    SlurmJobState.CONFIGURING,
    SlurmJobState.RESIZING,
    SlurmJobState.REQUEUED,
    SlurmJobState.REQUEUE_FED,
    SlurmJobState.REQUEUE_HOLD,
    SlurmJobState.SPECIAL_EXIT,
    SlurmJobState.STOPPED,
    SlurmJobState.REVOKED,
    SlurmJobState.RESV_DEL_HOLD,
    SlurmJobState.SIGNALING,
)
_MOST_KEPT = 16 << 20


class JsonReader:
    """Reads one output after the other; an unchanged record is not parsed again."""

    def __init__(self) -> None:
        self._records: list[msgspec.Raw] = []
        self._known: dict[bytes, SlurmJob] = {}
        self._edition = 0
        self._keep = True

    def open(self, text: str) -> None:
        """Take the output of ``squeue --json``.

        Raises
        ------
        SlurmUnreachableError
            The command could not ask slurmctld; it says so in the document only, and lists no jobs.
        UnknownFormatError
            It is no such document, or lists an error as well as jobs.
        """
        self._records = []
        try:
            document = _DOCUMENT.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise UnknownFormatError(f"what `squeue --json` prints cannot be read: {error}") from error
        if document.errors:
            said = one_line(document.errors[0].description or document.errors[0].error or "an error")
            if document.jobs:  # some of them, perhaps
                raise UnknownFormatError(f"`squeue --json` lists jobs, and says: {said}")
            raise SlurmUnreachableError(f"squeue: {said}")
        self._records = document.jobs
        self._keep = len(text) <= _MOST_KEPT

    def read(self, find: FindNode, edition: int = 0) -> JobSnapshot:
        """Return the jobs in the output.

        Parameters
        ----------
        find
            The cluster's nodes.
        edition
            Another number when a node is not what it was.
        """
        if edition != self._edition:
            self._known.clear()
        known: dict[bytes, SlurmJob] = {}
        jobs, unreadable = [], []
        for raw in self._records:
            record = bytes(raw)
            job = self._known.get(record)
            try:
                job = job or _job(_RECORD.decode(record), find)
            except msgspec.DecodeError as error:
                unreadable.append(UnreadableJob(_id_of(record), f"its record has another form: {error}"))
            except BadRecordError as error:
                unreadable.append(UnreadableJob(_id_of(record), str(error)))
            else:
                jobs.append(job)
                known[record] = job
        self._known, self._edition = known if self._keep else {}, edition
        return snapshot_of(jobs, unreadable)

    def close(self) -> None:
        """Let go of the output."""
        self._records = []


def _id_of(raw: bytes) -> int | None:
    try:
        return _IDENTITY.decode(raw).job_id
    except msgspec.DecodeError:
        return None


def _job(record: JsonJob, find: FindNode) -> SlurmJob:
    state = _state(record.job_state)
    limit_minutes = _whole(record.time_limit)
    code, signal = _exit(record.exit_code)
    begun = state.holds_cores or state.is_over
    endless = limit_minutes is None and not state.is_over
    return SlurmJob(
        job_id=record.job_id,
        name=record.name or None,
        user=record.user_name or str(record.user_id),
        uid=record.user_id,
        partition=record.partition.partition(",")[0],
        state=state,
        reason=one_line(record.state_description or record.state_reason or "None"),
        num_nodes=_whole(record.node_count) or 0,
        cores=_cores(record.job_resources, state, find),
        array_job_id=_whole(record.array_job_id) or None,
        array_task_id=_whole(record.array_task_id) if _whole(record.array_job_id) else None,
        het_job_id=_whole(record.het_job_id) or None,
        het_job_offset=_whole(record.het_job_offset) if _whole(record.het_job_id) else None,
        submit_time=_whole(record.submit_time) or None,
        start_time=_whole(record.start_time) or None if begun else None,
        end_time=_whole(record.end_time) or None if begun and not endless else None,
        time_limit_s=None if limit_minutes is None else limit_minutes * 60,
        restarts=_whole(record.restart_cnt) or 0,
        preempt_time=_whole(record.preempt_time) or None,
        exit_code=code,
        exit_signal=signal,
        features=record.features or None,
        comment=record.comment or None,
        admin_comment=record.admin_comment or None,
        batch_host=record.batch_host or None,
        account=record.account or None,
        qos=record.qos or None,
        reservation=record.resv_name or None,
        extra=record.extra,
    )


def _whole(value: Number) -> int | None:
    if isinstance(value, Amount):
        return value.number if value.set and not value.infinite else None
    return value


def _state(words: str | list[str]) -> SlurmJobState:
    if isinstance(words, str):
        words = [words]
    states = [STATES[word] for word in words if word in STATES]
    if not states:
        raise BadRecordError("its state is none that is known")
    return next((flag for flag in _FLAGS if flag in states), states[0])


def _exit(value: Number) -> tuple[int | None, int | None]:
    """Return exit code and signal: from both, or from a status as wait(2) has it."""
    if isinstance(value, Amount) and (value.signal is not None or value.return_code is not None):
        signal = value.signal and (_whole(value.signal.id) or _whole(value.signal.signal_id))
        return _whole(value.return_code) or 0, signal or None
    status = _whole(value)
    if status is None:
        return None, None
    if os.WIFSIGNALED(status & 0xFFFF):
        return 0, os.WTERMSIG(status & 0xFFFF)
    return os.WEXITSTATUS(status & 0xFFFF), None


def _cores(held: Resources | None, state: SlurmJobState, find: FindNode) -> tuple[NodeCores, ...]:
    if held is None or not (state.holds_cores or state.is_over):
        return ()
    shares = held.allocated_nodes
    if held.nodes is not None and not isinstance(held.nodes, str):
        shares = held.nodes.allocation
    try:
        return each_once(_share(share, find) for share in shares)
    except BadRecordError:
        if state.is_over:  # its node may have left the cluster since
            return ()
        raise


def _share(share: NodeShare, find: FindNode) -> NodeCores:
    name = share.nodename or share.name or ""
    node = find(name)
    each = node.cores_per_socket if node else 1
    memory = share.memory.allocated if share.memory else share.memory_allocated
    return place(name, _numbered(share, each), memory, find)


def _numbered(share: NodeShare, each: int) -> Iterator[int]:
    """Yield the cores numbered through the sockets of the node."""
    if isinstance(share.sockets, list):
        found = (
            (socket.index, core.index)
            for socket in share.sockets
            for core in socket.cores
            if "ALLOCATED" in core.status
        )
    else:
        found = (
            (_index(socket), _index(core)) for socket, held in share.sockets.items() for core in held.cores
        )
    for socket, core in found:
        if core >= each:
            raise BadRecordError(f"it is said to hold core {core} of a socket of {each}")
        yield socket * each + core


def _index(key: str) -> int:
    if len(key) > 5 or not key.isascii() or not key.isdigit():
        raise BadRecordError("a core of it has no number")
    return int(key)
