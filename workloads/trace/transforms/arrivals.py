"""More or fewer arrivals in the same time: the rate changes, the course of days and weeks does not.

To change the rate by shorter or longer gaps instead, which changes the length of the days, too, see
``time_compression.compress_apart``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foundation.errors import UsageError
from foundation.units import counted
from workloads.swf import SwfTrace
from workloads.trace.durations import to_ms
from workloads.trace.job_links import with_sound_links
from workloads.trace.transforms.busy_window import SLOT_S

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
