"""The bytes of a trace file, plain or gzip, with the ways in which a file can fail told in one line each."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from foundation.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

GZIP_MAGIC = b"\x1f\x8b"
_OTHER_MAGIC = {
    b"PK\x03\x04": "zip",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
}
LONGEST_LINE = 1 << 20
"""Bytes; a file with longer lines is no SWF file, and is not to fill the memory."""
STREAM_FAULTS = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a damaged or cut off gzip file raises."""


class _Unpacked(io.RawIOBase):
    """A gzip stream that hands out all that can be unpacked before it raises at a damaged place.

    ``GzipFile.readinto`` would lose what it had gathered when the damage is met.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._gzip = gzip.GzipFile(fileobj=stream, mode="rb")
        self._begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, target: WriteableBuffer) -> int:
        view = memoryview(target)
        piece = self._gzip.read1(len(view))
        if not self._begun:
            self._begun = True
            piece = piece.removeprefix(codecs.BOM_UTF8) or self._gzip.read1(len(view))
        view[: len(piece)] = piece
        return len(piece)


@contextmanager
def open_trace(path: Path) -> Iterator[io.BufferedReader]:
    """Open ``path`` for reading bytes; gzip is known by its first two bytes, whatever the file is called.

    Raises
    ------
    InputError
        The file is missing, a folder, unreadable, of a compression that is not gzip, or no UTF-8.
    """
    try:
        stream = path.open("rb")
    except OSError as error:
        raise InputError(f"cannot read trace {path}: {error.strerror}; give an SWF file") from error
    with stream:
        yield unpacked(path, stream)


def unpacked(path: Path, stream: io.BufferedReader) -> io.BufferedReader:
    """Return the text of ``stream`` as bytes: unpacked where it is gzip, without a byte order mark.

    Raises
    ------
    InputError
        It cannot be read, is of a compression that is not gzip, or no UTF-8.
    """
    try:
        start = stream.peek(8)
    except OSError as error:
        raise InputError(f"cannot read trace {path}: {error.strerror}") from error
    for magic, kind in _OTHER_MAGIC.items():
        if start.startswith(magic):
            raise InputError(f"trace {path} is a {kind} file: unpack it first (plain text or gzip is read)")
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"trace {path} is text of 16 bits a letter (UTF-16): save it as UTF-8")
    if start.startswith(GZIP_MAGIC):
        return io.BufferedReader(_Unpacked(stream), 1 << 18)
    if start.startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
    return stream


def raw_lines(stream: io.BufferedReader) -> Iterator[bytes]:
    """Yield the lines of ``stream``, each cut to ``LONGEST_LINE``."""
    while raw := stream.readline(LONGEST_LINE):
        yield raw
        rest = raw
        while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
            rest = stream.readline(LONGEST_LINE)


def stream_fault(path: Path, error: Exception, *, readable: bool = True) -> InputError:
    """Return the error to raise for ``error``, one of ``STREAM_FAULTS``, met in ``path``.

    ``readable``: whether what comes before the damage can be used.
    """
    what = "ends too early (truncated)" if isinstance(error, EOFError) else "is damaged"
    more = ", or read what is there with --lenient" if readable else ""
    return InputError(f"trace {path} is a gzip file that {what}: fetch it again{more}")
