"""Finding the gang scheduler of a cluster: whether limits stand as they are, and where its slices are.

Its files are trusted only where no one but root, Slurm's user or the user could have written them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deploy.local import GangKind
from deploy.local.gang import record_folder
from deploy.local.state import ClusterState
from foundation.errors import ClusterError, InputError, OsubError
from foundation.records import GangSettings, SliceRecord
from foundation.trust import Owners, folder_of, open_own, read_trusted
from gangd.controller.controller_config import Config
from gangd.controller.controller_status import ControllerStatus
from gangd.controller.slicefiles import NAME as SLICES_NAME
from gangd.controller.slicefiles import parts_in
from gangd.controller.slicelog import read_slices
from gangd.controller.state_directory import STATUS_NAME
from submitter.replay import Collect

AUTO, NONE = "auto", "none"
DEFAULT_STATE = Config().state
_FRESH_S = 10.0
_MOST_NAMED = 3
_JOINED = "joined"


@dataclass(frozen=True, slots=True)
class FoundGang:
    """Who takes turns on shared cores.

    Attributes
    ----------
    settings
        As a RUN has them.
    slices
        The folder with the slice record of gangd, None where there is none.
    remark
        What a user should know of how it was found, None for nothing.
    """

    settings: GangSettings
    slices: Path | None = None
    remark: str | None = None


def find_gang(
    where: str, embedded: ClusterState | None, config: Mapping[str, str], nodes: Collection[str]
) -> FoundGang:
    """Return who takes turns on the shared cores of these nodes.

    Parameters
    ----------
    where
        gangd's state folder; ``none``: there is no gangd; ``auto``: the embedded cluster's own, or the one in
        the default folder of this host if it serves all of the nodes.
    embedded
        The embedded cluster, None for any other.
    config
        slurmctld's configuration.
    nodes
        The nodes that jobs go to.

    Raises
    ------
    ClusterError
        ``where`` is a folder and the gangd there does not serve these nodes now.
    InputError, TrustError
        ``where`` is a folder without its status, or with one that another user could have written.
    """
    if "GANG" in config.get("PreemptMode", ""):
        return FoundGang(
            GangSettings(kind="slurm", quantum_ms=1000.0 * int(config["SchedulerTimeSlice"].split()[0]))
        )
    no_gang = GangSettings(kind="none")
    if where == AUTO and embedded is not None:
        if embedded.shape.gang is not GangKind.OSUB:
            return FoundGang(no_gang)
        shape = embedded.shape
        settings = GangSettings(kind="osub", hold=shape.hold.value, quantum_ms=shape.quantum_ms)
        return FoundGang(settings, record_folder(embedded.layout))
    if where == NONE:
        return FoundGang(no_gang)
    folder = DEFAULT_STATE if where == AUTO else Path(where)
    try:
        if where == AUTO and not (folder / STATUS_NAME).exists():
            return FoundGang(no_gang)
        also = _slurm_user(config)
        status = _status(folder, also)
        _check_serves(status, folder, nodes)
    except (OsubError, OSError) as error:
        if where != AUTO:
            raise
        return FoundGang(no_gang, remark=f"no gangd is taken into account: {error}")
    settings = GangSettings(
        kind="osub", hold=status.hold, quantum_ms=status.asked_quantum_ms, lease_s=status.lease_ms / 1000
    )
    if status.record is None:
        return FoundGang(settings, remark=f"the gangd of {folder} records no slices: `record` is not set")
    slices = Path(status.record)
    try:
        _check_slices(slices, also)
    except OsubError as error:
        return FoundGang(settings, remark=f"the RUN will have no slices: {error}")
    return FoundGang(settings, slices)


def collector_of(folder: Path | None, config: Mapping[str, str]) -> Collect | None:
    """Return what tells the time slices that a gangd recorded in a folder; None where there is no folder."""
    if folder is None:
        return None

    def collect(jobs: Collection[int], origin: float) -> Iterator[SliceRecord]:
        _check_slices(folder, _slurm_user(config))
        yield from read_slices(folder, origin, jobs)

    return collect


def _status(folder: Path, also: Owners) -> ControllerStatus:
    path = folder / STATUS_NAME
    try:
        return msgspec.json.decode(read_trusted(path, also=also), type=ControllerStatus)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; does a gangd run there?") from error
    except msgspec.DecodeError as error:
        raise InputError(f"{path} is not the status of a gangd of this version: {error}") from error


def _check_slices(folder: Path, also: Owners) -> None:
    path = folder / SLICES_NAME
    try:
        with folder_of(path, also) as parent:
            for name in (path.name, *parts_in(parent).values()):
                os.close(open_own(parent, name, os.O_RDONLY, also=also))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _check_serves(status: ControllerStatus, folder: Path, nodes: Collection[str]) -> None:
    age_s = time.time() - status.time_ms / 1000
    if abs(age_s) > _FRESH_S + 3 * status.lease_ms / 1000:
        raise ClusterError(f"the gangd of {folder} last wrote its status {age_s:.0f} s ago: does it run?")
    if status.dry_run:
        raise ClusterError(f"the gangd of {folder} only tries (--dry-run): it holds no job")
    joined = {node.node for node in status.nodes if node.agent.lower() == _JOINED}
    missing = sorted(set(nodes) - joined)
    if missing:
        some = ", ".join(missing[:_MOST_NAMED]) + (", ..." if len(missing) > _MOST_NAMED else "")
        raise ClusterError(f"the gangd of {folder} has no agent on {some}: jobs there take no turns")


def _slurm_user(config: Mapping[str, str]) -> Owners:
    slurm = re.search(r"\((\d{1,10})\)\s*$", config.get("SlurmUser", ""))
    return frozenset({int(slurm[1])} if slurm else ())
