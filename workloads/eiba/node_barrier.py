"""How the nodes of a job find each other, and the barrier between them: a star, the first node in the middle.

They meet by a file on the shared file system, then by authenticated TCP. The first node listens and writes
its addresses, port and a fresh key to the file, mode 0600, so that only the job's user can join. Each side
proves to the other that it knows the key (``multiprocessing.connection``'s challenge and answer) before
anything it sends is read.

Then every node's coordinator meets the others after each period. What a node has to report travels with it,
so that the first node can always account for all of them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import socket
import stat
import struct
import time
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path

from foundation.errors import OsubError, PeerError, UsageError
from foundation.files import write_whole
from foundation.units import counted
from workloads.eiba.inbox import Channel, Inbox, Message, PeerGoneError, last_words, receive, send
from workloads.task.slurm_task import SlurmTask

# A peer that connects and says nothing may delay the others by no more than this.
HANDSHAKE_S = 2.0
LOOK_AGAIN_S = 0.05
_MOST_BYTES = 65_536


class OtherNodes:
    """The other nodes of the job, as the first one sees them: it hears all, then lets them go on together.

    A job on one node has none.
    """

    def __init__(self, inbox: Inbox, channels: Mapping[int, Channel]) -> None:
        self._inbox = inbox
        self._channels = {f"node {index}": channels[index] for index in sorted(channels)}
        for who, channel in self._channels.items():
            inbox.watch(who, channel)

    def meet(self, account: Message) -> list[Message]:
        """Wait until every node is here; return all accounts in node order on the first one, none elsewhere.

        Raises
        ------
        PeerGoneError
            A node failed.
        Terminated
            A signal ended a node.
        """
        others = self._inbox.gather(self._channels)
        for channel in self._channels.values():
            # A node that is gone by now is noticed, with its reason, at the next barrier.
            with contextlib.suppress(OSError):
                send(channel, {"go": True})
        return [account, *others.values()]

    def leave(self, why: BaseException) -> None:
        """Tell the others that this node stops before the end, and why; the first one passes it on."""
        for channel in self._channels.values():
            last_words(channel, why)


class FirstNode(OtherNodes):
    """The others as any further node sees them: it tells the first one that it is here, and waits for it."""

    def meet(self, account: Message) -> list[Message]:
        """Tell ``account`` to the first node and wait for it."""
        for channel in self._channels.values():
            with contextlib.suppress(OSError):  # the wait says why
                send(channel, account)
        self._inbox.gather(self._channels)
        return []


def gather_nodes(inbox: Inbox, task: SlurmTask, rendezvous: Path | None, deadline_s: float) -> OtherNodes:
    """Return the other nodes of ``task``'s job once all have come; ``deadline_s`` on CLOCK_MONOTONIC.

    Raises
    ------
    UsageError
        The job is not started as one task on each node, or no file is named outside a Slurm job.
    PeerError
        Not all nodes came in time.
    """
    if task.nodes == 1:
        return OtherNodes(inbox, {})
    if task.identity is None and rendezvous is None:
        raise UsageError("several nodes but no SLURM_JOB_ID; give --rendezvous FILE")
    identity = task.identity or "none"
    path = rendezvous or Path(f".eiba-{identity}.rendezvous")
    if task.node_index == 0:
        channels = open_hub(inbox, path, identity, task.nodes, task.launcher_address, deadline_s)
        return OtherNodes(inbox, channels)
    return FirstNode(inbox, {0: join_hub(inbox, path, identity, task.node_index, deadline_s)})


def open_hub(
    inbox: Inbox, path: Path, identity: str, nodes: int, launcher: str | None, deadline_s: float
) -> dict[int, Channel]:
    """Publish this node in ``path`` and return the channels of the other nodes by node index.

    Parameters
    ----------
    inbox
        Does the waiting.
    path
        The file, to be seen by every node; removed once all have come.
    identity
        Names the job and step, so that a file left by another one is not taken for this one's.
    nodes
        Nodes of the job, this one included.
    launcher
        Address of the host that started the job, which every node reaches; chooses among this host's.
    deadline_s
        On CLOCK_MONOTONIC.

    Raises
    ------
    PeerError
        Some nodes have not come by the deadline; the message counts them.
    OutputError
        The file cannot be written.
    """
    key = secrets.token_bytes(32)
    channels: dict[int, Channel] = {}
    with _listen() as listener:
        notice = {
            "identity": identity,
            "host": socket.gethostname(),
            "addresses": _own_addresses(launcher),
            "port": listener.getsockname()[1],
            "key": key.hex(),
        }
        write_whole(path, json.dumps(notice) + "\n", mode=0o600)
        try:
            while len(channels) < nodes - 1:
                if not inbox.wait_readable(listener, deadline_s):
                    raise PeerError(
                        f"only {len(channels) + 1} of {counted(nodes, 'node')} came to {path}; "
                        "start one eiba on each: srun --ntasks-per-node=1 eiba ..."
                    )
                admitted = _admit(listener, key)
                if admitted is None:
                    continue
                node_index, channel = admitted
                if node_index in channels or not 0 < node_index < nodes:
                    raise PeerError(
                        f"node index {node_index} of {nodes} came twice or cannot be; start one eiba a node"
                    )
                channels[node_index] = channel
        except BaseException:
            for channel in channels.values():
                channel.close()
            raise
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
    return channels


def join_hub(inbox: Inbox, path: Path, identity: str, node_index: int, deadline_s: float) -> Channel:
    """Wait for ``path`` and return a channel to the first node; parameters as in ``open_hub``.

    Raises
    ------
    PeerError
        The first node was not reached by the deadline; the message says what was tried last.
    """
    obstacle = "the file is not there"
    while time.monotonic() < deadline_s:
        try:
            notice = json.loads(_read_own(path))
            if notice["identity"] == identity:
                return _call(notice, node_index)
            obstacle = f"the file is of job {notice['identity']}"
        except (OSError, PeerGoneError, AuthenticationError) as error:
            obstacle = str(error) or type(error).__name__
        except (ValueError, KeyError, TypeError):
            obstacle = "the file does not hold a rendezvous"
        inbox.sleep_until(time.monotonic() + LOOK_AGAIN_S)
    raise PeerError(
        f"the first node was not reached through {path}: {obstacle}; "
        "give a --rendezvous FILE that every node of the job sees"
    )


def _read_own(path: Path) -> bytes:
    """Return what a file of this user's own holds; another's would lead to an impostor.

    Raises
    ------
    OSError
        It is not there, is a link, another user's, or others may write it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PermissionError(errno.EACCES, f"it is user id {found.st_uid}'s, or others may write it")
        return stream.read(_MOST_BYTES)


