"""A small mixture that shows what sharing and gang scheduling are for: jobs whose ranks wait for each other.

It comes in blocks of five jobs. Two *coupled* jobs on all processors arrive together: one job a core, and
the second waits for the first; two a core, and each rank waits for ranks that are not on their cores, unless
both jobs take turns as wholes. When they should be done a short interactive job comes, idle for most of its
time, and with it two more coupled ones, which must wait for it unless cores are shared. Every block has the
same jobs, so a setting that is good by chance in one is not in all.

Where the time is too short for three such blocks, a block is two coupled jobs and nothing else, shorter ones:
there are more of them then, and three blocks or more are what an interval takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from foundation.errors import UsageError
from workloads.swf import SwfComment, SwfHeader, SwfJob, SwfTrace
from workloads.trace.models.interactive_jobs import embed_patterns

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
    return SwfHeader(tuple(SwfComment(f"; {line}\n".encode()) for line in lines))
