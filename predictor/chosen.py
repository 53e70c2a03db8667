"""Which measured pairs and which model are used: those that a user names, or osub's own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from foundation.errors import HostError, InputError, UsageError
from foundation.one_line import one_line

if TYPE_CHECKING:
    from predictor.dataset import PairKind, Pairs

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


def steps_alone(name: str, seconds: float, data: Path | None) -> int:
    """Return the steps that an application made alone in so many seconds, in the median of its runs.

    Raises
    ------
    InputError
        It was not measured alone there.
    """
    import polars as pl

    speed = pairs_of(data).solo.filter(pl.col("application") == name)["speed"].median()
    if not isinstance(speed, float):
        raise InputError(
            f"{name} was not measured alone there: give --steps, or --data of pairs that have it"
        )
    return round(seconds * speed)


def kind_of(word: str | None, pairs: Pairs) -> PairKind:
    """Return the kind of sharing that a word names; without a word, the only one or ``timeslice``.

    Raises
    ------
    UsageError
        There is no such kind, or several and none is named.
    InputError
        The pairs have none.
    """
    from predictor.dataset import PairKind

    if word is not None:
        try:
            return PairKind(word)
        except ValueError as error:
            raise UsageError(f"unknown kind {word!r}: choose {', '.join(PairKind)}") from error
    kinds = list(pairs.about.kinds)
    if PairKind.TIMESLICE in kinds:
        return PairKind.TIMESLICE
    if not kinds:
        raise InputError("the folder has no pairs: measure some with `osub predict measure`")
    if len(kinds) > 1:
        raise UsageError(f"say which kind with --kind: {', '.join(map(str, kinds))}")
    return kinds[0]


def other_cpu(path: Path) -> str | None:
    """Say it where a model, or a folder of measured pairs, is of another processor than this host's.

    A table as CSV does not say where it was measured. What cannot be read is left to the next reader.
    """
    from predictor.dataset import read_pairs
    from predictor.measure.pairs_store import cpu_model
    from predictor.model.stored_model import differs, read_model

    try:
        if path.is_dir():
            measured = read_pairs(path).about.host.cpu_model
        elif path.suffix == ".json":
            measured = read_model(path).host.cpu_model
        else:
            return None
    except InputError:
        return None
    warning = differs(measured, cpu_model())
    return None if warning is None else f"{one_line(path.name, 80)}: {warning}"
