"""Idle and busy periods of all jobs of a trace, as arrays.

Each job has idle, busy, idle, ... periods, idle first; the first may be zero, no other is. A batch job has a
zero and its run time. Source: thesis section 6.3.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foundation.errors import InputError
from foundation.units import US_PER_S
from simulator.jit.field_records import Ints
from workloads.swf import InteractivePattern

TOLERANCE_S = 1.0
"""By how much the periods of a job and its run time may differ: SWF has whole seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class JobPeriods:
    """The periods of job ``j`` are ``us[at[j]]`` to ``us[at[j + 1]]``.

    ``patterned`` says whether any job has periods other than one busy one.
    """

    at: Ints
    us: Ints
    patterned: bool

    @classmethod
    def busy(cls, run_us: Ints) -> JobPeriods:
        """Return the periods of jobs that are busy all along."""
        count = len(run_us)
        us = np.zeros(2 * count, dtype=np.int64)
        us[1::2] = run_us
        at = np.arange(0, 2 * count + 1, 2, dtype=np.int64)
        if count and int(run_us.min()) == 0:
            keep = np.ones(2 * count, dtype=bool)
            keep[1::2] = run_us > 0
            at = np.concatenate(([0], np.cumsum(np.where(run_us > 0, 2, 1))))
            us = us[keep]
        return cls(at, us, patterned=False)

    @property
    def totals_us(self) -> Ints:
        """Sum of the periods of each job."""
        return _sums(self.us, self.at)

    @property
    def busy_us(self) -> Ints:
        """Sum of the busy periods of each job."""
        places = np.arange(len(self.us)) - np.repeat(self.at[:-1], np.diff(self.at))
        return _sums(np.where(places & 1, self.us, 0), self.at)

    def of(self, jobs: Ints) -> tuple[Ints, Ints]:
        """Return offsets and periods of some jobs."""
        chosen = self.select(jobs)
        return chosen.at, chosen.us

    def select(self, jobs: Ints) -> JobPeriods:
        """Return the periods of some jobs."""
        counts = np.diff(self.at)[jobs]
        at = np.concatenate(([0], np.cumsum(counts)))
        source = np.repeat(self.at[:-1][jobs] - at[:-1], counts) + np.arange(at[-1])
        return JobPeriods(at, self.us[source], self.patterned)

    def cut(self, most_us: Ints) -> JobPeriods:
        """Return the periods cut where the job has gone on for ``most_us``; the first one always stays."""
        counts = np.diff(self.at)
        ends = np.cumsum(self.us) - np.repeat(np.concatenate(([0], np.cumsum(self.us)))[self.at[:-1]], counts)
        most = np.repeat(most_us, counts)
        begins = ends - self.us
        first = np.zeros(len(self.us), dtype=bool)
        first[self.at[:-1]] = True
        keep = first | (begins < most)
        us = np.minimum(ends, most) - begins
        at = np.concatenate(([0], np.cumsum(np.add.reduceat(keep, self.at[:-1]))))
        return JobPeriods(at, np.maximum(us[keep], 0), self.patterned)


def _sums(values: Ints, at: Ints) -> Ints:
    totals = np.concatenate(([0], np.cumsum(values)))
    sums: Ints = totals[at[1:]] - totals[at[:-1]]
    return sums


def trace_periods(
    numbers: Ints,
    run_us: Ints,
    interactive: npt.NDArray[np.bool_],
    extensions: Mapping[int, tuple[float, ...]],
    speedup: float,
) -> JobPeriods:
    """Return the periods of all jobs of a trace; those without columns of their own are busy all along.

    Raises
    ------
    InputError
        The columns of a job contradict each other or its run time.
    """
    patterns: dict[int, list[int]] = {}
    for row, extension in extensions.items():
        if not interactive[row]:
            continue
        try:
            pattern = InteractivePattern.from_extension(extension)
        except InputError as error:
            raise InputError(f"job {numbers[row]}: {error}") from error
        if pattern is None:
            continue
        if abs(pattern.total_s / speedup - run_us[row] / US_PER_S) > TOLERANCE_S:
            raise InputError(
                f"job {numbers[row]}: its interactive columns last {pattern.total_s:g} s, its run time is "
                f"{run_us[row] * speedup / US_PER_S:g} s"
            )
        patterns[row] = merged([round(period * US_PER_S / speedup) for period in pattern.periods_s])
    plain = JobPeriods.busy(run_us)
    if not patterns:
        return plain
    pieces: list[Ints] = []
    counts = np.diff(plain.at)
    done = 0
    for row in sorted(patterns):
        pieces += (plain.us[plain.at[done] : plain.at[row]], np.array(patterns[row], dtype=np.int64))
        counts[row] = len(patterns[row])
        done = row + 1
    pieces.append(plain.us[plain.at[done] :])
    return JobPeriods(np.concatenate(([0], np.cumsum(counts))), np.concatenate(pieces), patterned=True)


def merged(periods_us: list[int]) -> list[int]:
    """Return idle, busy, idle, ... periods without zero ones, but for the first, which stays."""
    result = [periods_us[0]]
    for place, period in enumerate(periods_us[1:], start=1):
        if period == 0:
            continue
        if place % 2 == len(result) % 2:
            result.append(period)
        else:
            result[-1] += period
    return result
