"""Jobs from ``squeue --json``, in which what users write cannot be taken for what Slurm writes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from foundation.one_line import one_line
from foundation.slurm.reading.json_records import (
    Amount,
    Document,
    Identity,
    NodeShare,
    Number,
    Record,
    Resources,
)
from foundation.slurm.reading.placing import BadRecordError, FindNode, each_once, place, snapshot_of
from foundation.slurm.reading.record_faults import SlurmUnreachableError, UnknownFormatError
from foundation.slurm.slurm_types import Job, JobSnapshot, JobState, NodeCores, UnreadableJob

_DOCUMENT = msgspec.json.Decoder(Document)
_RECORD = msgspec.json.Decoder(Record)
_IDENTITY = msgspec.json.Decoder(Identity)

# Of the flags and the base state that a job has at once Slurm prints the first (job_state_string of
# src/common/slurm_protocol_defs.c); newer versions list them all.
_FLAGS = (
    JobState.COMPLETING,
    JobState.STAGE_OUT,
    JobState.CONFIGURING,
    JobState.RESIZING,
    JobState.REQUEUED,
    JobState.REQUEUE_FED,
    JobState.REQUEUE_HOLD,
    JobState.SPECIAL_EXIT,
    JobState.STOPPED,
    JobState.REVOKED,
    JobState.RESV_DEL_HOLD,
    JobState.SIGNALING,
)
_MOST_KEPT = 16 << 20
_STATES = {str(state): state for state in JobState}


class JsonReader:
    """Reads one output after the other; a record that stands there as it stood before is not read again."""

    def __init__(self) -> None:
        self._records: list[msgspec.Raw] = []
        self._known: dict[bytes, Job] = {}
        self._edition = 0
        self._keep = True

    def open(self, text: str) -> None:
        """Take the output of ``squeue --json``.

        Raises
        ------
        SlurmUnreachableError
            The command could not ask slurmctld; it says so in the document only, and lists no jobs.
        UnknownFormatError
            It is no such document, or tells of an error beside jobs.
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
        known: dict[bytes, Job] = {}
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


def _job(record: Record, find: FindNode) -> Job:
    state = _state(record.job_state)
    limit_minutes = _whole(record.time_limit)
    code, signal = _exit(record.exit_code)
    begun = state.holds_cores or state.is_over
    endless = limit_minutes is None and not state.is_over
    return Job(
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


def _state(words: str | list[str]) -> JobState:
    if isinstance(words, str):
        words = [words]
    states = [_STATES[word] for word in words if word in _STATES]
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


def _cores(held: Resources | None, state: JobState, find: FindNode) -> tuple[NodeCores, ...]:
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
