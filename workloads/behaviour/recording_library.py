"""A folder of recorded behaviour, and the choice of a recording for each interactive job.

Source: thesis section 6.3.1: a record whose execution time is close to the job's, with randomness in the
choice so that no pattern is used too often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from foundation.errors import InputError, UsageError
from foundation.units import counted
from workloads.behaviour.period_model import THRESHOLD_CORES, busy_idle
from workloads.behaviour.utilisation_series import read_series
from workloads.swf import InteractivePattern, SwfHeader, SwfJob, SwfTrace, read_swf
from workloads.trace.durations import stretch, to_ms

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
