"""What an agent froze and until when it may: a mapped file that survives the agent.

One writer (the agent; the guardian writes only its own words), many readers. A record is marked held
*before* the freeze that it describes is written, so a reader always knows at least what is frozen. Live words
are aligned 64-bit stores in native order, the held mark is one byte: no reader sees half of one.

Layout: a header of 4096 bytes, then ``RECORDS`` records of 256 bytes.

===========  =============================================
byte         header
===========  =============================================
0            magic ``b"osubgang"``
8, 16, ...   the 64-bit words of ``Word``
256          boot id: length as 16 bits, then UTF-8
512          node name, likewise
1024         freezer root, likewise
1536         root of the cpu hierarchy in which jobs yield, likewise; empty if they do so without one
2048         file in which the guardian records how the agent ended, likewise; empty for none
===========  =============================================

A record: mark (0 free, 1 known, 2 held), kind (1 cgroup v1, 2 cgroup v2, 3 process, 4 to 7 the knobs of a cpu
cgroup, see ``gangd.hold.cpu_priority``, 8 a process that yields by its policy), length of the path
(16 bits), pid (32 bits), start ticks (64 bits), job (32 bits), then from byte 20 the path.
"""

from __future__ import annotations

import enum
import mmap
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import HostError
from foundation.files import draft_at
from gangd.freezer.procfs import PROC, boot_id, read_stat

MAGIC = b"osubgang"
LAYOUT = 1
HEADER_BYTES = 4096
RECORD_BYTES = 256
RECORDS = 4096
PROCESS_KIND = 3
IDLE_KIND = 8
_BOOT_AT, _NODE_AT, _ROOT_AT, _CPU_ROOT_AT, _ENDED_AT = 256, 512, 1024, 1536, 2048
_FREE, _KNOWN, _HELD = 0, 1, 2
_RECORD = struct.Struct("=BBHIQI")
_PATH_AT = _RECORD.size
_MAX_PATH = RECORD_BYTES - _PATH_AT


class Word(enum.IntEnum):
    """Index of each 64-bit word of the header. Instants are CLOCK_MONOTONIC of the agent, in ns."""

    LAYOUT = 1
    AGENT_PID = 2
    AGENT_START = 3
    LEASE_NS = 4  # until then the agent may hold jobs; 0: it may not
    GUARDIAN_PID = 5
    GUARDIAN_START = 6
    GUARDIAN_BEAT_NS = 7  # when the guardian last looked
    GUARDIAN_TRIPS = 8  # how often it thawed behind the agent's back
    PAUSED_UNTIL_NS = 9  # the operator wants nothing frozen before
    TIME_OFFSET_NS = 10  # of the agent's time namespace


@dataclass(frozen=True, slots=True)
class Held:
    """A record that is marked held: a cgroup (``path``) or a process (``pid``, ``start_ticks``)."""

    slot: int
    kind: int
    job: int
    path: str
    pid: int
    start_ticks: int


