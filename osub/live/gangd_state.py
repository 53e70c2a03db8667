"""Where a gangd writes its status, and whether it still does."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from deploy.local import GangKind
from deploy.local.gang import status_folder
from deploy.local.layout import state_option
from deploy.local.state import live_clusters, read_state
from foundation.errors import ClusterError, UsageError
from gangd.controller.controller_status import ControllerStatus
from gangd.controller.state_directory import STATUS_NAME

USUAL_STATE = Path("/var/lib/gangd")
"""Where a gangd of a real cluster keeps its state."""
STALE_S = 3.0
"""The controller writes once a second; older than this it is in trouble, or dead."""


@dataclass(frozen=True, slots=True)
class StatusFreshness:
    """Whether what the status says still holds.

    Attributes
    ----------
    age_s
        Age of the status, seconds.
    process
        Whether a process with the controller's id runs on this host.
    """

    age_s: float
    process: bool

    @property
    def is_stale(self) -> bool:
        """Whether the controller writes no more."""
        return self.age_s > STALE_S


def find_gangd(state: Path | None, gangd: Path | None) -> tuple[Path, Path | None]:
    """Return the folder with the status, and the embedded cluster's slurm.conf (None: this host's Slurm).

    Where neither is given it is this host's own gangd, or else that of the one embedded cluster that runs.

    Raises
    ------
    UsageError
        Both were given; or neither, and this host has no gangd of its own and not exactly one embedded
        cluster of this user's with gangd.
    ClusterError
        There is no embedded cluster in ``state``, or none with gangd.
    """
    if state is not None and gangd is not None:
        raise UsageError("give either --state (an embedded cluster's folder) or --gangd (a state folder)")
    if gangd is not None:
        return gangd, None
    if state is None:
        if (USUAL_STATE / STATUS_NAME).exists():
            return USUAL_STATE, None
        state = _running()
    cluster = read_state(state)
    if cluster is None:
        raise ClusterError(
            f"no cluster in {state}: `osub cluster up {state_option(state)} --gang osub` makes one"
        )
    if cluster.shape.gang is not GangKind.OSUB:
        raise without_gangd(state)
    return status_folder(cluster.layout), cluster.layout.conf


def without_gangd(state: Path) -> ClusterError:
    """Return the error that a cluster has no gangd."""
    return ClusterError(
        f"the cluster in {state} runs without gangd: take it down, and up again with --gang osub"
    )


def _running() -> Path:
    """Return the folder of the one embedded cluster that runs with gangd; raises UsageError."""
    running = [one.folder for one in live_clusters() if one.state.shape.gang is GangKind.OSUB]
    if len(running) == 1:
        return running[0]
    if running:
        raise UsageError(f"say which one by --state: gangd runs in {', '.join(map(str, running))}")
    raise UsageError(
        "no gangd runs here: `osub cluster up --gang osub` makes a cluster with one; --gangd names the state "
        "folder of another"
    )


def pulse_of(status: ControllerStatus) -> StatusFreshness:
    """Return whether the controller that wrote the status is alive."""
    return StatusFreshness(max(0.0, time.time() - status.time_ms / 1000), psutil.pid_exists(status.pid))
