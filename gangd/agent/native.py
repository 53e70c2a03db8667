"""The C side of the switch (``switch.c``), where it was compiled at installation; without it Python does all.

Python prepares switches as lists of writes and takes note of those that were made; between these two moments
the thread that waits and writes needs neither the interpreter nor its lock. Whatever is no matter of course
comes back to Python at once (``run`` returns), which then does the whole of it. Decision and figures:
``docs/adr/0004-a-switch-in-c.md``.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangd.agent.linux_host import TimerFd
from gangd.freezer.holder import CpuTimeFile, Write
from gangd.guardian.statefile import StateFile, Word

LIBRARY = Path(__file__).with_name("_switch.so")
ABI = 3
MOST_BYTES, MOST_WRITES, MOST_ACCOUNTS = 16, 64, 16
_COMMAND = 1
_BEGINS_RELEASE, _RELEASES, _HOLDS = 0, 1, 2
_ACT = struct.Struct("=iiIIQ16s")
_ACCOUNT = struct.Struct("=ii")
_DONE_WORDS = 3 + MOST_ACCOUNTS


@dataclass(frozen=True, slots=True)
class SwitchInstants:
    """Instants of a switch that was made: before the first write, after the last hold, after the last.

    ``used_ns`` is what its accounts had after that, in their order; None for one that could not be read.
    """

    begin_ns: int
    frozen_ns: int
    end_ns: int
    used_ns: tuple[int | None, ...]


def load(path: Path = LIBRARY) -> ctypes.CDLL | None:
    """Load the library; None where there is none, or one of another version."""
    try:
        library = ctypes.CDLL(str(path))
        if library.gs_abi() != ABI:
            return None
    except (OSError, AttributeError):
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.gs_new.restype = pointer
    library.gs_new.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int, pointer, pointer)
    places = ("gs_made", "gs_armed", "gs_partial", "gs_events", "gs_event")
    for name in places:
        getattr(library, name).restype = pointer
    for name in (*places, "gs_free", "gs_lock", "gs_unlock", "gs_clear", "gs_run"):
        getattr(library, name).argtypes = (pointer,)
    a_list = (ctypes.c_int, ctypes.c_char_p)
    library.gs_push.argtypes = (pointer, number, number, ctypes.c_int, *a_list, *a_list)
    library.gs_arm.argtypes = (pointer, number)
    library.gs_take.argtypes = (pointer, number, pointer)
    return library


class NativeSwitch:
    """Switches that C makes; also the lock that keeps them off while Python does anything to the same steps.

    Parameters
    ----------
    library
        From ``load``.
    state
        Where lease and marks are.
    watch_fd
        Tells of writes to control files (inotify); -1 for none.
    """

    def __init__(self, library: ctypes.CDLL, state: StateFile, watch_fd: int) -> None:
        self._library = library
        self._state = state
        self._alarm = TimerFd()
        self._command_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._gs = library.gs_new(
            self._alarm.fd,
            self._command_fd,
            watch_fd,
            state.address_of_word(Word.LEASE_NS),
            state.address_of_word(Word.PAUSED_UNTIL_NS),
        )
        self._made = ctypes.c_int64.from_address(library.gs_made(self._gs))
        self._armed = ctypes.c_int64.from_address(library.gs_armed(self._gs))
        self._partial = ctypes.c_int32.from_address(library.gs_partial(self._gs))
        self._events = ctypes.c_uint32.from_address(library.gs_events(self._gs))
        self._event = library.gs_event(self._gs)
        self._record = (ctypes.c_int64 * _DONE_WORDS)()

    def __enter__(self) -> None:
        self._library.gs_lock(self._gs)

    def __exit__(self, *_: object) -> None:
        self._library.gs_unlock(self._gs)

    @property
    def made(self) -> int:
        """How many switches were made in all."""
        return self._made.value

    @property
    def armed_ns(self) -> int | None:
        """When the thread looks at the clock next; None if it does not."""
        return self._armed.value or None

    def run(self) -> bool:
        """Make switches until Python has to; False if it was woken to end. Called without the lock."""
        return bool(self._library.gs_run(self._gs) != _COMMAND)

    def wake(self) -> None:
        """Let ``run`` return."""
        os.eventfd_write(self._command_fd, 1)

    def close(self) -> None:
        """Give everything back; no thread is in ``run`` any more."""
        self._library.gs_free(self._gs)
        self._alarm.close()
        os.close(self._command_fd)

    def arm(self, due_ns: int | None) -> bool:
        """Set when the thread looks at the clock; False if another has the lock: it sets it afterwards."""
        return bool(self._library.gs_arm(self._gs, due_ns or 0))

    # With the lock:

    def clear(self) -> None:
        """Drop the switches that were not made."""
        self._library.gs_clear(self._gs)

    def push(
        self,
        instant_ns: int,
        following_ns: int,
        writes: Iterable[Write],
        accounts: Sequence[CpuTimeFile] = (),
        *,
        held_after: bool,
    ) -> bool:
        """Add a switch to those to come; False if the buffer is full.

        Parameters
        ----------
        instant_ns
            When.
        following_ns
            When something is to happen after it, by whomever; 0 for never.
        writes
            What, holds before releases.
        accounts
            What is read afterwards.
        held_after
            Whether anything is held then, so that the end of the lease matters.
        """
        acts = []
        for write in writes:
            if len(write.data) > MOST_BYTES:
                return False
            mark = self._state.address_of_mark(write.slot)
            acts.append(_ACT.pack(write.fd, _what(write), len(write.data), 0, mark, write.data))
        if len(acts) > MOST_WRITES or len(accounts) > MOST_ACCOUNTS:
            return False
        read = [_ACCOUNT.pack(account.fd, account.in_lines) for account in accounts]
        lists = (len(acts), b"".join(acts), len(read), b"".join(read))
        pushed = self._library.gs_push(self._gs, instant_ns, following_ns, held_after, *lists)
        return bool(pushed == 0)

    def partial(self) -> int:
        """How many writes of the first switch to come were made before Python had to take over."""
        return self._partial.value

    def done(self, number: int, accounts: int = 0) -> SwitchInstants:
        """Return what is known of a switch with so many accounts that was made; the last dozens are kept."""
        self._library.gs_take(self._gs, number, ctypes.addressof(self._record))
        begin_ns, frozen_ns, end_ns = self._record[:3]
        used_ns = self._record[3 : 3 + accounts]
        return SwitchInstants(
            begin_ns, frozen_ns, end_ns, tuple(None if each < 0 else each for each in used_ns)
        )

    def ended_watches(self) -> bytes:
        """Return inotify's events of watches that ended by themselves, which C has read, as they came."""
        length, self._events.value = self._events.value, 0
        return ctypes.string_at(self._event, length) if length else b""


def _what(write: Write) -> int:
    if write.holds:
        return _HOLDS
    return _RELEASES if write.completes else _BEGINS_RELEASE
