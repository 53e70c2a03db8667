"""The four sockets, all CURVE: PUB and ROUTER bound by the controller, SUB and DEALER of an agent.

Choices and why:

* PUB drops for a subscriber whose queue is full (``SNDHWM``) instead of waiting for it: one stuck node
  must not delay the others. What was dropped shows as an epoch that does not match the next ``Beat``.
* SUB has no ``CONFLATE``: it would keep only the newest message, a ``Beat``, and lose the plan before it
  (and it cannot hold two frames).
* DEALER is ``IMMEDIATE`` with a short queue: reports to an absent controller are dropped, not hoarded.
* ROUTER names each connection itself, at random, and hands no name over. An answer goes back over the
  connection on which the question came: whatever identity a client gives itself, it gets no other's. An
  agent gives itself none, so that it is not locked out by its own ghost when it connects anew.
* The library gives a connection up for good after a frame that breaks CURVE (damaged, repeated or out of its
  order); so an agent that hears nothing on a socket for a while connects it anew.
* Linux finds connections whose agent's host is gone (keepalive), or whose agent does not read on (user
  timeout), so that nothing piles up for it. The library's heartbeats are not used: its timer ends the whole
  process where a peer sent more than its queue holds and left (libzmq 4.3.5, ``!_io_error``), and each
  heartbeat wakes threads on a job's core. An agent that hears nothing connects anew.
* ``LINGER`` 0 lets a process end whatever its peers do.
* Frames above the protocol's bound are refused by the library before they are read into memory. Few of one
  agent wait for the controller; the library does not read on from who sends more.
* The authenticator (ZAP) lets in the keys of the allow-list alone and names each message's key, so that
  an agent can speak for its own node only. It shares a thread with the doorkeeper (``access_control``).
* Who has not proven his key within ``HANDSHAKE_MS`` is cut off; the library's own bound is half a minute.
"""

from __future__ import annotations

import contextlib
import resource
from dataclasses import dataclass
from typing import Self

import msgspec
import zmq

from foundation.errors import HostError
from gangd.curve_keys import SHARED_AGENT, AgentKeys, ControllerKeys
from gangd.wire.access_control import AccessControl, Allowance
from gangd.wire.messages import MAX_FRAME_BYTES, VERSION, MalformedError, ReplyMessage, WrongNodeError
from gangd.wire.wire_frames import ALL_NODES_TOPIC, encode, topic

PUBLISH_QUEUE = 200  # for each agent: what it is sent in a minute and more
SUBSCRIPTION_QUEUE = 100
REPORT_QUEUE = 20  # of each agent: what it says in some seconds
AGENT_QUEUE = 200
_MORE, _AT_ONCE, _SOURCE_FD = int(zmq.SNDMORE), int(zmq.NOBLOCK), int(zmq.SRCFD)
"""As plain numbers: the library's enumerations cost more than a message does."""
ZAP_DOMAIN = b"gangd"
HANDSHAKE_MS = 5_000
BACKLOG = 1_024
MAX_SUBSCRIPTION_BYTES = 1_024
SUBSCRIBER = Allowance(at_once=64 << 10, a_second=128)
REPORTER = Allowance(at_once=16 << 20, a_second=2 << 20)
RESERVED_FILES = 256
SILENT_S = 10
PROBE_S = 5
PROBES = 2
UNREAD_MS = 20_000


class Received(msgspec.Struct, frozen=True):
    """An upward message as it came.

    Attributes
    ----------
    connection
        The library's name of the connection, for an answer.
    key
        Name of the key that it was opened with.
    body
        Not decoded yet.
    fd
        Descriptor of the connection; -1 where it is not known.
    """

    connection: bytes
    key: str
    body: bytes
    fd: int = -1

    @property
    def node(self) -> str | None:
        """The node that the key speaks for; None if it may speak for every one."""
        return None if self.key == SHARED_AGENT else self.key


