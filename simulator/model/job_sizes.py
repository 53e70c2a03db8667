"""The sizes of a malleable job: from its request, a speed-up model and efficiencies, or from a file.

Efficiency is speed-up over nodes. The minimum is the most nodes whose efficiency is above one threshold, the
maximum the most above another, each rounded down to a power of two; the request is what the job prefers. All
lie within the system. Source of the method: the public input generator of Posner, Hupfeld, Finnerty,
Enhancing Supercomputer Performance with Malleable Job Scheduling Strategies (PECS 2023), which Zojer, Posner,
Oezden extend. A file is for those who know what their jobs can do.

A job that runs for ``t`` on the ``n`` nodes it asks for runs for ``t * rate(n) / rate(m)`` on ``m``; only
ratios matter. The linear speed-up is exact. The others are in parts of ``ASKED``, the rate at the size that
the job asks for, rounded half to even.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from foundation.csv_table import CsvRow
from foundation.errors import UsageError
from foundation.units import counted
from simulator.model.jobs import Sizes
from workloads.exchange.sizes import HEADER, MOST_NUMBER, size_lines

PARALLEL = tuple(Fraction(thousandths, 1000) for thousandths in range(950, 1000, 5))
"""Parallel shares that a job can have by Amdahl's law."""

_MOST_AVERAGE = 1 << 30

ASKED = 1 << 14
"""The rate at the size that a job asks for, where the speed-up is not linear."""

_MOST_RATE = ASKED << 14


class SizeConversion(Protocol):
    """How sizes follow from a request."""

    def sizes(self, asked: int, nodes: int) -> Sizes:
        """Return the sizes of a job that asks for ``asked`` of a system's ``nodes`` nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiencies:
    """Efficiencies that sizes are to have: more than these at the minimum, as preferred, at the maximum."""

    least: Fraction = Fraction(95, 100)
    preferred: Fraction = Fraction(80, 100)
    most: Fraction = Fraction(50, 100)

    def __post_init__(self) -> None:
        if not 1 >= self.least >= self.preferred >= self.most > 0:
            raise UsageError.naming(
                f"{{settings}} efficiency_min={float(self.least):g}, "
                f"efficiency_preferred={float(self.preferred):g} and efficiency_max={float(self.most):g} "
                "contradict each other: a job is the less efficient the more nodes it has"
            )


@dataclass(frozen=True, slots=True)
class Amdahl:
    """Sizes by Amdahl's law: the least parallel share that is efficient enough at the preferred size."""

    efficiencies: Efficiencies = Efficiencies()

    def sizes(self, asked: int, nodes: int) -> Sizes:
        """See ``SizeConversion``."""
        return _amdahl_sizes(self.efficiencies, asked, nodes)


def parallel_share(asked: int, efficiency: Fraction) -> Fraction:
    """Return the share of a job that asks for so many nodes and is to be more efficient than that on them."""
    for share in PARALLEL:
        if 1 / ((1 - share) * asked + share) > efficiency:
            return share
    return PARALLEL[-1]


@lru_cache(maxsize=65_536)
def _amdahl_sizes(efficiencies: Efficiencies, asked: int, nodes: int) -> Sizes:
    share = parallel_share(asked, efficiencies.preferred)

    def most_above(efficiency: Fraction) -> int:
        return math.ceil((1 / efficiency - share) / (1 - share)) - 1

    least, most = _bounded(most_above(efficiencies.least), asked, most_above(efficiencies.most), nodes)
    return Sizes(least=least, preferred=asked, most=most, rates=amdahl(most, asked, float(share)))


@dataclass(frozen=True, slots=True)
class Downey:
    """Sizes by Downey's model: the least average parallelism, from ``average`` on, that does it."""

    efficiencies: Efficiencies = Efficiencies()
    average: int = 16
    sigma: float = 1.0

    def sizes(self, asked: int, nodes: int) -> Sizes:
        """See ``SizeConversion``."""
        return _downey_sizes(self, asked, nodes)


@lru_cache(maxsize=65_536)
def _downey_sizes(model: Downey, asked: int, nodes: int) -> Sizes:
    wanted = model.efficiencies

    def efficiency(size: int, average: int) -> float:
        return downey_speedup(size, average, model.sigma) / size

    average = max(
        model.average, _first(lambda average: efficiency(asked, average) > wanted.preferred, _MOST_AVERAGE)
    )

    def most_above(threshold: Fraction) -> int:
        return _first(lambda size: efficiency(size, average) <= threshold, nodes + 1) - 1

    least, most = _bounded(most_above(wanted.least), asked, most_above(wanted.most), nodes)
    return Sizes(least=least, preferred=asked, most=most, rates=downey(most, asked, average, model.sigma))


def _first(holds: Callable[[int], bool], most: int) -> int:
    """Return the first number from 1 on from which something holds, ``most`` if none before."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True, slots=True)
class Fractions:
    """Sizes as multiples of the request, rounded down; the speed-up is Amdahl's."""

    least: Fraction
    most: Fraction
    efficiencies: Efficiencies = Efficiencies()

    def __post_init__(self) -> None:
        if not 0 < self.least <= 1 <= self.most:
            raise UsageError.naming(
                f"{{settings}} min_fraction={float(self.least):g} and max_fraction={float(self.most):g}: the "
                "request lies between the minimum and the maximum"
            )

    def sizes(self, asked: int, nodes: int) -> Sizes:
        """See ``SizeConversion``."""
        return _fraction_sizes(self, asked, nodes)


