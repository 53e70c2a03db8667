"""Values of another program's record, with type and bounds; SWF fields that it has no name for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from hashlib import blake2b
from typing import Any

from foundation.errors import InputError
from foundation.one_line import one_line
from workloads.swf import SwfComment, SwfHeader, SwfJob
from workloads.swf.swf_job import LARGEST, SWF_FIELDS
from workloads.swf.swf_reader import Omissions, swf_lines

_SYSTEM = re.compile(r"N([1-9]\d{0,6})C([1-9]\d{0,6})")


class Unit(StrEnum):
    """What a host represents."""

    CORE = "core"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Machines:
    """``nodes`` nodes of ``cores`` cores, and what a host of the other simulator represents.

    By cores the host of core c of node n is ``n * cores + c``, both from 0.
    """

    nodes: int
    cores: int
    unit: Unit = Unit.CORE

    @classmethod
    def named(cls, system: str, unit: str, where: str) -> Machines:
        """Read a system such as N12C12 and a unit; ``InputError`` for anything else, after ``where``."""
        match = _SYSTEM.fullmatch(system)
        if match is None or unit not in set(Unit):
            raise InputError(
                f"{where}: {system[:20]!r}, {unit[:20]!r} are no system and unit such as N12C12, core"
            )
        return cls(int(match[1]), int(match[2]), Unit(unit))

    @property
    def system(self) -> str:
        """The system's name."""
        return f"N{self.nodes}C{self.cores}"

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return self.nodes if self.unit is Unit.NODE else self.nodes * self.cores

    @property
    def cores_of_host(self) -> int:
        """How many cores a host represents."""
        return self.cores if self.unit is Unit.NODE else 1

    def asked(self, procs: int) -> int:
        """Return how many hosts hold so many processors."""
        return -(-procs // self.cores_of_host)


LONGEST_NAME = 4096
_PLAIN = re.compile(r"0|[1-9][0-9]{0,15}")


def shown(value: object) -> str:
    """Return a value as a message shows it: one short line."""
    if isinstance(value, float):
        return f"{value:g}"
    return one_line(repr(value) if isinstance(value, str) else str(value), 60)


@dataclass(frozen=True, slots=True)
class Fields:
    """The values of one record; ``where`` names file and record in every error."""

    where: str
    values: Mapping[str, Any]

    def fault(self, key: str, what: str) -> InputError:
        """Return the error for a value."""
        return InputError(f"{self.where}: {one_line(key, 60)}: {what}")

    def has(self, key: str) -> bool:
        """Whether there is such a value that is not null."""
        return self.values.get(key) is not None

    def need(self, key: str) -> Any:
        """Return a value that has to be there."""
        found = self.values.get(key)
        if found is None:
            raise self.fault(key, "is missing")
        return found

    def number(self, key: str, *, above: float | None = None) -> float:
        """Return a finite number from 0 to 2^53, above a bound if that is given; whole ones as ``int``."""
        found = self.need(key)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.fault(key, f"{shown(found)} is no number")
        if not abs(found) <= LARGEST:
            raise self.fault(key, f"{shown(found)} is too large")
        if found < 0 or (above is not None and found <= above):
            raise self.fault(
                key, f"{shown(found)} is not {'at least 0' if above is None else f'above {above:g}'}"
            )
        return int(found) if float(found).is_integer() else found

    def whole(self, key: str, least: int = 0, most: int = LARGEST) -> int:
        """Return a whole number within bounds."""
        found = self.number(key)
        if not isinstance(found, int):
            raise self.fault(key, f"{shown(found)} is no whole number")
        if not least <= found <= most:
            raise self.fault(key, f"{shown(found)} is not from {least:,} to {most:,}")
        return found

    def text(self, key: str) -> str:
        """Return a text that is not too long."""
        found = self.need(key)
        if not isinstance(found, str):
            raise self.fault(key, f"{shown(found)} is no text")
        if len(found) > LONGEST_NAME:
            raise self.fault(key, f"is longer than {LONGEST_NAME:,} characters")
        return found

    def name(self, key: str) -> str:
        """Return a name, which may be a whole number."""
        return str(self.whole(key)) if isinstance(self.need(key), int) else self.text(key)

    def mapping(self, key: str) -> Mapping[str, Any]:
        """Return an object; an empty one where there is none."""
        found = self.values.get(key)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise self.fault(key, "is no object")
        return found


def compact(value: object) -> str:
    """Return a value as JSON without blanks."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def record(where: str, item: object) -> Fields:
    """Return the values of an item that has to be an object."""
    if not isinstance(item, dict):
        raise InputError(f"{where}: is no object")
    return Fields(where, item)


@dataclass(slots=True)
class Numbering:
    """Job numbers for names: a name that is a number keeps it, others get those after the largest.

    All names are met first, then numbered in the same order.
    """

    largest: int = 0
    anew: int = 0
    _numbers: set[int] = field(default_factory=set)
    _others: set[bytes] = field(default_factory=set)

    def meet(self, name: str) -> bool:
        """Take note of a name; return False for one that was met before."""
        number = _plain(name)
        if number is not None:
            if number in self._numbers:
                return False
            self._numbers.add(number)
            self.largest = max(self.largest, number)
            return True
        digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._others:
            return False
        self._others.add(digest)
        return True

    @property
    def renumbered(self) -> int:
        """How many of the names that were met are no numbers."""
        return len(self._others)

    def number(self, name: str, where: str) -> int:
        """Return the number of a name, of the record ``where``; to be asked once for each, in order."""
        number = _plain(name)
        if number is not None:
            return number
        self.anew += 1
        if self.largest + self.anew > LARGEST:
            raise InputError(f"{where}: there is no job number left above {self.largest}")
        return self.largest + self.anew


def _plain(name: str) -> int | None:
    return int(name) if _PLAIN.fullmatch(name) and int(name) <= LARGEST else None


LEAVES_OUT = "leaves such jobs out"
MOST_HEADER_LINES = 1_000
_STANDARD = frozenset({"job_number", "submit_s", "run_s"})
_CARRIED = {one.name: one for one in SWF_FIELDS if one.name not in _STANDARD}
_MOST_COLUMNS = 100_000


def fitting(
    jobs: Iterable[SwfJob], machines: Machines, source: str, left: Omissions, *, strict: bool
) -> Iterator[SwfJob]:
    """Yield the jobs that ran and fit the machines; the others are counted in ``left``.

    Raises
    ------
    InputError
        With ``strict`` for a job that is wider than the machines, or whose number an earlier one has; also
        if no job is left.
    """
    count = 0
    seen: set[int] = set()
    refuse = partial(left.refuse, strict=strict, lenient=LEAVES_OUT)
    for job in jobs:
        if not job.run_s:
            left.count("jobs without a run time", f"job {job.job_number}")
            continue
        if not job.procs:
            left.count("jobs without processors", f"job {job.job_number}")
            continue
        if job.procs > machines.nodes * machines.cores:
            refuse(
                "jobs wider than the system",
                f"{source}: job {job.job_number}: requested number of processors: {job.procs:,} are more "
                f"than {machines.system} has",
            )
            continue
        if job.job_number in seen:
            refuse(
                "jobs with the number of another",
                f"{source}: job {job.job_number}: job number: is there twice",
            )
            continue
        seen.add(job.job_number)
        count += 1
        yield job
    if not count:
        raise InputError(f"{source}: no job is left to write: {left.line()}")


def carried(job: SwfJob) -> dict[str, Any]:
    """Return the fields that a job knows beyond its number, its submission and its run time."""
    found: dict[str, Any] = {name: value for name in _CARRIED if (value := getattr(job, name)) is not None}
    if job.extension:
        found["extension"] = list(job.extension)
    return found


def given_back(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return such fields checked, for ``SwfJob``; a name that SWF does not have is an error."""
    fields = Fields(where, values)
    found: dict[str, Any] = {}
    for name in values:
        if name == "extension":
            found[name] = _columns(values[name], fields)
        elif name not in _CARRIED:
            raise fields.fault(name, "is no field of SWF")
        else:
            found[name] = fields.whole(name) if _CARRIED[name].whole else fields.number(name)
    return found


def _columns(items: object, fields: Fields) -> tuple[float, ...]:
    if not isinstance(items, list) or len(items) > _MOST_COLUMNS:
        raise fields.fault("extension", "is no list of numbers")
    for item in items:
        good = isinstance(item, int | float) and not isinstance(item, bool) and abs(item) <= LARGEST
        if not good:
            raise fields.fault("extension", f"{shown(item)} is no number, or too large")
    return tuple(items)


def header_lines(header: SwfHeader) -> list[str]:
    """Return the comments at the head of a trace; what cannot be printed becomes ``?``."""
    head = [comment.text for comment in header.comments if comment.after_jobs == 0]
    return ["".join(map(_printed, line)) for line in head[:MOST_HEADER_LINES]]


def _printed(character: str) -> str:
    return character if character.isprintable() or character == "\t" else "?"


def header_of(lines: object, where: str) -> SwfHeader:
    """Return a header of such lines; ``InputError`` for what is none."""
    if lines is None:
        return SwfHeader()
    if not isinstance(lines, list) or len(lines) > MOST_HEADER_LINES:
        raise InputError(f"{where}: is no list of at most {MOST_HEADER_LINES:,} comment lines")
    for number, line in enumerate(lines):
        good = isinstance(line, str) and (not line.strip() or line.startswith(";"))
        if not good or not line.replace("\t", " ").isprintable():
            raise InputError(f"{where}: line {number + 1} is no comment of SWF")
    return SwfHeader(tuple(SwfComment(f"{line}\n".encode()) for line in lines))


def trace_pieces(
    header: SwfHeader, jobs: Iterable[SwfJob], count: int, machines: Machines, kind: str, notes: Iterable[str]
) -> Iterator[bytes]:
    """Yield the lines of the SWF trace that is made of so many jobs of another simulator's workload."""
    made = header
    if header.version is None:
        made = made.with_field("Version", "2.2")
    if header.conversion is None:
        made = made.with_field("Conversion", f"osub trace import, from {kind}")
    for name in ("MaxJobs", "MaxRecords"):
        made = made.with_field(name, count)
    if header.max_nodes is None:
        made = made.with_field("MaxNodes", machines.nodes)
    if header.max_procs is None:
        made = made.with_field("MaxProcs", machines.nodes * machines.cores)
    for note in notes:
        made = made.with_note(note)
    return swf_lines(made, jobs)
