"""A folder of recorded behaviour: its busy and idle periods, its figures, a recording for each job.

Source: thesis section 6.3.1: a record whose execution time is close to the job's, with randomness in the
choice so that no pattern is used too often.

Source: thesis section 6.2.3: a sampling period of 5 s with more than 20 % of a core in use is part of a
busy period, any other of an idle one. How many cores are in use while busy is not modelled.

Source: thesis section 6.2.4 and Figure 6.3, 193 interactive jobs of TSUBAME3.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from analysis.quantiles import quantiles
from foundation.errors import InputError, UsageError
from foundation.units import counted
from workloads.behaviour.utilisation_series import UtilisationSeries, read_series
from workloads.swf import InteractivePattern, SwfHeader, SwfJob, SwfTrace, read_swf
from workloads.trace.local_clock import stretch, to_ms, to_s

THRESHOLD_CORES = 0.2


def busy_idle(series: UtilisationSeries, threshold_cores: float = THRESHOLD_CORES) -> InteractivePattern:
    """Return the busy and idle periods of ``series``.

    Raises
    ------
    UsageError
        ``threshold_cores`` is negative.
    """
    if not threshold_cores >= 0:
        raise UsageError(f"a threshold of {threshold_cores:g} cores is not possible: give 0 or more")
    samples = zip(series.lengths_s, series.cores, strict=True)
    periods_s: list[float] = []
    for busy, members in groupby(samples, key=lambda sample: sample[1] > threshold_cores):
        if busy and not periods_s:
            periods_s.append(0)
        periods_s.append(to_s(sum(to_ms(length_s) for length_s, _ in members)))
    if len(periods_s) % 2 == 0:
        periods_s.append(0)
    return InteractivePattern.of_periods(periods_s)


PEAKS_H = (1, 2, 4, 6, 12)
PEAK_WIDTH_S = 60.0
FEW_PERIODS = 10


@dataclass(frozen=True, slots=True)
class BehaviourStatistics:
    """The figures of a number of interactive jobs.

    Parameters
    ----------
    jobs
        How many; those without length are left out.
    length_p90_s
        90th percentile of the execution time.
    short_share
        Share of jobs shorter than 2 h.
    peak_share
        Share of jobs that end within a minute after 1, 2, 4, 6 or 12 h.
    under_10_percent, under_1_percent
        Shares of jobs by utilisation: busy time over execution time.
    few_periods_share
        Share of jobs with fewer than 10 busy periods.
    most_periods
        The largest number of busy periods.
    longest_busy_p54_s, longest_busy_s
        54th percentile and largest of the jobs' longest busy periods.
    """

    jobs: int
    length_p90_s: float
    short_share: float
    peak_share: float
    under_10_percent: float
    under_1_percent: float
    few_periods_share: float
    most_periods: int
    longest_busy_p54_s: float
    longest_busy_s: float


PUBLISHED = {
    "length_p90_s": 5.2 * 3600,
    "under_10_percent": 0.71,
    "under_1_percent": 0.37,
    "most_periods": 94.0,
    "longest_busy_p54_s": 30.0,
    "longest_busy_s": 46_715.0,
}
"""The figures that the thesis gives as numbers, by field of ``BehaviourStatistics``."""


def behaviour_statistics(patterns: Sequence[InteractivePattern]) -> BehaviourStatistics | None:
    """Return the figures of ``patterns``; ``None`` where none has any length."""
    known = [pattern for pattern in patterns if pattern.total_s > 0]
    if not known:
        return None
    lengths_s = np.array([pattern.total_s for pattern in known])
    shares = np.array([pattern.busy_s for pattern in known]) / lengths_s
    counts = np.array([len(pattern.activations_s) for pattern in known])
    longest_s = np.array([max(pattern.activations_s, default=0.0) for pattern in known])
    after_s = lengths_s[:, None] - 3600.0 * np.array(PEAKS_H)
    at_peak = ((after_s >= 0) & (after_s <= PEAK_WIDTH_S)).any(axis=1)
    return BehaviourStatistics(
        jobs=len(known),
        length_p90_s=float(quantiles(lengths_s, (0.9,))[0]),
        short_share=float(np.mean(lengths_s < 2 * 3600)),
        peak_share=float(np.mean(at_peak)),
        under_10_percent=float(np.mean(shares < 0.10)),
        under_1_percent=float(np.mean(shares < 0.01)),
        few_periods_share=float(np.mean(counts < FEW_PERIODS)),
        most_periods=int(counts.max()),
        longest_busy_p54_s=float(quantiles(longest_s, (0.54,))[0]),
        longest_busy_s=float(longest_s.max()),
    )


NEAREST = 5


@dataclass(frozen=True, slots=True)
class Recording:
    """The busy and idle periods of one job that was recorded."""

    name: str
    pattern: InteractivePattern


@dataclass(frozen=True, slots=True)
class Library:
    """What a folder holds.

    Parameters
    ----------
    recordings
        In the order of file names, then as in the file.
    skipped
        Files that could not be used, each with the reason.
    """

    recordings: tuple[Recording, ...]
    skipped: tuple[str, ...] = ()


def read_library(folder: Path, threshold_cores: float = THRESHOLD_CORES) -> Library:
    """Read every ``*.csv`` (utilisation series), ``*.swf``, ``*.swf.gz`` (jobs with periods) in ``folder``.

    A file that cannot be used, such as one with a failed measurement, is skipped with its reason.

    Raises
    ------
    InputError
        There is no such folder, or not one recording in it.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: give one with recorded patterns (*.csv, *.swf)")
    recordings: list[Recording] = []
    skipped: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.name.endswith((".csv", ".swf", ".swf.gz")):
            continue
        try:
            recordings += _recordings(path, threshold_cores)
        except InputError as error:
            skipped.append(str(error))
    recordings = [recording for recording in recordings if recording.pattern.total_s > 0]
    if not recordings:
        why = f": {skipped[0]}" if skipped else "; `osub trace record` makes one"
        raise InputError(f"{folder} has no recorded pattern (*.csv, *.swf){why}")
    return Library(tuple(recordings), tuple(skipped))


