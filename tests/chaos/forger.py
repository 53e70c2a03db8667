"""Peers that are not what they seem: a recorder of plans, a false controller, and clients of any key.

The recorder and the false controller have genuine keys: what they send passes CURVE and meets the checks of
the protocol itself.
"""

from __future__ import annotations

import collections
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import zmq

from gangd.curve_keys import KeyPair, load_agent_keys, load_controller_keys
from gangd.wire.wire_frames import ALL_NODES_TOPIC, topic
from tests.chaos.broken import Broken

_KEPT = 3_000


def client(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, own: KeyPair, server: bytes, identity: bytes | None
) -> zmq.Socket[bytes]:
    """Return a socket that speaks CURVE with these keys; connect it."""
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, own.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, own.secret)
    socket.setsockopt(zmq.CURVE_SERVERKEY, server)
    if identity is not None:
        socket.setsockopt(zmq.IDENTITY, identity)
    return socket


class Recorder:
    """Listens to the plans of every node, as the agents do, and keeps them with their frames."""

    def __init__(self, keys: Path, nodes: Sequence[str], port: int) -> None:
        self._frames: dict[str, collections.deque[list[bytes]]] = {
            node: collections.deque(maxlen=_KEPT) for node in nodes
        }
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets = {}
        for node in nodes:
            known = load_agent_keys(keys, node)
            socket = client(self._context, zmq.SUB, known.own, known.controller_public, None)
            socket.setsockopt(zmq.SUBSCRIBE, topic(node))
            socket.setsockopt(zmq.SUBSCRIBE, ALL_NODES_TOPIC)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
            socket.connect(f"tcp://127.0.0.1:{port}")
            self._sockets[node] = socket
        self._leaving = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def of(self, node: str) -> list[list[bytes]]:
        """Return the newest messages to a node, as lists of frames."""
        with self._lock:
            return [list(frames) for frames in self._frames[node]]

    def close(self) -> None:
        """End the thread."""
        self._leaving.set()
        self._thread.join(5)
        for socket in self._sockets.values():
            socket.close()
        self._context.term()

    def _run(self) -> None:
        poller = zmq.Poller()
        for socket in self._sockets.values():
            poller.register(socket, zmq.POLLIN)
        while not self._leaving.is_set():
            poller.poll(200)
            for node, socket in self._sockets.items():
                while int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                    frames = socket.recv_multipart()
                    with self._lock:
                        self._frames[node].append(frames)


class FalseController:
    """Publishes with the controller's key; use ``with``. Lead an agent's plans to its ``port``."""

    def __init__(self, keys: Path) -> None:
        own = load_controller_keys(keys).own
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.CURVE_SERVER, 1)
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, own.secret)
        self.port = self._socket.bind_to_random_port("tcp://127.0.0.1")

    def wait_heard(self, within_s: float = 60.0) -> None:
        """Wait until an agent has subscribed; raises Broken."""
        if not self._socket.poll(int(within_s * 1000)):
            raise Broken("the agent never subscribed to the false controller")

    def say(self, frames: Sequence[bytes]) -> None:
        """Publish one message."""
        self._socket.send_multipart(frames)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._context.term()


def spoil(body: bytes, dice: random.Random) -> bytes:
    """Return a body with some bytes changed, cut, or added."""
    damaged = bytearray(body)
    for _ in range(dice.randint(1, 4)):
        if damaged:
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
    how = dice.random()
    if how < 0.2:
        del damaged[dice.randrange(len(damaged) + 1) :]
    elif how < 0.3:
        damaged += dice.randbytes(dice.randint(1, 20))
    return bytes(damaged)


def send_all(socket: zmq.Socket[bytes], messages: Sequence[Sequence[bytes]], within_s: float) -> int:
    """Send messages, waiting for free buffers; returns how many the library took before the time was over."""
    until_s = time.monotonic() + within_s
    for number, frames in enumerate(messages):
        while True:
            try:
                socket.send_multipart(frames, zmq.NOBLOCK)
                break
            except zmq.Again:
                if time.monotonic() > until_s:
                    return number
                time.sleep(0.005)
    return len(messages)


def drained(socket: zmq.Socket[bytes]) -> int:
    """Take what came, and return how many messages that were.

    A peer whose answers pile up stops reading its connection: the other end gives it up in time, and what
    is on the way then is lost.
    """
    taken = 0
    while socket.poll(0):
        socket.recv_multipart()
        taken += 1
    return taken
