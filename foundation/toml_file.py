"""TOML configuration: read, check against known keys, and say which keys are known."""

from __future__ import annotations

import tomllib
from pathlib import Path

from foundation.errors import InputError, UsageError


def load_toml(path: Path, known: frozenset[str]) -> dict[str, object]:
    """Read the TOML file ``path`` and return its top-level table.

    Parameters
    ----------
    path
        The file.
    known
        The keys that the caller understands.

    Raises
    ------
    InputError
        The file is missing, unreadable or not TOML.
    UsageError
        The file has a key that is not in ``known``; the message lists the known ones.
    """
    try:
        with path.open("rb") as stream:
            table = tomllib.load(stream)
    except OSError as error:
        raise InputError(f"cannot read configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"configuration {path} is not TOML: {error}") from error
    unknown = sorted(set(table) - known)
    if unknown:
        raise UsageError(
            f"configuration {path} has unknown keys {', '.join(unknown)}; "
            f"known keys are {', '.join(sorted(known))}"
        )
    return table
