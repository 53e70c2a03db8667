"""The trace of thesis chapter 7 rebuilt from UniLu-Gaia-2014-1, as far as the thesis tells it.

What is known, and where from (sections 7.4.3, 7.5.3, 7.5.5):

* the first fifteen batch jobs, with arrivals and the run times and sizes that were assigned to them: Table
  7.8;
* seven more, with sizes, whose run times follow from Table 7.7 (slices of 1.016 s times the intervals, over
  the degradation);
* of the 68 batch jobs in all, the widest (25 cores), the longest and the mean run: Table 7.2;
* the fourteen interactive jobs: those of queue 0 with at most 12 cores of the same hours of 2014-06-11, for
  they have Table 7.2's mean and longest run and its widest; the busy times of two and the mean of all.

The other 46 batch jobs are drawn by Listing 2 from the same hours, and stretched to the mean run; which of
the interactive jobs has the longest busy time is a reading, and periods are random. So a seed is one draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from foundation.errors import InputError
from workloads.swf import InteractivePattern, SwfJob, SwfTrace
from workloads.trace.models import least_factor, synthesize_patterns
from workloads.trace.scaling.replayable_trace import (
    THESIS,
    Experiment,
    ScalingTarget,
    is_gaia,
    make_experiment,
)
from workloads.trace.transforms import with_run_time

NODES, CORES = 12, 12
LONGEST_RUN_S, MEAN_RUN_S, WIDEST = 14_410, 5_968, 25
BATCH_JOBS, INTERACTIVE_JOBS = 68, 14
BATCH_QUEUE, INTERACTIVE_QUEUE = 1, 0
LONGEST_BUSY_S, MEAN_BUSY_S = 7_299, 1_123
BUSIEST_JOB = 4963
"""The job that is given Table 7.2's longest busy time; the thesis does not say which it is."""
JOB_OF_FIGURE_7_8 = 5030
FIGURE_7_8_BUSY_S = 7_217
_INTENSITIES = (1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A batch job of the thesis: the log's number, seconds from the first arrival, run time, cores."""

    number: int
    arrival_s: int
    run_s: int
    cores: int


FIRST_JOBS = (
    KnownJob(2814, 0, 1800, 2),
    KnownJob(2815, 173, 2724, 2),
    KnownJob(2816, 234, 113, 2),
    KnownJob(2817, 280, 13, 2),
    KnownJob(2818, 473, 527, 2),
    KnownJob(2819, 571, 14410, 12),
    KnownJob(2823, 2250, 14410, 12),
    KnownJob(2829, 3444, 3511, 12),
    KnownJob(2835, 3772, 14410, 12),
    KnownJob(2838, 4138, 14410, 12),
    KnownJob(2839, 4140, 14410, 12),
    KnownJob(2842, 5211, 2703, 4),
    KnownJob(2844, 5679, 2938, 18),
    KnownJob(2849, 6966, 3072, 8),
    KnownJob(2854, 8942, 154, 4),
)
"""Table 7.8."""
LATER_JOBS = (
    (2909, 14410, 25),
    (2980, 3644, 12),
    (3000, 14410, 18),
    (3026, 2709, 6),
    (3028, 14410, 25),
    (3030, 2703, 6),
    (3045, 10206, 25),
)
"""Table 7.7: number, run time, cores; arrivals are the log's."""


def check_gaia(trace: SwfTrace) -> None:
    """Raise InputError unless this is the log that the thesis took its days from."""
    if not is_gaia(trace):
        raise InputError(
            f"{trace.name} is not UniLu-Gaia-2014-1, whose days of June 2014 the thesis replays; "
            "`osub trace fetch UniLu-Gaia-2014-1` gets it"
        )


def first_hours(log: SwfTrace, seed: int = 1) -> SwfTrace:
    """Return the fifteen jobs of Table 7.8 and the fourteen interactive ones, for N12C12.

    Raises
    ------
    InputError
        It is another log.
    """
    check_gaia(log)
    drawn = _drawn(log, seed, 1.0)
    sessions = _sessions(drawn, seed)
    note = "osub thesis: the fifteen jobs of Table 7.8 and the fourteen interactive jobs of 2014-06-11"
    return _together(drawn, [*map(_known, FIRST_JOBS), *sessions], note, "thesis-15")


def whole_day(log: SwfTrace, seed: int = 1) -> SwfTrace:
    """Return 68 batch jobs, 22 of them known and the others one draw of Listing 2, and the interactive ones.

    Raises
    ------
    InputError
        It is another log.
    """
    check_gaia(log)
    rng = np.random.default_rng(seed)
    arrivals = {job.job_number: job.submit_s for job in log.jobs}
    start_s = arrivals[FIRST_JOBS[0].number]
    later = [
        _known(KnownJob(number, round(arrivals[number] - start_s), run_s, cores))
        for number, run_s, cores in LATER_JOBS
    ]
    known = {job.number for job in FIRST_JOBS} | {number for number, _, _ in LATER_JOBS}
    wanted = BATCH_JOBS - len(FIRST_JOBS) - len(later)
    for intensity in _INTENSITIES:
        drawn = _drawn(log, seed, intensity)
        others = [
            job
            for job in drawn.scaled.jobs
            if job.queue != INTERACTIVE_QUEUE
            and job.job_number not in known
            and job.submit_s > FIRST_JOBS[-1].arrival_s
            and job.run_s
        ]
        if len(others) >= wanted:
            break
    chosen = [others[place] for place in sorted(rng.permutation(len(others))[:wanted].tolist())]
    spent_s = sum(job.run_s or 0 for job in (*map(_known, FIRST_JOBS), *later))
    stretched = stretched_to(chosen, BATCH_JOBS * MEAN_RUN_S - spent_s)
    batch = [*map(_known, FIRST_JOBS), *later, *map(_plain, stretched)]
    note = f"osub thesis: 22 batch jobs of Tables 7.7 and 7.8, {len(chosen)} drawn, seed {seed}"
    return _together(drawn, [*batch, *_sessions(drawn, seed)], note, f"thesis-68-{seed}")


def stretched_to(jobs: Sequence[SwfJob], total_s: float) -> list[SwfJob]:
    """Return the jobs with run times multiplied by one factor, and cut to the longest, that add up so.

    Where all of them at their longest don't, they are that.
    """
    runs_s = np.array([float(job.run_s or 0) for job in jobs])
    factor = least_factor(lambda factor: np.minimum(runs_s * factor, LONGEST_RUN_S).sum(), total_s)
    new_s = np.minimum(np.maximum(np.rint(runs_s * factor), 1), LONGEST_RUN_S)
    return [with_run_time(job, float(run_s)) for job, run_s in zip(jobs, new_s.tolist(), strict=True)]


def with_busy_time(pattern: InteractivePattern, busy_s: float) -> InteractivePattern:
    """Return a pattern with so much busy time in the same run time; periods keep their proportions."""
    whole_s = sum(pattern.periods_s)
    old_busy_s = sum(pattern.activations_s)
    busy_s = min(busy_s, whole_s)
    if not old_busy_s:
        rest_s = (whole_s - busy_s) / 2
        return InteractivePattern(rest_s, rest_s, (busy_s,), ())
    old_idle_s = whole_s - old_busy_s
    if old_idle_s <= 0:
        rest_s = (whole_s - busy_s) / 2
        scaled = tuple(period_s * busy_s / old_busy_s for period_s in pattern.activations_s)
        return InteractivePattern(rest_s, rest_s, scaled, pattern.idles_s)
    more, less = busy_s / old_busy_s, (whole_s - busy_s) / old_idle_s
    return InteractivePattern(
        pattern.prologue_s * less,
        pattern.epilogue_s * less,
        tuple(period_s * more for period_s in pattern.activations_s),
        tuple(period_s * less for period_s in pattern.idles_s),
    )


def _drawn(log: SwfTrace, seed: int, intensity: float) -> Experiment:
    return make_experiment(log, THESIS, ScalingTarget(NODES, CORES, seed, intensity=intensity, periods=False))


def _known(job: KnownJob) -> SwfJob:
    return SwfJob(
        job_number=job.number,
        submit_s=job.arrival_s,
        run_s=job.run_s,
        allocated_procs=job.cores,
        requested_procs=job.cores,
        requested_s=job.run_s,
        status=1,
        queue=BATCH_QUEUE,
    )


def _plain(job: SwfJob) -> SwfJob:
    """Return a drawn job with nothing of the log but number, arrival, run time and size."""
    return _known(
        KnownJob(
            job.job_number, round(job.submit_s), max(1, round(job.run_s or 1)), min(job.procs or 1, WIDEST)
        )
    )


def _sessions(drawn: Experiment, seed: int) -> list[SwfJob]:
    """Return the interactive jobs with their periods."""
    jobs = [
        replace(_plain(job), queue=INTERACTIVE_QUEUE)
        for job in drawn.scaled.jobs
        if job.queue == INTERACTIVE_QUEUE
    ]
    runs_s = np.array([job.run_s for job in jobs], dtype=np.float64)
    patterns = synthesize_patterns(runs_s, np.random.default_rng(seed))
    busy_s_of = {BUSIEST_JOB: float(LONGEST_BUSY_S), JOB_OF_FIGURE_7_8: float(FIGURE_7_8_BUSY_S)}
    rest = {
        job.job_number: pattern.busy_s
        for job, pattern in zip(jobs, patterns, strict=True)
        if job.job_number not in busy_s_of
    }
    left_s = len(jobs) * MEAN_BUSY_S - sum(busy_s_of.values())
    busy_s_of |= _shared_out(rest, left_s, {job.job_number: float(job.run_s or 0) for job in jobs})
    return [
        replace(
            job,
            extension=_in_ms(with_busy_time(pattern, busy_s_of[job.job_number])).to_extension((-1, -1, -1)),
        )
        for job, pattern in zip(jobs, patterns, strict=True)
    ]


def _shared_out(parts: dict[int, float], total_s: float, most_s: dict[int, float]) -> dict[int, float]:
    """Return parts in the same proportion that add up to a total, none above its most."""

    def made(factor: float) -> dict[int, float]:
        return {number: min(max(part, 0.01) * factor, most_s[number]) for number, part in parts.items()}

    return made(least_factor(lambda factor: sum(made(factor).values()), total_s))


def _in_ms(pattern: InteractivePattern) -> InteractivePattern:
    """Return the pattern in whole milliseconds that add up to the same run time."""
    ends = [round(1000 * end_s) for end_s in accumulate(pattern.periods_s)]
    return InteractivePattern.of_periods([(end - begin) / 1000 for begin, end in pairwise([0, *ends])])


def _together(drawn: Experiment, jobs: Sequence[SwfJob], note: str, name: str) -> SwfTrace:
    ordered = sorted(jobs, key=lambda job: (job.submit_s, job.job_number))
    return replace(drawn.scaled.with_jobs(ordered, note), name=name)
