"""The comment lines of an SWF file, and the typed fields among them.

Source: the Parallel Workloads Archive's page on the Standard Workload Format, "Header Comments".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_FIELD = re.compile(r"^;\s*([A-Za-z][A-Za-z ]*?)\s*:\s*(.*?)\s*$")
_CONTINUATION = re.compile(r"^;(?:\t|\s{2,})\s*(\S.*?)\s*$")
_LEADING_NUMBER = re.compile(
    r"([+-]?)(?:(\d{1,3}(?:,\d{3})+)|(\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,2})?))(?=$|[\s;:(/]|,\s)"
)
_NUMBER_FIELDS = (
    "MaxJobs",
    "MaxRecords",
    "UnixStartTime",
    "TimeZone",
    "MaxNodes",
    "MaxProcs",
    "MaxRuntime",
    "MaxMemory",
    "MaxQueues",
    "MaxPartitions",
)
_NUMBERED = re.compile(r"^(-?\d+)\s*[-:]?\s*(.*)$")
_LARGEST = 2**53
KNOWN_FIELDS = frozenset(
    {
        *_NUMBER_FIELDS,
        "Version",
        "Computer",
        "Installation",
        "Acknowledge",
        "Information",
        "Conversion",
        "Preemption",
        "TimeZoneString",
        "StartTime",
        "EndTime",
        "AllowOveruse",
        "Queues",
        "Queue",
        "Partitions",
        "Partition",
        "Note",
    }
)


@dataclass(frozen=True, slots=True)
class SwfComment:
    """A comment or blank line: its bytes, line end included, and the number of job lines before it."""

    raw: bytes
    after_jobs: int = 0

    @property
    def text(self) -> str:
        """The line for people, without its end; bytes that are not UTF-8 are shown as replacement signs."""
        return self.raw.decode("utf-8", errors="replace").rstrip("\r\n")


def _parse_fields(comments: Iterable[SwfComment]) -> dict[str, tuple[str, ...]]:
    fields: dict[str, list[str]] = {}
    last: list[str] | None = None
    for comment in comments:
        found = _FIELD.match(comment.text)
        if found and found[1] in KNOWN_FIELDS:
            last = fields.setdefault(found[1], [])
            last.append(found[2])
        elif last and (more := _CONTINUATION.match(comment.text)):
            last[-1] = f"{last[-1]} {more[1]}".strip()
        else:
            last = None
    return {name: tuple(values) for name, values in fields.items()}


def _whole_number(text: str) -> int | None:
    """Return the whole number that ``text`` begins with: 4360 of ``4,360 (KNL)``, 10000 of ``1e4``."""
    found = _LEADING_NUMBER.match(text)
    if found is None:
        return None
    number = Fraction((found[2] or found[3]).replace(",", "")) * (-1 if found[1] == "-" else 1)
    return int(number) if number.denominator == 1 and abs(number) <= _LARGEST else None


@dataclass(frozen=True, slots=True)
class SwfHeader:
    """Every comment line of a trace in order, and the SWF 2.2 header fields read from them.

    A field that is absent, or not of its type, is ``None``; the first of a repeated field counts,
    except where the standard lets it repeat (Note, Queue, Partition, Information, Acknowledge).
    """

    comments: tuple[SwfComment, ...] = ()
    fields: dict[str, tuple[str, ...]] = field(init=False, compare=False, repr=False)
    """Values as text by field name, continuation lines joined."""

    @classmethod
    def of_lines(cls, lines: Iterable[str]) -> SwfHeader:
        """Return a header of such lines as ``Version: 2.2``; what cannot be written becomes ``?``."""
        return cls(tuple(SwfComment(f"; {line}\n".encode(errors="replace")) for line in lines))

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", _parse_fields(self.comments))

    def _text(self, name: str) -> str | None:
        return next((value for value in self.fields.get(name, ()) if value), None)

    def _number(self, name: str) -> int | None:
        number = _whole_number(self._text(name) or "")
        return number if number is not None and number >= 0 else None

    def _numbered(self, name: str) -> dict[int, str]:
        matches = (_NUMBERED.match(value) for value in self.fields.get(name, ()))
        return {int(found[1]): found[2] for found in matches if found}

    @property
    def unreadable_numbers(self) -> dict[str, str]:
        """The text of the fields that should begin with a whole number and do not, by name."""
        texts = ((name, self._text(name)) for name in _NUMBER_FIELDS)
        return {name: text for name, text in texts if text is not None and _whole_number(text) is None}

    @property
    def version(self) -> str | None:
        """Version of the format, 2.2 today."""
        return self._text("Version")

    @property
    def computer(self) -> str | None:
        """Brand and model."""
        return self._text("Computer")

    @property
    def installation(self) -> str | None:
        """Site and machine name."""
        return self._text("Installation")

    @property
    def acknowledge(self) -> tuple[str, ...]:
        """Whom to thank where results are published."""
        return self.fields.get("Acknowledge", ())

    @property
    def conversion(self) -> str | None:
        """Who converted the log to SWF."""
        return self._text("Conversion")

    @property
    def max_records(self) -> int | None:
        """Job lines in the file."""
        return self._number("MaxRecords")

    @property
    def unix_start_time_s(self) -> int | None:
        """Unix time of the trace's second 0 (0 where the submit times are Unix times themselves)."""
        return self._number("UnixStartTime")

    @property
    def time_zone_offset_s(self) -> int | None:
        """TimeZone, seconds east of Greenwich (deprecated in SWF 2.2 for its silence on summer time)."""
        return _whole_number(self._text("TimeZone") or "")

    @property
    def time_zone_name(self) -> str | None:
        """TimeZoneString, a name of the time-zone data base."""
        return self._text("TimeZoneString")

    @property
    def time_zone(self) -> ZoneInfo | None:
        """The zone of ``time_zone_name``, or ``None`` where this host does not know it."""
        if self.time_zone_name is None:
            return None
        try:
            return ZoneInfo(self.time_zone_name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return None

    @property
    def max_nodes(self) -> int | None:
        """Nodes of the machine."""
        return self._number("MaxNodes")

    @property
    def max_procs(self) -> int | None:
        """Processors of the machine."""
        return self._number("MaxProcs")

    @property
    def system_procs(self) -> int | None:
        """MaxProcs, else MaxNodes: traces of one-processor nodes name only these."""
        return self.max_procs or self.max_nodes or None

    @property
    def queues(self) -> dict[int, str]:
        """Name or description by queue number."""
        return self._numbered("Queue")

    @property
    def partitions(self) -> dict[int, str]:
        """Name or description by partition number."""
        return self._numbered("Partition")

    @property
    def notes(self) -> tuple[str, ...]:
        """The Note fields, in order."""
        return self.fields.get("Note", ())

    def with_note(self, note: str) -> SwfHeader:
        """Return a header with one more Note after the last line of the head: a transform's provenance."""
        return self.with_line("Note", note)

    def with_line(self, name: str, value: str | int) -> SwfHeader:
        """Return a header with one more line of a field that may repeat, such as Queue."""
        return self._inserted(SwfComment(f"; {name}: {' '.join(str(value).split())}\n".encode()))

    def with_field(self, name: str, value: str | int) -> SwfHeader:
        """Return a header whose field ``name`` is ``value``: replaced where it is, else added."""
        line = SwfComment(f"; {name}: {value}\n".encode())
        kept: list[SwfComment] = []
        done = False
        for comment in self.comments:
            found = _FIELD.match(comment.text)
            if found is None or found[1] != name:
                kept.append(comment)
            elif not done:
                kept.append(replace(line, after_jobs=comment.after_jobs))
                done = True
        changed = SwfHeader(tuple(kept))
        return changed if done else changed._inserted(line)

    def _inserted(self, line: SwfComment) -> SwfHeader:
        head = [comment for comment in self.comments if comment.after_jobs == 0]
        rest = [comment for comment in self.comments if comment.after_jobs > 0]
        return SwfHeader((*head, line, *rest))
