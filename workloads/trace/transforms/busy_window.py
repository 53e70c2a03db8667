"""A window of a trace around the working hours of a busy day; run times clipped, compressed or set.

Source: thesis section 7.3.1 (warm-up, active phase, cool-down) and 7.4.3 (a busy weekday with typical
interactive activity; half-hour slots; 11:00 to 3:30 around the active hours 14:00 to 22:00).

More or fewer arrivals in the same time: the rate changes, the course of days and weeks does not.

To change the rate by shorter or longer gaps instead, which changes the length of the days, too, see
``time_compression.compress_apart``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
from numpy.typing import NDArray

from foundation.errors import UsageError
from foundation.units import checked_speedup, counted, counted_of
from workloads.swf import SwfJob, SwfTrace
from workloads.trace.local_clock import DAY_S, LocalTimes, TraceClock, day_number, stretch, to_ms, to_s
from workloads.trace.models import interactive_flags
from workloads.trace.transforms.filters import with_sound_links


def compress(trace: SwfTrace, speedup: float) -> SwfTrace:
    """Divide every time of ``trace`` by ``speedup``, to the millisecond.

    Submit, wait, run, CPU, requested and think times, and the busy and idle periods of interactive
    jobs. A pattern that filled its job's run time to the millisecond does so afterwards. Jobs keep
    their order.

    Raises
    ------
    UsageError
        ``speedup`` is no factor that a trace can have.
    """
    return compress_apart(trace, checked_speedup(speedup), speedup)


def compress_apart(trace: SwfTrace, arrivals: float, jobs: float) -> SwfTrace:
    """Divide the times between jobs by ``arrivals``, and those within jobs by ``jobs``.

    Between jobs are submit, wait and think times. Within are run, CPU and requested times, and the busy and
    idle periods. With two factors the offered load changes, by ``arrivals / jobs``.

    Raises
    ------
    UsageError
        A factor is not a positive number.
    """
    for factor in (arrivals, jobs):
        if not 0 < factor < float("inf"):
            raise UsageError(f"a speed-up of {factor} is not possible: give a number above 0")
    note = f"osub compress: speed-up {arrivals:g}"
    if arrivals != jobs:
        note += f" between jobs, {jobs:g} within"
    return trace.with_jobs((_divided(job, arrivals, jobs) for job in trace.jobs), note)


def _divided(job: SwfJob, arrivals: float, jobs: float) -> SwfJob:
    pattern = job.pattern
    extension = job.extension
    if pattern is not None:
        total_ms = round(to_ms(pattern.total_s) / jobs)
        extension = stretch(pattern, total_ms).to_extension(job.extension[:3])
    return replace(
        job,
        submit_s=to_s(round(to_ms(job.submit_s) / arrivals)),
        wait_s=_divide(job.wait_s, arrivals),
        run_s=_divide(job.run_s, jobs),
        cpu_s=_divide(job.cpu_s, jobs),
        requested_s=_divide(job.requested_s, jobs),
        think_s=_divide(job.think_s, arrivals),
        extension=extension,
    )


def _divide(seconds: float | None, factor: float) -> float | None:
    return None if seconds is None else to_s(round(to_ms(seconds) / factor))


@dataclass(frozen=True, slots=True)
class ClipReport:
    """How many of ``jobs`` had their run times raised to the shortest or cut to the longest allowed."""

    raised: int
    cut: int
    jobs: int


def clip_run_times(
    trace: SwfTrace, shortest_s: float, longest_s: float, but_queue: int | None = None
) -> tuple[SwfTrace, ClipReport]:
    """Bring every known run time between ``shortest_s`` and ``longest_s``.

    Busy and idle periods are stretched to the new run time, CPU and requested time follow in
    proportion. The counts are in the header and the report. Jobs of ``but_queue`` stay as they are.

    Raises
    ------
    UsageError
        The bounds are not in order.
    """
    runs_s = [None if but_queue is not None and job.queue == but_queue else job.run_s for job in trace.jobs]
    clipped, report = clipped_s(runs_s, shortest_s, longest_s)
    note = (
        f"osub clip: run times to {shortest_s:g} to {longest_s:g} s, {report.raised} raised, {report.cut} cut"
    )
    if but_queue is not None:
        note += f", queue {but_queue} left alone"
    return trace.with_jobs(map(with_run_time, trace.jobs, clipped), note), report


def clipped_s(
    runs_s: Sequence[float | None], shortest_s: float, longest_s: float
) -> tuple[list[float | None], ClipReport]:
    """Return ``runs_s`` within the bounds, and how many were not; ``UsageError`` for bounds out of order."""
    if not 0 <= shortest_s <= longest_s:
        raise UsageError(
            f"run times cannot be within {shortest_s:g} and {longest_s:g} s: give 0 <= shortest <= longest"
        )
    known = [run_s for run_s in runs_s if run_s is not None]
    report = ClipReport(
        sum(run_s < shortest_s for run_s in known), sum(run_s > longest_s for run_s in known), len(runs_s)
    )
    return [None if run_s is None else min(max(run_s, shortest_s), longest_s) for run_s in runs_s], report


def with_run_time(job: SwfJob, run_s: float | None) -> SwfJob:
    """Return ``job`` with another run time, to the millisecond.

    The busy and idle periods fill it as they filled the old one. CPU and requested time change in
    proportion; the request is at least the run time if it was so before.
    """
    if run_s is None or job.run_s is None:
        return job
    before_ms, after_ms = to_ms(job.run_s), to_ms(run_s)
    if before_ms == after_ms:
        return job
    pattern = job.pattern
    return replace(
        job,
        run_s=to_s(after_ms),
        cpu_s=_in_proportion(job.cpu_s, before_ms, after_ms),
        requested_s=_in_proportion(job.requested_s, before_ms, after_ms),
        extension=job.extension
        if pattern is None
        else stretch(pattern, _proportional_ms(to_ms(pattern.total_s), before_ms, after_ms)).to_extension(
            job.extension[:3]
        ),
    )


def _in_proportion(seconds: float | None, before_ms: int, after_ms: int) -> float | None:
    return None if seconds is None else to_s(_proportional_ms(to_ms(seconds), before_ms, after_ms))


def _proportional_ms(ms: int, before_ms: int, after_ms: int) -> int:
    """Return ``ms`` times after/before; without a run time before, at least ``after_ms``."""
    return max(ms, after_ms) if before_ms == 0 else round(ms * after_ms / before_ms)


SLOT_S = 1800
SLOTS_PER_DAY = DAY_S // SLOT_S
_SATURDAY = 5

Profile = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BusyWindow:
    """A stretch of a trace with its phases, in seconds of the trace.

    Warm-up is from ``start_s`` to ``active_start_s``, the active phase ends at ``active_end_s``,
    cool-down at ``end_s``. ``why`` says how the window was found.
    """

    start_s: float
    active_start_s: float
    active_end_s: float
    end_s: float
    why: str

    @property
    def length_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s


THESIS_WINDOW = BusyWindow(
    1_212_255,
    1_212_255 + 3 * 3600,
    1_212_255 + 11 * 3600,
    1_212_255 + 33 * SLOT_S,
    "the window of thesis section 7.4.3: from job 2814 of UniLu-Gaia-2014-1",
)
"""2014-06-05 11:42 in Luxembourg, for 16.5 hours."""


def find_window(
    trace: SwfTrace,
    interactive_queue: int | None = 0,
    warm_up_s: float = 3 * 3600,
    cool_down_s: float = 5.5 * 3600,
    active_share: float = 0.8,
    day: date | None = None,
) -> BusyWindow:
    """Return a window around the active hours of a busy, typical day, or of ``day``.

    Activity is the submissions of interactive jobs by half-hour slot, or all submissions where the trace
    has no job in ``interactive_queue``. Among whole weekdays (all whole days where the trace has no
    dates) in the upper quarter by activity, the one is chosen whose course over the day, of activity
    and of the other jobs' cores, is most like the mean; then the more active, then the earlier. Its active
    phase is the shortest run of slots with ``active_share`` of its activity. A trace without a whole
    day is one window.

    Raises
    ------
    UsageError
        The trace has no job, ``active_share`` is not above 0 and at most 1, a phase is negative, or there is
        no activity on ``day``.
    """
    if not 0 < active_share <= 1 or not 0 <= warm_up_s < math.inf or not 0 <= cool_down_s < math.inf:
        raise UsageError("a window needs an active share above 0 and at most 1, and phases of 0 s or more")
    if not trace.jobs:
        raise UsageError(f"trace {trace.name} has no job, so no window: take another trace")
    submits = np.array([job.submit_s for job in trace.jobs], dtype=np.float64)
    cores = np.array([job.procs or 0 for job in trace.jobs], dtype=np.float64)
    interactive = np.array(interactive_flags(trace, interactive_queue), dtype=np.bool_)
    kind = "interactive submissions" if interactive.any() else "submissions"
    clock = TraceClock.of(trace.header, float(submits.min()))
    days = _candidate_days(clock, submits) if day is None else [day_number(clock, day, trace.name)]
    times = clock.local(submits)
    activity = _profiles(
        days, times, np.where(interactive, 1.0, 0.0) if interactive.any() else np.ones(len(cores))
    )
    place = _typical_busy(activity, _profiles(days, times, np.where(interactive, 0.0, cores)))
    first_s = to_s(to_ms(float(submits.min())))
    if place is None and day is not None:
        raise UsageError(f"trace {trace.name} has no {kind} on {day.isoformat()}: take another day")
    if place is None:
        end_s = to_s(to_ms(float(submits.max()))) + 1
        return BusyWindow(first_s, first_s, end_s, end_s, "the whole trace, which has no whole day")
    low, high = _active_slots(activity[place], active_share)
    active_start_s = max(first_s, clock.trace_s(days[place], low * SLOT_S))
    active_end_s = clock.trace_s(days[place], low * SLOT_S) + (high - low) * SLOT_S
    dated = clock.date(active_start_s)
    named = dated.date().isoformat() if dated else f"day {days[place]}"
    return BusyWindow(
        max(first_s, active_start_s - warm_up_s),
        active_start_s,
        active_end_s,
        active_end_s + cool_down_s,
        f"{named}: {int(activity[place].sum())} {kind}"
        + (", a busy day with a typical course" if day is None else ""),
    )


def _candidate_days(clock: TraceClock, submits: Profile) -> list[int]:
    """Return the days that the trace covers from midnight to midnight, weekdays only where there are any."""
    ends = clock.local(np.array([submits.min(), submits.max()]))
    first = int(ends.day[0]) + (1 if ends.second_of_day[0] > SLOT_S else 0)
    last = int(ends.day[1]) - (1 if ends.second_of_day[1] < DAY_S - SLOT_S else 0)
    days = np.arange(first, last + 1, dtype=np.int64)
    weekday = LocalTimes(days, np.zeros(len(days), dtype=np.int64), ends.dated).weekday
    if weekday is not None and np.any(weekday < _SATURDAY):
        days = days[weekday < _SATURDAY]
    return days.tolist()


def _profiles(days: list[int], times: LocalTimes, weights: Profile) -> Profile:
    """Return the sums of ``weights`` by day (rows) and slot (columns)."""
    counts = np.zeros((len(days), SLOTS_PER_DAY))
    if days:
        rows = np.searchsorted(days, times.day).clip(0, len(days) - 1)
        inside = np.array(days)[rows] == times.day
        np.add.at(counts, (rows[inside], times.second_of_day[inside] // SLOT_S), weights[inside])
    return counts


def _typical_busy(activity: Profile, load: Profile) -> int | None:
    """Return the row to take, or ``None`` where no day has any activity."""
    totals = activity.sum(axis=1)
    if not np.any(totals > 0):
        return None
    strangeness = np.round(_strangeness(activity) + _strangeness(load), 6)
    places = np.arange(len(totals))
    busiest = np.lexsort((places, strangeness, -totals))[: math.ceil(np.count_nonzero(totals) / 4)]
    order = np.lexsort((busiest, -totals[busiest], strangeness[busiest]))
    return int(busiest[order[0]])


def _strangeness(profiles: Profile) -> Profile:
    """Return each day's largest distance of its course from the mean course; 1 for an empty day."""
    totals = profiles.sum(axis=1)
    known = totals > 0
    if not known.any():
        return np.zeros(len(profiles))
    shapes = np.cumsum(profiles, axis=1) / np.where(known, totals, 1)[:, None]
    distance: Profile = np.abs(shapes - shapes[known].mean(axis=0)).max(axis=1)
    return np.where(known, distance, 1.0)


