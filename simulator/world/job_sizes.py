"""The sizes of a malleable job, from the nodes that it asks for, a speed-up model and efficiencies.

Efficiency is speed-up over nodes. The minimum is the most nodes whose efficiency is above one threshold, the
maximum the most above another, each rounded down to a power of two; the request is what the job prefers. All
lie within the system. Source of the method: the public input generator of Posner, Hupfeld, Finnerty,
Enhancing Supercomputer Performance with Malleable Job Scheduling Strategies (PECS 2023), which Zojer, Posner,
Oezden extend.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from foundation.errors import UsageError
from simulator.world.malleable_speedup import amdahl, downey, downey_speedup
from simulator.world.simulated_job import Sizes

PARALLEL = tuple(Fraction(thousandths, 1000) for thousandths in range(950, 1000, 5))
"""Parallel shares that a job can have by Amdahl's law."""

_MOST_AVERAGE = 1 << 30


class Conversion(Protocol):
    """How sizes follow from a request."""

    def sizes(self, asked: int, nodes: int) -> Sizes:
        """Return the sizes of a job that asks for ``asked`` of a system's ``nodes`` nodes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiencies:
    """Efficiencies that sizes are to have: more than these at the minimum, as preferred, at the maximum."""

    least: Fraction = Fraction(95, 100)
    preferred: Fraction = Fraction(80, 100)
    most: Fraction = Fraction(50, 100)

    def __post_init__(self) -> None:
        if not 1 >= self.least >= self.preferred >= self.most > 0:
            raise UsageError(
                f"--set efficiency_min={float(self.least):g}, efficiency_preferred={float(self.preferred):g} "
                f"and efficiency_max={float(self.most):g} contradict each other: a job is the less efficient "
                "the more nodes it has"
            )


@dataclass(frozen=True, slots=True)
class Amdahl:
    """Sizes by Amdahl's law: the least parallel share that is efficient enough at the preferred size."""

    efficiencies: Efficiencies = Efficiencies()

    def sizes(self, asked: int, nodes: int) -> Sizes:
        """See ``Conversion``."""
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
        """See ``Conversion``."""
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
            raise UsageError(
                f"--set min_fraction={float(self.least):g} and max_fraction={float(self.most):g}: the "
                "request lies between the minimum and the maximum"
            )

    def sizes(self, asked: int, nodes: int) -> Sizes:
        """See ``Conversion``."""
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
