"""Stored calibrations: what a step and a start-up take, by host type, application, grid and ranks.

With one, a job's number of steps depends on its target alone, so that two runs of a trace do the very same
work. A host of another type, or another grid or rank count, is another key: nothing is carried over.

The file is JSON: ``{"schema": 1, "entries": [{"key": {...}, "step_s": ..., ...}]}``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import InputError, OutputError
from foundation.files import refuse_unwritable, write_whole
from workloads.rrba.cuts import PointGrid

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Key:
    """For what a calibration holds, and for nothing else."""

    host_type: str
    app: str
    grid: str
    ranks: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """One measurement on dedicated cores.

    Attributes
    ----------
    key
        For what it holds.
    step_s
        Mean seconds a step, over ``steps`` steps.
    overhead_s
        Seconds of a job that are not stepping: start-up and shutdown.
    steps
        How many steps were measured.
    measured_ms
        When, in milliseconds since 1970.
    """

    key: Key
    step_s: float
    overhead_s: float
    steps: int
    measured_ms: int


@dataclass(frozen=True, slots=True)
class CalibrationFile:
    """The file's content."""

    schema: int
    entries: list[Calibration]


def host_type(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return what tells this kind of host from others: machine, processor model, number of CPUs."""
    model = processor_model(cpuinfo) or "unknown processor"
    return f"{platform.machine()}, {model}, {os.cpu_count()} CPUs"


def processor_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Return what this host calls its processor; None where it does not say."""
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in {"model name", "cpu model", "Hardware"}:
                return " ".join(value.split())
    return None


def key_of(app: str, grid: PointGrid, ranks: int, nodes: int) -> Key:
    """Return the key of a job on this host."""
    return Key(host_type(), app, str(grid), ranks, nodes)


def load_calibrations(path: Path) -> list[Calibration]:
    """Return all calibrations of ``path``.

    Raises
    ------
    InputError
        The file is missing, unreadable or not of this form.
    """
    import msgspec  # here and below: a job without a stored calibration starts without it

    try:
        content = msgspec.json.decode(path.read_bytes(), type=CalibrationFile)
    except OSError as error:
        raise InputError(
            f"cannot read calibration {path}: {error.strerror}; make one with --calibrate-s"
        ) from error
    except msgspec.DecodeError as error:
        raise InputError(f"calibration {path}: {error}; make a new one with --calibrate-s") from error
    if content.schema != SCHEMA:
        raise InputError(f"calibration {path} has schema {content.schema}, not {SCHEMA}; make a new one")
    for entry in content.entries:
        if not (entry.step_s > 0 and entry.overhead_s >= 0):
            raise InputError(f"calibration {path} has a step of {entry.step_s} s; make a new one")
    return content.entries


def find_calibration(path: Path, key: Key) -> Calibration | None:
    """Return the calibration of ``path`` for ``key``; None if it has none."""
    return next((entry for entry in load_calibrations(path) if entry.key == key), None)


def store_calibration(path: Path, calibration: Calibration) -> None:
    """Put ``calibration`` into ``path``, in the place of an earlier one of the same key.

    Jobs that store at the same time wait for each other.

    Raises
    ------
    InputError
        The file is there and not of this form; it is left alone.
    OutputError
        It cannot be written.
    """
    import msgspec

    lock = path.with_name(f".{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise OutputError(f"cannot write calibration {path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        kept = [entry for entry in _stored(path) if entry.key != calibration.key]
        content = msgspec.json.encode(CalibrationFile(SCHEMA, [*kept, calibration]))
        write_whole(path, msgspec.json.format(content, indent=1).decode() + "\n", mode=0o644)
    finally:
        os.close(descriptor)


def refuse_unstorable(path: Path) -> None:
    """Fail if ``store_calibration`` could not put anything into ``path``; raises as it does."""
    _stored(path)
    refuse_unwritable(path)


def _stored(path: Path) -> list[Calibration]:
    return load_calibrations(path) if path.exists() else []