@lru_cache(maxsize=65_536)
def _fraction_sizes(model: Fractions, asked: int, nodes: int) -> Sizes:
    least = max(1, int(model.least * asked))
    most = max(asked, min(nodes, int(model.most * asked)))
    share = parallel_share(asked, model.efficiencies.preferred)
    return Sizes(least=least, preferred=asked, most=most, rates=amdahl(most, asked, float(share)))


def _bounded(least: int, asked: int, most: int, nodes: int) -> tuple[int, int]:
    """Return a minimum and a maximum as powers of two around a request, within a system."""
    return min(_power_of_two(least), asked), max(asked, min(_power_of_two(most), nodes))


def _power_of_two(size: int) -> int:
    """Return the largest power of two that is no larger, 1 for what is below."""
    return 1 << (max(size, 1).bit_length() - 1)


def read_sizes(path: Path, asked: Mapping[int, int], nodes: int) -> dict[int, Sizes]:
    """Read the sizes of jobs: CSV with the header ``trace_job,min_nodes,preferred_nodes,max_nodes,parallel``.

    ``parallel`` is the share of a job's work that is spread over its nodes, by Amdahl's law.

    Parameters
    ----------
    path
        The file.
    asked
        The nodes that each job of the trace asks for, by its number.
    nodes
        How many nodes the system has.

    Raises
    ------
    InputError
        The file cannot be read, has another form, or the sizes of a job contradict each other, its request or
        the system; the message names file, line, column and job.
    """
    found: dict[int, Sizes] = {}
    for row in size_lines(path):
        job, sizes = _line(row, asked, nodes)
        if job in found:
            raise row.error("trace_job", f"job {job} is there twice")
        found[job] = sizes
    return found


def _line(row: CsvRow, asked: Mapping[int, int], nodes: int) -> tuple[int, Sizes]:
    job, least, preferred, most = (row.whole(name, MOST_NUMBER, 0) for name in HEADER[:4])
    if job not in asked:
        raise row.error("trace_job", f"there is no batch job {job} to simulate")
    for low, name, high, other in (
        (1, "", least, "min_nodes"),
        (least, "min_nodes", most, "max_nodes"),
        (least, "min_nodes", preferred, "preferred_nodes"),
        (preferred, "preferred_nodes", most, "max_nodes"),
        (least, "min_nodes", asked[job], "its request"),
        (asked[job], "its request", most, "max_nodes"),
        (most, "max_nodes", nodes, "the system's nodes"),
    ):
        if low > high:
            column = name if name in HEADER else other
            what = f"{name} {low}".strip()
            raise row.error(column, f"job {job}: {what} is over {other} {high}")
    parallel = row.number("parallel", 1)
    if parallel is None:
        raise row.error("parallel", "it is empty")
    return job, Sizes(least=least, preferred=preferred, most=most, rates=amdahl(most, asked[job], parallel))


def linear(most: int) -> tuple[int, ...]:
    """Return the rates of a job that goes ``n`` times as fast on ``n`` nodes as on one."""
    return tuple(range(1, most + 1))


def amdahl(most: int, asked: int, parallel: float) -> tuple[int, ...]:
    """Return the rates of a job of which the share ``parallel`` of the work is spread over its nodes.

    S(n) = 1 / ((1 - p) + p / n). Source: Amdahl 1967.

    Raises
    ------
    UsageError
        ``parallel`` is not between 0 and 1, or ``asked`` is no size of the job.
    """
    if not 0 <= parallel <= 1:
        raise UsageError(f"the parallel share of a job is 0 to 1, not {parallel:g}")
    return from_table([1 / ((1 - parallel) + parallel / nodes) for nodes in range(1, most + 1)], asked)


def downey(most: int, asked: int, average: float, sigma: float) -> tuple[int, ...]:
    """Return the rates of a job with an average parallelism, and a coefficient of its variance.

    Source: A. B. Downey, A model for speedup of parallel programs, UCB/CSD-97-933, 1997.

    Raises
    ------
    UsageError
        ``average`` is below 1, ``sigma`` below 0, or ``asked`` is no size of the job.
    """
    if not (average >= 1 and sigma >= 0):
        raise UsageError(f"Downey's model takes A >= 1 and sigma >= 0, not {average:g} and {sigma:g}")
    return from_table([downey_speedup(nodes, average, sigma) for nodes in range(1, most + 1)], asked)


def downey_speedup(nodes: int, average: float, sigma: float) -> float:
    """Return the speed-up on so many nodes; see ``downey``."""
    if sigma >= 1:
        if nodes >= average + average * sigma - sigma:
            return average
        return nodes * average * (sigma + 1) / (sigma * (nodes + average - 1) + average)
    if nodes <= average:
        return average * nodes / (average + sigma * (nodes - 1) / 2)
    if nodes <= 2 * average - 1:
        return average * nodes / (sigma * (average - 0.5) + nodes * (1 - sigma / 2))
    return average


def from_table(speedups: Sequence[float], asked: int) -> tuple[int, ...]:
    """Return the rates for measured speed-ups on 1, 2, ... nodes.

    Raises
    ------
    UsageError
        ``asked`` is not among these sizes, or a speed-up is not positive, or out of bounds.
    """
    if not 1 <= asked <= len(speedups):
        raise UsageError(
            f"a job that asks for {counted(asked, 'node')} needs a speed-up for them, not for {len(speedups)}"
        )
    if not all(0 < speedup < float("inf") for speedup in speedups):
        raise UsageError("speed-ups must be positive numbers")
    rates = tuple(round(speedup / speedups[asked - 1] * ASKED) for speedup in speedups)
    if min(rates) < 1 or max(rates) > _MOST_RATE:
        raise UsageError("a speed-up differs from that at the size asked for by more than a factor of 16,384")
    return rates
