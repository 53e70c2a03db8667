"""One job of an SWF trace: the 18 fields of SWF 2.2, typed, and the columns beyond them.

Source: Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers" (JSSPP 1999),
and the Parallel Workloads Archive's page on the Standard Workload Format, version 2.2.

The busy and idle periods of an interactive job, and their columns in an extended SWF line.

Source: thesis section 6.2.3 (model), section 6.3.4 and Table 6.1 (columns 22 and up).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from foundation.errors import InputError
from foundation.units import counted

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
