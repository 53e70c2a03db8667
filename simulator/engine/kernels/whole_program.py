"""Compiles a function and all that it calls as one program.

numba optimizes each function together with everything below it and makes machine code of it, before it goes
on to the caller, which is optimized with all of that again. Here what is called is only translated; it is
linked, optimized and made machine code once, with the function at the top. That takes half of the time. numba
has no public way to do so: what is used of it is in this module alone.
"""

# ruff: noqa: SLF001

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

from numba.core.codegen import JITCodeLibrary


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
    try:
        yield
    finally:
        del codegen._library_class, codegen.set_env


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
