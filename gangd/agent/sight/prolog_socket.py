"""The agent's bell: slurmd's prolog and epilog ring it, and the agent looks at once.

A datagram socket in the agent's private folder. Who rings must be root, or the agent's own user: the kernel
says who he is (``SO_PASSCRED``, unix(7)). All that follows from it is a look, and a question to Slurm;
nothing is believed of the job. Without a bell the agent looks as often as ever.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field

_RING = re.compile(rb"(begin|end) ([1-9][0-9]{0,9})\n?")
_LONGEST = 32
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of struct ucred
MOST_AT_ONCE = 256
"""Rings that are taken in one turn of the loop; what is beyond waits for the next."""


@dataclass(frozen=True, slots=True)
class Rings:
    """What was rung: jobs that begin or end here, and how many rings were of no use."""

    begun: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()
    refused: int = 0


def bell_name(node: str) -> str:
    """Return the name of a node's socket in the agent's folder."""
    return f"bell-{node}"


@dataclass(slots=True)
class Bell:
    """A socket on which rings come in; ``fd`` goes into the loop's poll set."""

    _socket: socket.socket
    _folder_fd: int
    _name: str
    _users: frozenset[int] = field(default_factory=lambda: frozenset((0, os.geteuid())))

    @classmethod
    def hang(cls, folder_fd: int, name: str) -> Bell:
        """Make the socket in a folder to which no other user may write; raises OSError where it cannot be."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder_fd)
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            one.bind(f"/proc/self/fd/{folder_fd}/{name}")  # however long the folder's path is
            os.chmod(name, 0o600, dir_fd=folder_fd)
        except BaseException:
            one.close()
            raise
        return cls(one, os.dup(folder_fd), name)

    @property
    def fd(self) -> int:
        """Descriptor that is readable when a datagram has arrived."""
        return self._socket.fileno()

    def take(self) -> Rings:
        """Take in what was rung."""
        jobs: dict[bytes, set[int]] = {b"begin": set(), b"end": set()}
        refused = 0
        for _ in range(MOST_AT_ONCE):
            try:
                said, about, flags, _ = self._socket.recvmsg(_LONGEST, socket.CMSG_SPACE(_CREDENTIALS.size))
            except OSError:  # none waits
                break
            ring = _RING.fullmatch(said)
            if ring is None or flags & socket.MSG_TRUNC or _uid(about) not in self._users:
                refused += 1
            elif int(ring[2]) < 1 << 32:
                jobs[ring[1]].add(int(ring[2]))
        return Rings(frozenset(jobs[b"begin"]), frozenset(jobs[b"end"]), refused)

    def close(self) -> None:
        """Take it down."""
        with suppress(OSError):
            os.unlink(self._name, dir_fd=self._folder_fd)
        self._socket.close()
        os.close(self._folder_fd)


def _uid(about: list[tuple[int, int, bytes]]) -> int | None:
    """Return who sent a message, as the kernel says."""
    for level, kind, data in about:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= _CREDENTIALS.size:
            return int(_CREDENTIALS.unpack_from(data)[1])
    return None
