"""Running a kernel compiled, or plain where that is quicker than to load a compiler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from simulator.jit.compilation import Compilation, Compiled, compilation_wanted


def run(function: Callable[..., Any], is_small: bool, *arguments: object) -> Any:
    """Call a kernel: plain if nothing is to be compiled, or if it is small and not compiled yet."""
    wanted = compilation_wanted()
    may_wait = wanted is Compilation.WHEN_IT_PAYS and is_small
    if wanted is Compilation.NEVER or (may_wait and "numba" not in sys.modules):
        return function(*arguments)
    compiled = Compiled(function, arguments)
    if may_wait and not compiled.is_ready:
        return function(*arguments)
    compiled.prepare()
    return compiled(*arguments)
