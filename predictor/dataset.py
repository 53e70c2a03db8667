"""Reading and writing a PAIRS folder, its tables and their rules; a fault names file, column and row.

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

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import polars as pl

from analysis.claims import estimate
from foundation.errors import InputError, OutputError
from foundation.files import draft_at, write_whole
from foundation.one_line import one_line
from foundation.units import counted


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


def harmful_loss(kind: PairKind, multiplicity: int = 2) -> float:
    """Return E_v beyond which a pair is kept apart: a twentieth above the ideal, as losses scatter there."""
    return ideal_loss(kind, multiplicity) + 0.05


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


_FORMER_NAMES: Final = {
    "PAPI_LD_INS": "data_reads",
    "PAPI_SR_INS": "data_writes",
    "PAPI_BR_CN": "conditional_branches",
    "PAPI_BR_INS": "branches",
    "PAPI_BR_MSP": "branch_misses",
} | {
    f"PAPI_L{level}_{preset}": f"l{level}_{misses}_misses"
    for level in (1, 2, 3)
    for preset, misses in (("ICM", "instruction"), ("LDM", "read"), ("STM", "write"), ("DCM", "data"))
}
"""Of simulated counters, until they were distinguished from the processor's."""


def counter_name(source: str, counter: str) -> str:
    """Return a counter's name as it is today, for older files call simulated ones by PAPI's names."""
    return _FORMER_NAMES.get(counter, counter) if source == CounterSource.CACHEGRIND else counter


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


_APPLICATION_COLUMNS = ("application", "victim", "opponent")
_NAMES = {*_APPLICATION_COLUMNS, "family", "counter"}
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


def pair_frame(trials: pl.DataFrame, window_s: float) -> pl.DataFrame:
    """Return the pairs table of these trials: means, the 95% interval of E_v, CPUs that others used.

    Parameters
    ----------
    trials
        The trials table.
    window_s
        How long a window lasted, to make CPUs of CPU seconds.
    """
    rows: list[dict[str, object]] = []
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
                "ideal": ideal_loss(PairKind(str(kind))),
                "load": None if not isinstance(foreign, float) else foreign / window_s,
                "started": group["started"].min(),
                "ended": group["started"].max(),
            }
        )
    return PAIRS.frame(rows)


TABLES = (APPLICATIONS, COUNTERS, SOLO, TRIALS, PAIRS)


