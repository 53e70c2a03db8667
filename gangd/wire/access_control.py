"""Access control in a thread: authenticates keys (ZAP), counts connections, and keeps floods out.

The library accepts every client and has no bound. Its monitors report each connection that was accepted
or has ended; ``ConnectionLimiter`` says which origins are shut out, and the filter of the listening sockets
drops what comes from them. The authenticator is asked for each key before the library allocates memory for
messages of its owner; it answers from memory.

The holder of a key may still send more than any agent does. A subscriber of the library's PUB socket can keep
the thread that publishes busy for as long as it sends subscriptions, and make it remember all of them. So
the bytes that came over each connection are held against an allowance; one that exceeds it is cut.

The filter is a program for the kernel: a refused client costs this process nothing at all, no
descriptor, no wake-up, no entry in the queue of connections. It is a classic BPF program
(``Documentation/networking/filter.rst`` of the kernel, socket(7) ``SO_ATTACH_FILTER``), and needs no
privilege. Established connections are sockets of their own and go on.
"""

from __future__ import annotations

import collections
import ctypes
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import zmq
import zmq.utils.z85

from gangd.curve_keys import SHARED_AGENT
from gangd.daemon_process import Death, WatchedThread, drained
from gangd.wire.connection_limiter import NOWHERE, SECOND_NS, ConnectionLimiter, Denied, ShutOut

News = ShutOut | Denied | Death

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
WATCHED = zmq.EVENT_LISTENING | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
LOOK_NS = SECOND_NS
LOOKED_AT = 256
"""Connections whose bytes are looked at in one look, in turns."""
STUCK_NS = SECOND_NS // 2
"""When the loop has not turned for so long, all connections are looked at: one may be what holds it up."""
FORGET_NS = 60 * SECOND_NS
MOST_NEWS = 1_000
_EVENTS_A_TURN = 256
_EVENT = struct.Struct("=Hi")
_KEY_BYTES = 32
_END, _CUT = b"x", b"c"
"""What wakes the thread: it is to end, or to cut connections."""
_BYTES_RECEIVED = struct.Struct("@Q")
_BYTES_RECEIVED_AT = 128  # tcpi_bytes_received in struct tcp_info, linux/tcp.h

SO_ATTACH_FILTER = 26
MOST_ORIGINS = 256
_NET = 0xFFF00000  # SKF_NET_OFF, -0x100000: offsets in the IP header
_LOAD_WORD, _LOAD_BYTE = 0x20, 0x30  # ld [k], ldb [k]
_SHIFT_RIGHT, _JUMP, _JUMP_IF_EQUAL, _RETURN = 0x74, 0x05, 0x15, 0x06
_PASS, _DROP = 0xFFFFFFFF, 0
_SOURCE_IPV4, _SOURCE_IPV6 = 12, 8  # offsets in their headers
_IPV6_PREFIX = 64


@dataclass(frozen=True, slots=True)
class Allowance:
    """Bytes that may come over one connection: at once, and each second."""

    at_once: int
    a_second: int


@dataclass(frozen=True, slots=True)
class _Peer:
    """The other end of a connection, and since when it is open."""

    address: tuple[str, int]
    since_ns: int


