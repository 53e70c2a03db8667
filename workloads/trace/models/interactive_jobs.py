"""Interactive jobs: which of a trace are, which are made so, and their busy and idle periods.

The periods are drawn to match what was measured on a real machine. Source: thesis section 6.2.4 and Figure
6.3 (193 interactive jobs of TSUBAME3.0). The measured series are not public; the figures that the thesis
gives of them are what the generator is fitted to:

* session length: 90th percentile 5.2 h, many below 2 h, peaks at 1, 2, 4, 6 and 12 h;
* utilisation (busy time over session length): below 1 % in 37 % of jobs, below 10 % in 71 %, with a few jobs
  that are busy all along;
* busy periods: fewer than 10 in most jobs, never more than 94;
* longest busy period: 30 s at the 54th percentile, with a tail up to hours.

The utilisation is drawn independently of the session length, since it decides what sharing a core costs; the
other two follow from how the busy time is split.

More interactive jobs come out of a trace's batch jobs as in thesis section 6.4.2: randomly chosen ones of at
most 12 cores and less than 10,000 s, until there are as many as wanted (Table 6.4).

A small mixture that shows what sharing and gang scheduling are for: jobs whose ranks wait for each other.

It comes in blocks of five jobs. Two *coupled* jobs on all processors arrive together: one job a core, and
the second waits for the first; two a core, and each rank waits for ranks that are not on their cores, unless
both jobs take turns as wholes. When they should be done a short interactive job comes, idle for most of its
time, and with it two more coupled ones, which must wait for it unless cores are shared. Every block has the
same jobs, so a setting that is good by chance in one is not in all.

Where the time is too short for three such blocks, a block is two coupled jobs and nothing else, shorter ones:
there are more of them then, and three blocks or more are what an interval takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foundation.errors import UsageError
from foundation.units import counted, counted_of
from workloads.swf import InteractivePattern, SwfHeader, SwfJob, SwfTrace
from workloads.trace.local_clock import to_ms, to_s

MOST_BUSY_PERIODS = 94
_UTILISATION = np.log(np.array([0.0002, 0.0008, 0.01, 0.026, 0.10, 0.40, 1.0]))
_UTILISATION_CDF = np.array([0.0, 0.12, 0.37, 0.55, 0.71, 0.90, 1.0])
_PERIODS_MEDIAN, _PERIODS_SIGMA = 8.0, 1.05
_BUSY_SIGMA, _IDLE_SIGMA = 1.0, 1.3
_LIMIT_H = np.array([1.0, 2.0, 4.0, 6.0, 12.0, 24.0])
_LIMIT_SHARE = np.array([0.10, 0.07, 0.04, 0.04, 0.03, 0.005])
_FREE_MEDIAN_S, _FREE_SIGMA = 2400.0, 1.13
_SHORTEST_S, _LONGEST_S = 30.0, 86_400.0

IntArray = NDArray[np.int64]

MOST_CORES = 12
MOST_RUN_S = 10_000.0


def sample_sessions_s(count: int, rng: np.random.Generator) -> IntArray:
    """Return ``count`` session lengths in whole seconds.

    Most end when the user closes the session (log-normal); the rest at a limit of 1 to 24 hours, at which the
    system ends them, a few seconds late.
    """
    free = np.exp(rng.normal(np.log(_FREE_MEDIAN_S), _FREE_SIGMA, count)).clip(_SHORTEST_S, _LONGEST_S)
    limit = np.searchsorted(np.cumsum(_LIMIT_SHARE), rng.random(count))
    ended = limit < len(_LIMIT_H)
    late_s = rng.integers(0, 15, count)
    lengths = np.where(ended, _LIMIT_H[np.minimum(limit, len(_LIMIT_H) - 1)] * 3600 + late_s, free)
    return np.rint(lengths).astype(np.int64)


def synthesize_patterns(
    run_s: NDArray[np.float64] | IntArray, rng: np.random.Generator
) -> list[InteractivePattern]:
    """Return one pattern a job; busy and idle periods add up to its run time exactly.

    Parameters
    ----------
    run_s
        Run times in seconds. Whole ones are split into whole seconds, others into whole milliseconds.
    rng
        Source of all choices.
    """
    runs_ms = np.rint(np.asarray(run_s, dtype=np.float64) * 1000).astype(np.int64)
    units_ms = np.where(runs_ms % 1000 == 0, 1000, 1)
    lengths = runs_ms // units_ms
    shares = np.exp(np.interp(rng.random(len(lengths)), _UTILISATION_CDF, _UTILISATION))
    busy = np.rint(lengths * shares).astype(np.int64)
    wanted = np.rint(rng.lognormal(np.log(_PERIODS_MEDIAN), _PERIODS_SIGMA, len(lengths))).astype(np.int64)
    # every busy period and every idle period between two has at least one unit
    most = np.minimum(np.minimum(busy, lengths - busy + 1), MOST_BUSY_PERIODS)
    counts = np.minimum(np.maximum(wanted, 1), most)
    return [
        _split(int(length), int(part), int(count), int(unit_ms), rng)
        for length, part, count, unit_ms in zip(lengths, busy, counts, units_ms, strict=True)
    ]


def _split(length: int, busy: int, count: int, unit_ms: int, rng: np.random.Generator) -> InteractivePattern:
    if count < 1:
        return InteractivePattern(to_s(length * unit_ms), 0, (), ())
    activations = _apportion(busy - count, rng.lognormal(0, _BUSY_SIGMA, count)) + 1
    gaps = _apportion(length - busy - (count - 1), rng.lognormal(0, _IDLE_SIGMA, count + 1))
    gaps[1:-1] += 1
    gaps_s, busy_s = ([to_s(unit_ms * part) for part in parts.tolist()] for parts in (gaps, activations))
    return InteractivePattern(gaps_s[0], gaps_s[-1], tuple(busy_s), tuple(gaps_s[1:-1]))


def _apportion(total: int, weights: NDArray[np.float64]) -> IntArray:
    """Return whole parts of ``total`` in proportion to ``weights``; they add up to it."""
    ends = np.rint(np.cumsum(weights) * (total / weights.sum())).astype(np.int64)
    ends[-1] = total
    parts: IntArray = np.diff(ends, prepend=0)
    return parts


def embed_patterns(trace: SwfTrace, queue: int = 0, seed: int = 1) -> SwfTrace:
    """Give the jobs of ``queue`` busy and idle periods (columns 22 and up).

    Jobs that have them already, and jobs without a run time, stay as they are.
    """
    chosen = [
        index
        for index, job in enumerate(trace.jobs)
        if job.queue == queue and job.run_s is not None and job.pattern is None
    ]
    if not chosen:
        return trace
    runs = np.array([trace.jobs[index].run_s for index in chosen], dtype=np.float64)
    jobs = list(trace.jobs)
    for index, pattern in zip(chosen, synthesize_patterns(runs, np.random.default_rng(seed)), strict=True):
        reserved = (*jobs[index].extension[:3], -1, -1, -1)[:3]
        jobs[index] = replace(jobs[index], extension=pattern.to_extension(reserved))
    return trace.with_jobs(
        jobs, f"osub interactive: periods for {counted(len(chosen), 'job')} of queue {queue}, seed {seed}"
    )


def interactive_flags(trace: SwfTrace, queue: int | None) -> list[bool]:
    """Return for each job whether it is interactive: it is in ``queue``, and not every job is.

    Queue 0 is interactive by the convention of SWF; a trace with all jobs in it tells no kinds apart.
    """
    flags = [queue is not None and job.queue == queue for job in trace.jobs]
    return [False] * len(flags) if all(flags) else flags


def by_kind(trace: SwfTrace, queue: int | None) -> tuple[list[SwfJob], list[SwfJob]]:
    """Return the interactive and the batch jobs, see ``interactive_flags``."""
    flagged = list(zip(trace.jobs, interactive_flags(trace, queue), strict=True))
    return [job for job, flag in flagged if flag], [job for job, flag in flagged if not flag]


def tag_interactive(trace: SwfTrace, share: float, max_procs: int, queue: int = 0, seed: int = 1) -> SwfTrace:
    """Move a random ``share`` of the jobs into ``queue``, for traces that name no interactive jobs.

    Jobs of at most ``max_procs`` processors are chosen first; other jobs that were in ``queue`` move
    to the next free queue number. Fewer jobs are moved where fewer are narrow enough.

    Raises
    ------
    UsageError
        ``share`` is not within 0 and 1.
    """
    if not 0 <= share <= 1:
        raise UsageError(f"a share of {share} interactive jobs is not possible: give a number from 0 to 1")
    narrow = [
        index for index, job in enumerate(trace.jobs) if job.procs is not None and job.procs <= max_procs
    ]
    wanted = min(round(share * len(trace.jobs)), len(narrow))
    chosen = set(np.random.default_rng(seed).permutation(narrow)[:wanted].tolist())
    jobs = _moved(trace, queue, chosen, [False] * len(trace.jobs))
    made = counted_of(wanted, len(jobs), "job")
    note = f"osub interactive: {made} made interactive (queue {queue}), seed {seed}"
    return trace.with_jobs(jobs, note)


def _moved(trace: SwfTrace, queue: int, chosen: set[int], stay: Sequence[bool]) -> list[SwfJob]:
    """Return the jobs with those at the places ``chosen`` in ``queue``.

    Others that are there move to the next free queue, unless they ``stay``.
    """
    other = max((job.queue for job in trace.jobs if job.queue is not None), default=queue) + 1
    return [
        replace(job, queue=queue)
        if place in chosen
        else replace(job, queue=other)
        if job.queue == queue and not stay[place]
        else job
        for place, job in enumerate(trace.jobs)
    ]


def utilisation(pattern: InteractivePattern) -> float | None:
    """Return busy time over total time, or ``None`` for a pattern without length."""
    total_ms = to_ms(pattern.total_s)
    return to_ms(pattern.busy_s) / total_ms if total_ms else None


def make_interactive(
    trace: SwfTrace,
    wanted: int,
    seed: int = 1,
    queue: int = 0,
    most_cores: int = MOST_CORES,
    most_run_s: float = MOST_RUN_S,
) -> SwfTrace:
    """Return ``trace`` with ``wanted`` interactive jobs, by moving random small batch jobs into ``queue``.

    Parameters
    ----------
    trace
        The original. Where all of its jobs are in ``queue``, none counts as interactive, and those that are
        not chosen move to the next free queue.
    wanted
        Interactive jobs in the result; a trace that has as many or more stays as it is.
    seed
        Of the choice; a larger number contains the jobs of a smaller one.
    queue
        The interactive queue.
    most_cores, most_run_s
        A batch job may be chosen with at most so many cores and a shorter run time.

    Raises
    ------
    UsageError
        There are not so many jobs to choose from.
    """
    flags = interactive_flags(trace, queue)
    missing = wanted - sum(flags)
    if missing <= 0:
        return trace
    places = [
        place
        for place, (job, flag) in enumerate(zip(trace.jobs, flags, strict=True))
        if not flag and _is_small(job, most_cores, most_run_s)
    ]
    if missing > len(places):
        raise UsageError(
            f"{trace.name} has {counted(sum(flags), 'interactive job')} and "
            f"{counted(len(places), 'batch job')} of at most {counted(most_cores, 'core')} and under "
            f"{most_run_s:g} s: {counted(wanted, 'interactive job')} cannot be reached"
        )
    chosen = set(choose(places, missing, seed))
    jobs = _moved(trace, queue, chosen, flags)
    note = (
        f"osub interactive: {counted(missing, 'batch job')} of at most {counted(most_cores, 'core')} and "
        f"under {most_run_s:g} s made interactive (queue {queue}), {wanted} in all, seed {seed}"
    )
    return trace.with_jobs(jobs, note)


def choose(places: Sequence[int], count: int, seed: int) -> list[int]:
    """Return ``count`` of some places at random; those of a larger count contain those of a smaller."""
    chosen: list[int] = np.random.default_rng(seed).permutation(np.asarray(places))[:count].tolist()
    return chosen


def _is_small(job: SwfJob, most_cores: int, most_run_s: float) -> bool:
    if job.procs is None or job.run_s is None:
        return False
    return job.procs <= most_cores and job.run_s < most_run_s


JOBS_A_BLOCK, JOBS_A_PAIR = 5, 2
LEAST_BLOCKS = 3
USUAL_S, USUAL_OF_A_PAIR_S, SHORTEST_S = 2.9, 1.6, 1.2
"""Lengths of a coupled job on dedicated cores; longer replays have more blocks, not longer jobs."""
INTERACTIVE_S = 1.5
"""Length of an interactive job on dedicated cores."""
START_S = 0.9
"""What Slurm takes to start a job on idle cores, about."""
INTERACTIVE_QUEUE, BATCH_QUEUE = 0, 1
ESTIMATE = 4.0
"""Requested time over run time."""
_COUPLED_A_BLOCK = JOBS_A_BLOCK - 1


@dataclass(frozen=True, slots=True)
class CoupledMix:
    """The trace, and which of its jobs are coupled.

    Parameters
    ----------
    trace
        Ready for a replay at speed-up 1.
    coupled
        Numbers of the jobs whose ranks wait for each other.
    procs
        Processors of each of them.
    run_s
        How long each of them runs on dedicated cores.
    blocks
        How often the mixture is repeated.
    block_jobs
        Jobs of a block: ``JOBS_A_BLOCK``, or ``JOBS_A_PAIR`` where the time is short.
    """

    trace: SwfTrace
    coupled: tuple[int, ...]
    procs: int
    run_s: float
    blocks: int
    block_jobs: int = JOBS_A_BLOCK


def coupled_mix(procs: int, target_s: float, seed: int = 1) -> CoupledMix:
    """Return a mixture that takes about ``target_s`` seconds with one job a core.

    Parameters
    ----------
    procs
        Processors of the cluster; coupled jobs have the largest power of two of them.
    target_s
        From the first submission to the last end.
    seed
        Of the busy and idle periods of interactive jobs.

    Raises
    ------
    UsageError
        There is one processor only, or too little time for jobs that run longer than they take to start.
    """
    if procs < 2:
        raise UsageError("jobs whose ranks wait for each other need two processors; this host has one")
    wide = 1 << (procs.bit_length() - 1)
    blocks = int(target_s / _block_s(USUAL_S))
    block_jobs = JOBS_A_BLOCK if blocks >= LEAST_BLOCKS else JOBS_A_PAIR
    if block_jobs == JOBS_A_BLOCK:
        run_s = (target_s / blocks - JOBS_A_BLOCK * START_S - INTERACTIVE_S) / _COUPLED_A_BLOCK
    else:
        blocks = max(LEAST_BLOCKS, int(target_s / _pair_s(USUAL_OF_A_PAIR_S)))
        run_s = target_s / blocks / JOBS_A_PAIR - START_S
    if run_s < SHORTEST_S:
        raise UsageError(
            f"a replay of {target_s:.0f} s is too short for jobs that show anything; it takes "
            f"{LEAST_BLOCKS * _pair_s(SHORTEST_S):.0f} s at least"
        )
    run_s = round(run_s, 1)
    length_s = _block_s(run_s) if block_jobs == JOBS_A_BLOCK else _pair_s(run_s)
    first = SwfTrace(_header(procs), tuple(_block(run_s, wide)[:block_jobs]), "coupled-mix")
    first = embed_patterns(first, INTERACTIVE_QUEUE, seed)
    jobs = tuple(
        replace(
            job,
            job_number=block * block_jobs + job.job_number,
            submit_s=round(block * length_s + job.submit_s, 1),
        )
        for block in range(blocks)
        for job in first.jobs
    )
    trace = first.with_jobs(jobs, f"{blocks} times the same {block_jobs} jobs")
    return CoupledMix(
        trace=trace,
        coupled=tuple(job.job_number for job in trace.jobs if job.queue == BATCH_QUEUE),
        procs=wide,
        run_s=run_s,
        blocks=blocks,
        block_jobs=block_jobs,
    )


def _pair_s(run_s: float) -> float:
    return JOBS_A_PAIR * (run_s + START_S)


def _block_s(run_s: float) -> float:
    return _COUPLED_A_BLOCK * run_s + INTERACTIVE_S + JOBS_A_BLOCK * START_S


def _block(run_s: float, wide: int) -> list[SwfJob]:
    """Return two coupled jobs at once, and later an interactive one with two more."""
    later_s = round(2 * (run_s + START_S), 1)
    plain = SwfJob(
        job_number=1,
        submit_s=0.0,
        run_s=run_s,
        allocated_procs=wide,
        requested_procs=wide,
        requested_s=round(ESTIMATE * run_s, 1),
        status=1,
        queue=BATCH_QUEUE,
    )
    interactive = replace(
        plain,
        job_number=3,
        submit_s=later_s,
        run_s=INTERACTIVE_S,
        allocated_procs=1,
        requested_procs=1,
        requested_s=round(ESTIMATE * INTERACTIVE_S, 1),
        queue=INTERACTIVE_QUEUE,
    )
    return [
        plain,
        replace(plain, job_number=2, submit_s=0.1),
        interactive,
        replace(plain, job_number=4, submit_s=later_s + 0.1),
        replace(plain, job_number=5, submit_s=later_s + 0.2),
    ]


def _header(procs: int) -> SwfHeader:
    lines = [
        "Version: 2.2",
        "Computer: none, the jobs are made for a demonstration",
        f"MaxProcs: {procs}",
        f"Queue: {BATCH_QUEUE} batch",
        f"Queue: {INTERACTIVE_QUEUE} interactive",
    ]
    return SwfHeader.of_lines(lines)
