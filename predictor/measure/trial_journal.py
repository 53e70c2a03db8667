"""What was measured so far, a line a trial, so that a kill loses one trial; and the tables made of it.

``measured.jsonl`` in the PAIRS folder is appended to, one write a line; a last line that is cut is dropped.
The tables are made from it and from what the folder had before, now and then and at the end; then it goes.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import polars as pl

from analysis.claims.estimate import estimate
from foundation.errors import InputError, OutputError
from foundation.one_line import one_line
from predictor.dataset import PAIRS, SOLO, TRIALS, Kind, Table, ideal_loss
from predictor.measure.pair_trial import Row

JOURNAL_NAME = "measured.jsonl"


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    trials: list[dict[str, object]]
    solo: list[dict[str, object]]


class Journal:
    """Trials and runs alone of a PAIRS folder that is being measured.

    Parameters
    ----------
    folder
        The PAIRS folder, which exists.
    trials, solo
        What it has already.

    Raises
    ------
    InputError
        The journal that is there is none.
    """

    def __init__(self, folder: Path, trials: pl.DataFrame, solo: pl.DataFrame) -> None:
        self.path = folder / JOURNAL_NAME
        self._trials: list[Row] = trials.to_dicts()
        self._solo: list[Row] = solo.to_dicts()
        self._runs: dict[tuple[object, object], int] = {}
        for row in self._solo:
            self._count(row)
        self._load()

    def append(self, trials: list[Row], solo: list[Row]) -> None:
        """Keep the rows of a trial, on disk first.

        Raises
        ------
        OutputError
            They cannot be written.
        """
        for row in solo:
            row["trial"] = self._count(row)
        line = msgspec.json.encode({"trials": trials, "solo": solo}) + b"\n"
        try:
            fd = os.open(
                self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
            )
            try:
                os.write(fd, line)
            finally:
                os.close(fd)
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror}") from error
        self._trials += trials
        self._solo += solo

    def trials(self) -> pl.DataFrame:
        """Return the trials table."""
        return _frame(TRIALS, self._trials)

    def solo(self) -> pl.DataFrame:
        """Return the solo table."""
        return _frame(SOLO, self._solo)

    def discard(self) -> None:
        """Remove the journal: the tables have it all."""
        self.path.unlink(missing_ok=True)

    def _count(self, row: Row) -> int:
        key = row["application"], row["kind"]
        self._runs[key] = self._runs.get(key, 0) + 1
        return self._runs[key]

    def _load(self) -> None:
        try:
            whole = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror}") from error
        complete = whole[: whole.rfind(b"\n") + 1]
        if len(complete) < len(whole):
            os.truncate(self.path, len(complete))
        for number, text in enumerate(complete.splitlines(), start=1):
            try:
                line = msgspec.json.decode(text, type=_Line)
                rows = TRIALS.check(_frame(TRIALS, line.trials), "a trial").to_dicts()
                runs = SOLO.check(_frame(SOLO, line.solo), "a run alone").to_dicts()
            except (msgspec.DecodeError, InputError, pl.exceptions.PolarsError, TypeError) as error:
                raise InputError(
                    f"{self.path}: line {number}: {one_line(str(error))}; remove the file to do without it"
                ) from error
            self._trials += rows
            self._solo += runs
            for row in runs:
                self._count(row)


def _frame(table: Table, rows: list[Row]) -> pl.DataFrame:
    plain = {**table.schema}
    texts = {name: pl.String for name, dtype in plain.items() if isinstance(dtype, pl.Datetime)}
    is_text = bool(rows) and isinstance(rows[0].get("started"), str)
    frame = pl.DataFrame(rows, schema={**plain, **texts} if is_text else plain, orient="row")
    if is_text:
        frame = frame.with_columns(
            pl.col(name).str.to_datetime("%+", time_unit="us", time_zone="UTC") for name in texts
        )
    # A kill between the tables and the journal's end leaves rows in both.
    return frame.unique(table.key, keep="first", maintain_order=True)


def pair_frame(trials: pl.DataFrame, window_s: float) -> pl.DataFrame:
    """Return the pairs table of these trials: means, the 95% interval of E_v, CPUs that others used.

    Parameters
    ----------
    trials
        The trials table.
    window_s
        How long a window lasted, to make CPUs of CPU seconds.
    """
    rows: list[Row] = []
    for (kind, victim, opponent), group in trials.group_by(
        ["kind", "victim", "opponent"], maintain_order=True
    ):
        loss = estimate(group["e_v"].to_list())
        foreign = group["foreign_cpu_s"].mean()
        rows.append(
            {
                "kind": kind,
                "victim": victim,
                "opponent": opponent,
                "trials": group.height,
                "e_v": loss.mean,
                "e_v_low": None if loss.low is None else min(loss.low, loss.mean),
                "e_v_high": None if loss.high is None else max(loss.high, loss.mean),
                "e_o": group["e_o"].mean(),
                "ideal": ideal_loss(Kind(str(kind))),
                "load": None if not isinstance(foreign, float) else foreign / window_s,
                "started": group["started"].min(),
                "ended": group["started"].max(),
            }
        )
    return PAIRS.frame(rows)
