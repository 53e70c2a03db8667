"""The tables of a PAIRS folder: columns, types, what may be null, and rules that every row keeps.

What two applications lose by sharing: E_v and E_o of Minami's thesis (chapter 4), from speeds.

The thesis measures times. A victim runs alone in T_v,Ded, with an opponent in T_v,OSub; the opponent is
busy for T_o,Ded alone and for T_o,OSub with the victim::

    (4.1)  E_v = (T_v,OSub - T_v,Ded) / T_o,OSub
    (4.2)  E_o = (T_o,OSub - T_o,Ded) / T_o,OSub

Both are dedicated seconds lost in a second of overlap. Here both applications run all the time, so nothing
overlaps partly, and the speed (steps a second) says the same: in a window of W seconds the victim does what
alone would take it W * shared/alone, and the overlap is the part of W in which the opponent is busy. So a
loss is a loss of work.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import polars as pl

from foundation.errors import InputError
from foundation.one_line import one_line


class PairKind(StrEnum):
    """How two applications shared; records of different kinds are never mixed.

    ``timeslice``: one core, shared by the operating system. ``threads``: two hardware threads of a core.
    ``cores``: jobs on different cores of a node, that share caches and memory only. ``naive``: two jobs of
    two ranks, both ranks' cores shared by the operating system. ``gang``: the same with gang slices.
    """

    TIMESLICE = "timeslice"
    THREADS = "threads"
    CORES = "cores"
    NAIVE = "naive"
    GANG = "gang"


def ideal_loss(kind: PairKind, multiplicity: int = 2) -> float:
    """Return E_v where sharing costs nothing but the share itself: 1 - 1/M; 0 on cores of one's own.

    The thesis has M = 2, where it is 0.5 (equation 4.5).
    """
    return 0.0 if kind is PairKind.CORES else 1.0 - 1.0 / multiplicity


def victim_loss(alone: float, shared: float, opponent_busy: float = 1.0) -> float:
    """Return E_v: dedicated seconds that a victim loses in a second in which its opponent is busy.

    Parameters
    ----------
    alone, shared
        The victim's speed, steps a second of wall time; ``alone`` is above 0.
    opponent_busy
        The share of the window, above 0 and at most 1, in which the opponent computed or wanted to.
    """
    return (1.0 - shared / alone) / opponent_busy


def opponent_loss(alone: float, shared: float) -> float:
    """Return E_o: the part of an opponent's busy time that it would not have needed alone.

    Parameters
    ----------
    alone, shared
        The opponent's speed, steps a second of its *busy* time; ``alone`` is above 0.
    """
    return 1.0 - shared / alone


STRESSOR: Final = "stressor"
"""The family of calibrated stressors, which are opponents and no applications of their own."""

NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$"
"""Names of applications, families and counters: they are printed, and may become parts of file names."""

_TIME: Final = pl.Datetime("us", "UTC")


class CounterSource(StrEnum):
    """What counted: the processor, a simulation of its caches, or the operating system."""

    PERF = "perf"
    CACHEGRIND = "cachegrind"
    OS = "os"


@dataclass(frozen=True, slots=True)
class PairsTable:
    """A table.

    Attributes
    ----------
    name
        Of the file, without ``.parquet``.
    schema
        Columns and types, in order.
    nullable
        Columns that may be null: not measured, or not known.
    key
        Columns that name a row; no two rows have the same.
    rules
        What is refused, with its words.
    """

    name: str
    schema: dict[str, pl.DataType | type[pl.DataType]]
    nullable: frozenset[str]
    key: tuple[str, ...]
    rules: tuple[tuple[str, pl.Expr], ...] = ()

    @property
    def file_name(self) -> str:
        """The file's name in the folder."""
        return f"{self.name}.parquet"

    def empty(self) -> pl.DataFrame:
        """Return the table without rows."""
        return pl.DataFrame(schema=self.schema)

    def frame(self, rows: list[dict[str, object]]) -> pl.DataFrame:
        """Return rows as a frame of this table's columns and types; what a row lacks is null."""
        return pl.DataFrame(rows, schema=self.schema, orient="row", infer_schema_length=None)

    def check(self, frame: pl.DataFrame, source: str) -> pl.DataFrame:
        """Return ``frame`` with its columns in order, or fail.

        Raises
        ------
        InputError
            A column is missing, unknown or of another type, or a row breaks a rule; one line that names file,
            column and row.
        """
        odd = [name for name in frame.columns if name not in self.schema]
        missing = [name for name in self.schema if name not in frame.columns]
        if odd or missing:
            what = f"unknown column {one_line(odd[0])}" if odd else f"column {missing[0]} is missing"
            raise InputError(f"{source}: {what}; the columns are {', '.join(self.schema)}")
        for name, dtype in self.schema.items():
            if frame.schema[name] != dtype:
                raise InputError(f"{source}: column {name} is {frame.schema[name]}; expected {dtype}")
            if name not in self.nullable:
                _refuse(frame, pl.col(name).is_null(), source, name, "is null")
            if dtype == pl.Float64:
                _refuse(frame, ~pl.col(name).is_finite(), source, name, "is no finite number")
        for name in _NAMES & set(self.schema):
            _refuse(frame, ~pl.col(name).str.contains(NAME), source, name, "is no plain name")
        for what, bad in self.rules:
            _refuse(frame, bad, source, bad.meta.root_names()[0], what)
        _refuse(frame, pl.struct(self.key).is_duplicated(), source, self.key[-1], "is there twice")
        return frame.select(self.schema.keys())