class AccessControl:
    """Authenticator and doorkeeper of the sockets of one context; ``close`` it before the context.

    Parameters
    ----------
    context
        Of the sockets.
    domain
        Their ZAP domain.
    most
        Connections that this process can bear in all.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], domain: bytes, most: int) -> None:
        self.keeper = ConnectionLimiter(most)
        self._context = context
        self._domain = domain
        self._keys: Mapping[str, str] = {}
        self._former: Mapping[str, str] = {}
        self._news: collections.deque[News] = collections.deque(maxlen=MOST_NEWS)
        self._cuts: collections.deque[tuple[tuple[str, int], str]] = collections.deque(maxlen=MOST_NEWS)
        self._zap = context.socket(zmq.ROUTER)
        self._zap.setsockopt(zmq.LINGER, 0)
        self._zap.bind(ZAP_ENDPOINT)
        self._monitors: dict[str, zmq.Socket[bytes]] = {}
        self._allowances: dict[str, Allowance] = {}
        self._listeners: dict[str, socket.socket] = {}
        self._peers: dict[tuple[str, int], _Peer] = {}
        self._turn: list[tuple[str, int]] = []
        self._filtered: tuple[frozenset[str], bool] = (frozenset(), False)
        self._look_ns = self._forget_ns = 0
        self._turned_ns = time.monotonic_ns()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC)
        self._thread = WatchedThread("access control", self._run, self._news.append)

    def watch(self, name: str, watched: zmq.Socket[bytes], allowance: Allowance) -> None:
        """Watch a socket from before it is bound; to be called before ``start``, by the socket's thread."""
        where = f"inproc://monitor.{name}"
        watched.monitor(where, WATCHED)
        monitor = self._context.socket(zmq.PAIR)
        monitor.setsockopt(zmq.LINGER, 0)
        monitor.setsockopt(zmq.RCVHWM, 0)  # a full queue would stop the library's own thread
        monitor.connect(where)
        self._monitors[name] = monitor
        self._allowances[name] = allowance

    def admit(self, keys: Mapping[str, str], former: Mapping[str, str]) -> None:
        """Replace the allow-list: names by public key (Z85); and those of keys that were removed."""
        self._keys, self._former = dict(keys), dict(former)

    def start(self) -> None:
        """Begin to let in."""
        self._thread.start()

    def turned(self) -> None:
        """Note that the loop that uses the sockets is alive."""
        self._turned_ns = time.monotonic_ns()

    def cut(self, name: str, fd: int, why: str) -> None:
        """Have a connection of a watched socket cut, and its origin shut out for a while."""
        self._cuts.append(((name, fd), why))
        os.write(self._wake_write, _CUT)

    def take_news(self) -> list[News]:
        """Take what an operator should know; of very much the newest."""
        return drained(self._news)

    def close(self) -> None:
        """End the thread, and accept no client any more; the watched sockets must be closed already."""
        os.write(self._wake_write, _END)
        self._thread.stop(None)
        for one in (self._zap, *self._monitors.values()):
            one.close(linger=0)
        for listener in self._listeners.values():
            listener.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._zap, zmq.POLLIN)
        poller.register(self._wake_read, zmq.POLLIN)
        for monitor in self._monitors.values():
            poller.register(monitor, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(LOOK_NS // 1_000_000))
            if self._wake_read in ready and _END in os.read(self._wake_read, MOST_NEWS):
                return
            now_ns = time.monotonic_ns()
            for name, monitor in self._monitors.items():
                for frames in _waiting(monitor):
                    self._on_event(name, frames, now_ns)
            for frames in _waiting(self._zap):
                self._on_request(frames, now_ns)
            while self._cuts:
                self._hold_to(*self._cuts.popleft(), -1, now_ns)
            if now_ns >= self._look_ns:
                self._look_ns = now_ns + LOOK_NS
                self._look(now_ns)
            self._apply(now_ns)

    def _on_event(self, name: str, frames: list[bytes], now_ns: int) -> None:
        event, fd = _EVENT.unpack(frames[0])
        if event == zmq.EVENT_ACCEPTED:
            peer = _peer(fd)
            if peer is not None:
                self._peers[name, fd] = _Peer(peer, now_ns)
            origin = NOWHERE if peer is None else origin_of(peer[0])
            self._tell(self.keeper.opened((name, fd), origin, now_ns))
        elif event == zmq.EVENT_DISCONNECTED:
            self._peers.pop((name, fd), None)
            self.keeper.closed((name, fd))
        elif event == zmq.EVENT_LISTENING:
            self._listeners[name] = socket.socket(fileno=os.dup(fd))

    def _on_request(self, frames: list[bytes], now_ns: int) -> None:
        """Answer the library's question whether a key may come in (ZeroMQ RFC 27)."""
        if len(frames) < 8:
            return
        version, request, domain, address, _identity, mechanism, *credentials = frames[2:]
        status, text, user = b"400", b"not on the list", b""
        if (
            domain == self._domain
            and mechanism == b"CURVE"
            and credentials
            and len(credentials[0]) == _KEY_BYTES
        ):
            key = zmq.utils.z85.encode(credentials[0]).decode()
            origin = _named(address)
            if key in self._keys:
                self.keeper.admitted(origin, key, now_ns, shared=self._keys[key] == SHARED_AGENT)
                status, text, user = b"200", b"OK", key.encode()
            else:
                self._tell(self.keeper.denied(origin, now_ns, self._former.get(key)))
        self._zap.send_multipart([frames[0], b"", version, request, status, text, user, b""])

    def _look(self, now_ns: int) -> None:
        """Cut connections over which more came than may come: some in each look, all if the loop is stuck."""
        if now_ns >= self._forget_ns:
            self._forget_ns = now_ns + FORGET_NS
            self.keeper.forget(now_ns)
        if not self._turn:
            self._turn = list(self._peers)
        count = len(self._turn) if now_ns - self._turned_ns > STUCK_NS else LOOKED_AT
        looked, self._turn = self._turn[:count], self._turn[count:]
        for connection in looked:
            peer = self._peers.get(connection)
            if peer is None:
                continue
            allowed = self._allowances[connection[0]]
            most = allowed.at_once + allowed.a_second * (now_ns - peer.since_ns) // SECOND_NS
            why = f"{{}} bytes over one connection, {most} are allowed"
            self._hold_to(connection, why, most, now_ns)

    def _hold_to(self, connection: tuple[str, int], why: str, most: int, now_ns: int) -> None:
        """Cut a connection over which more bytes came, and shut its origin out."""
        peer = self._peers.get(connection)
        received = -1 if peer is None else _cut(connection[1], peer.address, most)
        if peer is not None and received > most:
            origin = origin_of(peer.address[0])
            self._tell(self.keeper.shut_out(origin, why.format(received), now_ns))

    def _apply(self, now_ns: int) -> None:
        """Bring the filters in line with who is shut out."""
        wanted = (self.keeper.shut(now_ns), self.keeper.is_full)
        if wanted != self._filtered:
            everybody = wanted[1] or NOWHERE in wanted[0]
            for listener in self._listeners.values():
                with suppress(OSError):  # some kernels allow root alone to filter; connections are still cut
                    attach(listener, wanted[0] - {NOWHERE}, everybody=everybody)
            self._filtered = wanted

    def _tell(self, news: News | None) -> None:
        if news is not None:
            self._news.append(news)


def _waiting(source: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    """Yield messages that wait, not so many that others would wait for long."""
    for _ in range(_EVENTS_A_TURN):
        try:
            yield source.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return


def _named(address: bytes) -> str:
    """Return the origin of an address as the library writes it."""
    try:
        return origin_of(address.decode("ascii"))
    except ValueError:
        return NOWHERE


def _peer(fd: int) -> tuple[str, int] | None:
    """Return the other end of the connection with this descriptor; None if it is gone already."""
    try:
        with socket.socket(fileno=os.dup(fd)) as own:
            host, port = own.getpeername()[:2]
    except (OSError, ValueError):
        return None
    return host, port


def _cut(fd: int, peer: tuple[str, int], most: int) -> int:
    """Cut a connection if more bytes came over it; returns how many did, -1 if it is another one by now."""
    try:
        with socket.socket(fileno=os.dup(fd)) as own:
            if own.getpeername()[:2] != peer:
                return -1
            tcp_info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            received = 0
            if len(tcp_info) >= _BYTES_RECEIVED_AT + _BYTES_RECEIVED.size:
                [received] = _BYTES_RECEIVED.unpack_from(tcp_info, _BYTES_RECEIVED_AT)
            if received > most:
                own.shutdown(socket.SHUT_RDWR)
            return int(received)
    except (OSError, ValueError):
        return -1


def origin_of(address: str) -> str:
    """Return what an address is counted under: itself, or the network of 64 bits of an IPv6 one.

    One host has 2**64 IPv6 addresses to choose from. An IPv4 address in IPv6 clothes is an IPv4 one.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
    return str(parsed)


def program(origins: Iterable[str]) -> bytes:
    """Return the program that drops what comes from these origins, as ``struct sock_filter`` have it.

    More than ``MOST_ORIGINS`` are too many to tell apart: then everything is dropped.
    """
    wanted = sorted(set(origins))
    if len(wanted) > MOST_ORIGINS:
        return _instruction(_RETURN, _DROP)
    four = [int(ipaddress.IPv4Address(one)).to_bytes(4) for one in wanted if ":" not in one]
    six = [ipaddress.IPv6Network(one).network_address.packed[:8] for one in wanted if ":" in one]
    ipv4 = [_instruction(_LOAD_WORD, _NET + _SOURCE_IPV4)]
    for packed in four:
        ipv4 += [_if_equal(packed, 0, 1), _instruction(_RETURN, _DROP)]
    ipv4.append(_instruction(_RETURN, _PASS))
    ipv6 = []
    for packed in six:
        ipv6 += [
            _instruction(_LOAD_WORD, _NET + _SOURCE_IPV6),
            _if_equal(packed[:4], 0, 3),
            _instruction(_LOAD_WORD, _NET + _SOURCE_IPV6 + 4),
            _if_equal(packed[4:], 0, 1),
            _instruction(_RETURN, _DROP),
        ]
    ipv6.append(_instruction(_RETURN, _PASS))
    head = [
        _instruction(_LOAD_BYTE, _NET),  # version and length of the header
        _instruction(_SHIFT_RIGHT, 4),
        _instruction(_JUMP_IF_EQUAL, 6, 0, 1),
        _instruction(_JUMP, len(ipv4)),
    ]
    return b"".join([*head, *ipv4, *ipv6])


def attach(listener: socket.socket, origins: Iterable[str], *, everybody: bool = False) -> None:
    """Let a listening socket drop what comes from these origins, or from ``everybody``; raises OSError."""
    code = _instruction(_RETURN, _DROP) if everybody else program(origins)
    kept = ctypes.create_string_buffer(code, len(code))
    fprog = struct.pack("@HP", len(code) // 8, ctypes.addressof(kept))
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, fprog)


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _if_equal(word: bytes, if_true: int, if_false: int) -> bytes:
    return _instruction(_JUMP_IF_EQUAL, int.from_bytes(word), if_true, if_false)
