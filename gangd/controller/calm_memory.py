"""Garbage collection that does not hold up a slice."""

from __future__ import annotations

import gc

YOUNG, MIDDLE, OLD = 50_000, 50, 100


def calm_collector() -> None:
    """Look for cyclic garbage rarely, and never among what exists now.

    With tens of thousands of jobs a full collection takes longer than a slice may. The controller makes next
    to no cycles: almost everything is freed by its reference count.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
