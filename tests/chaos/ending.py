"""Ends single daemons of an embedded cluster, as only chaos campaigns do."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

from deploy.local.daemons import Daemon
from deploy.local.members import end, pin


def end_daemons(daemons: Iterable[Daemon], within_s: float) -> None:
    """End daemons: SIGTERM, and SIGKILL for what is left after ``within_s`` seconds."""
    pinned = [found for daemon in daemons if (found := pin(daemon.pid, daemon.start_ticks)) is not None]
    for process in pinned:
        process.send(signal.SIGTERM)
    deadline_s = time.monotonic() + within_s
    while any(process.is_alive() for process in pinned) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    end(pinned, within_s)