def _refuse(frame: pl.DataFrame, bad: pl.Expr, source: str, column: str, what: str) -> None:
    rows = frame.with_row_index("row_").filter(bad)
    if rows.height:
        value = one_line(str(rows[column][0]), 80)
        raise InputError(f"{source}: row {rows['row_'][0] + 1}: {column} {value} {what}")


_NAMES = {"application", "family", "victim", "opponent", "counter"}
_KINDS = "is no kind of sharing; there are " + ", ".join(PairKind)


def _one_of(column: str, words: type[StrEnum], what: str) -> tuple[str, pl.Expr]:
    return what, ~pl.col(column).is_in([str(word) for word in words])


def _not_below(column: str, least: float) -> tuple[str, pl.Expr]:
    return f"is below {least:g}", pl.col(column) < least


APPLICATIONS = PairsTable(
    "applications",
    {
        "application": pl.String,
        "family": pl.String,
        "command": pl.List(pl.String),
        "ranks": pl.Int32,
        "footprint_kib": pl.Int64,
        "step": pl.String,
    },
    frozenset({"footprint_kib"}),
    ("application",),
    (_not_below("ranks", 1), _not_below("footprint_kib", 0)),
)
"""``step``: what one step is; ``family``: what is alike, for the rule that likes don't share."""

COUNTERS = PairsTable(
    "counters",
    {
        "application": pl.String,
        "source": pl.String,
        "counter": pl.String,
        "per": pl.String,
        "value": pl.Float64,
        "scaled": pl.Float64,
    },
    frozenset({"value", "scaled"}),
    ("application", "source", "counter"),
    (
        _one_of("source", CounterSource, "is no source; there are " + ", ".join(CounterSource)),
        ("is neither instruction nor second", ~pl.col("per").is_in(["instruction", "second"])),
        _not_below("value", 0),
        ("is not in 0 to 1", (pl.col("scaled") < 0) | (pl.col("scaled") > 1)),
    ),
)
"""One row a counter of an application alone; ``value`` null: not measured; ``scaled``: share of the time in
which the event was on the counter, null where nothing was multiplexed."""

SOLO = PairsTable(
    "solo",
    {
        "application": pl.String,
        "kind": pl.String,
        "trial": pl.Int32,
        "started": _TIME,
        "wall_s": pl.Float64,
        "steps": pl.Float64,
        "speed": pl.Float64,
        "cpu_s": pl.Float64,
        "steal_s": pl.Float64,
        "foreign_cpu_s": pl.Float64,
    },
    frozenset({"cpu_s", "steal_s", "foreign_cpu_s"}),
    ("application", "kind", "trial"),
    (
        _one_of("kind", PairKind, _KINDS),
        ("is not above 0", pl.col("wall_s") <= 0),
        ("is not above 0", pl.col("speed") <= 0),
    ),
)
"""One row a run alone; ``speed`` in steps a second of the time that others left on one CPU (of wall time on
several); CPU seconds of the application, stolen by the hypervisor, and of everybody else."""

TRIALS = PairsTable(
    "trials",
    {
        "kind": pl.String,
        "victim": pl.String,
        "opponent": pl.String,
        "trial": pl.Int32,
        "started": _TIME,
        "speed_victim": pl.Float64,
        "speed_opponent": pl.Float64,
        "solo_victim_before": pl.Float64,
        "solo_victim_after": pl.Float64,
        "solo_opponent_before": pl.Float64,
        "solo_opponent_after": pl.Float64,
        "busy_victim": pl.Float64,
        "busy_opponent": pl.Float64,
        "e_v": pl.Float64,
        "e_o": pl.Float64,
        "foreign_cpu_s": pl.Float64,
        "steal_s": pl.Float64,
    },
    frozenset({"foreign_cpu_s", "steal_s"}),
    ("kind", "victim", "opponent", "trial"),
    (
        _one_of("kind", PairKind, _KINDS),
        ("is not in 0 to 1", (pl.col("busy_opponent") <= 0) | (pl.col("busy_opponent") > 1)),
        ("is not in 0 to 1", (pl.col("busy_victim") <= 0) | (pl.col("busy_victim") > 1)),
    ),
)
"""One row a window in which both ran, with the runs alone before and after it; speeds in steps a second of
the time that others left, as in ``SOLO``; ``busy``: share of the window in which an application computed or
wanted to."""

PAIRS = PairsTable(
    "pairs",
    {
        "kind": pl.String,
        "victim": pl.String,
        "opponent": pl.String,
        "trials": pl.Int32,
        "e_v": pl.Float64,
        "e_v_low": pl.Float64,
        "e_v_high": pl.Float64,
        "e_o": pl.Float64,
        "ideal": pl.Float64,
        "load": pl.Float64,
        "started": _TIME,
        "ended": _TIME,
    },
    frozenset({"e_v_low", "e_v_high", "load"}),
    ("kind", "victim", "opponent"),
    (
        _one_of("kind", PairKind, _KINDS),
        _not_below("trials", 1),
        ("is above e_v", pl.col("e_v_low") > pl.col("e_v")),
        ("is below e_v", pl.col("e_v_high") < pl.col("e_v")),
        ("is not in 0 to 1", (pl.col("ideal") < 0) | (pl.col("ideal") >= 1)),
        ("is after ended", pl.col("started") > pl.col("ended")),
    ),
)
"""One row an ordered pair: (A, B) and (B, A) are two.

The interval (95 %, Student's t over the trials) is null where there is one trial; ``load``: CPUs that
everybody else used on average, null where not known."""

TABLES = (APPLICATIONS, COUNTERS, SOLO, TRIALS, PAIRS)
