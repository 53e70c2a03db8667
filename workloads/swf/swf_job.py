"""A job of an SWF trace: 18 typed fields and columns beyond them; from a line to a job or its fault.

Source: Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers" (JSSPP 1999),
and the Parallel Workloads Archive's page on the Standard Workload Format, version 2.2.

The busy and idle periods of an interactive job, and their columns in an extended SWF line.

Source: thesis section 6.2.3 (model), section 6.3.4 and Table 6.1 (columns 22 and up).
"""

from __future__ import annotations

import codecs
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from foundation.errors import InputError
from foundation.units import counted

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


RESERVED_COLUMNS = 3
"""Columns 19 to 21, which Table 6.1 leaves free."""


@dataclass(frozen=True, slots=True)
class InteractivePattern:
    """A job that is idle, then busy, idle, busy, ... and idle until it ends.

    Parameters
    ----------
    prologue_s
        Idle seconds before the first busy period.
    epilogue_s
        Idle seconds after the last one.
    activations_s
        The N busy periods, in seconds of CPU time of each worker.
    idles_s
        The N - 1 idle periods between them (none where N is 0).

    Raises
    ------
    InputError
        A period is negative or not finite, or the number of idle periods does not fit.
    """

    prologue_s: float
    epilogue_s: float
    activations_s: tuple[float, ...]
    idles_s: tuple[float, ...]

    def __post_init__(self) -> None:
        expected = max(0, len(self.activations_s) - 1)
        if len(self.idles_s) != expected:
            raise InputError(
                f"an interactive pattern of {counted(len(self.activations_s), 'busy period')} has {expected} "
                f"idle periods between them, not {len(self.idles_s)}"
            )
        for period_s in (self.prologue_s, self.epilogue_s, *self.activations_s, *self.idles_s):
            if not math.isfinite(period_s) or period_s < 0:
                raise InputError(f"an interactive pattern cannot have a period of {period_s} seconds")

    @classmethod
    def from_extension(cls, extension: tuple[float, ...]) -> InteractivePattern | None:
        """Read columns 22 and up; ``extension`` starts at column 19. ``None`` where they are absent.

        Raises
        ------
        InputError
            The repetition count does not fit the number of columns, or a period is negative.
        """
        columns = extension[RESERVED_COLUMNS:]
        if not columns or set(columns) == {-1}:
            return None
        if len(columns) < 3 or columns[2] < 0 or columns[2] != int(columns[2]):
            raise InputError("columns 22, 23 and 24 must be prologue, epilogue and a repetition count")
        count = int(columns[2])
        periods = columns[3:]
        expected = count + max(0, count - 1)
        if len(periods) != expected:
            raise InputError(
                f"column 24 announces {counted(count, 'busy period')}, so {counted(expected, 'column')} must "
                f"follow it, not {len(periods)}"
            )
        return cls(columns[0], columns[1], tuple(periods[:count]), tuple(periods[count:]))

    @classmethod
    def of_periods(cls, periods_s: Sequence[float]) -> InteractivePattern:
        """Return the pattern of idle, busy, idle, ... seconds; the inverse of ``periods_s``."""
        first_s, *inner, last_s = periods_s if len(periods_s) > 1 else (*periods_s, 0)
        return cls(first_s, last_s, tuple(inner[0::2]), tuple(inner[1::2]))

    def to_extension(self, reserved: tuple[float, ...] = (-1, -1, -1)) -> tuple[float, ...]:
        """Return columns 19 and up; ``reserved`` fills columns 19 to 21."""
        head = (*reserved, self.prologue_s, self.epilogue_s, len(self.activations_s))
        return (*head, *self.activations_s, *self.idles_s)

    @property
    def periods_s(self) -> tuple[float, ...]:
        """Idle, busy, idle, ... seconds from start to end, idle first and last (thesis Table 7.3)."""
        if not self.activations_s:
            return (self.prologue_s + self.epilogue_s,)
        periods = [self.prologue_s]
        for busy_s, idle_s in zip(self.activations_s, (*self.idles_s, self.epilogue_s), strict=True):
            periods += (busy_s, idle_s)
        return tuple(periods)

    @property
    def busy_s(self) -> float:
        """Seconds of all busy periods."""
        return math.fsum(self.activations_s)

    @property
    def idle_s(self) -> float:
        """Seconds of all idle periods, prologue and epilogue among them."""
        return math.fsum((self.prologue_s, self.epilogue_s, *self.idles_s))

    @property
    def total_s(self) -> float:
        """Seconds from start to end on a dedicated core."""
        return math.fsum((self.prologue_s, self.epilogue_s, *self.activations_s, *self.idles_s))


@dataclass(frozen=True, slots=True)
class SwfField:
    """One of the 18 columns: its SWF number, attribute name, name for people and rules.

    ``whole`` fields hold counts and identifiers; the others (seconds, KiB) may carry decimals.
    ``required`` fields may not be -1.
    """

    number: int
    name: str
    label: str
    whole: bool
    required: bool = False


