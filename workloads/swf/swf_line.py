"""From one line of an SWF file to a job, or to the fault that the line has. No IO here."""

from __future__ import annotations

import codecs
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from foundation.errors import InputError
from workloads.swf.swf_job import SWF_FIELDS, SwfJob

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


FIELD_COUNT = len(SWF_FIELDS)
LARGEST = 2**53
"""Whole numbers beyond this are not exact in the columnar reader, and no real field needs them."""

_PLAIN = b"0123456789- \t\r\n"
_DOS_END = b"\x1a"
_STATUS_OF_PART = re.compile(rb"[234](?:\.0*)?")
_WHOLE = frozenset(index for index, rule in enumerate(SWF_FIELDS) if rule.whole)
_REQUIRED = frozenset(index for index, rule in enumerate(SWF_FIELDS) if rule.required)
_SHORT = 16
"""Digits that are fewer than these are no number beyond ``LARGEST``."""
_NUMBER = re.compile(rb"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class LineFaultError(ValueError):
    """What is wrong with a line.

    ``reason`` is a class of faults, to count by; ``detail`` says it for this line, with the field's
    number and name where one is at fault.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def is_blank(raw: bytes) -> bool:
    """Return whether ``raw`` holds nothing but blanks and the end-of-file mark of DOS."""
    return not raw.strip(b" \t\r\n\v\f" + _DOS_END)


def parse_line(raw: bytes) -> SwfJob:
    """Return the job that the line ``raw`` describes; it keeps ``raw`` as its text.

    It keeps none where a count is written with a point. A part of a job (status 2 to 4) without submit time
    has -1 there. An end-of-file mark of DOS is cut off.

    Raises
    ------
    LineFaultError
        The line has too few fields, a NUL byte, something that is not a number, a negative number other than
        -1, a fraction where a whole number belongs, or no job number or submit time.
    """
    parts = raw.split()
    text: bytes | None = raw
    numbers: list[int] | list[float] | None = None
    if len(raw) < LONGEST_LINE and not raw.translate(None, _PLAIN):
        try:
            numbers = list(map(int, parts))
        except ValueError:
            numbers = None
    if numbers is None or not _is_sound(numbers):
        if parts and parts[-1].endswith(_DOS_END):
            return parse_line(raw.rstrip(_DOS_END + b" \t\r\n"))
        numbers, plain = _parse_carefully(raw, parts)
        if not plain:
            text = None
    # which fields are whole and which required has been checked, but no type checker can follow it here
    fields: list[Any] = [None if number == -1 else number for number in numbers[:FIELD_COUNT]]
    if fields[1] is None:
        fields[1] = -1
    fields.append(tuple(numbers[FIELD_COUNT:]))
    job = SwfJob(*fields)
    object.__setattr__(job, "text", text)
    return job


def _is_sound(numbers: Sequence[float]) -> bool:
    if len(numbers) < FIELD_COUNT:
        return False
    return min(numbers[:FIELD_COUNT]) >= -1 and min(numbers[:2]) >= 0 and max(numbers) <= LARGEST


def _parse_carefully(raw: bytes, parts: list[bytes]) -> tuple[list[float], bool]:
    """Return the numbers of a line, and whether all counts in it are written as whole numbers."""
    if len(raw) >= LONGEST_LINE:
        raise LineFaultError("line too long", f"longer than {LONGEST_LINE} characters: is this a text file?")
    if b"\0" in raw:
        raise LineFaultError("NUL byte", f"NUL byte at character {raw.index(0) + 1}: is this a text file?")
    of_part = len(parts) >= FIELD_COUNT and _STATUS_OF_PART.fullmatch(parts[10]) is not None
    numbers: list[float] = []
    plain = True
    for index, part in enumerate(parts):
        if part.isdigit() and len(part) < _SHORT:
            numbers.append(int(part))
        elif part == b"-1" and index not in _REQUIRED:
            numbers.append(-1)
        else:
            numbers.append(_parse_number(part, index, of_part))
            plain &= index not in _WHOLE or b"." not in part.lower().replace(b"e", b".")
    if len(parts) < FIELD_COUNT:
        raise LineFaultError(
            "too few fields", f"only {len(parts)} of {FIELD_COUNT} fields: {_field(len(parts))} is missing"
        )
    return numbers, plain


def _parse_number(part: bytes, index: int, of_part: bool) -> float:
    shown = part[:40].decode("utf-8", errors="replace")
    if not _NUMBER.fullmatch(part):
        raise LineFaultError("not a number", f"{_field(index)}: {shown!r} is not a number")
    exact = float(part)
    if not math.isfinite(exact) or abs(exact) > LARGEST:
        raise LineFaultError("number too large", f"{_field(index)}: {shown} is too large")
    number = int(exact) if exact.is_integer() else exact
    if index >= FIELD_COUNT:
        return number
    rule = SWF_FIELDS[index]
    if number < 0 and (number != -1 or (rule.required and not (of_part and index == 1))):
        raise LineFaultError("negative number", f"{_field(index)}: {shown} is negative")
    if rule.whole and not exact.is_integer():
        raise LineFaultError("fraction", f"{_field(index)}: {shown} is not a whole number")
    return number


def _field(index: int) -> str:
    if index < FIELD_COUNT:
        return f"field {index + 1} ({SWF_FIELDS[index].label})"
    return f"column {index + 1}"
