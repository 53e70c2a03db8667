"""Models are fitted on one thread: there is little to compute, and threads that wait for each other spin.

On a host whose cores are shared, which is what this package is for, a library's threads wait for one that has
no core, and seconds become minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS and OpenMP to one thread while the context lasts; as a decorator, in each call."""
    with threadpool_limits(limits=1):
        yield