def _active_slots(profile: Profile, share: float) -> tuple[int, int]:
    """Return the shortest ``[low, high)`` with ``share`` of ``profile``; of several, the fullest."""
    sums = np.concatenate(([0.0], np.cumsum(profile)))
    needed = share * sums[-1]
    for length in range(1, len(profile) + 1):
        held = sums[length:] - sums[:-length]
        if held.max() >= needed - 1e-9:
            low = int(held.argmax())
            return low, low + length
    return 0, len(profile)


def cut_window(trace: SwfTrace, start_s: float, length_s: float) -> SwfTrace:
    """Return the jobs submitted from ``start_s`` until before ``start_s + length_s``.

    They are sorted by submission, and ``start_s`` becomes second 0. Dates stay right (UnixStartTime moves
    along). A job's link to a preceding job outside of the window is dropped.

    Raises
    ------
    UsageError
        No job is submitted in the window, or it is not finite.
    """
    if not math.isfinite(start_s) or not 0 < length_s < float("inf"):
        raise UsageError(f"a window from second {start_s:g} for {length_s:g} s is not possible: give numbers")
    start_ms, end_ms = to_ms(start_s), to_ms(start_s) + to_ms(length_s)
    jobs = sorted(
        (job for job in trace.jobs if start_ms <= to_ms(job.submit_s) < end_ms), key=lambda job: job.submit_s
    )
    if not jobs:
        submits = [job.submit_s for job in trace.jobs]
        raise UsageError(
            f"no job of {trace.name} is submitted from second {start_s:g} for {length_s:g} s: "
            f"choose within {min(submits):g} and {max(submits):g}"
        )
    cut = trace.with_jobs(
        with_sound_links(replace(job, submit_s=to_s(to_ms(job.submit_s) - start_ms)) for job in jobs),
        f"osub window: {counted_of(len(jobs), len(trace.jobs), 'job')}, from second {start_s:g} for "
        f"{length_s:g} s",
    )
    unix_start_s = trace.header.unix_start_time_s
    if unix_start_s is None:
        return cut
    return replace(cut, header=cut.header.with_field("UnixStartTime", unix_start_s + start_ms // 1000))


MOST = 1000.0
MOST_JOBS = 10_000_000


def scale_arrivals(trace: SwfTrace, factor: float, seed: int = 1) -> SwfTrace:
    """Return ``factor`` times as many jobs over the same time.

    Below 1, jobs are left out at random. Above 1, every job is there as often as the factor's whole
    part says, and random ones once more; copies are submitted at another instant of the same half hour, have
    new numbers, and wait for no other job.

    Raises
    ------
    UsageError
        ``factor`` is not above 0 and at most 1000, leaves no job, or makes more than ten million.
    """
    if not 0 < factor <= MOST:
        raise UsageError(f"a factor of {factor:g} on arrivals is not possible: above 0, at most {MOST:g}")
    count = len(trace.jobs)
    wanted = round(factor * count)
    if wanted < 1:
        raise UsageError(f"a factor of {factor:g} leaves no job of {trace.name}'s {count:,}")
    if wanted > MOST_JOBS:
        raise UsageError(
            f"a factor of {factor:g} makes {counted(wanted, 'job')} of {trace.name}'s {count:,}: at most "
            f"{MOST_JOBS:,} are made"
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(count)
    if wanted <= count:
        places = np.sort(order[:wanted])
        jobs = with_sound_links(trace.jobs[place] for place in places.tolist())
    else:
        following = max(job.job_number for job in trace.jobs) + 1
        copied = np.concatenate((np.tile(np.arange(count), wanted // count - 1), order[: wanted % count]))
        instants = rng.integers(0, SLOT_S, len(copied))
        copies = [
            replace(
                trace.jobs[place],
                job_number=following + index,
                submit_s=to_ms(trace.jobs[place].submit_s) // (SLOT_S * 1000) * SLOT_S + instant,
                preceding_job=None,
                think_s=None,
            )
            for index, (place, instant) in enumerate(zip(copied.tolist(), instants.tolist(), strict=True))
        ]
        jobs = sorted([*trace.jobs, *copies], key=lambda job: job.submit_s)
    return trace.with_jobs(
        jobs, f"osub arrivals: {counted(wanted, 'job')} of {count:,}, factor {factor:g}, seed {seed}"
    )
