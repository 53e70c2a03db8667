"""The loss of each application beside each other: from measured pairs, a model, or a table as CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foundation.errors import InputError
from foundation.one_line import one_line
from foundation.whole_file import write_whole

LARGEST_LOSS = 0.95
"""A victim that loses more is taken to lose this: a job that never ends can't be simulated."""

_MOST_BYTES = 64 << 20
_MOST_APPLICATIONS = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class PairTable:
    """What applications lose to each other.

    Parameters
    ----------
    applications
        Their names, ascending.
    loss
        E_v of each victim (row) beside each opponent (column), shape (A, A): the share of its work that a
        victim loses while both run on a core.
    """

    applications: tuple[str, ...]
    loss: npt.NDArray[np.float64]

    @property
    def slowdown(self) -> npt.NDArray[np.float64]:
        """Return 1 / (1 - E_v), 2 where the two take turns; at least 1, and at most 20."""
        slowed: npt.NDArray[np.float64] = 1.0 / (1.0 - np.clip(self.loss, 0.0, LARGEST_LOSS))
        return slowed


def write_pair_table(path: Path, table: PairTable) -> None:
    """Write a table as CSV, which ``read_pair_table`` reads; raises OutputError."""
    lines = ["victim,opponent,e_v"]
    lines += [
        f"{victim},{opponent},{loss!r}"
        for victim, row in zip(table.applications, table.loss.tolist(), strict=True)
        for opponent, loss in zip(table.applications, row, strict=True)
    ]
    write_whole(path, "\n".join(lines) + "\n")


def read_pair_table(path: Path, kind: str = "timeslice") -> PairTable:
    """Read a table: a folder of measured pairs, of one kind of sharing, a model (JSON), or CSV.

    CSV has columns ``victim``, ``opponent`` and ``e_v``; others are passed over. ``osub predict matrix
    --csv`` writes it.

    Raises
    ------
    InputError
        It cannot be read, a loss is not finite, or a pair is missing.
    """
    if path.is_dir():
        return _whole(path, _measured(path, kind))
    if path.suffix == ".json":
        return _of_model(path)
    return _whole(path, _rows(path))


def _measured(folder: Path, kind: str) -> Iterator[tuple[str, str, float]]:
    from predictor.dataset import STRESSOR, Kind, read_pairs

    pairs = read_pairs(folder)
    frame, apps = pairs.pairs, pairs.applications
    # Stressors and jobs of several ranks have a few pairs on one core, too, and no matrix of them.
    several = kind in {Kind.NAIVE, Kind.GANG}
    which = (apps["ranks"] > 1) if several else (apps["ranks"] == 1)
    names = apps.filter((apps["family"] != STRESSOR) & which)["application"].to_list()
    own = frame.filter(
        (frame["kind"] == kind) & frame["victim"].is_in(names) & frame["opponent"].is_in(names)
    )
    yield from own.select("victim", "opponent", "e_v").iter_rows()


def _of_model(path: Path) -> PairTable:
    from predictor.model import read_model

    model = read_model(path)
    names = sorted(model.applications)
    scaled = model.counters_of(names)
    return PairTable(tuple(names), model.matrix(scaled, scaled)[0])


def _rows(path: Path) -> Iterator[tuple[str, str, float]]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB; it is no table of pairs")
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            missing = {"victim", "opponent", "e_v"} - set(reader.fieldnames or ())
            if missing:
                raise InputError(f"{path}: column {min(missing)} is missing; wanted: victim, opponent, e_v")
            for row in reader:
                yield _row(path, reader.line_num, row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read the table of pairs {path}: {one_line(str(error))}") from error


def _row(path: Path, line: int, row: dict[str, str]) -> tuple[str, str, float]:
    try:
        loss = float(row["e_v"])
    except (TypeError, ValueError):
        loss = math.nan
    if not math.isfinite(loss) or not row["victim"] or not row["opponent"]:
        raise InputError(f"{path}: line {line}: victim, opponent and a finite e_v are wanted")
    return row["victim"], row["opponent"], loss


def _whole(path: Path, rows: Iterator[tuple[str, str, float]]) -> PairTable:
    losses: dict[tuple[str, str], float] = {}
    for victim, opponent, loss in rows:
        if (victim, opponent) in losses:
            raise InputError(f"{path}: {one_line(victim, 80)} beside {one_line(opponent, 80)} is there twice")
        losses[victim, opponent] = loss
    names = sorted({name for pair in losses for name in pair})
    if not names:
        raise InputError(f"{path} has no pairs of applications that share a core")
    if len(names) > _MOST_APPLICATIONS:
        raise InputError(f"{path} has {len(names)} applications; more than {_MOST_APPLICATIONS} are not read")
    for victim in names:
        for opponent in names:
            if (victim, opponent) not in losses:
                raise InputError(
                    f"{path}: {one_line(victim, 80)} beside {one_line(opponent, 80)} is missing: measure "
                    "it, or write a whole matrix with `osub predict matrix --csv`"
                )
    values = [[losses[victim, opponent] for opponent in names] for victim in names]
    return PairTable(tuple(names), np.array(values, dtype=np.float64))
