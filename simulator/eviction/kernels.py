"""Running a kernel compiled, or plain where that is quicker than to load a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulator.engine.compile import Compilation, Compiled, compilation_wanted


def run(function: Callable[..., Any], is_small: bool, *arguments: object) -> Any:
    """Call a kernel: plain if it is small or nothing is to be compiled, else compiled."""
    wanted = compilation_wanted()
    if wanted is Compilation.NEVER or (wanted is Compilation.WHEN_IT_PAYS and is_small):
        return function(*arguments)
    compiled = Compiled(function, arguments)
    compiled.prepare()
    return compiled(*arguments)
