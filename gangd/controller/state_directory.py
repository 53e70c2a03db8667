"""The controllers' state folder: which one leads, and what one leaves to the next.

Which of several controllers leads: a lease in the state folder, which they share.

The leader writes ``leader.json`` again and again, each time with a higher ``count``. A standby looks at it
and goes by its own clock alone: a count that stood still for ``takeover_ns`` is that of a leader who is dead,
or as good as dead. Then the standby *claims* the next term: it makes a file of that name, which only one can
(``O_EXCL``, atomic on NFS too), and leads. A leader that finds a higher term has been deposed: it says and
writes nothing any more. It looks before each time that it would speak after a silence, and agents refuse what
a former controller says once a later one has spoken, so that one that was stopped and resumes does no harm.

What outlives a controller: the lock that keeps a second one away, and the accounts of moved ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from foundation.errors import HostError, OutputError
from foundation.files import write_in
from foundation.trust import make_folder, names_in, open_own, read_file
from gangd.controller.order_socket import ControlServer
from gangd.controller.orders import ActiveOrder
from gangd.core.gang import Remembered
from gangd.wire.messages import ControllerIdentity, NodeName

LEADER_NAME = "leader.json"
_TERM = re.compile(r"term-([0-9]{1,15})")
_MOST_BYTES = 4096
RENEWALS = 4
"""A leader renews so many times in the time after which a standby takes over."""


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """The leader. ``resigned``: it has left, and no standby need wait."""

    term: int
    count: int = 0
    host: str
    pid: int
    resigned: bool = False


class LeadFile:
    """The lease, in an open folder that only the controllers may write to."""

    def __init__(self, folder_fd: int, folder: Path) -> None:
        self._fd = folder_fd
        self._folder = folder

    def read(self) -> Leader | None:
        """Return the present or last leader; None where there was none, or the file is damaged."""
        try:
            return msgspec.json.decode(read_file(self._fd, LEADER_NAME, _MOST_BYTES), type=Leader)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def claim(self, leader: Leader | None) -> Leader | None:
        """Take the term after all that there were; None if another controller was quicker.

        Raises
        ------
        OutputError
            The folder cannot be written.
        """
        try:
            terms = self._terms()
            term = max([0 if leader is None else leader.term, *terms]) + 1
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                os.close(os.open(f"term-{term}", flags, 0o600, dir_fd=self._fd))
            except FileExistsError:
                return None
            for old in terms:
                with suppress(FileNotFoundError):
                    os.unlink(f"term-{old}", dir_fd=self._fd)
            mine = Leader(term=term, host=socket.gethostname(), pid=os.getpid())
            self.write(mine)
        except OSError as error:
            raise OutputError(f"cannot take the lead in {self._folder}: {error.strerror}") from error
        return mine

    def term(self) -> int:
        """Return the highest term that was claimed; raises OSError."""
        return max(self._terms(), default=0)

    def _terms(self) -> list[int]:
        return [int(found[1]) for name in names_in(self._fd) if (found := _TERM.fullmatch(name))]

    def write(self, leader: Leader) -> None:
        """Write the lease; raises OSError."""
        write_in(self._fd, LEADER_NAME, msgspec.json.encode(leader), 0o644)


class Lead:
    """The lead that this controller has: to be renewed, and to be looked at before it speaks.

    Attributes
    ----------
    due_ns
        When to look again.
    is_lost
        Whether another controller leads, or may: this one says and writes nothing any more.
    """

    def __init__(self, file: LeadFile, leader: Leader, takeover_ns: int, now_ns: int) -> None:
        self._file = file
        self._leader = leader
        self._takeover_ns = takeover_ns
        self._renewed_ns = now_ns
        self.due_ns = now_ns
        self.is_lost = False

    def look(self, now_ns: int) -> None:
        """Renew the lease, if it is time.

        Raises
        ------
        HostError
            Another controller leads; or the lease could not be renewed for so long that another one may.
        """
        if now_ns < self.due_ns:
            return
        try:
            term = self._file.term()
            if term > self._leader.term:
                self.is_lost = True
                raise HostError(f"another controller has taken over (term {term}): leaving without a word")
            self._leader = msgspec.structs.replace(self._leader, count=self._leader.count + 1)
            self._file.write(self._leader)
        except OSError as error:
            if now_ns - self._renewed_ns > self._takeover_ns // 2:
                self.is_lost = True
                raise HostError(
                    f"the lead cannot be renewed ({error.strerror}), another controller may take it"
                ) from error
        else:
            self._renewed_ns = now_ns
        self.due_ns = now_ns + self._takeover_ns // RENEWALS

    def resign(self) -> None:
        """Let a standby take over at once."""
        with suppress(OSError):
            if not self.is_lost and self._file.term() == self._leader.term:
                self._file.write(msgspec.structs.replace(self._leader, resigned=True))


class SoleLeadership:
    """The lead of a controller that is alone in its folder: it is never lost."""

    due_ns = 1 << 62
    is_lost = False

    def look(self, now_ns: int) -> None:
        """Do nothing."""

    def resign(self) -> None:
        """Do nothing."""


class Candidate:
    """A standby's view of the leader. Pure: instants are arguments."""

    def __init__(self, takeover_ns: int) -> None:
        self._takeover_ns = takeover_ns
        self._seen: Leader | None = None
        self._since_ns: int | None = None

    def may_lead(self, leader: Leader | None, now_ns: int) -> bool:
        """Whether the leader has said nothing for so long, or has left."""
        if self._since_ns is None or leader != self._seen:
            self._seen, self._since_ns = leader, now_ns
        if leader is None or leader.resigned:
            return True
        return now_ns - self._since_ns >= self._takeover_ns


