"""Waiting for other containers: an engine restarts containers in no order."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from foundation.errors import ClusterError

T = TypeVar("T")
_POLL_S = 0.1
_SAY_EVERY_S = 10.0


def say(what: str) -> None:
    """Say it in the container's log."""
    print(f"osub: {what}", file=sys.stderr, flush=True)


def wait_for(what: str, look: Callable[[], T | None], within_s: float = 300.0, poll_s: float = _POLL_S) -> T:
    """Return the first thing found that is not None; raises ClusterError after ``within_s`` seconds.

    Between two looks is a pause of ``poll_s`` seconds, and on a slow host one as long as a look takes.
    """
    begun_s = look_s = time.monotonic()
    next_s = begun_s + _SAY_EVERY_S
    while (found := look()) is None:
        now_s = time.monotonic()
        if now_s - begun_s > within_s:
            raise ClusterError(f"{what}: not within {within_s:g} s")
        if now_s > next_s:
            next_s = now_s + _SAY_EVERY_S
            say(f"still waiting for {what}")
        time.sleep(max(poll_s, now_s - look_s))
        look_s = time.monotonic()
    return found


def answers(host: str, port: int) -> bool | None:
    """Return True where something takes connections; None where it does not."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return None
    return True
