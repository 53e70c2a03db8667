"""Files of a RUN as bytes: append-only journals, and the copy of the trace.

Append-only journals that survive ``kill -9``: a row is with the kernel before its append returns.

A journal is a sequence of frames: length of the payload, CRC-32 of the payload, CRC-32 of these two (4
bytes each, big-endian), payload (one row in msgpack). What a kill can leave is a torn last frame; it is
recognised and cut off when the journal is opened again. Damage anywhere else is an error: rows that were
reported as written are never dropped silently.

The trace in a RUN: ``trace.swf.gz``, reproducible bytes, with the SHA-256 of its text.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import shutil
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from foundation.errors import InputError, OutputError

_HEAD = struct.Struct(">III")
_GUARDED = 8
SYNC_EVERY_S = 1.0


def output_error(action: str, path: Path, error: OSError) -> OutputError:
    """Say what could not be written, why, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutputError(f"cannot {action} {path}: the disk is full; free some space, then run again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return OutputError(f"cannot {action} {path}: no permission to write there; choose another folder")
    return OutputError(f"cannot {action} {path}: {error.strerror or error}")


class AppendFile:
    """A file that is only appended to; a failed append leaves it as it was.

    A write reaches the kernel before the append returns, so a kill of this process loses nothing; it is
    flushed to disk (fdatasync) at most once in ``sync_every_s``, so a power cut loses at most that much.
    """

    def __init__(
        self, path: Path, *, good_bytes: int | None = None, sync_every_s: float = SYNC_EVERY_S
    ) -> None:
        self.path = path
        self._sync_every_s = sync_every_s
        self._synced_at = time.monotonic()
        self._dirty = False
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if good_bytes is not None:
                os.ftruncate(self._fd, good_bytes)
            self._size = os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            raise output_error("open", path, error) from error

    def append(self, data: bytes) -> None:
        """Append ``data`` whole or not at all.

        Raises
        ------
        OutputError
            The disk is full or the file cannot be written.
        """
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._take_back()
            raise output_error("append to", self.path, error) from error
        self._size += len(data)
        self._dirty = True
        if time.monotonic() - self._synced_at >= self._sync_every_s:
            self.sync()

    def _take_back(self) -> None:
        """Cut off what a failed append left; if even that fails, take no more rows behind the damage."""
        try:
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
        except OSError:
            os.close(self._fd)
            self._fd = -1

    def sync(self) -> None:
        """Wait until the disk has everything."""
        if not self._dirty:
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise output_error("write", self.path, error) from error
        self._dirty = False
        self._synced_at = time.monotonic()

    def close(self) -> None:
        """Sync and close; closing twice is allowed."""
        if self._fd < 0:
            return
        try:
            self.sync()
        finally:
            os.close(self._fd)
            self._fd = -1


def frame(payload: bytes) -> bytes:
    """Return ``payload`` with its head in front."""
    head = _HEAD.pack(len(payload), zlib.crc32(payload), 0)[:_GUARDED]
    return head + zlib.crc32(head).to_bytes(4, "big") + payload


def read_frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (end position in bytes, payload) of every whole frame, and stop at a torn last one.

    Raises
    ------
    InputError
        The journal cannot be read, or a frame that is not the last one is damaged.
    """
    try:
        stream = path.open("rb")
        size = path.stat().st_size
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    position = 0
    with stream:
        while head := stream.read(_HEAD.size):
            if len(head) < _HEAD.size:
                return
            length, checksum, head_checksum = _HEAD.unpack(head)
            whole = zlib.crc32(head[:_GUARDED]) == head_checksum
            payload = stream.read(length) if whole else b""
            if whole and position + _HEAD.size + length > size:
                return
            if not whole or zlib.crc32(payload) != checksum:
                if not any(stream.read()):
                    return  # the last row; a power cut can leave zeros behind it
                raise InputError(f"{path} is damaged at byte {position}; the rows after it cannot be trusted")
            position += _HEAD.size + length
            yield position, payload


def good_length(path: Path) -> int:
    """Return the number of bytes up to the end of the last whole frame."""
    end = 0
    for position, _ in read_frames(path):
        end = position
    return end


TRACE_NAME = "trace.swf.gz"
_CHUNK_BYTES = 2**20
_GZIP_MAGIC = b"\x1f\x8b"
_COMPRESSION = 4


def copy_trace(trace: Path, folder: Path) -> str:
    """Copy ``trace`` (plain or gzip) to ``folder/trace.swf.gz`` and return the SHA-256 of its text.

    A compressed trace is copied byte for byte; a plain one is compressed without a name or a time stamp.
    Either way the same input gives the same bytes.

    Raises
    ------
    InputError
        The trace cannot be read or is damaged.
    OutputError
        The copy cannot be written.
    """
    digest = trace_sha256(trace)
    target = folder / TRACE_NAME
    try:
        if _is_gzip(trace):
            shutil.copyfile(trace, target)
        else:
            with (
                trace.open("rb") as source,
                target.open("wb") as raw,
                gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as packed,
            ):
                shutil.copyfileobj(source, cast("IO[bytes]", packed), _CHUNK_BYTES)
    except OSError as error:
        raise output_error("write", target, error) from error
    return digest


def trace_sha256(trace: Path) -> str:
    """Return the SHA-256 of a trace's text, whether the file is plain or gzip.

    Raises
    ------
    InputError
        The trace cannot be read or is damaged.
    """
    digest = hashlib.sha256()
    try:
        with gzip.open(trace, "rb") if _is_gzip(trace) else trace.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"trace {trace} is a damaged gzip file ({error}), which no RUN can keep: "
            "`osub trace convert --lenient` makes a sound one of it"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read trace {trace}: {error.strerror or error}") from error
    return digest.hexdigest()


def _is_gzip(trace: Path) -> bool:
    with trace.open("rb") as stream:
        return stream.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
