"""What is used of numba that numba does not document: its cache on disk, and whole-program code libraries.

numba optimizes each function together with everything below it and makes machine code of it, before it goes
on to the caller, which is optimized with all of that again. Here what is called is only translated; it is
linked, optimized and made machine code once, with the function at the top. That takes half of the time. numba
has no public way to do so: what is used of it is in this module alone.
"""

from __future__ import annotations

# ruff: noqa: SLF001
import contextlib
from collections.abc import Iterator

# ruff: noqa: SLF001
from pathlib import Path
from typing import Any, cast

from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.np import arrayobj


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


@contextlib.contextmanager
def whole_program(dispatcher: Any) -> Iterator[None]:
    """Let what is compiled meanwhile be parts of the function of ``dispatcher``, which is compiled last."""
    top = dispatcher.py_func.__qualname__

    class Part(JITCodeLibrary):
        def _optimize_functions(self, ll_module: Any) -> None:
            ll_module.data_layout = self._codegen._data_layout

        def finalize(self) -> None:
            own: Any = self
            own._raise_if_finalized()
            if self.name != top:
                self._finalized = True
                return
            module = own._final_module
            for library in _below(self):
                self._reload_init.update(library._reload_init)
                module.link_in(library._get_module_for_linking(), preserve=True)
            for function in module.functions:
                if not function.is_declaration and function.linkage.name == "linkonce_odr":
                    function.linkage = "internal"  # so that what is inlined everywhere goes
            own._optimize_final_module()
            module.verify()
            own._finalize_final_module()

    codegen = dispatcher.targetctx.codegen()
    set_env = codegen.set_env

    def set_env_of_top(name: str, env: Any) -> None:
        if codegen._engine.is_symbol_defined(name):
            set_env(name, env)

    codegen._library_class, codegen.set_env = Part, set_env_of_top
    wrapped, internals = arrayobj.fix_integer_index, cast("Any", arrayobj)
    internals.fix_integer_index = _index_from_start
    try:
        yield
    finally:
        internals.fix_integer_index = wrapped
        del codegen._library_class, codegen.set_env


def _index_from_start(context: Any, builder: Any, kind: Any, index: Any, size: object) -> Any:  # noqa: ARG001
    """Return an index as it is: kernels never count from the end, and asking costs them a tenth."""
    return context.cast(builder, index, kind, types.intp)


def _below(library: Any) -> list[Any]:
    """Return the libraries that a library links, and those that they link, each once."""
    found: dict[int, Any] = {}
    rest = list(library._linking_libraries)
    while rest:
        one = rest.pop()
        if id(one) not in found:
            found[id(one)] = one
            rest += cast("list[Any]", one._linking_libraries)
    return list(found.values())
