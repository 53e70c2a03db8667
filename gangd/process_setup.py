"""Process set-up of a daemon: limit of open files, garbage collector off."""

from __future__ import annotations

import contextlib
import gc
import resource

YOUNG, MIDDLE, OLD = 50_000, 50, 100


def allow_open_files() -> int:
    """Raise this process's soft limit of open files to the hard one, which needs no privilege; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    with contextlib.suppress(ValueError, OSError):  # "unlimited" is more than some kernels allow
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def calm_collector() -> None:
    """Look for cyclic garbage rarely, and never among what exists now.

    With tens of thousands of jobs a full collection takes longer than a slice may. The controller makes next
    to no cycles: almost everything is freed by its reference count.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