def _listen() -> socket.socket:
    try:
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    except (OSError, ValueError):
        return socket.create_server(("", 0))


def _own_addresses(launcher: str | None) -> list[str]:
    addresses = [socket.gethostname()]
    if launcher is not None:
        # No packet is sent: the kernel only says from which address it would talk to the launcher.
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((launcher, 9))
            addresses.append(probe.getsockname()[0])
    return addresses


def _admit(listener: socket.socket, key: bytes) -> tuple[int, Channel] | None:
    """Take one caller; None if it cannot prove that it belongs to the job."""
    try:
        caller, _ = listener.accept()
        channel = _channel(caller)
    except OSError:
        return None
    try:
        deliver_challenge(channel, key)
        answer_challenge(channel, key)
        node_index = receive(channel, "a caller")["node"]
        _limit_waits(channel, 0.0)
        if isinstance(node_index, int):
            return node_index, channel
    except (AuthenticationError, EOFError, OSError, KeyError, OsubError):
        pass
    channel.close()
    return None


def _call(notice: dict[str, object], node_index: int) -> Channel:
    addresses, port, key = notice["addresses"], notice["port"], notice["key"]
    if not (isinstance(addresses, list) and isinstance(port, int) and isinstance(key, str)):
        raise ValueError("malformed")
    if notice["host"] == socket.gethostname():
        addresses = ["127.0.0.1", *addresses]
    failure = OSError("no address")
    for address in addresses:
        try:
            channel = _channel(socket.create_connection((address, port), timeout=HANDSHAKE_S))
        except OSError as error:
            failure = OSError(f"{address} port {port}: {error.strerror or error}")
            continue
        try:
            answer_challenge(channel, bytes.fromhex(key))
            deliver_challenge(channel, bytes.fromhex(key))
            send(channel, {"node": node_index})
        except BaseException:
            channel.close()
            raise
        _limit_waits(channel, 0.0)
        return channel
    raise failure


def _channel(peer: socket.socket) -> Channel:
    peer.setblocking(True)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A node that loses power closes nothing: the kernel asks after it, and gives up in a minute.
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        peer.setsockopt(socket.IPPROTO_TCP, option, value)
    channel: Channel = Connection(peer.detach())
    _limit_waits(channel, HANDSHAKE_S)
    return channel


def _limit_waits(channel: Channel, seconds: float) -> None:
    """Let reads and writes fail after ``seconds``; 0 lets them wait."""
    timeval = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
    with socket.socket(fileno=os.dup(channel.fileno())) as alias:
        alias.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
        alias.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
