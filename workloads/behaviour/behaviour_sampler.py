"""The sampler: a job's utilisation every few seconds while it runs, in its file as soon as it was taken."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from foundation.errors import OutputError, UsageError
from workloads.behaviour.job_usage import Usage
from workloads.behaviour.utilisation_series import HEADING, SAMPLE_S, UtilisationSeries, series_row

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


def write_as_taken(
    out: Path, name: str, taken: Iterator[Sample], tell: Callable[[Sample], None]
) -> UtilisationSeries | None:
    """Write samples to a CSV file while they are taken, and return them all as a series.

    Parameters
    ----------
    out
        The file; it is made with the first sample, and replaced where there is one.
    name
        Of the job in the file.
    taken
        The samples, as ``record`` yields them.
    tell
        Is told of each when it is in the file.

    Returns
    -------
    UtilisationSeries | None
        None where there was no sample, and so is no file.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    first = next(taken, None)
    if first is None:
        return None
    samples: list[Sample] = []
    try:
        with out.open("w", newline="", encoding="utf-8", buffering=1) as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(HEADING)
            for sample in chain([first], taken):
                samples.append(sample)
                writer.writerow(series_row(name, sample.elapsed_s, sample.cores))
                tell(sample)
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror}") from error
    return UtilisationSeries(
        name, tuple(one.length_s for one in samples), tuple(one.cores for one in samples)
    )
