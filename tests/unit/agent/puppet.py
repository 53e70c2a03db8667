"""A controller that says what a test tells it to say, over real sockets."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gangd.keys import load_controller_keys, make_keys
from gangd.wire import (
    Beat,
    Controller,
    DownMessage,
    Farewell,
    Hello,
    Ping,
    Pong,
    Report,
    Resend,
    SlicePlan,
    SliceSets,
    ThawNow,
    Track,
    UpMessage,
    Welcome,
    WireError,
    decode_up,
    encode,
    encode_down,
)
from gangd.wire.down import Exempt
from gangd.wire.sockets import ControllerSockets

LEASE_NS = 2_000_000_000


class Puppet:
    """Publishes one repeating schedule for one node and keeps what the agent reports.

    Parameters
    ----------
    folder
        Where keys are made.
    node
        The node.
    quantum_s
        Length of a slice.
    lease_ns
        The lease in every message.
    """

    def __init__(
        self, folder: Path, node: str = "a", quantum_s: float = 0.1, lease_ns: int = LEASE_NS
    ) -> None:
        self.keys = folder / "keys"
        make_keys(self.keys, [node])
        self.node = node
        self.quantum_ns = int(quantum_s * 1e9)
        self.lease_ns = lease_ns
        self.sockets = ControllerSockets(
            load_controller_keys(self.keys), "tcp://127.0.0.1:*", "tcp://127.0.0.1:*"
        )
        self.address = f"{self.sockets.publish_endpoint},{self.sockets.report_endpoint}"
        self.controller = Controller(secrets.token_bytes(16), time.time_ns())
        self.tracks: tuple[Track, ...] = ()
        self.exempt = Exempt()
        self.received: list[UpMessage] = []
        self.reports: list[Report] = []
        self.silent = False
        self._seq = 0
        self._epoch = 0
        self._dirty = True
        self._start_ns = time.monotonic_ns()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def rotate(self, *held: tuple[int, ...]) -> None:
        """Repeat slices in which these jobs are held, e.g. ``rotate((1,), (2,))`` for two that alternate."""
        jobs = {job for each in held for job in each}
        slices = tuple(SliceSets(tuple(sorted(jobs - set(each))), each) for each in held)
        with self._lock:
            self.tracks = (Track(min(jobs), 0, True, slices),) if jobs else ()
            self._dirty = True

    def set_exempt(self, exempt: Exempt) -> None:
        with self._lock:
            self.exempt = exempt
            self._dirty = True

    def thaw_now(self, jobs: tuple[int, ...] | None) -> None:
        with self._lock:
            self._publish(ThawNow(**self._head(), jobs=jobs, reason="test"))  # type: ignore[arg-type]

    def slices(self) -> list[int]:
        """Numbers of all slices that were reported."""
        return [each.number for report in list(self.reports) for each in report.slices]

    def last(self, kind: Callable[[Report], object]) -> object:
        """Return the newest thing of a kind in the reports that is not empty."""
        return next((kind(report) for report in reversed(list(self.reports)) if kind(report)), None)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.sockets.close()

    def _head(self) -> dict[str, object]:
        self._seq += 1
        return {
            "controller": self.controller,
            "node": self.node,
            "epoch": self._epoch,
            "seq": self._seq,
            "sent_ns": time.monotonic_ns(),
            "lease_ns": self.lease_ns,
        }

    def _publish(self, message: DownMessage) -> None:
        if not self.silent:
            self.sockets.publish.send_multipart(encode_down(message))

    def _main(self) -> None:
        beat_ns = 0
        while not self._stop.is_set():
            self._answer()
            with self._lock:
                now_ns = time.monotonic_ns()
                if self._dirty:
                    self._dirty = False
                    self._epoch += 1
                    self._plan(now_ns)
                elif now_ns >= beat_ns:
                    beat_ns = now_ns + self.quantum_ns
                    self._publish(Beat(**self._head(), horizon=self._running(now_ns) + 3))  # type: ignore[arg-type]
            self._stop.wait(0.002)

    def _running(self, now_ns: int) -> int:
        return (now_ns - self._start_ns) // self.quantum_ns

    def _plan(self, now_ns: int) -> None:
        first = self._running(now_ns) + 3
        tracks = tuple(
            Track(track.track, first - first % len(track.slices), True, track.slices) for track in self.tracks
        )
        self._publish(
            SlicePlan(
                **self._head(),  # type: ignore[arg-type]
                first_slice=first,
                first_start_ns=self._start_ns + first * self.quantum_ns,
                quantum_ns=self.quantum_ns,
                horizon=first,
                tracks=tracks,
                exempt=self.exempt,
            )
        )

    def _answer(self) -> None:
        while True:
            try:
                got = self.sockets.receive()
                if got is None:
                    return
                message = decode_up(got[1], got[0])
            except WireError:
                continue
            self.received.append(message)
            if isinstance(message, Report):
                self.reports.append(message)
            if self.silent:
                continue
            self._reply(got[0], message)

    def _reply(self, node: str, message: UpMessage) -> None:
        now_ns = time.monotonic_ns()
        if isinstance(message, Ping):
            pong = Pong(node=node, agent_ns=message.agent_ns, received_ns=now_ns, sent_ns=time.monotonic_ns())
            self._send(node, encode(pong))
        elif isinstance(message, Hello):
            welcome = Welcome(
                controller=self.controller,
                node=node,
                now_ns=now_ns,
                quantum_ns=self.quantum_ns,
                lease_ns=self.lease_ns,
                lookahead=2,
            )
            self._send(node, encode(welcome))
            self._dirty = True
        elif isinstance(message, Resend):
            self._dirty = True

    def _send(self, node: str, body: bytes) -> None:
        with contextlib.suppress(Exception):
            self.sockets.reports.send_multipart([node.encode(), body])


def farewells(puppet: Puppet) -> list[Farewell]:
    return [message for message in puppet.received if isinstance(message, Farewell)]


__all__ = ["Puppet", "farewells", "replace"]
