"""Jobs from Slurm's C library, by ``pyslurm``, where one is installed that fits this Slurm.

Only a process of its own may do this (``subprocess_reader``): the library reads one configuration in a
process's life, ends the process where it does not like it, and what it does with a broken answer is not
Python's to catch.

What ``pyslurm`` (22.5 to 25.11) tells of a job and what it does not: the ids of cores as a text that is cut
at 127 characters; an array's task 0 as none; an exit code of 128 or more less 128. A text that is no UTF-8
cannot be had at all. Where any of this would matter another source is asked for all jobs.
"""

from __future__ import annotations

import importlib
import importlib.util
import pwd
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from operator import attrgetter
from typing import Any, Protocol

from foundation.errors import ClusterError
from foundation.one_line import one_line
from foundation.slurm.hosts import (
    AT_MOST_EVERY_S,
    BadRecordError,
    FindNode,
    NodeBook,
    each_once,
    expand_ids,
    place,
    snapshot_of,
)
from foundation.slurm.slurm_types import (
    STATES,
    JobSnapshot,
    NodeCores,
    SlurmJob,
    SlurmJobState,
    UnknownFormatError,
    UnreadableJob,
)

MODULE = "pyslurm"
_LONGEST_IDS = 120
"""``get_resource_layout_per_node`` of pyslurm writes the ids into 128 bytes, as ``scontrol`` does."""

_RELEASE = re.compile(r"([0-9]{2})\.0?([0-9]{1,2})(?:[.-].*)?")
_BEGUN = frozenset(str(state) for state in SlurmJobState if state.holds_cores or state.is_over)
_OVER = frozenset(str(state) for state in SlurmJobState if state.is_over)

# What ``library_job`` reads of a record: of all, of a task of an array, of a component, of a job that has
# begun, and what is written about a job. One call fetches all of a group.
_ALWAYS = attrgetter(
    "id",
    "state",
    "user_id",
    "partition",
    "state_reason",
    "num_nodes",
    "array_id",
    "heterogeneous_id",
    "submit_time",
    "time_limit",
    "requeue_count",
    "preempt_time",
)
_STATE, _ARRAY, _COMPONENT = 1, 6, 7
"""Where a job's state and the ids of its array and its leader are among these."""

_OF_ARRAY = attrgetter("array_task_id", "array_tasks_waiting")
_OF_COMPONENT = attrgetter("heterogeneous_offset")
_OF_BEGUN = attrgetter("exit_code_signal", "start_time", "end_time", "batch_host")
_WRITTEN = attrgetter("name", "constraints", "comment", "admin_comment", "account", "qos", "reservation")


class LibraryJob(Protocol):
    """What is read of a ``pyslurm.Job``: times in epoch seconds, limits in minutes, None if not set."""

    id: int
    name: str | None
    user_id: int
    partition: str
    state: str
    state_reason: str | None
    num_nodes: int | None
    array_id: int | None
    array_task_id: int | None
    array_tasks_waiting: str | None
    heterogeneous_id: int | None
    heterogeneous_offset: int | None
    submit_time: int | None
    start_time: int | None
    end_time: int | None
    time_limit: int | None
    requeue_count: int
    preempt_time: int | None
    exit_code_signal: int
    constraints: list[str]
    comment: str | None
    admin_comment: str | None
    batch_host: str | None
    account: str | None
    qos: str | None
    reservation: str | None

    def get_resource_layout_per_node(self) -> Mapping[str, Mapping[str, object]]:
        """Return ``cpu_ids`` (of cores, whatever threads they have) and ``memory`` (MiB) by node."""
        ...


Load = Callable[[], Iterable[LibraryJob]]


def release(version: str) -> tuple[int, int] | None:
    """Return year and month of a release of Slurm, or that a ``pyslurm`` is for; None for none."""
    found = _RELEASE.fullmatch(version)
    return None if found is None else (int(found[1]), int(found[2]))


def is_installed() -> bool:
    """Whether there is a ``pyslurm``, of any release."""
    return importlib.util.find_spec(MODULE) is not None


