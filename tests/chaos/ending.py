"""The end of single daemons of an embedded cluster, as nobody but chaos wants it."""

from __future__ import annotations

from collections.abc import Iterable

from deploy.local.daemons import Daemon
from deploy.local.processes import end, pin


def end_daemons(daemons: Iterable[Daemon], within_s: float) -> None:
    """End daemons: SIGTERM, and SIGKILL for what is left after ``within_s`` seconds."""
    pinned = [found for daemon in daemons if (found := pin(daemon.pid, daemon.start_ticks)) is not None]
    end(pinned, within_s, politely=True)
