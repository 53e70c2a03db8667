"""Compiled kernels on disk: numba's cache, but for where it lies and when it is out of date.

The files are numba's. Its own locators name them after the path of the source and date them by its time; here
the folder says which sources they are of, so that every copy of the same sources shares them. Numba has no
public way to say so, nor to ask what a cache holds: what is used of it is in this module alone.
"""

# ruff: noqa: SLF001

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator


def keep_in(dispatcher: Any, folder: Path) -> None:
    """Let a numba dispatcher keep what it compiles in ``folder``, which is of these very sources."""

    class Locator(_CacheLocator):
        def __init__(self, path: str) -> None:
            self._py_file = path

        def get_cache_path(self) -> str:
            return str(folder)

        def get_source_stamp(self) -> str:
            return "the folder says which sources"

        def get_disambiguator(self) -> str:
            return "kernel"

        @classmethod
        def from_function(cls, py_func: object, py_file: str) -> Locator:  # noqa: ARG003
            return cls(py_file)

    class Files(CompileResultCacheImpl):
        _locator_classes = cast("list[type[object]]", [Locator])

    class Cache(FunctionCache):
        _impl_class = Files

    dispatcher._cache = cast("Any", Cache)(dispatcher.py_func)


def is_kept(dispatcher: Any, types: tuple[Any, ...]) -> bool:
    """Return whether the cache holds what ``dispatcher`` would compile for arguments of these types."""
    cache = dispatcher._cache
    if not isinstance(cache, FunctionCache):
        return False
    files: Any = cache._cache_file
    key = cast("Any", cache)._index_key(types, dispatcher.targetctx.codegen())
    name = files._load_index().get(key)
    return name is not None and Path(files._data_path(name)).is_file()
