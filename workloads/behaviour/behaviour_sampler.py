"""The sampler: a job's utilisation every few seconds while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from foundation.errors import UsageError
from workloads.behaviour.job_usage import Usage
from workloads.behaviour.utilisation_series import SAMPLE_S

SHORTEST_SAMPLE_S = 0.05


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: its end, its length, and the cores in use on average during it."""

    elapsed_s: float
    length_s: float
    cores: float


def record(
    usage: Usage,
    clock: Callable[[], float],
    wait: Callable[[float], bool],
    every_s: float = SAMPLE_S,
    most_s: float = float("inf"),
) -> Iterator[Sample]:
    """Yield samples until the job is over, ``most_s`` have passed, or ``wait`` says to stop.

    Parameters
    ----------
    usage
        The job.
    clock
        Monotonic seconds.
    wait
        Sleeps so many seconds; returns whether to stop.
    every_s
        Time from sample to sample. Samples stay on their grid however late one of them is taken.
    most_s
        Time to record at most.

    Raises
    ------
    UsageError
        ``every_s`` is too short, or ``most_s`` shorter than a sample.
    """
    if not SHORTEST_SAMPLE_S <= every_s < float("inf") or not most_s >= every_s:
        raise UsageError(
            f"samples of {every_s:g} s over {most_s:g} s are not possible: give at least "
            f"{SHORTEST_SAMPLE_S} s each, and time for one"
        )
    start_s = last_s = clock()
    used_s = usage.cpu_s()
    while used_s is not None and last_s - start_s + every_s / 2 <= most_s:
        # the next instant of the grid that is at least half a sample ahead
        number = math.floor((clock() - start_s) / every_s + 0.5) + 1
        if wait(max(0.0, start_s + number * every_s - clock())):
            return
        now_s, now_used_s = clock(), usage.cpu_s()
        if now_used_s is None:
            return
        length_s = now_s - last_s
        if length_s <= 0:
            continue
        yield Sample(now_s - start_s, length_s, max(0.0, now_used_s - used_s) / length_s)
        last_s, used_s = now_s, now_used_s
