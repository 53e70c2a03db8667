"""Room for open files: an agent keeps files of every step open, the controller connections to every agent."""

from __future__ import annotations

import contextlib
import resource


def allow_open_files() -> int:
    """Raise this process's soft limit of open files to the hard one, which needs no privilege; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    with contextlib.suppress(ValueError, OSError):  # "unlimited" is more than some kernels allow
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
