"""Whether a run is fit to judge by: its jobs ended as they should, and its host was its own.

A *job fault* is a job of a real run that failed (``eiba`` and ``rrba``: what a user's own application does is
its own affair), was killed at a time limit that its work fits, was cancelled, lost its node, or has no known
end. What fails is left out of every comparison, so those that are left are not the same jobs any more: more
than ``MOST_FAULTY`` of the jobs, so any single one below 100 jobs, make a run unfit.

A run under gangd in which no agent acted for more than ``MOST_UNATTENDED`` of the time in which jobs shared
cores measures the operating system's sharing for the rest, and is unfit as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analysis.metrics.derived_columns import MetricOptions
from analysis.metrics.slice_metrics import share_unattended, unattended_by_node
from analysis.metrics.use_of_host import HostUse, host_use
from foundation.one_line import last_words, one_line
from foundation.records import Run
from foundation.records.records_folder import JOBS_FOLDER
from foundation.units import counted_of, duration, durations

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
        found.append(Unfit(faults, faults.partition(";")[0], "Find the cause, then run it again."))
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
    left = (
        f"its last line: {one_line(said, _MOST_LINE)} ({output})" if said else f"it left no output ({output})"
    )
    return (
        f"{counted_of(faulty.height, run.jobs.height, 'job')} hung, failed or never ended; "
        f"job {first['trace_job']} first: {_what_became(first)}, {left}"
    )


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
