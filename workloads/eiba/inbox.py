"""All that the coordinator of a node hears: its workers, the other nodes, and signals.

Every wait of the application is here, and every one blocks in the kernel: waiting takes no CPU.
A peer that closes its end, or says that it stops, ends the wait with an exception, so that no process
waits at a barrier for the dead.

The messages between coordinator, workers and nodes: one JSON object each, over a connection.

A message with the key ``stop`` is a peer's last: ``terminated`` (by a signal) or ``failed``, with
``why``.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self, TypeAlias

from foundation.errors import OsubError, PeerError

Message = dict[str, Any]
# Quoted: generic to the type checker, not when it runs.
Channel: TypeAlias = "Connection[Any, Any]"

# More than any message of ours; a peer that announces more is not one.
MESSAGE_LIMIT_BYTES = 1_048_576


class Terminated(Exception):  # noqa: N818 - an order carried out, not an error
    """A signal, here or on another node of the job, asked the job to stop."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.signal_number = signal_number


class PeerGoneError(PeerError):
    """A worker or another node is gone; the message says which and why."""

    def __init__(self, who: str, why: str) -> None:
        super().__init__(f"{who} {why}")
        self.who = who


def send(channel: Channel, message: Mapping[str, object]) -> None:
    """Send one message.

    Raises
    ------
    OSError
        The other end is gone.
    """
    channel.send_bytes(json.dumps(message).encode())


def receive(channel: Channel, who: str) -> Message:
    """Wait for the next message of ``who``.

    Raises
    ------
    PeerGoneError
        ``who`` is gone, says that it failed, or sent something that is no message.
    Terminated
        ``who`` says that a signal ended it.
    """
    try:
        message = json.loads(channel.recv_bytes(MESSAGE_LIMIT_BYTES))
    except (EOFError, OSError) as error:
        raise PeerGoneError(who, "is gone") from error
    except ValueError as error:
        raise PeerGoneError(who, "sent something that is no message") from error
    if not isinstance(message, dict):
        raise PeerGoneError(who, "sent something that is no message")
    if message.get("stop") == "terminated":
        raise Terminated(signal.SIGTERM)
    if "stop" in message:
        raise PeerGoneError(who, f"stopped: {message.get('why')}")
    return message


def last_words(channel: Channel, why: BaseException) -> None:
    """Tell a peer that this end stops, and why; a peer that is gone or hears nothing needs no telling."""
    detail = str(why) if isinstance(why, OsubError | Terminated) else type(why).__name__
    try:
        os.set_blocking(channel.fileno(), False)
        send(channel, {"stop": "terminated" if isinstance(why, Terminated) else "failed", "why": detail})
    except OSError:
        pass


# The selector counts whole milliseconds and rounds up; the last one of a wait is slept exactly.
SELECTOR_STEP_S = 0.001
# A selector's timeout is a C int of milliseconds: longer waits are taken in parts.
LONGEST_WAIT_S = 3600.0


class Inbox:
    """Waits for messages, instants and signals at once.

    SIGTERM and SIGINT are caught from construction until ``close``; they end the next wait, or the
    present one, with ``Terminated``. To be made in the main thread.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._queues: dict[str, deque[Message]] = {}
        self._channels: dict[str, Channel] = {}
        self._bell, self._bell_end = socket.socketpair()
        self._bell.setblocking(False)
        self._bell_end.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self._old_bell = signal.set_wakeup_fd(self._bell_end.fileno(), warn_on_full_buffer=False)
        # The handler does nothing: the number arrives through the bell, which also ends a wait.
        self._old_handlers = {
            number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the signals back and forget all peers."""
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_bell)
        for who in list(self._channels):
            self.forget(who)
        self._selector.close()
        self._bell.close()
        self._bell_end.close()

    def become_worker(self) -> None:
        """In a forked worker: close what belongs to the coordinator, and leave signals to it."""
        signal.set_wakeup_fd(-1)
        # Slurm signals every process of the job; the coordinator alone decides what follows.
        for number in self._old_handlers:
            signal.signal(number, signal.SIG_IGN)
        for channel in self._channels.values():
            channel.close()
        # An epoll instance is shared across fork: close it, never unregister from it.
        self._selector.close()
        self._bell.close()
        self._bell_end.close()

    def watch(self, who: str, channel: Channel) -> None:
        """Hear ``channel``, whose other end is called ``who`` (as an error would name it)."""
        self._channels[who] = channel
        self._queues[who] = deque()
        self._selector.register(channel, selectors.EVENT_READ, who)

    def forget(self, who: str) -> None:
        """Hear ``who`` no more and close its channel."""
        channel = self._channels.pop(who)
        self._queues.pop(who)
        self._selector.unregister(channel)
        channel.close()

    def gather(self, senders: Iterable[str]) -> dict[str, Message]:
        """Wait for one message of each of ``senders``; return them by sender, in that order.

        Raises
        ------
        Terminated
            A signal came, or a peer says that one came to it.
        PeerGoneError
            Any peer, whether waited for or not, is gone.
        """
        wanted = list(senders)
        while not all(self._queues[who] for who in wanted):
            self._hear(None)
        return {who: self._queues[who].popleft() for who in wanted}

    def sleep_until(self, deadline_s: float) -> None:
        """Sleep until ``deadline_s`` on CLOCK_MONOTONIC; raises as ``gather`` does."""
        while (left_s := deadline_s - time.monotonic()) > SELECTOR_STEP_S:
            self._hear(min(left_s - SELECTOR_STEP_S, LONGEST_WAIT_S))
        self._hear(0.0)
        time.sleep(max(0.0, deadline_s - time.monotonic()))

    def wait_readable(self, source: socket.socket, deadline_s: float) -> bool:
        """Wait until ``source`` can be read or ``deadline_s`` has passed; say whether it can."""
        self._selector.register(source, selectors.EVENT_READ, source)
        try:
            while (left_s := deadline_s - time.monotonic()) > 0:
                if self._hear(min(left_s, LONGEST_WAIT_S)):
                    return True
        finally:
            self._selector.unregister(source)
        return False

    def _hear(self, timeout_s: float | None) -> bool:
        """Take in what there is, waiting at most ``timeout_s``; say whether a foreign source is ready."""
        foreign = False
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._answer_bell()
            elif isinstance(key.data, str):
                self._queues[key.data].append(receive(self._channels[key.data], key.data))
            else:
                foreign = True
        return foreign

    def _answer_bell(self) -> None:
        for number in self._bell.recv(64):
            if number in self._old_handlers:
                raise Terminated(number)
