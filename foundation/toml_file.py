"""TOML configuration: read, check against known keys, and say which keys are known."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from foundation.errors import InputError, UsageError

log = logging.getLogger(__name__)

NONE: Mapping[str, str] = MappingProxyType({})


def load_toml(path: Path, known: frozenset[str], former: Mapping[str, str] = NONE) -> dict[str, object]:
    """Read the TOML file ``path`` and return its top-level table.

    Parameters
    ----------
    path
        The file.
    known
        The keys that the caller understands.
    former
        Keys by former names: such a name is taken for the key, with a warning in the log.

    Raises
    ------
    InputError
        The file is missing, unreadable or not TOML.
    UsageError
        The file has a key that is not in ``known``, or one by both its names; the message says which.
    """
    try:
        with path.open("rb") as stream:
            table = tomllib.load(stream)
    except OSError as error:
        raise InputError(f"cannot read configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"configuration {path} is not TOML: {error}") from error
    for name in sorted(table.keys() & former.keys()):
        key = former[name]
        if key in table:
            raise UsageError(f"configuration {path} has {key} and also its former name {name}: remove {name}")
        log.warning("configuration %s: %s is now called %s; please rename it", path, name, key)
        table[key] = table.pop(name)
    unknown = sorted(set(table) - known)
    if unknown:
        raise UsageError(
            f"configuration {path} has unknown keys {', '.join(unknown)}; "
            f"known keys are {', '.join(sorted(known))}"
        )
    return table
