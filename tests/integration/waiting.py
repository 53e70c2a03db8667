"""Waiting for a condition with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

REVOKED_S = 2.0
"""How long after its end a job that Slurm has put back is not to start.

Nodes know in whole seconds when a job's credential was revoked, and refuse one that was made in that second.
So Slurm itself lets two minutes pass.
"""


def wait_until(condition: Callable[[], bool], within_s: float, what: str) -> None:
    """Poll until ``condition`` holds; fail, naming ``what``, after ``within_s`` seconds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.02)
