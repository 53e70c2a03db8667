"""A window: the jobs that a system is sent for some days, on whole nodes; from a trace or made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from foundation.errors import InputError
from foundation.units import US_PER_S
from simulator.simulation import Cleaning, Workload, make_workload
from simulator.world import System, single_queue
from workloads.swf import load_columns, procs_column

DAY_S = 86_400
WARM_UP_S = DAY_S // 2
"""Jobs submitted before are not counted (section 2.3)."""
MISSING_LIMIT = 1.25
"""Requested time over run time, where a job has none (section 2.2)."""
USUAL_UTILISATION = 0.7267
"""Of THETA with rigid jobs (section 3.4): a part of a trace is sought in which as much is asked for."""
_STEP_S = 7 * DAY_S
_MOST_NODES = 1_000_000


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Window:
    """Jobs for a system of whole nodes.

    Parameters
    ----------
    name, system, workload
        What it is called, where, and the jobs; the first comes at second 0.
    about
        What there is to say of it, in a sentence.
    is_made
        Whether it was generated.
    """

    name: str
    system: System
    workload: Workload
    about: str
    is_made: bool

    @property
    def counted_us(self) -> tuple[int, int]:
        """Between which instants jobs and use of nodes are counted."""
        return WARM_UP_S * US_PER_S, int(self.workload.submit_us.max())


def trace_window(path: Path, days: int) -> Window:
    """Return a part of a trace, in which processors stand for nodes.

    Of all parts of so many days, begun in weekly steps, it is the one that asks for what THETA did, nearly.

    Raises
    ------
    InputError
        The trace cannot be read, or has no jobs beyond the warm-up.
    """
    trace = load_columns(path)
    nodes = min(_MOST_NODES, trace.header.max_procs or _MOST_NODES)
    size = procs_column()
    frame = trace.frame.filter((pl.col("run_s") > 0) & (size >= 1) & (size <= nodes)).sort(
        "submit_s", "job_number"
    )
    if frame.is_empty():
        raise InputError(f"trace {path} has no job that ran on 1 to {nodes} processors")
    nodes = min(nodes, trace.header.max_procs or int(frame.select(size.max()).item()))
    begin_s, asked = _usual_part(frame, nodes, days * DAY_S)
    end_s = begin_s + days * DAY_S
    part = frame.filter((pl.col("submit_s") >= begin_s) & (pl.col("submit_s") < end_s))
    submit_s = part.get_column("submit_s").to_numpy()
    if submit_s[-1] - submit_s[0] <= WARM_UP_S:
        raise InputError(f"trace {path} is too short: jobs of its first {WARM_UP_S} s are not counted")
    system = System(nodes, 1)
    workload = make_workload(
        replace(trace, frame=part, extensions={}), single_queue(system, 1), Cleaning(interactive_queue=None)
    )
    from_day = (begin_s - float(frame.get_column("submit_s")[0])) / DAY_S
    return Window(
        name=trace.name,
        system=system,
        workload=with_limits(workload),
        about=(
            f"{trace.name}, {days} days from day {from_day:.0f} on: {workload.count:,} jobs on {system}, "
            f"which ask for {asked:.0%} of the node time."
        ),
        is_made=False,
    )


def with_limits(workload: Workload) -> Workload:
    """Return the workload with a requested time for every job."""
    given_us = np.rint(workload.run_us * MISSING_LIMIT).astype(np.int64)
    return replace(workload, requested_us=np.where(workload.asked_us < 0, given_us, workload.requested_us))


def _usual_part(frame: pl.DataFrame, nodes: int, length_s: float) -> tuple[float, float]:
    """Return when a part of that length begins, and the share of the node time that it asks for."""
    submit_s = frame.get_column("submit_s").to_numpy()
    work = frame.select(pl.col("run_s") * procs_column()).to_series().to_numpy()
    last_s = max(submit_s[-1] - length_s, submit_s[0])
    begins_s = np.arange(submit_s[0], last_s + 1, _STEP_S)
    sums = np.concatenate(([0.0], np.cumsum(work)))
    asked = sums[np.searchsorted(submit_s, begins_s + length_s)] - sums[np.searchsorted(submit_s, begins_s)]
    shares = asked / (nodes * length_s)
    chosen = int(np.abs(shares - USUAL_UTILISATION).argmin())
    return float(begins_s[chosen]), float(shares[chosen])
