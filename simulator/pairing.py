"""Which application each job of a trace runs, and what two of them lose on a core that they share.

Logs have no names of applications. Where they number executables, jobs of one executable and user run one
application; else all jobs of a user do, for users run the same things again and again; or a file says so.
What each application loses to each other one is from measured pairs, a model, or a table as CSV.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foundation.csv_table import LOSS_COLUMNS, losses_of, read_csv
from foundation.errors import InputError, UsageError
from foundation.files import write_whole
from foundation.one_line import one_line
from foundation.units import counted
from simulator.jit.field_records import Ints

_MOST_LINES = 10_000_000

LARGEST_LOSS = 0.95
"""A victim that loses more is taken to lose this: a job that never ends can't be simulated."""

_MOST_BYTES = 64 << 20
_MOST_APPLICATIONS = 1_000


def applications_of(
    word: str | None, known: Sequence[str], number: Ints, user: Ints, executable: Ints, seed: int
) -> tuple[tuple[str, ...], Ints]:
    """Return names of applications, and for each job which of them it runs.

    Parameters
    ----------
    word
        A CSV file with columns ``job`` and ``application``; names with commas, of which one is drawn for each
        user and executable; None: of all that are known.
    known
        Applications whose losses are known.
    number, user, executable
        Of each job; shape (J,); -1 where not known.
    seed
        Of what is drawn.

    Raises
    ------
    UsageError
        No application is named.
    InputError
        One is not known, or the file cannot be used.
    """
    if word is not None and (word.endswith(".csv") or "/" in word):
        return _said(Path(word), known, number)
    names = tuple(known) if word is None else tuple(dict.fromkeys(filter(None, word.split(","))))
    if not names:
        raise UsageError.naming("{apps} names no application")
    unknown = [name for name in names if name not in set(known)]
    if unknown:
        raise InputError(
            f"no pairs of application {one_line(unknown[0], 80)}; there are {', '.join(known[:8])}"
            f"{' and more' if len(known) > 8 else ''}"
        )
    neither = (user < 0) & (executable < 0)
    groups = np.stack((np.where(neither, -number - 2, user), executable), axis=1)
    kinds, which = np.unique(groups, axis=0, return_inverse=True)
    drawn: Ints = np.random.default_rng(seed).integers(0, len(names), size=len(kinds))
    return names, drawn[which.ravel()]


def _said(path: Path, known: Sequence[str], number: Ints) -> tuple[tuple[str, ...], Ints]:
    place = {name: index for index, name in enumerate(known)}
    said: dict[int, int] = {}
    for row in read_csv(path, ("job", "application"), None, most_rows=_MOST_LINES):
        job, name = row.whole("job", 10**18, 0), row.text("application")
        if name not in place:
            raise row.error("application", f"no pairs of application {one_line(name, 80)}")
        if job in said:
            raise row.error("job", f"job {job} is there twice")
        said[job] = place[name]
    app: npt.NDArray[np.int64] = np.empty(len(number), dtype=np.int64)
    for index, job in enumerate(number.tolist()):
        if job not in said:
            raise InputError(f"{path} does not say which application job {job} runs")
        app[index] = said[job]
    return tuple(known), app


@dataclass(frozen=True, slots=True, eq=False)
class PairTable:
    """What applications lose to each other.

    Parameters
    ----------
    applications
        Their names, ascending.
    loss
        E_v of each victim (row) with each opponent (column), shape (A, A): the share of its work that a
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
    return _whole(path, losses_of(read_csv(path, LOSS_COLUMNS, None, most_bytes=_MOST_BYTES)))


def _measured(folder: Path, kind: str) -> Iterator[tuple[str, str, float]]:
    from predictor.dataset import STRESSOR, PairKind, read_pairs

    pairs = read_pairs(folder)
    frame, apps = pairs.pairs, pairs.applications
    # Stressors and jobs of several ranks have a few pairs on one core, too, and no matrix of them.
    several = kind in {PairKind.NAIVE, PairKind.GANG}
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


def _whole(path: Path, rows: Iterator[tuple[str, str, float]]) -> PairTable:
    losses: dict[tuple[str, str], float] = {}
    for victim, opponent, loss in rows:
        if (victim, opponent) in losses:
            raise InputError(f"{path}: {one_line(victim, 80)} with {one_line(opponent, 80)} is there twice")
        losses[victim, opponent] = loss
    names = sorted({name for pair in losses for name in pair})
    if not names:
        raise InputError(f"{path} has no pairs of applications that share a core")
    if len(names) > _MOST_APPLICATIONS:
        raise InputError(
            f"{path} has {counted(len(names), 'application')}; more than {_MOST_APPLICATIONS} are not read"
        )
    for victim in names:
        for opponent in names:
            if (victim, opponent) not in losses:
                raise InputError(
                    f"{path}: {one_line(victim, 80)} with {one_line(opponent, 80)} is missing: measure "
                    "it, or write a whole matrix with `osub predict matrix --csv`"
                )
    values = [[losses[victim, opponent] for opponent in names] for victim in names]
    return PairTable(tuple(names), np.array(values, dtype=np.float64))
