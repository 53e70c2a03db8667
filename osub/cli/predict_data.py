"""Which measured pairs and which model a command of ``osub predict`` uses: those named, or osub's own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from foundation.errors import HostError, InputError, UsageError
from foundation.one_line import one_line

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


def warn_of_other_cpu(path: Path) -> None:
    """Print one line where a model, or a folder of measured pairs, is of another processor than this host's.

    A table as CSV does not say where it was measured. What cannot be read is left to whoever reads it next.
    """
    from predictor.dataset import read_pairs
    from predictor.measure.host import cpu_model
    from predictor.model.stored import differs, read_model

    try:
        if path.is_dir():
            measured = read_pairs(path).about.host.cpu_model
        elif path.suffix == ".json":
            measured = read_model(path).host.cpu_model
        else:
            return
    except InputError:
        return
    warning = differs(measured, cpu_model())
    if warning is not None:
        print(f"osub: {one_line(path.name, 80)}: {warning}", file=sys.stderr)
