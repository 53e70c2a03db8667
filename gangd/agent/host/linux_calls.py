"""The few Linux calls that Python 3.11 has no name for: timerfd, inotify and mlockall, through ctypes."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

TFD_TIMER_ABSTIME = 1
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
IN_MODIFY, IN_CREATE, IN_DELETE, IN_DELETE_SELF = 0x2, 0x100, 0x200, 0x400
IN_Q_OVERFLOW, IN_IGNORED = 0x4000, 0x8000
_IN_ONLYDIR = 0x01000000
_EVENT = struct.Struct("iIII")

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class Alarm:
    """A timer on CLOCK_MONOTONIC that makes a descriptor readable at an absolute instant (``timerfd``)."""

    def __init__(self) -> None:
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self.fd = _check(_libc.timerfd_create(time.CLOCK_MONOTONIC, flags))
        self._value = _Itimerspec()

    def set(self, instant_ns: int) -> None:
        """Ring at ``instant_ns``; at once if that is past. Replaces an earlier setting."""
        self._value.it_value.tv_sec, self._value.it_value.tv_nsec = divmod(max(1, instant_ns), 1_000_000_000)
        _check(_libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, ctypes.byref(self._value), None))

    def clear(self) -> None:
        """Do not ring."""
        self._value.it_value.tv_sec = self._value.it_value.tv_nsec = 0
        _check(_libc.timerfd_settime(self.fd, 0, ctypes.byref(self._value), None))

    def rang(self) -> bool:
        """Whether it rang since it was last asked or set."""
        try:
            return len(os.read(self.fd, 8)) == 8
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.fd)


@dataclass(frozen=True, slots=True)
class Notice:
    """One inotify event: the watch, its mask, and the name inside a watched folder."""

    watch: int
    mask: int
    name: str


def parse_notices(raw: bytes) -> Iterator[Notice]:
    """Events as they were read from a descriptor."""
    at = 0
    while at < len(raw):
        watch, mask, _, length = _EVENT.unpack_from(raw, at)
        at += _EVENT.size
        name = raw[at : at + length].rstrip(b"\0").decode("utf-8", "replace")
        at += length
        yield Notice(watch, mask, name)


class Inotify:
    """Changes of folders and files as a descriptor (``inotify``)."""

    def __init__(self) -> None:
        self.fd = _check(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add_folder(self, path: str) -> int | None:
        """Watch a folder for entries that come and go; None if it is gone or watches are used up."""
        return self._add(path, IN_CREATE | IN_DELETE | IN_DELETE_SELF | _IN_ONLYDIR)

    def add_file(self, path: str) -> int | None:
        """Watch a file for writes; None as above."""
        return self._add(path, IN_MODIFY)

    def remove(self, watch: int) -> None:
        """End a watch; one that ended by itself is no error."""
        _libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> Iterator[Notice]:
        """Every event that waits now."""
        while True:
            try:
                raw = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return
            yield from parse_notices(raw)

    def close(self) -> None:
        """Give the descriptor and all watches back."""
        os.close(self.fd)

    def _add(self, path: str, mask: int) -> int | None:
        watch = int(_libc.inotify_add_watch(self.fd, path.encode(), mask))
        return None if watch < 0 else watch


def lock_memory() -> None:
    """Keep this process's pages in memory from now on, each once it was touched. Raises OSError if denied."""
    _check(_libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
