"""How the solvers' kernels are compiled: once for each kind of host, by one process, into a cache on disk.

Compiling takes seconds and a job must not spend them, so the machine code is kept. numba's own check looks
at a kernel's file alone; the cache folder is therefore named after a digest of all files of this package:
other sources, other folder. The ranks of a job would all compile at once; a lock lets the first one do it,
and the others load what it left.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

import numba

from foundation.trust import usable_cache

P = ParamSpec("P")
R = TypeVar("R")


@functools.cache
def cache_folder() -> Path | None:
    """Return where the compiled kernels of these very sources are kept; None where nothing can be.

    ``NUMBA_CACHE_DIR``, else ``osub/solvers`` in ``XDG_CACHE_HOME``, else in ``~/.cache``, has one folder for
    each version of the sources.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    numba_base = os.environ.get("NUMBA_CACHE_DIR")
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "osub" / "solvers"
        folder = (Path(numba_base) if numba_base else base) / digest.hexdigest()[:16]
    except RuntimeError:  # no home
        return None
    return folder if usable_cache(folder) else None


@contextlib.contextmanager
def compiled_once(name: str) -> Iterator[None]:
    """Hold the lock while the kernels of ``name`` are compiled; no lock once they are in the cache."""
    folder = cache_folder()
    if folder is None or (stamp := folder / f"{name}.compiled").exists():
        yield
        return
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        stamp.touch()
    finally:
        os.close(descriptor)


def kernel(signature: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function for ``signature``, in numba's notation, now; or load it from the cache.

    Without fast mathematics: a point's arithmetic is the same wherever the cuts between ranks lie.
    """

    def compile_function(function: Callable[P, R]) -> Callable[P, R]:
        folder = cache_folder()
        # For this function alone: other packages have caches of their own.
        before: str = numba.config.CACHE_DIR  # type: ignore[attr-defined]
        numba.config.CACHE_DIR = str(folder or before)  # type: ignore[attr-defined]
        try:
            compiled: Callable[P, R] = numba.njit(
                signature, cache=folder is not None, error_model="numpy", nogil=True
            )(function)
        finally:
            numba.config.CACHE_DIR = before  # type: ignore[attr-defined]
        return compiled

    return compile_function


def compile_all() -> Path | None:
    """Compile the kernels of all solvers into the cache, or load them; return its folder, None for none."""
    for name in ("lu", "mg", "cg", "ep", "bt", "sp"):
        with compiled_once(name):
            importlib.import_module(f"workloads.rrba.solvers.{name}")
    return cache_folder()
