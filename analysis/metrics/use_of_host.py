"""Who used the host during a run, how fast its jobs' cores were, and whether the run is fit to judge by.

Foreign time is what others than the run used of the CPUs, stolen time what the hypervisor took. A job's
*pace* is the CPU time of its steps over what they take on the calibrated host: 1.1 is a host slower by a
tenth. It is not known of a job whose ranks wait for each other on shared cores, unless gangd freezes all of
them at once: a rank polls while another of its job waits for a core, and what it uses tells nothing of the
host. Under gangd that yields, a rank on a core of its own polls through the slices of those that share with
another rank.

**A run is unfit** to judge by if foreign and stolen time together are more than ``most_taken`` of the CPUs'
time, from the first start of a job to the last end; or, where every core had one job at a time, if the paces
of nine jobs in ten are further apart than ``most_spread`` (slowest over fastest).
"""

from __future__ import annotations

import msgspec
import polars as pl

from analysis.metrics.derived_columns import MOST_SPREAD, MOST_TAKEN
from analysis.quantiles import quantile
from foundation.records import Run

LEAST_JOBS = 5
"""Fewer paces have no spread."""
_LEAST_SHARE = 0.005


class HostUse(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run's host; null for what is not.

    Parameters
    ----------
    samples
        Samples while jobs ran; 0 where none was taken.
    load
        Mean load average.
    foreign_share, steal_share
        Of the CPUs' time.
    jobs
        Jobs whose pace is known.
    pace
        Median of their paces.
    pace_spread
        The slowest pace of the middle nine in ten over the fastest, with five jobs or more.
    unfit
        Why the run is unfit to judge by; null if it is fit, or nothing is known.
    """

    samples: int
    load: float | None
    foreign_share: float | None
    steal_share: float | None
    jobs: int
    pace: float | None
    pace_spread: float | None
    unfit: str | None


def host_use(run: Run, most_taken: float = MOST_TAKEN, most_spread: float = MOST_SPREAD) -> HostUse:
    """Return what is known of a run's host; of a simulated run there is nothing.

    Parameters
    ----------
    run
        The run.
    most_taken, most_spread
        See the rule above.
    """
    samples = _while_jobs_ran(run)
    whole_s = float((samples["length_s"] * samples["cpus"]).sum())
    known = samples.drop_nulls("own_s")
    known_s = float((known["length_s"] * known["cpus"]).sum())
    foreign_s = (known["used_s"] - known["own_s"]).sum()  # a sample may have too little, the next too much
    foreign = max(0.0, float(foreign_s)) / known_s if known_s else None
    steal = float(samples["steal_s"].sum()) / whole_s if whole_s else None
    paces = run.jobs.select(pace_of(run)).to_series().drop_nulls()
    spread = None
    if len(paces) >= LEAST_JOBS:
        low, high = quantile(paces, 0.05), quantile(paces, 0.95)
        spread = high / low if low and high else None
    alone = run.info.most_a_core == 1
    return HostUse(
        samples=samples.height,
        load=_mean(samples["load"]),
        foreign_share=foreign,
        steal_share=steal,
        jobs=len(paces),
        pace=quantile(paces, 0.5),
        pace_spread=spread,
        unfit=_why_unfit(foreign, steal, most_taken) or (_uneven(spread, most_spread) if alone else None),
    )


def pace_of(run: Run) -> pl.Expr:
    """Return each job's pace, null where it is not known.

    A simulated run has the pace of the host that its latencies were measured on, 1 where it does not say.
    """
    if run.info.kind == "simulated":
        usual = run.info.options.get("pace")
        return pl.lit(float(usual) if isinstance(usual, int | float) else 1.0).alias("pace")
    shared = run.info.most_a_core > 1
    polls = pl.lit(value=shared and _ranks_poll(run)) & (pl.col("cores") > 1)
    usual_s = pl.col("steps") * pl.col("step_s")
    return (
        pl.when((usual_s > 0) & (pl.col("steps_cpu_s") > 0) & (pl.col("state") == "COMPLETED") & ~polls)
        .then(pl.col("steps_cpu_s") / usual_s)
        .alias("pace")
    )


def _ranks_poll(run: Run) -> bool:
    gang = run.info.gang
    return gang.kind == "none" or gang.hold == "yield"


def _while_jobs_ran(run: Run) -> pl.DataFrame:
    columns = ("at_s", "length_s", "cpus", "load", "used_s", "steal_s", "own_s")
    if run.host is None:
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.Float64))
    first, last = run.jobs["start_s"].min(), run.jobs["end_s"].max()
    samples = run.host.select(columns)
    if first is None or last is None:
        return samples
    return samples.filter((pl.col("at_s") >= first) & (pl.col("at_s") - pl.col("length_s") <= last))


def _why_unfit(foreign: float | None, steal: float | None, most: float) -> str | None:
    shares = ((foreign or 0.0, "others used"), (steal or 0.0, "the hypervisor took"))
    if sum(share for share, _ in shares) <= most:
        return None
    named = " and ".join(f"{who} {share:.0%}" for share, who in shares if share >= _LEAST_SHARE)
    return f"{named} of its CPUs' time ({most:.0%} in all is the most)"


def _uneven(spread: float | None, most: float) -> str | None:
    if spread is None or spread <= most:
        return None
    return f"its host was {spread:.2f} times as fast for some jobs as for others ({most:g} times is the most)"


def _mean(values: pl.Series) -> float | None:
    mean = values.mean()
    return float(mean) if isinstance(mean, int | float) else None
