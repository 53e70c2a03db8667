"""Errors of the rooms speak of options; here they speak of parameters."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import ParamSpec, TypeVar

from foundation.errors import OsubError, UsageError

PathText = str | PathLike[str]
"""A path, or its text."""
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?![\w-])")
_NAMES = {"set": "settings", "slices": "quantum_ms"}


def as_path(given: PathText, name: str) -> Path:
    """Return the path that a parameter names.

    Raises
    ------
    UsageError
        It is none: neither a text nor a path.
    """
    try:
        path = Path(given)
        has_null = "\0" in str(path)
    except TypeError:
        raise UsageError(f"{name} takes a path, not {type(given).__name__}") from None
    if has_null or not str(given):
        raise UsageError(f"{name} takes a path, not {str(given)!r}")
    return path


def parameters(message: str) -> str:
    """Return a message with the command line's options as parameters: ``--node-noise`` as ``node_noise``."""
    return _OPTION.sub(lambda found: _NAMES.get(found[1], found[1].replace("-", "_")), message)


def speaks_of_parameters(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Make the errors of a function speak of parameters."""

    @functools.wraps(function)
    def told(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        try:
            return function(*args, **kwargs)
        except OsubError as error:
            message = parameters(str(error))
            if message == str(error):
                raise
            raise type(error)(message) from error

    return told
