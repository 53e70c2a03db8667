"""The fields of an SWF job for which another simulator has no name: carried along, and read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from foundation.errors import InputError
from workloads.exchange.fields import Fields, Machines, shown
from workloads.swf import SwfComment, SwfHeader, SwfJob
from workloads.swf.swf_job import SWF_FIELDS
from workloads.swf.swf_line import LARGEST
from workloads.swf.swf_trace import swf_lines

MOST_HEADER_LINES = 1_000
_STANDARD = frozenset({"job_number", "submit_s", "run_s"})
_CARRIED = {one.name: one for one in SWF_FIELDS if one.name not in _STANDARD}
_MOST_COLUMNS = 100_000


@dataclass(slots=True)
class OmittedJobs:
    """How many jobs were left out, by reason, and the first few of them."""

    reasons: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def count(self, reason: str, example: str) -> None:
        """Count a job."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if len(self.examples) < 5:
            self.examples.append(example)

    def line(self) -> str:
        """Return the counts in words, empty where nothing was left out."""
        return ", ".join(f"{reason} {count:,}" for reason, count in self.reasons.items())


def fitting(
    jobs: Iterable[SwfJob], machines: Machines, source: str, left: OmittedJobs, *, strict: bool
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
    for job in jobs:
        if not job.run_s:
            left.count("jobs without a run time", f"job {job.job_number}")
            continue
        if not job.procs:
            left.count("jobs without processors", f"job {job.job_number}")
            continue
        if job.procs > machines.nodes * machines.cores:
            what = (
                f"{source}: job {job.job_number}: requested number of processors: {job.procs:,} are more "
                f"than {machines.system} has"
            )
            if strict:
                raise InputError(f"{what}; --lenient leaves such jobs out")
            left.count("jobs wider than the system", what)
            continue
        if job.job_number in seen:
            what = f"{source}: job {job.job_number}: job number: is there twice"
            if strict:
                raise InputError(f"{what}; --lenient leaves such jobs out")
            left.count("jobs with the number of another", what)
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
