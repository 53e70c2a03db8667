"""Where a running program writes how many steps it has made, so that its speed is read without asking it.

A reader makes a file of ``METER_BYTES`` and names it in ``OSUB_METER``. The program maps it and
writes steps, the instant of the latest one, and the time spent in steps: three stores to memory, no call of
the kernel. A sequence number that is odd while it writes tells a reader to look again. Layout, of native
64-bit words: magic, sequence, steps, latest step's end (ns of CLOCK_MONOTONIC), ns in steps.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from foundation.errors import HostError

METER_VARIABLE = "OSUB_METER"
METER_BYTES = 4096
METER_MAGIC = 0x6F7375626D657431
_WORD = struct.Struct("=Q")
_BODY = struct.Struct("=QQQ")
_ALL = struct.Struct("=QQQQQ")


@dataclass(frozen=True, slots=True)
class MeterReading:
    """What a meter says: steps so far, the end of the latest (s, CLOCK_MONOTONIC), seconds in steps."""

    steps: int
    last_s: float
    busy_s: float


class Meter:
    """The program's side: call ``step`` after each step."""

    def __init__(self, page: mmap.mmap) -> None:
        self._page = page
        self._steps = 0
        self._busy_ns = 0
        self._last_ns = time.monotonic_ns()
        _ALL.pack_into(page, 0, METER_MAGIC, 0, 0, self._last_ns, 0)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the meter that ``OSUB_METER`` names; None if it names none.

        Raises
        ------
        HostError
            The file is not there, or is not long enough.
        """
        path = environment.get(METER_VARIABLE)
        return None if not path else cls(map_meter(Path(path)))

    def step(self) -> None:
        """Note that a step has ended now, which began when the one before ended."""
        now_ns = time.monotonic_ns()
        self._busy_ns += now_ns - self._last_ns
        self._last_ns = now_ns
        self._steps += 1
        page = self._page
        _WORD.pack_into(page, 8, 2 * self._steps - 1)
        _BODY.pack_into(page, 16, self._steps, now_ns, self._busy_ns)
        _WORD.pack_into(page, 8, 2 * self._steps)


def map_meter(path: Path) -> mmap.mmap:
    """Map a meter's file.

    Raises
    ------
    HostError
        It cannot be.
    """
    try:
        return _mapped(path, 0)
    except (OSError, ValueError) as error:
        raise HostError(f"cannot map the meter {path}: {error}") from error


def make_meter(path: Path) -> mmap.mmap:
    """Make an empty meter, which must not exist, and map it."""
    return _mapped(path, os.O_CREAT | os.O_EXCL)


def _mapped(path: Path, flags: int) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    try:
        if flags:
            os.ftruncate(fd, METER_BYTES)
        return mmap.mmap(fd, METER_BYTES)
    finally:
        os.close(fd)


def read_meter(page: mmap.mmap) -> MeterReading | None:
    """Return what a meter says; None before the program has begun to use it.

    A writer that was stopped in the middle of three stores is read as it is, a step too few at most.
    """
    for _ in range(1000):
        magic, before, steps, last_ns, busy_ns = _ALL.unpack_from(page, 0)
        if magic != METER_MAGIC:
            return None
        if before % 2 == 0 and _WORD.unpack_from(page, 8)[0] == before:
            break
    return MeterReading(steps, last_ns / 1e9, busy_ns / 1e9)
