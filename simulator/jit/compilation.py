"""How kernels are compiled: by numba with a cache on disk, or not at all.

A kernel is a plain function, and stays one for callers in Python. The few that are wanted compiled
(the event loop) are so through ``compiled``; numba then compiles what they call into them. So one process has
both, and what a run doesn't need is never compiled: a part that is None in its state is left out, because
numba drops the branches that a None decides.

numba's own cache looks at the path and the time of the file of the function that Python calls. Here the cache
folder is named after a digest of the simulator's files that have kernels, and of those that these import from
it, whose constants and records are compiled with them. Nothing else matters: other sources, other folder; the
same sources in another place, the same. Of several processes that want the same loop at once, one compiles it
and the others load what it left.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_IMPORTED = re.compile(rb"^from (simulator[.\w]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_OPTIONS = {"error_model": "numpy", "nogil": True, "_nrt": False}
_CALLED_OPTIONS = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_kernels: list[Callable[..., Any]] = []
_states: list[type[Any]] = []


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Declare that ``function`` can be compiled into those that call it.

    Kernels use integers only, so that the compiled and the plain one compute the same. They create no
    objects, so numba's reference counting, which costs more than the work, is off.
    """
    _kernels.append(function)
    return function


def kernel_state(state: type[T]) -> type[T]:
    """Declare that kernels take this class of named tuples by its address (``state_types``).

    They read its fields and create none of it. A class that kernels do create stays a named tuple.
    """
    _states.append(state)
    return state


class Compilation(Enum):
    """When the loop is compiled."""

    ALWAYS = "always"
    NEVER = "never"
    WHEN_IT_PAYS = "when it pays"


def compilation_wanted() -> Compilation:
    """Return what ``OSUB_JIT`` says: 1 is always, 0 is never, as is ``NUMBA_DISABLE_JIT=1``."""
    word = os.environ.get("OSUB_JIT", "")
    if word == "0" or os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return Compilation.NEVER
    return Compilation.ALWAYS if word == "1" else Compilation.WHEN_IT_PAYS


@functools.cache
def source_digest(folder: Path = Path(__file__).parents[1]) -> str:
    """Return a digest of the sources under ``folder`` that have kernels, and of those that they import."""
    rest = [path for path in folder.rglob("*.py") if b"@kernel" in path.read_bytes()]
    rest.append(folder / "jit" / "compilation.py")
    rest += [folder / "jit" / name for name in ("numba_internals.py", "state_types.py")]
    found: dict[str, bytes] = {}
    while rest:
        path = rest.pop()
        name = path.relative_to(folder).as_posix()
        if name not in found:
            found[name] = path.read_bytes()
            rest += _imported(folder, found[name])
    digest = hashlib.sha256()
    for name, text in sorted(found.items()):
        digest.update(name.encode())
        digest.update(text)
    return digest.hexdigest()[:16]


def _imported(folder: Path, text: bytes) -> list[Path]:
    """Return the files of the package at ``folder`` that a source imports at its top."""
    modules = set()
    for package, names in _IMPORTED.findall(text):
        parent = package.decode().split(".")[1:]
        modules |= {tuple(parent)} | {(*parent, name.decode()) for name in re.findall(rb"\w+", names)}
    files = [folder.joinpath(*parts, "__init__.py") for parts in modules]
    files += [folder.joinpath(*parts).with_suffix(".py") for parts in modules if parts]
    return [file for file in files if file.is_file()]


def cache_folder() -> Path:
    """Return where compiled kernels of these very sources are kept.

    ``NUMBA_CACHE_DIR``, else ``osub/kernels`` in ``XDG_CACHE_HOME``, else in ``~/.cache``, has one folder for
    each version of the sources.
    """
    numba_base = os.environ.get("NUMBA_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(numba_base) if numba_base else Path(base).expanduser() / "osub" / "kernels"
    return folder / source_digest()


def is_anything_kept() -> bool:
    """Return whether anything of these sources was ever compiled here; needs no numba to say so."""
    return any(cache_folder().glob("*.nbc"))


class Compiled:
    """A function that is compiled for the types of certain arguments, or loaded, before it is called.

    Parameters
    ----------
    function
        A kernel.
    arguments
        Arguments of the types that it will be called with.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
        import numba

        from simulator.jit.numba_internals import is_kept

        self._dispatcher = _dispatcher(function)
        typeof: Callable[[object], Any] = numba.typeof
        self._types = tuple(map(typeof, arguments))
        self._is_kept = functools.partial(is_kept, self._dispatcher, self._types)

    @property
    def is_ready(self) -> bool:
        """Whether nothing is left to compile: this process has done it, or the cache holds it."""
        return self._types in self._dispatcher.overloads or self._is_kept()

    def prepare(self) -> None:
        """Compile, or load what was compiled; of several processes only one compiles."""
        if self._types in self._dispatcher.overloads:
            return
        from simulator.jit.numba_internals import whole_program

        with contextlib.ExitStack() as stack:
            if not self._is_kept():
                stack.enter_context(_alone())
            if not self._is_kept():
                stack.enter_context(_compilation_shown())
                stack.enter_context(whole_program(self._dispatcher))
            self._dispatcher.compile(self._types)

    def __call__(self, *arguments: object) -> Any:
        """Call what was compiled."""
        return self._dispatcher(*arguments)


@functools.cache
def _dispatcher(function: Callable[..., Any]) -> Any:
    """Return what numba calls; every kernel declared by now is known to it."""
    import numba

    from foundation.trust import usable_cache
    from simulator.jit.numba_internals import keep_in

    _make_known(len(_kernels))
    njit: Any = numba.njit
    dispatcher = njit(**_OPTIONS)(function)
    if usable_cache(cache_folder()):
        keep_in(dispatcher, cache_folder())
    return dispatcher


_known = 0


def _make_known(count: int) -> None:
    """Let numba compile the first ``count`` kernels wherever another kernel calls them, and know states."""
    from numba.extending import register_jitable

    from simulator.jit.state_types import declare

    global _known
    while _states:
        declare(_states.pop())
    for function in _kernels[_known:count]:
        register_jitable(**_CALLED_OPTIONS)(function)
    _known = count


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock of the cache, if there is one."""
    from foundation.trust import usable_cache

    if not usable_cache(cache_folder()):
        yield
        return
    with (cache_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _compilation_shown() -> Iterator[None]:
    """Say on stderr that the engine is compiled: a line that grows on a terminal, else one at the end."""
    from numba.core import event

    class Counter(event.Listener):
        count = 0

        def on_start(self, event: object) -> None:
            """See ``Listener``."""

        def on_end(self, event: object) -> None:  # noqa: ARG002
            self.count += 1
            if live:
                print(
                    f"\rosub: compiling the engine: {self.count} kernels", end="", file=sys.stderr, flush=True
                )

    live = sys.stderr.isatty()
    began = time.monotonic()
    counter = Counter()
    with event.install_listener("numba:compile", counter):
        yield
    took_s = time.monotonic() - began
    print(
        f"{chr(13) if live else ''}osub: compiled the engine for runs of this kind ({counter.count} kernels) "
        f"in {took_s:.0f} s, once for this version",
        file=sys.stderr,
        flush=True,
    )