def fitting_load(slurm_version: Callable[[], str]) -> Load:
    """Return the function that loads all jobs through ``pyslurm``.

    Parameters
    ----------
    slurm_version
        Returns slurmctld's, such as ``22.05.8``.

    Raises
    ------
    UnknownFormatError
        None is installed, or not one for this release.
    """
    if not is_installed():
        raise UnknownFormatError("pyslurm is not installed")
    try:
        version = metadata.version(MODULE)
    except metadata.PackageNotFoundError as error:
        raise UnknownFormatError("pyslurm does not say its version") from error
    theirs = slurm_version()
    if release(version) is None or release(version) != release(theirs):
        raise UnknownFormatError(f"pyslurm {version} is not for Slurm {theirs}")
    try:
        module: Any = importlib.import_module(MODULE)
        load = module.Jobs.load
    except (ImportError, AttributeError) as error:
        raise UnknownFormatError(f"pyslurm {version} cannot be used: {one_line(str(error))}") from error

    def jobs() -> Iterable[LibraryJob]:
        try:
            found: Iterable[LibraryJob] = load().values()
        except Exception as error:
            raise UnknownFormatError(f"pyslurm: {one_line(str(error))}") from error
        return found

    return jobs


class LibrarySource:
    """All jobs by one call of the library; one that is as it was is the same object.

    Parameters
    ----------
    begin
        Returns what loads the jobs; raises UnknownFormatError where there is none (``fitting_load``).
    user_name
        Returns the name of a user id.
    alive_only
        Whether jobs that are over are left out, and of those that wait what was written about them.
    """

    def __init__(
        self,
        begin: Callable[[], Load],
        user_name: Callable[[int], str] | None = None,
        *,
        alive_only: bool = False,
    ) -> None:
        self._begin = begin
        self._alive_only = alive_only
        self._load: Load | None = None
        self._user_name = user_name or _Names()
        self._known: dict[int, tuple[object, SlurmJob]] = {}
        self._edition = 0

    def read(self, nodes: NodeBook) -> JobSnapshot:
        """Return all jobs.

        Raises
        ------
        UnknownFormatError
            The library cannot be used, does not reach slurmctld, or does not tell something that is needed.
        """
        if self._load is None:
            self._load = self._begin()
        records = list(self._load())
        nodes.renew()
        snapshot = self._jobs(records, nodes)
        if nodes.missed and nodes.renew(AT_MOST_EVERY_S):
            snapshot = self._jobs(records, nodes)
        if snapshot.unreadable and not snapshot.jobs:
            raise UnknownFormatError(f"no record of pyslurm can be read: {snapshot.unreadable[0]}")
        return snapshot

    def _jobs(self, records: Iterable[LibraryJob], nodes: NodeBook) -> JobSnapshot:
        if nodes.edition != self._edition:  # a job's cores may be none of its node's any more
            self._edition = nodes.edition
            self._known.clear()
        jobs, unreadable, in_full = [], [], not self._alive_only
        known: dict[int, tuple[object, SlurmJob]] = {}
        for record in records:
            try:
                fields: tuple[object, ...] = _ALWAYS(record)
                some = fields[_ARRAY] is not None or fields[_COMPONENT] is not None
                if some or in_full or fields[_STATE] in _BEGUN:
                    if fields[_STATE] in _OVER and not in_full:
                        continue
                    fields += _rest(record, in_full=in_full)
                was = self._known.get(record.id)
                if was is None or was[0] != fields:
                    was = fields, library_job(record, nodes.find, self._user_name, waiting_in_full=in_full)
                known[record.id] = was
                jobs.append(was[1])
            except BadRecordError as error:
                unreadable.append(UnreadableJob(record.id, str(error)))
            except (
                AttributeError,
                LookupError,
                TypeError,
                ValueError,
            ) as error:  # another pyslurm, or a text that is no UTF-8
                raise UnknownFormatError(
                    f"pyslurm does not tell all of job {record.id}: {type(error).__name__}"
                ) from error
        self._known = known
        return snapshot_of(jobs, unreadable)


