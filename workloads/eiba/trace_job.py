"""A job of an extended SWF trace as periods: its own busy and idle times, or none of them.

Source: thesis section 6.3.4 and Table 6.1, columns 22 and up.
"""

from __future__ import annotations

from pathlib import Path

from foundation.errors import UsageError
from workloads.eiba.period_arguments import Periods


def periods_of_job(trace: Path, number: int) -> Periods:
    """Return the periods of job ``number`` of ``trace``.

    Raises
    ------
    InputError
        The trace cannot be read.
    UsageError
        It has no such job, or the job has no busy and idle periods.
    """
    from workloads.swf import iter_swf  # here, since periods on the command line need no reader

    reader = iter_swf(trace, strict=False)
    try:
        job = next((job for job in reader if job.job_number == number), None)
    finally:
        reader.close()
    if job is None:
        raise UsageError(f"{trace} has no job {number}; choose another --job")
    if job.pattern is None:
        raise UsageError(
            f"job {number} of {trace} has no busy and idle periods (columns 22 and up); "
            "add them with `osub trace interactive`"
        )
    return Periods(job.pattern.periods_s)