STATE_NAME = "controller.json"
LOCK_NAME = "controller.lock"
STATUS_NAME = "status.json"
PAIRS_NAME, PAIRS_TABLE = "pairs.json", "pairs.csv"
PRIVATE = 0o600
_DAMAGED, _DAMAGED_PAIRS = "controller.damaged-", "pairs.damaged-"
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

    def read_pairs(self) -> bytes | None:
        """Read what was learnt of pairs; None where nothing was."""
        try:
            return read_file(self._fd, PAIRS_NAME)
        except FileNotFoundError:
            return None

    def write_pairs(self, content: bytes, table: str) -> None:
        """Write what was learnt of pairs, and the table of it for placements."""
        self._write(PAIRS_NAME, content, PRIVATE)
        self._write(PAIRS_TABLE, table.encode(), self.status_mode)

    def keep_pairs_aside(self, why: str) -> None:
        """Keep a damaged file of pairs under another name."""
        name = "it is"
        with suppress(OSError):
            name = self._rename(PAIRS_NAME, _DAMAGED_PAIRS)
        log.error("%s cannot be used (%s): kept as %s", self.folder / PAIRS_NAME, why, name)

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
        name = self._damaged[-1]
        if name.startswith(_DAMAGED_PAIRS):
            return f"{self.folder / name} could not be used, and losses by pair are learnt anew: remove it"
        return (
            f"{self.folder / name} could not be used, and what it held is not in force: compare "
            "`osub gang status` with the orders in it, give those that are missing again, then remove it"
        )

    def _read(self) -> KeptState:
        """State of the controller before; of a file that is damaged what orders can be read."""
        names = sorted(names_in(self._fd))
        self._damaged = [
            name for kind in (_DAMAGED_PAIRS, _DAMAGED) for name in names if name.startswith(kind)
        ]
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
        name = self._rename(STATE_NAME, _DAMAGED)
        state = KeptState(orders=list(_readable_orders(content)))
        log.error(
            "%s cannot be used (%s): kept as %s; orders that could be read of it: %d",
            *(self.folder / STATE_NAME, why, name, len(state.orders)),
        )
        return state

    def _rename(self, damaged: str, prefix: str) -> str:
        numbers = (f"{prefix}{number}.json" for number in range(1, 1 << 20))
        name = next(name for name in numbers if not self._is_there(name))
        os.rename(damaged, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        self._damaged.append(name)
        return name

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
