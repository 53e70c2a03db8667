"""Which part of a trace an experiment is made of: a window by name, by date, or by its beginning."""

from __future__ import annotations

from datetime import date

from foundation.errors import UsageError
from workloads.swf import SwfTrace
from workloads.trace.scaling.replayable_trace import THESIS, Source, is_gaia, window_of_day
from workloads.trace.transforms import Window, find_window

WINDOWS = ("auto", "thesis", "busy", "all")


def source_of(
    trace: SwfTrace,
    window: str,
    start: float | None,
    hours: float | None,
    first_hour: float,
    warm_up: float,
    cool_down: float,
    queue: int | None,
) -> Source:
    """Return the part of a trace that an experiment is made of.

    Parameters
    ----------
    trace
        The trace.
    window
        One of ``WINDOWS``, or a date.
    start, hours
        The beginning in seconds, and the length in hours, in place of a window.
    first_hour
        Where a day's window of so many hours begins.
    warm_up, cool_down
        Hours before and after the active phase.
    queue
        The queue of interactive jobs; None: there are none.

    Raises
    ------
    UsageError
        Two of them contradict each other, or a window is none.
    """
    length_s = 3600 * (24.0 if hours is None else hours)
    if not 0 < length_s < float("inf"):
        raise UsageError(f"--hours must be above 0, not {hours}")
    if start is not None:
        if window != "auto":
            raise UsageError("--start and --window exclude each other: give one of them")
        return Source(Window(start, start, start + length_s, start + length_s, "as asked for"))
    if window == "thesis" or (window == "auto" and is_gaia(trace)):
        if not is_gaia(trace):
            raise UsageError(f"--window thesis is for UniLu-Gaia-2014-1; {trace.name} is another trace")
        return THESIS
    if window in ("auto", "busy"):
        return Source(find_window(trace, queue, 3600 * warm_up, 3600 * cool_down))
    if window == "all":
        submits = [job.submit_s for job in trace.jobs]
        first_s, end_s = min(submits), max(submits) + 1
        return Source(Window(first_s, first_s, end_s, end_s, "the whole trace"))
    try:
        day = date.fromisoformat(window)
    except ValueError as error:
        raise UsageError(f"--window takes {', '.join(WINDOWS)} or a date, not {window!r}") from error
    if hours is None:
        return Source(find_window(trace, queue, 3600 * warm_up, 3600 * cool_down, day=day))
    return Source(window_of_day(trace, day, first_hour, length_s))


def known_procs(trace: SwfTrace, source: Source) -> int:
    """Return how many cores the trace's system has; raises UsageError where nobody tells."""
    known = source.from_procs or trace.header.system_procs
    if known is None:
        raise UsageError(f"the header of {trace.name} does not tell its system's size: give --from-procs")
    return known