FORMAT_VERSION = 1
Text = Annotated[str, msgspec.Meta(max_length=1_000)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Size = Annotated[int, msgspec.Meta(ge=0)] | None


class MeasuredHost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The host that was measured; sizes are of one cache and of all memory, None where unknown."""

    name: Text
    cpu_model: Text
    cpus: Count
    threads_per_core: Count
    l2_kib: Size
    l3_kib: Size
    memory_mib: Size
    kernel: Text


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of a PAIRS folder.

    Attributes
    ----------
    version
        Of the format.
    osub
        The version that measured.
    host
        Where.
    started, ended
        UTC, of the first and the last measurement.
    kinds
        How was shared.
    counter_sources
        What counted.
    notes
        What a reader should know, such as what else ran on the host.
    """

    version: int
    osub: Text
    host: MeasuredHost
    started: datetime
    ended: datetime
    kinds: list[PairKind]
    counter_sources: list[CounterSource]
    notes: list[Text] = []

    def __post_init__(self) -> None:
        if self.version != FORMAT_VERSION:
            raise ValueError(f"version is {self.version}; this osub reads version {FORMAT_VERSION}")
        if self.started.tzinfo is None or self.ended.tzinfo is None:
            raise ValueError("started and ended need a time zone, UTC")
        if self.started.astimezone(UTC) > self.ended.astimezone(UTC):
            raise ValueError("started is after ended")


ABOUT_NAME = "about.json"
LONGEST_ABOUT = 1 << 20
MOST_ROWS = 20_000_000


@dataclass(frozen=True, slots=True)
class Pairs:
    """What a PAIRS folder holds: its description, and a frame for each table."""

    about: About
    applications: pl.DataFrame
    counters: pl.DataFrame
    solo: pl.DataFrame
    trials: pl.DataFrame
    pairs: pl.DataFrame

    def frames(self) -> tuple[tuple[PairsTable, pl.DataFrame], ...]:
        """Return each table with its frame."""
        return tuple((table, getattr(self, table.name)) for table in TABLES)


def read_pairs(folder: Path) -> Pairs:
    """Read and check the PAIRS folder ``folder``.

    Raises
    ------
    InputError
        It is no such folder, of another version, damaged, or a row breaks a rule.
    """
    about = _read_about(folder / ABOUT_NAME)
    frames = [_read_table(folder, table) for table in TABLES]
    read = Pairs(about, *frames)
    simulated = pl.col("source") == str(CounterSource.CACHEGRIND)
    named = pl.when(simulated).then(pl.col("counter").replace(_FORMER_NAMES)).otherwise("counter")
    read = replace(read, counters=read.counters.with_columns(counter=named))
    _check_references(read, folder)
    return read


def write_pairs(folder: Path, content: Pairs) -> None:
    """Write ``content`` as the PAIRS folder ``folder``, which is made or whose tables are replaced.

    Each file is replaced whole, the description last; a reader in between sees older tables. The same rows
    give the same bytes, in any order.

    Raises
    ------
    InputError
        A row breaks a rule; nothing is written then.
    OutputError
        The folder cannot be written.
    """
    for table, frame in content.frames():
        table.check(frame, str(folder / table.file_name))
    _check_references(content, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {folder}: {error.strerror}") from error
    for table, frame in content.frames():
        _write_table(folder / table.file_name, frame.select(table.schema.keys()).sort(table.key))
    text = msgspec.json.format(msgspec.json.encode(content.about), indent=2).decode()
    write_whole(folder / ABOUT_NAME, text + "\n")


def _read_about(path: Path) -> About:
    try:
        if not path.is_file():
            raise InputError(
                f"{path.parent} is no folder of measured pairs: it has no {ABOUT_NAME}; "
                "`osub predict measure` writes one"
            )
        with path.open("rb") as stream:
            text = stream.read(LONGEST_ABOUT + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if len(text) > LONGEST_ABOUT:
        raise InputError(f"{path} is longer than {LONGEST_ABOUT} bytes; it is no description of pairs")
    try:
        return msgspec.json.decode(text, type=About)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {one_line(str(error))}") from error


def _read_table(folder: Path, table: PairsTable) -> pl.DataFrame:
    path = folder / table.file_name
    if not path.is_file():
        raise InputError(f"{path} is missing; the folder of pairs is not whole")
    try:
        rows = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()
        if rows > MOST_ROWS:
            raise InputError(f"{path} has {counted(rows, 'row')}; more than {MOST_ROWS} are not read")
        frame = pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        first = one_line((str(error).splitlines() or ["?"])[0])
        raise InputError(f"cannot read {path}: {first}; the file is damaged or not Parquet") from error
    return table.check(frame, str(path))


def _check_references(content: Pairs, folder: Path) -> None:
    """Fail if a table names an application, or a kind, that the folder does not describe."""
    known = content.applications.get_column("application").implode()
    kinds = [str(kind) for kind in content.about.kinds]
    for table, frame in content.frames():
        source = folder / table.file_name
        for column in (name for name in _APPLICATION_COLUMNS if name in table.schema):
            odd = frame.filter(~pl.col(column).is_in(known))
            if odd.height:
                raise InputError(f"{source}: {column} {odd[column][0]} is not in {APPLICATIONS.file_name}")
        if "kind" in table.schema:
            other = frame.filter(~pl.col("kind").is_in(kinds))
            if other.height:
                raise InputError(f"{source}: kind {other['kind'][0]} is not in {ABOUT_NAME}")


def _write_table(path: Path, frame: pl.DataFrame) -> None:
    try:
        with draft_at(path) as draft:
            frame.rechunk().write_parquet(draft, compression="zstd", statistics=True)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise OutputError(f"cannot write {path}: {one_line(str(error).splitlines()[0])}") from error
