"""How much faster a malleable job goes on more nodes, as whole numbers for ``Sizes.rates``.

A job that runs for ``t`` on the ``n`` nodes it asks for runs for ``t * rate(n) / rate(m)`` on ``m``; only
ratios matter. The linear speed-up is exact. The others are in parts of ``ASKED``, the rate at the size that
the job asks for, rounded half to even.
"""

from __future__ import annotations

from collections.abc import Sequence

from foundation.errors import UsageError

ASKED = 1 << 14
"""The rate at the size that a job asks for, where the speed-up is not linear."""

_MOST_RATE = ASKED << 14


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
            f"a job that asks for {asked} nodes needs a speed-up for them, not for {len(speedups)}"
        )
    if not all(0 < speedup < float("inf") for speedup in speedups):
        raise UsageError("speed-ups must be positive numbers")
    rates = tuple(round(speedup / speedups[asked - 1] * ASKED) for speedup in speedups)
    if min(rates) < 1 or max(rates) > _MOST_RATE:
        raise UsageError("a speed-up differs from that at the size asked for by more than a factor of 16,384")
    return rates
