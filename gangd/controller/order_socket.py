"""The control socket: the controller's end, and ``osub gang``'s.

One message each way on a connection (SOCK_SEQPACKET keeps them apart). Anybody may connect; who may do what
is ``permission``'s. The controller's end is bounded, never waited for, and knows who speaks: a user has few
connections at a time and a few requests a second, so that no user keeps an operator out, nor the controller
from its slices.
"""

from __future__ import annotations

import os
import pwd
import select
import socket
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from foundation.errors import ClusterError, OutputError, TrustError, UsageError
from foundation.one_line import one_line
from foundation.trust import closing_fd
from gangd.controller.orders import MOST_BYTES, OrderAnswer, OrderRequest, Peer, read_answer, read_request

SOCKET_NAME = "control.sock"
MODE = 0o666
MOST_CONNECTIONS = 64
MOST_OF_A_USER = 4
MOST_A_TURN = 8
PATIENCE_NS = 5_000_000_000
AT_ONCE, A_SECOND = 20.0, 2.0
_PEER = struct.Struct("3i")

PATIENCE_S = 10.0


@dataclass(slots=True)
class _Guest:
    link: socket.socket
    peer: Peer
    since_ns: int


class ControlServer:
    """Listens in an open folder that only its owner may write to.

    Parameters
    ----------
    folder_fd
        The state folder.
    own_uid
        Users, besides root, without a rate limit.

    Raises
    ------
    OutputError
        No socket can be made there.
    TrustError
        Something that is no socket has its name.

    Attributes
    ----------
    fd
        Readable while something is to be done.
    """

    def __init__(self, folder_fd: int, own_uid: int) -> None:
        self._operators = frozenset({0, own_uid})
        self._folder_fd = folder_fd
        self._guests: dict[int, _Guest] = {}
        self._left: dict[int, tuple[float, int]] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self._bind()
        except BaseException as error:
            self._listener.close()
            if isinstance(error, OSError):
                raise OutputError(f"cannot make {SOCKET_NAME}: {error.strerror}") from error
            raise
        self._poll = select.epoll()
        self._poll.register(self._listener.fileno(), select.EPOLLIN)
        self.fd = self._poll.fileno()

    def _bind(self) -> None:
        with suppress(FileNotFoundError):
            found = os.stat(SOCKET_NAME, dir_fd=self._folder_fd, follow_symlinks=False)
            if not stat.S_ISSOCK(found.st_mode):
                raise TrustError(f"{SOCKET_NAME} in the state folder is no socket: remove it")
            os.unlink(SOCKET_NAME, dir_fd=self._folder_fd)
        # By the descriptor: a socket's path is short, and a state folder's need not be.
        path = f"/proc/self/fd/{self._folder_fd}/{SOCKET_NAME}"
        self._listener.bind(path)
        Path(path).chmod(MODE)
        self._listener.listen(MOST_CONNECTIONS)

    def serve(self, handle: Callable[[OrderRequest, Peer], OrderAnswer], now_ns: int) -> None:
        """Take what came and answer it; ``now_ns`` is a monotonic clock."""
        for fd, _ in self._poll.poll(0, MOST_A_TURN):
            if fd == self._listener.fileno():
                self._accept(now_ns)
            else:
                self._read(self._guests[fd], handle, now_ns)
        for guest in [one for one in self._guests.values() if now_ns - one.since_ns > PATIENCE_NS]:
            self._close(guest)

    def close(self, *, unlink: bool = True) -> None:
        """End it all; without ``unlink`` the name stays, for it is another controller's by now."""
        for guest in list(self._guests.values()):
            self._close(guest)
        self._poll.close()
        self._listener.close()
        if unlink:
            with suppress(OSError):
                os.unlink(SOCKET_NAME, dir_fd=self._folder_fd)

    def _accept(self, now_ns: int) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError:  # gone again, or no descriptor is left
            return
        link.setblocking(False)
        pid, uid, _ = _PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        guest = _Guest(link, Peer(uid, pid, _user(uid)), now_ns)
        if uid not in self._operators and not self._is_within_limit(uid):
            link.close()
            return
        self._guests[link.fileno()] = guest
        self._poll.register(link.fileno(), select.EPOLLIN)

    def _is_within_limit(self, uid: int) -> bool:
        his = sum(guest.peer.uid == uid for guest in self._guests.values())
        return his < MOST_OF_A_USER and len(self._guests) < MOST_CONNECTIONS

    def _read(self, guest: _Guest, handle: Callable[[OrderRequest, Peer], OrderAnswer], now_ns: int) -> None:
        try:
            body = guest.link.recv(MOST_BYTES + 1)
            if body:
                answer = self._answer(body, guest.peer, handle, now_ns)
                guest.link.send(msgspec.json.encode(answer))
        except OSError:  # it has gone, or takes no answer
            pass
        self._close(guest)

    def _answer(
        self, body: bytes, peer: Peer, handle: Callable[[OrderRequest, Peer], OrderAnswer], now_ns: int
    ) -> OrderAnswer:
        if peer.uid not in self._operators and not self._may_ask(peer.uid, now_ns):
            return OrderAnswer(done=False, text="too many requests: wait some seconds")
        try:
            return handle(read_request(body), peer)
        except UsageError as error:
            return OrderAnswer(done=False, text=one_line(str(error)))

    def _may_ask(self, uid: int, now_ns: int) -> bool:
        left, then_ns = self._left.get(uid, (AT_ONCE, now_ns))
        left = min(AT_ONCE, left + A_SECOND * (now_ns - then_ns) / 1e9)
        if len(self._left) > 1_000:
            self._left.clear()
        self._left[uid] = (max(0.0, left - 1), now_ns)
        return left >= 1

    def _close(self, guest: _Guest) -> None:
        self._guests.pop(guest.link.fileno(), None)
        guest.link.close()


def _user(uid: int) -> str:
    try:
        return one_line(pwd.getpwuid(uid).pw_name)[:64]
    except KeyError:
        return f"user {uid}"


def ask(folder: Path, request: OrderRequest, patience_s: float = PATIENCE_S) -> OrderAnswer:
    """Send a request to the controller whose state folder this is, and return its answer.

    Raises
    ------
    ClusterError
        No controller listens there, or it does not answer in time.
    UsageError
        The request names too much at once.
    """
    body = msgspec.json.encode(request)
    if len(body) > MOST_BYTES:
        raise UsageError("too many names at once: give them in several commands")
    try:
        folder_fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError as error:
        raise ClusterError(
            f"state folder {folder} is closed to you: only root and the user of this gangd may order there"
        ) from error
    except OSError as error:
        raise ClusterError(f"cannot open state folder {folder}: {error.strerror}") from error
    try:
        with closing_fd(folder_fd), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.settimeout(patience_s)
            link.connect(f"/proc/self/fd/{folder_fd}/{SOCKET_NAME}")
            link.send(body)
            said = link.recv(1 << 20)
    except TimeoutError as error:
        raise ClusterError(f"gangd of {folder} does not answer; is it well? (osub top)") from error
    except (ConnectionResetError, BrokenPipeError):
        said = b""
    except OSError as error:
        raise ClusterError(
            f"no gangd listens in {folder} ({error.strerror}); is it running with this state folder?"
        ) from error
    if not said:
        raise ClusterError("gangd closed the connection: too many at once, try again")
    return read_answer(said)
