"""What the time between ready and started consists of.

A job waits until the controller looks, which may be at once or a whole period later, and then for what a
start takes. The end of another job comes first for those that were released: its nodes complete. So what the
shortest gaps are tells the constants, whatever the waits between are like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.fit.job_starts import Starts
from simulator.fit.robust_estimates import Estimate, estimate, longest_wait, middle, shortest, with_interval

_ENOUGH = 5
_LEAST_WAIT_S = 0.5
"""Who waits for a look waits longer, now and then."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """The parts, in seconds; None: not told.

    Parameters
    ----------
    dispatch
        What a start takes; with what completing takes, if no job started without.
    look
        How long a job waits for a look at most.
    completing
        How much later jobs start that were released than those that arrived.
    """

    dispatch: Estimate | None = None
    look: Estimate | None = None
    completing: Estimate | None = None


def parts(starts: Starts, *, ends_wait: bool | None) -> Gaps:
    """Return what the gaps of a run consist of.

    Parameters
    ----------
    starts
        The run's.
    ends_wait
        Whether ends wait for a look as arrivals do; None: not known.
    """
    arrived, released = starts.arrived, starts.released
    alike = ends_wait if ends_wait is not None else ends_seem_to_wait(starts)
    if len(released) < _ENOUGH:
        return Gaps(*_ends_of(arrived)) if len(arrived) >= _ENOUGH else Gaps()
    if len(arrived) < _ENOUGH:
        dispatch, look = _ends_of(released)
        waits = longest_wait(released) >= _LEAST_WAIT_S if alike is None else alike
        return Gaps(dispatch, look if waits else None)
    start = shortest(arrived)
    if not alike:
        middle_end = with_interval(middle, released)
        return Gaps(start, with_interval(longest_wait, arrived), _between(middle_end, start))
    end = shortest(released)
    look = with_interval(_common_wait, arrived, released)
    return Gaps(min(start, end, key=lambda one: one.value), look, _between(end, start))


def _between(later: Estimate, sooner: Estimate) -> Estimate:
    """Return how much later something is."""
    return estimate(
        later.value - sooner.value,
        later.low - sooner.high,
        later.high - sooner.low,
        later.observations + sooner.observations,
    )


def _common_wait(gaps: Sequence[float], others: Sequence[float]) -> float:
    return (longest_wait(gaps) + longest_wait(others)) / 2


def ends_seem_to_wait(starts: Starts) -> bool | None:
    """Return whether jobs that were released wait for a look, as those that arrived do; None: not told."""
    if min(len(starts.arrived), len(starts.released)) < _ENOUGH:
        return None
    return longest_wait(starts.released) > longest_wait(starts.arrived) / 2


def _ends_of(gaps: Sequence[float]) -> tuple[Estimate, Estimate]:
    """Return what the shortest gaps are, and by how much the longest are longer."""
    return shortest(gaps), with_interval(longest_wait, gaps)