def connections_possible() -> int:
    """Return how many connections this process can have and still open the files that it needs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft - RESERVED_FILES, soft // 2)


class ControllerSockets:
    """The controller's bound sockets and the authenticator behind them; close it, or use ``with``."""

    def __init__(self, keys: ControllerKeys, publish_endpoint: str, report_endpoint: str) -> None:
        self._keys = keys
        self._context = zmq.Context()
        self.access = AccessControl(self._context, ZAP_DOMAIN, connections_possible())
        self._owners: dict[str, str] = {}
        self._former: dict[str, str] = {}
        self.reload_keys()
        self.publish = self._context.socket(zmq.PUB)
        self.publish.setsockopt(zmq.SNDHWM, PUBLISH_QUEUE)
        self.publish.setsockopt(zmq.RCVHWM, SUBSCRIPTION_QUEUE)
        self.access.watch("publish", self.publish, SUBSCRIBER)
        self.reports = self._context.socket(zmq.ROUTER)
        self.reports.setsockopt(zmq.RCVHWM, REPORT_QUEUE)
        self.reports.setsockopt(zmq.SNDHWM, PUBLISH_QUEUE)
        self.access.watch("reports", self.reports, REPORTER)
        for socket, endpoint in ((self.publish, publish_endpoint), (self.reports, report_endpoint)):
            _common(socket, MAX_SUBSCRIPTION_BYTES if socket is self.publish else MAX_FRAME_BYTES)
            socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
            socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, SILENT_S)
            socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, PROBE_S)
            socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, PROBES)
            socket.setsockopt(zmq.TCP_MAXRT, UNREAD_MS)
            socket.setsockopt(zmq.CURVE_SERVER, 1)
            socket.setsockopt(zmq.CURVE_SECRETKEY, keys.own.secret)
            socket.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
            socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
            socket.setsockopt(zmq.BACKLOG, BACKLOG)
            try:
                socket.bind(endpoint)
            except zmq.ZMQError as error:
                self.close()
                raise HostError(f"cannot listen on {endpoint}: {error}; is another gangd running?") from error
        self.access.start()

    @property
    def publish_endpoint(self) -> str:
        """Where PUB is bound, a wildcard port resolved."""
        return self.publish.getsockopt_string(zmq.LAST_ENDPOINT)

    @property
    def report_endpoint(self) -> str:
        """Where ROUTER is bound, a wildcard port resolved."""
        return self.reports.getsockopt_string(zmq.LAST_ENDPOINT)

    def reload_keys(self) -> None:
        """Read the allow-list again; who is connected with a removed key hears on, and is not heard."""
        known = self._owners
        self._owners = self._keys.agents()
        self._former = {key: name for key, name in (self._former | known).items() if key not in self._owners}
        self.access.admit(self._owners, self._former)

    @property
    def has_shared_key(self) -> bool:
        """Whether a key is on the allow-list that may speak for every node."""
        return SHARED_AGENT in self._owners.values()

    def receive(self) -> Received | None:
        """Next waiting upward message, None if there is none.

        Raises
        ------
        MalformedError, WrongNodeError
            Framing is wrong, or the key of the connection has been removed meanwhile.
        """
        try:
            connection = self.reports.recv(_AT_ONCE)
        except zmq.Again:
            return None
        body = self.reports.recv(_AT_ONCE, copy=False)
        if body.more:
            raise MalformedError(f"expected connection and body, got {2 + self._skip()} frames")
        try:
            key = str(body.get("User-Id"))
            owner, fd = self._owners.get(key), int(body.get(_SOURCE_FD))
        except zmq.ZMQError as error:
            raise MalformedError("a message without a key") from error
        if owner is None:
            raise WrongNodeError(f"a key of {self._former.get(key)} that was removed speaks: stop its agent")
        return Received(connection, owner, body.bytes, fd)

    def cut(self, taken: Received, why: str) -> None:
        """Cut the connection on which a message came, and shut its origin out for a while."""
        self.access.cut("reports", taken.fd, why)

    def _skip(self) -> int:
        skipped, more = 0, True
        while more:
            more = self.reports.recv(_AT_ONCE, copy=False).more
            skipped += 1
        return skipped

    def tell(self, where: bytes, body: bytes) -> None:
        """Publish a message under a topic."""
        self.publish.send(where, _MORE)
        self.publish.send(body)

    def reply(self, connection: bytes, reply: ReplyMessage, version: int = VERSION) -> bool:
        """Answer over the connection on which a message came; False if it cannot be reached now."""
        body = encode(reply, version)
        try:
            self.reports.send(connection, _MORE | _AT_ONCE)
            self.reports.send(body, _AT_ONCE)
        except zmq.ZMQError:
            return False
        return True

    def close(self) -> None:
        """Close everything; queued messages are given a moment to leave."""
        for name in ("publish", "reports"):
            socket = getattr(self, name, None)
            if socket is not None:
                socket.close(linger=200)
        self.access.close()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class AgentSockets:
    """The agent's connected sockets; close it, or use ``with``."""

    context: zmq.Context[zmq.Socket[bytes]]
    plans: zmq.Socket[bytes]
    reports: zmq.Socket[bytes]
    publish_endpoint: str
    report_endpoint: str

    def connect_plans(self) -> None:
        """Give the connection to the controller's plans up and make another."""
        _connect_anew(self.plans, self.publish_endpoint)

    def connect_reports(self) -> None:
        """Give the connection for reports and answers up and make another."""
        _connect_anew(self.reports, self.report_endpoint)

    def close(self) -> None:
        """Close everything; a farewell that is queued is given a moment to leave."""
        self.plans.close(linger=0)
        self.reports.close(linger=200)
        self.context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect_agent(keys: AgentKeys, node: str, publish_endpoint: str, report_endpoint: str) -> AgentSockets:
    """Connect the agent of ``node``; returns at once, the library connects and reconnects behind it."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    plans = context.socket(zmq.SUB)
    plans.setsockopt(zmq.RCVHWM, AGENT_QUEUE)
    plans.setsockopt(zmq.SUBSCRIBE, topic(node))
    plans.setsockopt(zmq.SUBSCRIBE, ALL_NODES_TOPIC)
    reports = context.socket(zmq.DEALER)
    reports.setsockopt(zmq.IMMEDIATE, 1)
    reports.setsockopt(zmq.SNDHWM, AGENT_QUEUE)
    reports.setsockopt(zmq.RCVHWM, AGENT_QUEUE)
    for socket, endpoint in ((plans, publish_endpoint), (reports, report_endpoint)):
        _common(socket, MAX_FRAME_BYTES)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.own.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, keys.own.secret)
        socket.setsockopt(zmq.CURVE_SERVERKEY, keys.controller_public)
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2_000)
        socket.connect(endpoint)
    return AgentSockets(context, plans, reports, publish_endpoint, report_endpoint)


def _connect_anew(socket: zmq.Socket[bytes], endpoint: str) -> None:
    with contextlib.suppress(zmq.ZMQError):  # the library may have forgotten it already
        socket.disconnect(endpoint)
    socket.connect(endpoint)


def _common(socket: zmq.Socket[bytes], most_bytes: int) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, most_bytes)
    socket.setsockopt(zmq.IPV6, 1)
