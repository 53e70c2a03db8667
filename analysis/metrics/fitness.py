"""Whether a run is fit to judge by: its jobs ended as they should, its cores were fast, its host was its own.

A *job fault* is a job of a real run that failed (``eiba`` and ``rrba``: what a user's own application does is
its own affair), was killed at a time limit that its work fits, was cancelled, lost its node, or has no known
end. What fails is left out of every comparison, so those that are left are not the same jobs any more: more
than ``MOST_FAULTY`` of the jobs, so any single one below 100 jobs, make a run unfit.

A run under gangd in which no agent acted for more than ``MOST_UNATTENDED`` of the time in which jobs shared
cores measures the operating system's sharing for the rest, and is unfit as well.

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

from dataclasses import dataclass

import msgspec
import polars as pl

from analysis.metrics.derived_columns import MOST_SPREAD, MOST_TAKEN, MetricOptions
from analysis.metrics.slice_metrics import share_unattended, unattended_by_node
from analysis.quantiles import quantile
from foundation.one_line import last_words, one_line
from foundation.records import Run
from foundation.records.records_folder import JOBS_FOLDER
from foundation.units import counted_of, duration, durations

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


MOST_FAULTY = 0.01
MOST_UNATTENDED = 0.01
_OURS = ("eiba", "rrba")
_MOST_LINE = 120
_WHY_THEY_ENDED = "See why agents ended (`osub cluster status`, the agents' logs), then run it again."


@dataclass(frozen=True, slots=True)
class Unfit:
    """A reason why a run is unfit to judge by, the same in few words, and what to do, as a sentence."""

    why: str
    brief: str
    remedy: str


def unfit(
    run: Run,
    options: MetricOptions = MetricOptions(),
    host: HostUse | None = None,
    unattended_share: float | None = None,
) -> list[Unfit]:
    """Return why a run is unfit to judge by, the gravest first; nothing for a fit or a simulated one.

    Parameters
    ----------
    run
        The run.
    options
        Thresholds.
    host, unattended_share
        Its host's use, and the share of time in which no agent acted, where they are known already.
    """
    if run.info.kind != "real":
        return []
    host = host or host_use(run, options.most_taken, options.most_spread)
    faults = job_faults(run)
    found = []
    if faults is not None:
        cure = "Find the cause, then run it again."
        if cut_short(run) is not None:
            cure = "Find what took so long, or give it more time."
        found.append(Unfit(faults, faults.partition(";")[0], cure))
    if not run.complete:
        found.append(Unfit("it is not finished", "not finished", "Let it finish, or resume it."))
    alone = unattended(run, unattended_share)
    if alone is not None:
        found.append(Unfit(alone, alone.partition(", on")[0], _WHY_THEY_ENDED))
    if host.unfit is not None:
        found.append(Unfit(host.unfit, host.unfit.partition(" (")[0], "Run it again on a calm host."))
    return found


def unattended(run: Run, share: float | None = None) -> str | None:
    """Return for how long no agent of gangd acted while jobs shared cores; None for ``MOST_UNATTENDED``."""
    if run.slices is None:
        return None
    share = share_unattended(run.slices) if share is None else share
    if share is None or share <= MOST_UNATTENDED:
        return None
    worst = unattended_by_node(run.slices).sort("unattended_s").row(-1, named=True)
    return (
        f"no agent of gangd acted in {share:.1%} of the time in which jobs shared cores, on {worst['node']} "
        f"for {duration(worst['unattended_s'])} ({MOST_UNATTENDED:.0%} in all is the most)"
    )


def cut_short(run: Run) -> str | None:
    """Return when a replay was cancelled, at its time limit or by a user; None for one that was not."""
    event = next((one for one in run.events() if one.get("kind") == "cancelled"), None)
    if event is None:
        return None
    after_s = event.get("after_s")
    after = f" after {duration(after_s, rough=True)}" if isinstance(after_s, float) else ""
    return f"the replay was cancelled{after}"


def job_faults(run: Run) -> str | None:
    """Return how many jobs did not end as they should, and of the first what became of it; None for few.

    The first is the one that began first: what hangs keeps the others waiting.
    """
    state, fits = pl.col("state"), (pl.col("dedicated_s") <= pl.col("requested_s")).fill_null(value=True)
    is_fault = (
        ((state == "FAILED") & pl.col("app").is_in(_OURS))
        | ((state == "TIMEOUT") & fits)
        | ((state == "CANCELLED") & (pl.col("preemptions") == 0))
        | state.is_in(("NODE_FAIL", "LOST"))
        | (state.is_null() & run.complete)
    )
    faulty = run.jobs.filter(is_fault).sort("start_s", "trace_job", nulls_last=True)
    if faulty.height <= MOST_FAULTY * run.jobs.height:
        return None
    first = faulty.row(0, named=True)
    output = run.path / JOBS_FOLDER / f"{first['trace_job']}.out"
    said = last_words(output)
    many = counted_of(faulty.height, run.jobs.height, "job")
    cut = cut_short(run) if set(faulty["state"]) == {"CANCELLED"} else None
    if cut is not None and said and "CANCELLED AT" in said:  # Slurm's line for what cancelled the replay
        left = f"its output: {output}"
    elif said:
        left = f"its last line: {one_line(said, _MOST_LINE)} ({output})"
    else:
        left = f"it left no output ({output})"
    head = f"{many} hung, failed or never ended" if cut is None else f"{cut}, when {many} had not ended"
    return f"{head}; job {first['trace_job']} first: {_what_became(first)}, {left}"


def _what_became(job: dict[str, object]) -> str:
    start_s, end_s, alone_s = (job[name] for name in ("start_s", "end_s", "dedicated_s"))
    if job["state"] == "FAILED":
        return f"failed with exit code {job['exit_code']}"
    if not isinstance(start_s, float):
        return "never started"
    after = ""
    if isinstance(end_s, float) and isinstance(alone_s, float):
        ran, alone = durations(end_s - start_s, alone_s)
        after = f" after {ran} (alone it takes {alone})"
    return {
        "TIMEOUT": f"killed at its time limit{after}",
        "CANCELLED": f"cancelled{after}",
        "NODE_FAIL": f"its node failed{after}",
    }.get(str(job["state"]), "its end is not known")
