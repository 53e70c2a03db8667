"""Which measured pairs and which model a command of ``osub predict`` uses: those named, or osub's own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from osub.errors import HostError, InputError, UsageError

if TYPE_CHECKING:
    from predictor.dataset import Kind, Pairs

_PARTS = ("sklearn", "statsmodels", "scipy")


def needs_learning() -> None:
    """Raise HostError unless the libraries that fit and judge models are installed."""
    for name in _PARTS:
        if importlib.util.find_spec(name) is None:
            raise HostError(f"fitting models needs {name}: pip install 'osub[predict]'")


def pairs_of(data: Path | None) -> Pairs:
    """Return the measured pairs in a folder, or those that come with osub; raises InputError."""
    from predictor.data import FOLDER
    from predictor.dataset import read_pairs

    folder = data or FOLDER
    return read_pairs(folder.parent if folder.is_file() else folder)


def kind_of(word: str | None, pairs: Pairs) -> Kind:
    """Return the kind of sharing that a word names; without a word, the only one or ``timeslice``.

    Raises
    ------
    UsageError
        There is no such kind, or several and none is named.
    InputError
        The pairs have none.
    """
    from predictor.dataset import Kind

    if word is not None:
        try:
            return Kind(word)
        except ValueError as error:
            raise UsageError(f"unknown kind {word!r}: choose {', '.join(Kind)}") from error
    kinds = list(pairs.about.kinds)
    if Kind.TIMESLICE in kinds:
        return Kind.TIMESLICE
    if not kinds:
        raise InputError("the folder has no pairs: measure some with `osub predict measure`")
    if len(kinds) > 1:
        raise UsageError(f"say which kind with --kind: {', '.join(map(str, kinds))}")
    return kinds[0]
