"""What is simulated: a generated trace like Edison's, or a real one, on whole nodes at a load of 0.89."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from foundation.errors import InputError
from foundation.units import US_PER_S, counted
from simulator.engine.kernels.field_records import Ints
from simulator.experiments.timesharing.edison import DAY_S, LOAD, NODES, Edison
from simulator.simulation import Cleaning, make_workload
from simulator.timeshare.assumed_memory import draw_memory
from simulator.timeshare.timeshare_state import Demands
from simulator.world import System, single_queue
from workloads.swf import SwfColumns, load_columns

SHORTEST_US = 10 * US_PER_S
WARM_UP_DAYS, WARM_UP_SHARE = 100, 0.15
"""Of a real trace: so many days, or that share of one that is too short for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A machine and its jobs.

    Parameters
    ----------
    name, told
        Its name, and what it is in a sentence.
    nodes, days
        The machine, and from the first to the last submission.
    warm_up_us
        What is submitted before is not counted.
    spell_us
        When the load was made high for a while; None: it was not.
    draw
        Returns the jobs for a seed.
    """

    name: str
    told: str
    nodes: int
    days: float
    warm_up_us: int
    spell_us: int | None
    draw: Callable[[int], Demands]


def generated(days: int) -> World:
    """Return a world like Edison, of fewer days than its 600, with the same parts."""
    warm_up, spell = max(1, days // 6), days * 7 // 12
    edison = Edison(days=days, warm_up_days=warm_up, spell_day=spell)
    return World(
        name="Edison, generated",
        told=(
            f"Edison's trace is not public: {counted(days, 'day')} like it are drawn for each seed, "
            f"{counted(edison.jobs_a_day, 'job')} a day on {NODES:,} nodes, a load of {LOAD} after a "
            f"warm-up of {counted(warm_up, 'day')}, memory 2% of a node in the median."
        ),
        nodes=NODES,
        days=days,
        warm_up_us=warm_up * DAY_S * US_PER_S,
        spell_us=spell * DAY_S * US_PER_S,
        draw=edison.draw,
    )


def of_trace(path: Path) -> World:
    """Return the world of a real trace, its arrivals closer together or farther apart for a load of 0.89.

    Raises
    ------
    InputError
        It cannot be read, does not tell its size, or has no job of ten seconds.
    """
    columns = load_columns(path)
    system = _system(columns)
    workload = make_workload(
        columns, single_queue(system, 1), Cleaning(interactive_queue=None), whole_nodes=True
    )
    chosen = np.flatnonzero(workload.run_us >= SHORTEST_US)
    if not len(chosen):
        raise InputError(f"trace {columns.name} has no job of 10 s or more (run_s)")
    submit_us = workload.submit_us[chosen] - workload.submit_us[chosen].min()
    jobs = Demands(
        submit_us=submit_us,
        run_us=workload.run_us[chosen],
        request_us=workload.requested_us[chosen],
        nodes=workload.nodes[chosen],
        memory=np.zeros(len(chosen), dtype=np.int64),
    )
    real_days = float(submit_us.max()) / US_PER_S / DAY_S
    warm_up = WARM_UP_DAYS / real_days if real_days > 2 * WARM_UP_DAYS else WARM_UP_SHARE
    load = float(jobs.nodes @ jobs.run_us) / max(1.0, float(submit_us.max())) / system.nodes
    jobs = replace(jobs, submit_us=_rounded(submit_us * (load / LOAD)))
    last_us = int(jobs.submit_us.max())
    return World(
        name=columns.name,
        told=(
            f"{columns.name} on whole nodes of {system}: {counted(len(chosen), 'job')} of 10 s and more in "
            f"{real_days:.0f} days; arrivals are compressed by {LOAD / load:.2f} from a load "
            f"of {load:.2f} to {LOAD}; the first {warm_up:.0%} are warm-up. Seeds are of memory and noise."
        ),
        nodes=system.nodes,
        days=last_us / US_PER_S / DAY_S,
        warm_up_us=round(last_us * warm_up),
        spell_us=None,
        draw=lambda seed: replace(jobs, memory=draw_memory(len(chosen), seed)),
    )


def _rounded(values: Ints) -> Ints:
    return np.rint(values).astype(np.int64)


def _system(columns: SwfColumns) -> System:
    """Return the nodes that the header tells, and cores a node such that all processors fit."""
    nodes, procs = columns.header.max_nodes, columns.header.max_procs
    if nodes is None and procs is None:
        raise InputError(f"trace {columns.name} has neither MaxNodes nor MaxProcs in its header")
    if nodes is None or nodes < 1:
        return System(procs or 1, 1)
    return System(nodes, max(1, (procs or nodes) // nodes))
