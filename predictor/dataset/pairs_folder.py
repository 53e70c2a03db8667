"""Reading and writing a PAIRS folder; what is wrong in one is one line that names file, column and row."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import polars as pl

from foundation.errors import InputError, OutputError
from foundation.files import draft_at, write_whole
from foundation.one_line import one_line
from foundation.units import counted
from predictor.dataset.pairs_tables import (
    APPLICATIONS,
    COUNTERS,
    PAIRS,
    SOLO,
    TABLES,
    TRIALS,
    CounterSource,
    PairKind,
    PairsTable,
)

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
    """What a PAIRS folder holds: its description, and a frame for each table of ``tables.py``."""

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
    checks = (
        (COUNTERS, content.counters, ("application",)),
        (SOLO, content.solo, ("application",)),
        (TRIALS, content.trials, ("victim", "opponent")),
        (PAIRS, content.pairs, ("victim", "opponent")),
    )
    for table, frame, columns in checks:
        source = folder / table.file_name
        for column in columns:
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
