"""The messages between coordinator, workers and nodes: one JSON object each, over a connection.

A message with the key ``stop`` is a peer's last: ``terminated`` (a signal told it to) or ``failed``, with
``why``.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

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
