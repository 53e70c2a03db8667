"""How kernels are compiled: by numba with a cache on disk, or not at all.

numba's cache looks at the file of the function that Python calls, not at the files of the functions that this
one calls. A kernel would therefore stay as it was when a callee in another file changes. So the cache folder
is named after a digest of all files of this package that have kernels: other sources, other folder. Of
several processes that want the engine at once, one compiles it and the others load what it left.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def compilation_wanted() -> bool:
    """Return whether kernels are compiled: yes, unless ``OSUB_JIT=0`` or ``NUMBA_DISABLE_JIT=1``."""
    return os.environ.get("OSUB_JIT", "1") != "0" and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")


def source_digest(folder: Path) -> str:
    """Return a digest of the sources under ``folder`` that have kernels, and of the state they share."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_bytes()
        if b"@kernel" in text or path.name == "state.py":
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(text)
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Return where compiled kernels of these very sources are kept.

    ``NUMBA_CACHE_DIR``, else ``osub/kernels`` in ``XDG_CACHE_HOME``, else in ``~/.cache``, has one folder for
    each version of the sources.
    """
    numba_base = os.environ.get("NUMBA_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(numba_base) if numba_base else Path(base).expanduser() / "osub" / "kernels"
    return folder / source_digest(Path(__file__).parents[1])


COMPILED = compilation_wanted()
"""Whether the kernels of this process are compiled."""

_CACHED = False
if COMPILED:
    import numba

    from osub.kernel_cache import usable_cache

    if usable_cache(cache_folder()):
        numba.config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]
        _CACHED = True


def is_cached() -> bool:
    """Return whether these sources were compiled before, on this machine."""
    return _CACHED and any(cache_folder().rglob("*run_events*.nbc"))


@contextlib.contextmanager
def compiled_once() -> Iterator[None]:
    """Hold a lock while the engine is compiled; no lock once it is in the cache, or where there is none."""
    if not _CACHED or is_cached():
        yield
        return
    with (cache_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` into every kernel that calls it, or leave it as plain Python (see ``COMPILED``).

    Kernels use integers only, so that the compiled and the plain one compute the same. They create no
    objects, so numba's reference counting, which costs more than the work, is off. A state of some thirty
    arrays is a call of some two hundred arguments, which costs more than most kernels do: hence inlining.
    """
    return _compiled(function, inlined=True)


def kernel_apart(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` once, to be called: for what is long, or called from several places and seldom."""
    return _compiled(function, inlined=False)


def _compiled(function: Callable[P, R], *, inlined: bool) -> Callable[P, R]:
    if not COMPILED:
        return function
    options = {"cache": _CACHED, "error_model": "numpy", "nogil": True, "_nrt": False, "forceinline": inlined}
    compiled: Callable[P, R] = numba.njit(**options)(function)  # type: ignore[call-overload]
    return compiled
