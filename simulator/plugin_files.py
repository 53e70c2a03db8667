"""Loads a user's plug-in from a Python file: ``FILE.py:NAME``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from foundation.errors import InputError, UsageError

NOTHING: Mapping[str, object] = {}
"""No settings."""


def load_plugin(text: str, method: str, settings: Mapping[str, object] = NOTHING) -> object:
    """Return the object ``NAME`` of ``FILE.py:NAME``; a class is called with the settings.

    Parameters
    ----------
    text
        What the user wrote.
    method
        Name of a method that the plug-in must have.
    settings
        Arguments for the class, by name.

    Raises
    ------
    UsageError
        The text has another form, the file has no such name, or the object lacks the method.
    InputError
        The file cannot be read, or fails when it is run.
    """
    file, _, name = text.rpartition(":")
    if not file or not name.isidentifier():
        raise UsageError(f"{text!r} is not a plug-in: write FILE.py:NAME")
    path = Path(file)
    if not path.is_file():
        raise InputError(f"there is no plug-in file {path}")
    spec = importlib.util.spec_from_file_location(f"osub_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        found = getattr(module, name, None)
        plugin = found(**settings) if isinstance(found, type) else found
    except Exception as error:
        raise InputError(f"plug-in {path}: {type(error).__name__}: {error}") from error
    if found is None:
        known = [one for one, thing in vars(module).items() if callable(getattr(thing, method, None))]
        raise UsageError(
            f"{path} has no {name}: "
            + (f"it has {', '.join(known)}" if known else f"write a class {name} with the method {method}")
        )
    if settings and plugin is found:
        raise UsageError(f"{name} in {path} is no class, so it takes no --set")
    if not callable(getattr(plugin, method, None)):
        raise UsageError(f"{name} in {path} is no plug-in: it lacks the method {method}")
    return plugin
