"""Which of several controllers leads: a lease in the state folder, which they share.

The leader writes ``leader.json`` again and again, each time with a higher ``count``. A standby looks at it
and goes by its own clock alone: a count that stood still for ``takeover_ns`` is that of a leader who is dead,
or as good as dead. Then the standby *claims* the next term: it makes a file of that name, which only one can
(``O_EXCL``, atomic on NFS too), and leads. A leader that finds a higher term has been deposed: it says and
writes nothing any more. It looks before each time that it would speak after a silence, and agents refuse what
a former controller says once a later one has spoken, so that one that was stopped and resumes does no harm.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from pathlib import Path

import msgspec

from foundation.errors import HostError, OutputError
from foundation.trust import names_in, read_file
from foundation.whole_file import write_in

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
            terms = [int(found[1]) for name in names_in(self._fd) if (found := _TERM.fullmatch(name))]
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
        terms = [int(found[1]) for name in names_in(self._fd) if (found := _TERM.fullmatch(name))]
        return max(terms, default=0)

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