class StateFile:
    """The mapped file; also the ``Ledger`` of the freezers. Make one with ``create`` or ``open``."""

    def __init__(self, fd: int, path: Path | None) -> None:
        self.path = path
        self.fd = fd
        size = HEADER_BYTES + RECORDS * RECORD_BYTES
        if os.fstat(fd).st_size != size:
            os.close(fd)
            raise HostError(f"{path} is no agent state file (wrong size); remove it")
        self._map = mmap.mmap(fd, size)
        self._pin: object | None = None
        self._base = 0
        self._view = memoryview(self._map)
        self._words = self._view[:256].cast("q")
        if self._map[:8] != MAGIC or self._words[Word.LAYOUT] != LAYOUT:
            self.close()
            raise HostError(f"{path} is no agent state file of this version; remove it")
        self._free: list[int] = [
            slot for slot in range(RECORDS - 1, -1, -1) if self._view[_at(slot)] == _FREE
        ]

    @classmethod
    def create(cls, path: Path, node: str, root: str, cpu_root: str = "", ended: str = "") -> StateFile:
        """Make a fresh file for the calling process, in place of an older one, with every record free.

        The older file keeps its inode, so that a guardian that still maps it never sees the new records.

        Raises
        ------
        HostError
            The folder cannot be written.
        """
        header = bytearray(HEADER_BYTES)
        header[:8] = MAGIC
        words = memoryview(header)[:256].cast("q")
        me = read_stat(os.getpid())
        words[Word.LAYOUT] = LAYOUT
        words[Word.AGENT_PID] = os.getpid()
        words[Word.AGENT_START] = 0 if me is None else me.start_ticks
        words[Word.TIME_OFFSET_NS] = time_offset_ns()
        texts = {
            _BOOT_AT: boot_id(),
            _NODE_AT: node,
            _ROOT_AT: root,
            _CPU_ROOT_AT: cpu_root,
            _ENDED_AT: ended,
        }
        for at, text in texts.items():
            raw = text.encode()
            struct.pack_into(f"=H{len(raw)}s", header, at, len(raw), raw)
        try:
            with draft_at(path, draft=f".{path.name}.{os.getpid()}") as fresh:
                fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                os.write(fd, header)
                os.posix_fallocate(fd, 0, HEADER_BYTES + RECORDS * RECORD_BYTES)
        except OSError as error:
            raise HostError(f"cannot write the agent's state file {path}: {error.strerror}") from error
        return cls(fd, path)

    @classmethod
    def open(cls, path: Path) -> StateFile:
        """Map an existing file. Raises FileNotFoundError, or HostError if it is not one of ours.

        A file that others could have written is none of ours: it would tell root what to write where.
        """
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            os.close(fd)
            raise HostError(f"{path} belongs to user {found.st_uid}, or others may write to it; remove it")
        return cls(fd, path)

    def word(self, which: Word) -> int:
        """Value of a header word."""
        return self._words[which]

    def set_word(self, which: Word, value: int) -> None:
        """Store a header word in one piece."""
        self._words[which] = value

    def node(self) -> str:
        """Name of the agent's node."""
        return self._text(_NODE_AT)

    def root(self) -> Path:
        """Root of the agent's freezer."""
        return Path(self._text(_ROOT_AT))

    def cpu_root(self) -> Path:
        """Root of the cpu hierarchy in which the agent lets jobs yield."""
        return Path(self._text(_CPU_ROOT_AT))

    def ended_path(self) -> Path | None:
        """File in which the guardian records how the agent ended; None for none."""
        text = self._text(_ENDED_AT)
        return Path(text) if text else None

    def this_boot(self) -> bool:
        """Whether the file was written in this boot of the host: otherwise it means nothing any more."""
        return self._text(_BOOT_AT) == boot_id()

    def agent_alive(self) -> bool:
        """Whether the agent that made the file is alive (by pid and start time)."""
        stat = read_stat(self._words[Word.AGENT_PID], PROC)
        return stat is not None and stat.alive and stat.start_ticks == self._words[Word.AGENT_START]

    def lease_left_ns(self) -> int:
        """How long the lease lasts, as seen from this process's time namespace; negative once it is over."""
        here = time.monotonic_ns() - time_offset_ns()
        return self._words[Word.LEASE_NS] - self._words[Word.TIME_OFFSET_NS] - here

    def held(self) -> Iterator[Held]:
        """Every record that is marked held now."""
        marks = self._view[HEADER_BYTES::RECORD_BYTES].tobytes()
        slot = marks.find(_HELD)
        while slot >= 0:
            at = _at(slot)
            _, kind, length, pid, start, job = _RECORD.unpack_from(self._map, at)
            raw = self._map[at + _PATH_AT : at + _PATH_AT + min(length, _MAX_PATH)]
            yield Held(slot, kind, job, raw.decode("utf-8", "replace"), pid, start)
            slot = marks.find(_HELD, slot + 1)

    def claim_cgroup(self, kind: int, path: str, job: int) -> int | None:
        """See ``Ledger``; None also if the path does not fit into a record."""
        raw = path.encode()
        return None if len(raw) > _MAX_PATH else self._claim(kind, job, 0, 0, raw)

    def claim_process(self, pid: int, start_ticks: int, job: int) -> int | None:
        """See ``Ledger``."""
        return self._claim(PROCESS_KIND, job, pid, start_ticks, b"")

    def claim_idle(self, pid: int, start_ticks: int, job: int) -> int | None:
        """See ``Ledger``."""
        return self._claim(IDLE_KIND, job, pid, start_ticks, b"")

    def hold(self, slot: int) -> None:
        """See ``Ledger``."""
        self._view[_at(slot)] = _HELD

    def release(self, slot: int) -> None:
        """See ``Ledger``."""
        self._view[_at(slot)] = _KNOWN

    def drop(self, slot: int) -> None:
        """See ``Ledger``."""
        self._view[_at(slot)] = _FREE
        self._free.append(slot)

    def address_of_word(self, which: Word) -> int:
        """Address of a header word, for code that is no Python; good until ``close``."""
        return (self._base or self._pinned()) + 8 * which

    def address_of_mark(self, slot: int) -> int:
        """Address of the mark of a record, likewise."""
        return (self._base or self._pinned()) + _at(slot)

    def _pinned(self) -> int:
        import ctypes  # the guardian does without

        self._pin = pin = ctypes.c_char.from_buffer(self._map)
        self._base = ctypes.addressof(pin)
        return self._base

    def void(self) -> None:
        """Mark every record free: nothing that it named is ours any more."""
        for slot in range(RECORDS):
            self._view[_at(slot)] = _FREE

    def close(self) -> None:
        """Unmap; the file stays."""
        self._pin, self._base = None, 0
        self._words.release()
        self._view.release()
        self._map.close()
        os.close(self.fd)

    def _claim(self, kind: int, job: int, pid: int, start: int, path: bytes) -> int | None:
        if not self._free:
            return None
        slot = self._free.pop()
        at = _at(slot)
        self._map[at + _PATH_AT : at + _PATH_AT + len(path)] = path
        _RECORD.pack_into(self._map, at, _FREE, kind, len(path), pid, start, job)
        self._view[at] = _KNOWN
        return slot

    def _text(self, at: int) -> str:
        (length,) = struct.unpack_from("=H", self._map, at)
        return self._map[at + 2 : at + 2 + min(length, 500)].decode("utf-8", "replace")


def time_offset_ns() -> int:
    """Offset of this process's monotonic clock against the host's (time namespaces); 0 without one."""
    try:
        for line in Path("/proc/self/timens_offsets").read_text().splitlines():
            name, seconds, nanoseconds = line.split()
            if name in ("monotonic", "1"):
                return int(seconds) * 1_000_000_000 + int(nanoseconds)
    except (OSError, ValueError):
        pass
    return 0


def _at(slot: int) -> int:
    return HEADER_BYTES + slot * RECORD_BYTES
