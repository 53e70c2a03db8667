"""What outlives a controller: the lock that keeps a second one away, and the accounts of moved ends."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from foundation.errors import HostError, OutputError
from foundation.trust import make_folder, names_in, open_own, read_file
from foundation.whole_file import write_in
from gangd.control.order_requests import ActiveOrder
from gangd.control.order_socket import ControlServer
from gangd.controller.lead.leadership import Lead, SoleLeadership
from gangd.core import Remembered
from gangd.wire import ControllerIdentity
from gangd.wire.wire_fields import NodeName

STATE_NAME = "controller.json"
LOCK_NAME = "controller.lock"
STATUS_NAME = "status.json"
PRIVATE = 0o600
_DAMAGED = "controller.damaged-"
"""A state file that could not be read, or is of another cluster, is kept under this name and a number."""

log = logging.getLogger("gangd")


class KeptState(msgspec.Struct, kw_only=True):
    """Contents of the state file.

    Parameters
    ----------
    started_ns
        Wall-clock start of the newest controller: the next one must be later, whatever the clock says.
    limits
        ``GangScheduler.limits_state()``.
    orders
        What operators ordered.
    gangs
        ``GangScheduler.memory()``: demand and virtual times.
    nodes
        Cores of the nodes that are known: their agents are welcome before Slurm has answered.
    joined
        Nodes with an agent.
    saved_ns
        Wall-clock instant at which all this was written; None in a file of an earlier version.
    cluster
        Slurm's name of the cluster; None in a file of an earlier version.
    """

    version: Literal[1] = 1
    started_ns: int = 0
    limits: dict[str, dict[str, float]] = {}
    orders: list[ActiveOrder] = []
    gangs: list[Remembered] = []
    nodes: dict[NodeName, Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]] = {}
    joined: list[NodeName] = []
    saved_ns: int | None = None
    cluster: str | None = None


class _RawOrders(msgspec.Struct):
    orders: list[msgspec.Raw] = []


class StateDirectory:
    """The state folder of one running controller, to which no other user may write.

    Attributes
    ----------
    lead
        The lead among controllers that share the folder.
    status_mode
        Mode of the status: who may read which jobs run where.
    damaged
        Why an operator must look at state files of earlier controllers that could not be used, in a sentence;
        None where there are none, or once they were removed.

    Raises
    ------
    TrustError
        Another user could have put the folder there, or may write to it.
    HostError
        Another controller uses it.
    OutputError
        It cannot be made or written.
    """

    def __init__(self, folder: Path, lead: Lead | SoleLeadership | None = None) -> None:
        self.folder = folder
        self.lead = lead or SoleLeadership()
        self.status_mode = PRIVATE
        self._damaged: list[str] = []
        try:
            self._fd, _ = make_folder(folder, 0o755)
        except OSError as error:
            raise OutputError(f"cannot write to state folder {folder}: {error.strerror}") from error
        try:
            self._lock = open_own(self._fd, LOCK_NAME, os.O_RDWR | os.O_CREAT)
            try:
                kind = fcntl.LOCK_EX if lead is None else fcntl.LOCK_SH
                fcntl.flock(self._lock, kind | fcntl.LOCK_NB)
                self.state = self._read()
            except BaseException:
                os.close(self._lock)
                raise
        except BaseException as error:
            os.close(self._fd)
            if isinstance(error, BlockingIOError):
                raise HostError(f"another gangd uses state folder {folder}: stop it first") from error
            if isinstance(error, OSError):
                raise OutputError(f"cannot write to state folder {folder}: {error.strerror}") from error
            raise

    def know_cluster(self, name: str | None) -> None:
        """Set the state aside if it is of another cluster than ``name``: its orders and jobs are not ours."""
        state = self.state
        if name is not None and state.cluster not in (None, name):
            why = f"it is of cluster {state.cluster}, and this is {name}"
            self.state = self._keep_aside(b"", why)
            self.state.started_ns = state.started_ns
        self.state.cluster = name or state.cluster

    def begin(self, wall_ns: int) -> ControllerIdentity:
        """Give this controller its identity, later than that of every earlier one here.

        Where the disk is full it begins all the same, and the state is saved once there is space.
        """
        self.state.started_ns = max(wall_ns, self.state.started_ns + 1)
        try:
            self.save()
        except OutputError as error:
            log.error("%s; scheduling begins all the same: free space there, or mend the folder", error)
        return ControllerIdentity(secrets.token_bytes(16), self.state.started_ns)

    def save(self) -> None:
        """Write the state, all or nothing."""
        self._write(STATE_NAME, msgspec.json.encode(self.state), PRIVATE)

    def tell(self, status: bytes) -> None:
        """Write the status, all or nothing, for those to read who may (``status_mode``)."""
        self._write(STATUS_NAME, status, self.status_mode)

    def control(self) -> ControlServer:
        """Open the control socket in the folder."""
        return ControlServer(self._fd, os.geteuid())

    def close(self) -> None:
        """Let another controller use the folder."""
        self.lead.resign()
        os.close(self._lock)
        os.close(self._fd)

    def _write(self, name: str, content: bytes, mode: int) -> None:
        """Write a file of the folder; a reader never sees half of it."""
        try:
            write_in(self._fd, name, content, mode)
        except OSError as error:
            raise OutputError(f"cannot write {self.folder / name}: {error.strerror}") from error

    @property
    def damaged(self) -> str | None:
        """Why an operator must look at a state file, in a sentence."""
        self._damaged = [name for name in self._damaged if self._is_there(name)]
        if not self._damaged:
            return None
        return (
            f"{self.folder / self._damaged[-1]} could not be used, and what it held is not in force: compare "
            "`osub gang status` with the orders in it, give those that are missing again, then remove it"
        )

    def _read(self) -> KeptState:
        """State of the controller before; of a file that is damaged what orders can be read."""
        self._damaged = sorted(name for name in names_in(self._fd) if name.startswith(_DAMAGED))
        try:
            content = read_file(self._fd, STATE_NAME)
        except FileNotFoundError:
            return KeptState()
        try:
            return msgspec.json.decode(content, type=KeptState)
        except msgspec.DecodeError as error:
            return self._keep_aside(content, str(error))

    def _keep_aside(self, content: bytes, why: str) -> KeptState:
        """Keep a damaged file under another name; returns what of it counts all the same."""
        numbers = (f"{_DAMAGED}{number}.json" for number in range(1, 1 << 20))
        name = next(name for name in numbers if not self._is_there(name))
        os.rename(STATE_NAME, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        self._damaged.append(name)
        state = KeptState(orders=list(_readable_orders(content)))
        log.error(
            "%s cannot be used (%s): kept as %s; orders that could be read of it: %d",
            *(self.folder / STATE_NAME, why, name, len(state.orders)),
        )
        return state

    def _is_there(self, name: str) -> bool:
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
            return True
        return False


def _readable_orders(content: bytes) -> Iterator[ActiveOrder]:
    """Yield the orders of a state file of which other parts, or single orders, cannot be read."""
    with suppress(msgspec.DecodeError):
        for raw in msgspec.json.decode(content, type=_RawOrders).orders:
            with suppress(msgspec.DecodeError):
                yield msgspec.json.decode(raw, type=ActiveOrder)