def _recordings(path: Path, threshold_cores: float) -> list[Recording]:
    if path.suffix == ".csv":
        return [Recording(series.name, busy_idle(series, threshold_cores)) for series in read_series(path)]
    trace = read_swf(path)
    return [
        Recording(f"{trace.name} {job.job_number}", pattern)
        for job in trace.jobs
        if (pattern := job.pattern) is not None
    ]


def pattern_trace(patterns: Sequence[InteractivePattern], note: str) -> SwfTrace:
    """Return a trace whose only content is ``patterns``, for ``read_library`` to find in a file."""
    jobs = tuple(
        SwfJob(
            number,
            number - 1,
            run_s=pattern.total_s,
            allocated_procs=1,
            status=1,
            queue=0,
            extension=pattern.to_extension(),
        )
        for number, pattern in enumerate(patterns, start=1)
    )
    header = SwfHeader().with_line("Version", "2.2").with_line("MaxRecords", len(jobs)).with_note(note)
    return SwfTrace(header, jobs, "patterns")


@dataclass(frozen=True, slots=True)
class EmbedReport:
    """What was embedded.

    Parameters
    ----------
    jobs
        Jobs that got periods.
    kept
        Jobs of the queue that had some already.
    without_run_time
        Jobs of the queue that could not get any.
    recordings_used
        How many different recordings.
    most_used
        How often the most frequent one.
    """

    jobs: int
    kept: int
    without_run_time: int
    recordings_used: int
    most_used: int


def embed_recordings(
    trace: SwfTrace, recordings: Sequence[Recording], queue: int = 0, seed: int = 1, nearest: int = NEAREST
) -> tuple[SwfTrace, EmbedReport]:
    """Give each job of ``queue`` the periods of a recording of about its run time, stretched to it exactly.

    Parameters
    ----------
    trace
        The original; jobs with periods and jobs without a run time stay as they are.
    recordings
        To choose from; those without length are not taken.
    queue
        The interactive queue.
    seed
        Of the choices.
    nearest
        Among how many recordings, nearest in length, one is chosen at random.

    Raises
    ------
    UsageError
        There is no recording, or ``nearest`` is not positive.
    """
    usable = sorted(
        (recording for recording in recordings if recording.pattern.total_s > 0),
        key=lambda recording: recording.pattern.total_s,
    )
    if not usable or nearest < 1:
        raise UsageError("embedding needs at least one recording, and a choice among at least one")
    totals = np.array([recording.pattern.total_s for recording in usable])
    rng = np.random.default_rng(seed)
    jobs = list(trace.jobs)
    used: Counter[int] = Counter()
    kept = without = 0
    for place, job in enumerate(jobs):
        if job.queue != queue:
            continue
        if job.pattern is not None:
            kept += 1
        elif job.run_s is None:
            without += 1
        else:
            candidates = _nearest(totals, job.run_s, nearest)
            chosen = candidates[int(rng.integers(len(candidates)))]
            used[chosen] += 1
            pattern = stretch(usable[chosen].pattern, to_ms(job.run_s))
            reserved = (*job.extension[:3], -1, -1, -1)[:3]
            jobs[place] = replace(job, extension=pattern.to_extension(reserved))
    report = EmbedReport(used.total(), kept, without, len(used), max(used.values(), default=0))
    if not used:
        return trace, report
    note = (
        f"osub interactive: periods for {counted(used.total(), 'job')} of queue {queue} from "
        f"{counted(len(usable), 'recording')}, one of the {nearest} nearest in length, seed {seed}"
    )
    return trace.with_jobs(jobs, note), report


def _nearest(totals: np.ndarray[tuple[int], np.dtype[np.float64]], run_s: float, count: int) -> list[int]:
    """Return the places of the ``count`` lengths nearest to ``run_s`` in the sorted ``totals``."""
    middle = int(np.searchsorted(totals, run_s))
    low, high = max(0, middle - count), min(len(totals), middle + count)
    distance = np.abs(totals[low:high] - run_s)
    return [low + place for place in np.argsort(distance, kind="stable")[:count].tolist()]
