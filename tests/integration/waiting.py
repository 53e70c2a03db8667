"""Waiting for a condition with a deadline, and a condition that many wait for."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def wait_until(condition: Callable[[], bool], within_s: float, what: str) -> None:
    """Poll until ``condition`` holds; fail, naming ``what``, after ``within_s`` seconds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.02)


def has_stepd(job_id: int) -> bool:
    """Whether a slurmstepd of the job is left, which removes the script of the next life as it goes.

    So Slurm lets two minutes pass before a job that it has put back may start again.
    """
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or [""]
        if words[0].startswith(f"slurmstepd: [{job_id}."):
            return True
    return False
