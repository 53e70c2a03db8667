"""What the thesis reports of a simulated case (section 5.3.2)."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from analysis.quantiles import quantiles
from foundation.units import US_PER_S
from simulator.engine.kernels.field_records import Ints
from simulator.simulation import Workload

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_US_PER_H = 3600 * US_PER_S
LONG_S = 600
"""Batch jobs that run longer are "long normal jobs" (Figure 5.7; the program's evaluation scripts)."""
CURVE_SHARES = tuple(share / 1000 for share in range(1001))


class JobOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One job of Table 5.4."""

    job: int
    run_s: float
    wait_s: float
    slowdown_osub: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A case in figures; times of completion are hours from the first submission.

    ``curve`` is S_OSub at 0, 0.1, ... 100% of the jobs, ascending.
    """

    label: str
    jobs: int
    interactive_jobs: int
    interactive_waited: Annotated[float, "share of the interactive jobs that waited at all"]
    interactive_wait_max_s: float
    wait_max_s: float
    slowdown_interactive_max: float
    slowdown_batch_max: float
    slowdown_long_batch_max: Annotated[float, "of batch jobs that run for more than LONG_S"]
    slowdown_from_100: Annotated[float, "share of all jobs with S_OSub of at least 100"]
    cpu_time_done_h: Annotated[tuple[float, float, float], "90%, 95% and 100% of the CPU time"]
    jobs_done_h: Annotated[tuple[float, float, float], "90%, 95% and 100% of the jobs"]
    engine_cpu_s: float
    curve: tuple[float, ...]
    examples: tuple[JobOutcome, ...] = ()


def outcome_of(
    label: str,
    workload: Workload,
    start_us: Ints,
    end_us: Ints,
    engine_cpu_s: float,
    examples: tuple[int, ...] = (),
) -> Outcome:
    """Measure a case."""
    wait_us = start_us - workload.submit_us
    run_s = workload.run_us / US_PER_S
    slowdown = (end_us - workload.submit_us) / US_PER_S / run_s
    interactive = workload.interactive
    work = workload.periods.busy_us / US_PER_S * workload.nodes * workload.cores
    places = np.searchsorted(workload.number, examples)
    return Outcome(
        label=label,
        jobs=workload.count,
        interactive_jobs=int(interactive.sum()),
        interactive_waited=_mean(wait_us[interactive] > 0),
        interactive_wait_max_s=_max(wait_us[interactive]) / US_PER_S,
        wait_max_s=_max(wait_us) / US_PER_S,
        slowdown_interactive_max=_max(slowdown[interactive]),
        slowdown_batch_max=_max(slowdown[~interactive]),
        slowdown_long_batch_max=_max(slowdown[~interactive & (run_s > LONG_S)]),
        slowdown_from_100=_mean(slowdown >= 100),
        cpu_time_done_h=done_h(end_us, work),
        jobs_done_h=done_h(end_us, np.ones(workload.count)),
        engine_cpu_s=engine_cpu_s,
        curve=tuple(quantiles(slowdown, CURVE_SHARES).tolist()),
        examples=tuple(
            JobOutcome(
                job=number,
                run_s=float(end_us[place] - start_us[place]) / US_PER_S,
                wait_s=float(wait_us[place]) / US_PER_S,
                slowdown_osub=float(slowdown[place]),
            )
            for number, place in zip(examples, places.tolist(), strict=True)
            if place < workload.count and workload.number[place] == number
        ),
    )


def done_h(end_us: Ints, weight: Floats) -> tuple[float, float, float]:
    """Return when 90, 95 and 100% of the weight was done."""
    order = np.argsort(end_us, kind="stable")
    shares = np.cumsum(weight[order]) / weight.sum()
    ends_h = end_us[order] / _US_PER_H
    found = [float(ends_h[np.searchsorted(shares, share)]) for share in (0.90, 0.95)]
    return found[0], found[1], float(ends_h[-1])


def _mean(flags: Bools) -> float:
    return float(flags.mean()) if len(flags) else 0.0


def _max(values: npt.NDArray[np.int64] | Floats) -> float:
    return float(values.max()) if len(values) else 0.0