SWF_FIELDS: tuple[SwfField, ...] = (
    SwfField(1, "job_number", "job number", whole=True, required=True),
    SwfField(2, "submit_s", "submit time", whole=False, required=True),
    SwfField(3, "wait_s", "wait time", whole=False),
    SwfField(4, "run_s", "run time", whole=False),
    SwfField(5, "allocated_procs", "number of allocated processors", whole=True),
    SwfField(6, "cpu_s", "average CPU time used", whole=False),
    SwfField(7, "used_memory_kib", "used memory", whole=False),
    SwfField(8, "requested_procs", "requested number of processors", whole=True),
    SwfField(9, "requested_s", "requested time", whole=False),
    SwfField(10, "requested_memory_kib", "requested memory", whole=False),
    SwfField(11, "status", "status", whole=True),
    SwfField(12, "user", "user ID", whole=True),
    SwfField(13, "group", "group ID", whole=True),
    SwfField(14, "executable", "executable number", whole=True),
    SwfField(15, "queue", "queue number", whole=True),
    SwfField(16, "partition", "partition number", whole=True),
    SwfField(17, "preceding_job", "preceding job number", whole=True),
    SwfField(18, "think_s", "think time from preceding job", whole=False),
)


def format_number(value: float | None) -> bytes:
    """Return ``value`` as SWF writes it: -1 for absent, no decimals where there are none."""
    if value is None:
        return b"-1"
    if not float(value).is_integer():
        return repr(value).encode("ascii")
    return b"%d" % int(value)


@dataclass(frozen=True, slots=True)
class SwfJob:
    """One job. A field that the trace does not know (-1 in the file) is ``None``.

    Seconds and KiB are ``int`` where the file has no decimals and ``float`` where it has.

    Parameters
    ----------
    job_number
        Field 1.
    submit_s
        Field 2, seconds from the trace's start.
    wait_s, run_s
        Fields 3 and 4: time in the queue, and wall time from start to end.
    allocated_procs
        Field 5, processors the job had, over all nodes.
    cpu_s
        Field 6, CPU time used, average per allocated processor.
    used_memory_kib
        Field 7, average per processor.
    requested_procs, requested_s, requested_memory_kib
        Fields 8, 9, 10; memory is per processor.
    status
        Field 11: 1 completed, 0 failed, 5 cancelled, 2 to 4 parts of a checkpointed job.
    user, group, executable, queue, partition
        Fields 12 to 16; queue 0 is by convention the interactive one.
    preceding_job, think_s
        Fields 17 and 18: the job this one waits for, and the pause between the two.
    extension
        Columns 19 and up as numbers (see ``InteractivePattern`` for columns 22 and up).
    """

    job_number: int
    submit_s: float
    wait_s: float | None = None
    run_s: float | None = None
    allocated_procs: int | None = None
    cpu_s: float | None = None
    used_memory_kib: float | None = None
    requested_procs: int | None = None
    requested_s: float | None = None
    requested_memory_kib: float | None = None
    status: int | None = None
    user: int | None = None
    group: int | None = None
    executable: int | None = None
    queue: int | None = None
    partition: int | None = None
    preceding_job: int | None = None
    think_s: float | None = None
    extension: tuple[float, ...] = ()
    text: bytes | None = field(init=False, default=None, compare=False, repr=False)
    """The line this job was read from, its end included; ``dataclasses.replace`` drops it."""

    @property
    def procs(self) -> int | None:
        """Processors to give the job: requested (field 8) where there are any, else allocated (field 5)."""
        return self.requested_procs or self.allocated_procs

    @property
    def memory_kib(self) -> float | None:
        """Memory per processor: requested (field 10), else used (field 7)."""
        known = self.requested_memory_kib
        return known if known is not None else self.used_memory_kib

    @property
    def pattern(self) -> InteractivePattern | None:
        """The busy and idle periods in columns 22 and up, or ``None``.

        Raises
        ------
        InputError
            The columns are there but do not make a pattern; the message names the job.
        """
        try:
            return InteractivePattern.from_extension(self.extension)
        except InputError as error:
            raise InputError(f"job {self.job_number}: {error}") from error

    def values(self) -> tuple[float | None, ...]:
        """Return the 18 fields in the file's order."""
        return tuple(getattr(self, swf_field.name) for swf_field in SWF_FIELDS)

    def line(self) -> bytes:
        """Return the job as a line: its very text where it was read, else numbers and single blanks."""
        if self.text is not None:
            return self.text
        return b" ".join(map(format_number, (*self.values(), *self.extension))) + b"\n"


GZIP_MAGIC = b"\x1f\x8b"
_OTHER_MAGIC = {b"PK\x03\x04": "zip", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
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
    more = ", or read what is there with {lenient}" if readable else ""
    return InputError.naming(f"trace {{path}} is a gzip file that {what}: fetch it again{more}", path=path)


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
