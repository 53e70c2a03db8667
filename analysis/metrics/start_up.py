"""What of a degradation is start-up: jobs of some seconds run longer than they compute."""

from __future__ import annotations

import polars as pl

from analysis.quantiles import quantile
from foundation.records import RunInfo

NOTABLE = 1.1
"""A mean degradation from which it is worth a word."""


def start_up_note(jobs: pl.DataFrame, info: RunInfo) -> str | None:
    """Return what of the degradation of jobs on cores of their own is start-up, where that is notable.

    Nobody shares a core there, so what a real job takes beyond its dedicated time is being launched (Slurm,
    Python, MPI), or a host at another pace.

    Parameters
    ----------
    jobs
        The run's jobs with their derived columns.
    info
        Of the run.
    """
    if info.kind != "real" or max(info.multiplicity, info.multiplicity_interactive or 1) > 1:
        return None
    known = jobs.filter(pl.col("state") == "COMPLETED").select("useful_s", "dedicated_s", "degradation")
    known = known.drop_nulls()
    beyond_s = quantile(known["useful_s"] - known["dedicated_s"], 0.5)
    work_s, mean = known["dedicated_s"].median(), known["degradation"].mean()
    if beyond_s is None or not isinstance(work_s, float) or not isinstance(mean, float) or mean < NOTABLE:
        return None
    return (
        f"No two jobs share a core: its degradation of {mean:.2f} is start-up (Slurm, Python, MPI), a median "
        f"of {beyond_s:.1f} s beside {work_s:.1f} s of work. Longer jobs show less of it."
    )
