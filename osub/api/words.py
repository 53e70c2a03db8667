"""Translate CLI option names in errors to Python parameter names."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import ParamSpec, TypeVar

from foundation.errors import OsubError, UsageError
from foundation.one_line import one_line

PathText = str | PathLike[str]
"""A path, or its text."""
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?![\w-])")
_KINDS: dict[str, tuple[type, str]] = {
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "str": (str, "a text"),
    "bool": (bool, "True or False"),
    "None": (type(None), "None"),
}
"""Of an annotation's parts what a value is an instance of, and the words for it."""
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
    def translated(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        try:
            return function(*args, **kwargs)
        except OsubError as error:
            message = parameters(str(error))
            if message == str(error):
                raise
            raise type(error)(message) from error

    return translated


def takes_kinds(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Have a function refuse values of other kinds than its annotations say, by name: numbers, texts, truths.

    A truth is no number here, nor is ``nan``. Annotations that have other parts are left to the function.
    """
    signature = inspect.signature(function)
    known = kinds_of(function)

    @functools.wraps(function)
    def translated(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # which says so in its own name
        for name, value in given.items():
            wanted = other_kind(known, name, value)
            if wanted is not None:
                raise UsageError(f"{name} takes {wanted}, not {one_line(repr(value), 60)}")
            if isinstance(value, float) and math.isnan(value):
                raise UsageError(f"{name} takes a number, not nan")
        return function(*args, **kwargs)

    return translated


def kinds_of(function: Callable[..., object]) -> Mapping[str, frozenset[str]]:
    """Return which kinds of values each parameter takes whose annotation has plain kinds alone."""
    return {
        name: frozenset(parts)
        for name, one in inspect.signature(function).parameters.items()
        if isinstance(one.annotation, str) and set(parts := one.annotation.split(" | ")) <= _KINDS.keys()
    }


def other_kind(known: Mapping[str, frozenset[str]], name: str, value: object) -> str | None:
    """Return what a parameter takes where a value is none of it; None where it is, or nothing is known."""
    parts = known.get(name)
    if parts is None or any(_is_of(value, part) for part in parts):
        return None
    return " or ".join(words for part, (_, words) in _KINDS.items() if part in parts)


def _is_of(value: object, part: str) -> bool:
    return isinstance(value, _KINDS[part][0]) and (part == "bool" or not isinstance(value, bool))
