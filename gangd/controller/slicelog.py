"""The slice record of a controller: ``slices.jsonl``, and its way into the RUN of a replay.

The controller does not know of runs, and a replay does not know when slices began. So the controller
writes rows in its own time, CLOCK_MONOTONIC, after a line that says which wall clock that is; a replay
imports those of its own time afterwards. Each start of a controller appends such a line. A line that a
kill tore is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from gangd.core import SliceRow
from osub.errors import InputError, OutputError
from osub.records import SliceRecord, SliceRole
from osub.trust import make_folder, open_own

NAME = "slices.jsonl"
SECOND_NS = 1_000_000_000


class Anchor(msgspec.Struct, frozen=True, tag_field="type", tag="anchor", kw_only=True):
    """Which wall clock (ms since the epoch) the instant ``monotonic_ns`` was, for the rows that follow."""

    version: int = 1
    wall_ms: float
    monotonic_ns: int


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A ``SliceRow`` as it is written."""

    number: int
    start_ns: int
    length_ns: int
    job: int
    node: str
    role: SliceRole
    cpu_us: int | None
    skew_us: int
    freeze_us: int


class SliceLog:
    """Appends rows; what was written is on disk soon after ``flush``.

    ``mode`` is the file's: it tells which jobs ran where. The folder must be of the user's own, and closed to
    others.
    """

    def __init__(self, folder: Path, wall_ms: float, monotonic_ns: int, mode: int = 0o600) -> None:
        self._path = folder / NAME
        try:
            folder_fd, _ = make_folder(folder, 0o755)
            try:
                fd = open_own(folder_fd, NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode)
            finally:
                os.close(folder_fd)
            os.fchmod(fd, mode)
            self._file: IO[bytes] = os.fdopen(fd, "ab")
        except OSError as error:
            raise OutputError(f"cannot record slices in {folder}: {error.strerror}") from error
        self._encoder = msgspec.json.Encoder()
        anchor = self._encoder.encode(Anchor(wall_ms=wall_ms, monotonic_ns=monotonic_ns))
        self._write([b"", anchor] if self._file.tell() else [anchor])  # ends a line that a kill tore
        self.flush()

    @property
    def folder(self) -> Path:
        """The folder of the record."""
        return self._path.parent

    @property
    def size_bytes(self) -> int:
        """Size of the record."""
        return self._file.tell()

    def append(self, rows: Iterable[SliceRow]) -> None:
        """Append rows."""
        encode = self._encoder.encode
        self._write(
            [
                encode(
                    (
                        row.number,
                        row.start_ns,
                        row.length_ns,
                        row.job,
                        row.node,
                        row.role,
                        row.cpu_us,
                        row.skew_us,
                        row.freeze_us,
                    )
                )
                for row in rows
            ]
        )

    def flush(self) -> None:
        """Hand everything to the operating system."""
        try:
            self._file.flush()
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Flush and close."""
        self._file.close()

    def _write(self, lines: list[bytes]) -> None:
        try:
            self._file.write(b"".join(line + b"\n" for line in lines))
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {error.strerror}") from error


def read_slices(path: Path, t0_epoch_s: float, jobs: Container[int] | None = None) -> Iterator[SliceRecord]:
    """Yield the rows of slices that began at ``t0_epoch_s`` or later, their starts counted from there.

    Parameters
    ----------
    path
        ``slices.jsonl``, or the folder that it is in.
    t0_epoch_s
        Wall clock, seconds since the epoch: the run's first due time.
    jobs
        Slurm's ids of the jobs that are wanted; None for all.

    Raises
    ------
    InputError
        The file cannot be read, or does not begin with an anchor.
    """
    file = path / NAME if path.is_dir() else path
    anchors, rows = msgspec.json.Decoder(Anchor), msgspec.json.Decoder(Row)
    anchor: Anchor | None = None
    try:
        with file.open("rb") as stream:
            for line in stream:
                try:
                    if line.startswith(b"{"):
                        anchor = anchors.decode(line)
                        continue
                    row = rows.decode(line)
                except msgspec.DecodeError:
                    continue  # torn by a kill
                if anchor is None:
                    raise InputError(f"{file} does not begin with an anchor; is it a slice record of gangd?")
                if jobs is not None and row.job not in jobs:
                    continue
                since_ns = row.start_ns - anchor.monotonic_ns
                start_s = anchor.wall_ms / 1000 + since_ns / SECOND_NS - t0_epoch_s
                if start_s >= 0:
                    yield _record(row, start_s)
    except OSError as error:
        raise InputError(f"cannot read slice record {file}: {error.strerror}") from error


def _record(row: Row, start_s: float) -> SliceRecord:
    return SliceRecord(
        slice=row.number,
        start_s=start_s,
        length_s=row.length_ns / SECOND_NS,
        job=row.job,
        node=row.node,
        role=row.role,
        cpu_s=None if row.cpu_us is None else row.cpu_us / 1e6,
        skew_us=float(row.skew_us),
        freeze_us=float(row.freeze_us),
    )