def _rest(record: LibraryJob, *, in_full: bool) -> tuple[object, ...]:
    """Return the fields that ``library_job`` reads besides ``_ALWAYS``; equal fields mean an equal job."""
    begun = record.state in _BEGUN
    return (
        _OF_ARRAY(record),
        _OF_COMPONENT(record),
        _OF_BEGUN(record) if begun else None,
        _WRITTEN(record) if begun or in_full else None,
        record.get_resource_layout_per_node() if begun else None,
    )


def library_job(
    record: LibraryJob, find: FindNode, user_name: Callable[[int], str], *, waiting_in_full: bool = True
) -> SlurmJob:
    """Return a job.

    Raises
    ------
    BadRecordError
        Its record says what cannot be.
    UnknownFormatError
        The list of its cores is cut.
    """
    state = STATES.get(record.state)
    if state is None:
        raise BadRecordError("its state is none that is known")
    limit_minutes = record.time_limit
    if not isinstance(limit_minutes, int | None):
        raise UnknownFormatError("pyslurm tells limits in another form")
    begun = state.holds_cores or state.is_over
    endless = limit_minutes is None and not state.is_over
    # Each field costs half a microsecond, and most jobs wait: what those have not is not asked for.
    code, signal = _exit(record, state) if begun else (0, None)
    array, het = record.array_id, record.heterogeneous_id
    waits_as_array = array is not None and record.array_tasks_waiting is not None
    read_all = begun or waiting_in_full
    return SlurmJob(
        job_id=record.id,
        name=record.name if read_all else None,
        user=user_name(record.user_id),
        uid=record.user_id,
        partition=record.partition.partition(",")[0],
        state=state,
        reason=one_line(record.state_reason or "None"),
        num_nodes=record.num_nodes or 0,
        cores=_cores(record, state, find) if begun else (),
        array_job_id=array,
        array_task_id=None if array is None or waits_as_array else record.array_task_id or 0,
        het_job_id=het,
        het_job_offset=None if het is None else record.heterogeneous_offset or 0,
        submit_time=record.submit_time,
        start_time=record.start_time if begun else None,
        end_time=record.end_time if begun and not endless else None,
        time_limit_s=None if limit_minutes is None else limit_minutes * 60,
        restarts=record.requeue_count,
        preempt_time=record.preempt_time,
        exit_code=code,
        exit_signal=signal,
        features=",".join(record.constraints) or None if read_all else None,
        comment=record.comment if read_all else None,
        admin_comment=record.admin_comment if read_all else None,
        batch_host=record.batch_host if begun else None,
        account=record.account if read_all else None,
        qos=record.qos if read_all else None,
        reservation=record.reservation if read_all else None,
    )


def _exit(record: LibraryJob, state: SlurmJobState) -> tuple[int | None, int | None]:
    """Return exit code and signal; the code of a job that failed is not known, for pyslurm takes 128 off."""
    if record.exit_code_signal:
        return 0, record.exit_code_signal
    return (None if state.is_over and state is not SlurmJobState.COMPLETED else 0), None


def _cores(record: LibraryJob, state: SlurmJobState, find: FindNode) -> tuple[NodeCores, ...]:
    try:
        return each_once(
            _share(name, held, find) for name, held in record.get_resource_layout_per_node().items()
        )
    except (BadRecordError, ClusterError) as error:
        if state.is_over:  # its node may have left the cluster since
            return ()
        if isinstance(error, UnknownFormatError):
            raise
        raise BadRecordError(str(error)) from error


def _share(name: str, held: Mapping[str, object], find: FindNode) -> NodeCores:
    ids, memory = held["cpu_ids"], held["memory"]
    if not isinstance(ids, str):
        raise BadRecordError(f"its cores on {name} are not known")
    if len(ids) >= _LONGEST_IDS:
        raise UnknownFormatError("pyslurm cuts the list of a job's cores")
    return place(name, expand_ids(ids), memory if isinstance(memory, int) else 0, find)


class _Names:
    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def __call__(self, uid: int) -> str:
        name = self._known.get(uid)
        if name is None:
            try:
                name = pwd.getpwuid(uid).pw_name
            except KeyError:
                name = str(uid)
            self._known[uid] = name
        return name
