"""The files of a cpu cgroup that make its tasks yield to those of sibling cgroups.

``cpu.idle`` (Linux 5.15; both generations) gives a cgroup the weight 3 of 1024 and lets any other task
preempt it at once; it takes the place of the weight, which is the default again after 0 was written to it.
Without it the least weight does nearly the same. Kernel: ``kernel/sched/fair.c`` (``sched_group_set_idle``),
``cgroup-v2.rst``, ``sched-design-CFS.rst``. Standard library only: the guardian uses this module too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gangd.freezer.tree import JOB2, write_below

_JOB = r"job_(?P<job>[0-9]+)"
_OWN = r"gangd_(?P<node>[A-Za-z0-9._-]+)_" + _JOB
_SLURM1 = r"slurm(?:_[A-Za-z0-9._-]+)?/uid_[0-9]+(?:/" + _JOB + r")?"
_SLURM2 = r"(?:[A-Za-z0-9._@:\\-]+/){0,4}(?:[A-Za-z0-9._-]+_)?slurmstepd\.scope/" + JOB2


@dataclass(frozen=True, slots=True)
class CpuWeightControl:
    """One generation's files, and with which of them a cgroup is held.

    Attributes
    ----------
    kind
        Number in the ledger.
    by_idle
        Whether ``cpu.idle`` holds; else the weight.
    weight_file, least, usual
        File of the weight, its least value, and what a cgroup has when it is made.
    pattern
        Paths below the mount that may be written.
    """

    kind: int
    by_idle: bool
    weight_file: str
    least: int
    usual: int
    pattern: re.Pattern[str]

    @property
    def file(self) -> str:
        """Name of the file that holds."""
        return "cpu.idle" if self.by_idle else self.weight_file

    @property
    def low(self) -> bytes:
        """What is written to hold."""
        return b"1" if self.by_idle else b"%d" % self.least

    def writes(self, weight: int, *, low: bool) -> tuple[tuple[str, bytes], ...]:
        """Return what is written to which file, in order, to hold, or to have ``weight`` again."""
        return ((self.file, self.low),) if low else self.normal(weight)

    def normal(self, weight: int) -> tuple[tuple[str, bytes], ...]:
        """Return what is written to which file, in order, so that the cgroup has ``weight`` again."""
        back = ((self.weight_file, b"%d" % weight),)
        if not self.by_idle:
            return back
        return (("cpu.idle", b"0"), *(back if weight != self.usual else ()))

    def allows(self, path: str) -> bool:
        """Whether a path below the mount may be written."""
        if any(part in ("", ".", "..") for part in path.split("/")):
            return False
        return self.pattern.fullmatch(path) is not None

    def restore(self, root: Path, path: str) -> bool:
        """Give a cgroup its usual weight by path, for who holds no descriptors; False if it is gone.

        Raises OSError if it is there and cannot be written.
        """
        if not self.allows(path):
            return False
        write_below(root, path, "cpu.idle", b"0")  # a kernel before 5.15 has none
        return write_below(root, path, self.weight_file, b"%d" % self.usual)


_ANY1 = re.compile(f"{_OWN}|{_SLURM1.replace('?P<job>', '?:')}")
_ANY2 = re.compile(_SLURM2)
IDLE1 = CpuWeightControl(4, True, "cpu.shares", 2, 1024, _ANY1)
SHARES1 = CpuWeightControl(5, False, "cpu.shares", 2, 1024, _ANY1)
IDLE2 = CpuWeightControl(6, True, "cpu.weight", 1, 100, _ANY2)
WEIGHT2 = CpuWeightControl(7, False, "cpu.weight", 1, 100, _ANY2)
KNOBS = {knob.kind: knob for knob in (IDLE1, SHARES1, IDLE2, WEIGHT2)}


def own_group(node: str, job: int) -> str:
    """Return the name of the agent's own cpu cgroup of a job."""
    return f"gangd_{node}_job_{job}"


def job_of_own(name: str, node: str) -> int | None:
    """Return the job of a cgroup that an agent of ``node`` made; None for any other name."""
    match = re.fullmatch(_OWN, name)
    return int(match["job"]) if match is not None and match["node"] == node else None
