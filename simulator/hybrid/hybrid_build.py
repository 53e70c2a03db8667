"""Makes the tables of a hybrid run from jobs as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from foundation.units import US_PER_S
from simulator.hybrid.hybrid_state import (
    BASELINE,
    FAR_US,
    MALLEABLE,
    NO_NOTICE,
    ON_DEMAND,
    RIGID,
    SHARE,
    SILENT,
    HybridClockRecord,
    HybridIntervalRecord,
    HybridJobRecord,
    HybridNodeRecord,
    HybridRulesRecord,
    HybridTables,
    LoanRecord,
    PlanRecord,
)
from simulator.jit.field_records import Ints, StateAllocator
from simulator.model.jobs import PLAIN_LIFECYCLE, JobLifecycle, PoolJobs
from simulator.state.node_sets import full_set

_MOST_UNITS = 1 << 62
_SPARE_ROWS = 512
_MOST_SCALE = 4096
"""Units a microsecond on one node, and some margin: more than any weight and overhead make of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """What a hybrid scheduler does.

    Parameters
    ----------
    strategy
        Before an on-demand job comes: a number of ``state``.
    shrinks
        When it comes: whether malleable jobs shrink for it, if that suffices (SPAA).
    optimal
        Whether victims are those of least overhead together, not each by itself.
    weight
        When it shares cores: its weight, that of the other job being 1.
    warning_us, release_us
        How long a malleable job holds its nodes once it is preempted, and for how long after the predicted
        arrival nodes stay reserved.
    squatting
        Whether jobs are backfilled on reserved nodes.
    interval
        Checkpoints are this many times as far apart as the jobs say.
    free_checkpoints
        Whether checkpoints take no time; the run of the trace has none then.
    """

    strategy: int
    shrinks: bool = False
    optimal: bool = False
    weight: int = 1
    warning_us: int = 120 * US_PER_S
    release_us: int = 600 * US_PER_S
    squatting: bool = True
    interval: Fraction = Fraction(1)
    free_checkpoints: bool = False


def build_world(
    make: StateAllocator,
    jobs: PoolJobs,
    nodes: int,
    mechanism: Mechanism,
    overhead: Fraction,
    *,
    records: bool,
) -> HybridTables:
    """Return the tables at the beginning of a run.

    Parameters
    ----------
    make
        Makes tables for compiled kernels or for plain Python.
    jobs
        The jobs; those without a lifecycle are rigid, without set-up and checkpoints.
    nodes
        How many there are.
    mechanism
        What is done for on-demand jobs.
    overhead
        C_o, which shared cores cost.
    records
        Whether to write down what each job held.

    """
    lifecycles = _lives(jobs)
    shares = mechanism.strategy == SHARE
    whole = (mechanism.weight + 1) * overhead.numerator if shares else 1
    kind = np.array(
        [ON_DEMAND if life.on_demand else RIGID if life.sizes is None else MALLEABLE for life in lifecycles],
        dtype=np.int64,
    )
    least = jobs.nodes.copy()
    for job, life in enumerate(lifecycles):
        if life.sizes is not None and mechanism.strategy != BASELINE:
            least[job] = life.sizes.least
    notice_us = _times([life.notice_us for life in lifecycles])
    order = np.lexsort((np.arange(jobs.count), jobs.submit_us))
    announced = np.flatnonzero((kind == ON_DEMAND) & (notice_us < FAR_US))
    setup, every, save, slack, work = _units(jobs, kind, whole, mechanism)
    rows = 8 * nodes + _SPARE_ROWS if records else 1
    return HybridTables(
        rules=make.table(
            HybridRulesRecord,
            1,
            jobs=jobs.count,
            nodes=nodes,
            strategy=mechanism.strategy,
            shrinks=int(mechanism.shrinks),
            asks=int(mechanism.optimal),
            warning_us=mechanism.warning_us,
            release_us=mechanism.release_us,
            whole=whole,
            guest=mechanism.weight * overhead.denominator if shares else 1,
            host=overhead.denominator if shares else 1,
            records=int(records),
            no_squatting=int(not mechanism.squatting),
        ),
        clock=make.table(HybridClockRecord, 1, free=nodes, unfinished=jobs.count),
        jobs=make.table(
            HybridJobRecord,
            jobs.count,
            kind=kind,
            asked=jobs.nodes,
            least=least,
            submit_us=jobs.submit_us,
            order=np.argsort(order),
            notice_us=notice_us,
            predicted_us=_times([life.predicted_us for life in lifecycles]),
            notice=np.where(notice_us < FAR_US, SILENT, NO_NOTICE),
            setup=setup,
            every=every,
            save=save,
            slack=slack,
            work=work,
        ),
        nodes=make.table(HybridNodeRecord, nodes),
        active=make.zeros(2 * nodes + 2),
        queue=make.zeros(jobs.count + 1),
        expected=make.zeros(jobs.count + 1),
        arrivals=make.row(order),
        notices=make.row(announced[np.argsort(notice_us[announced], kind="stable")]),
        order=make.zeros(2 * nodes + 2),
        loans=make.table(LoanRecord, 2 * nodes + 2),
        plans=make.table(PlanRecord, 2 * nodes + 2),
        log=make.table(HybridIntervalRecord, rows),
        mask=make.grid(rows, len(full_set(nodes)) if records else 1),
    )


def _lives(jobs: PoolJobs) -> Sequence[JobLifecycle]:
    return [PLAIN_LIFECYCLE] * jobs.count if jobs.lifecycles is None else jobs.lifecycles


def misfit(jobs: PoolJobs) -> tuple[int, str] | None:
    """Return the index of a job that cannot be simulated, and why; None if there is none."""
    longest = np.maximum(jobs.run_us, jobs.requested_us).astype(object) * jobs.nodes * _MOST_SCALE
    for job, life in enumerate(_lives(jobs)):
        if life.setup_us > jobs.run_us[job]:
            return job, "sets up for longer than it runs"
        if life.notice_us is not None and life.notice_us > jobs.submit_us[job]:
            return job, "is announced after it has come"
        if longest[job] >= _MOST_UNITS:
            return job, "is too long and too wide for its work to be counted"
    return None


def _times(values: list[int | None]) -> Ints:
    return np.array([FAR_US if value is None else value for value in values], dtype=np.int64)


def _units(jobs: PoolJobs, kind: Ints, whole: int, mechanism: Mechanism) -> tuple[Ints, ...]:
    """Return units: set-up, between checkpoints, of a checkpoint, slack, and work, the rest of a run.

    The run of the trace has the checkpoints that are due by ``checkpoint_every_us``. What of it is not filled
    by a whole number of them counts as set-up, so that the run is as long as in the trace.
    """
    lifecycles = _lives(jobs)
    setup_us = np.array([life.setup_us for life in lifecycles], dtype=np.int64)
    every_us = np.array([life.checkpoint_every_us or 0 for life in lifecycles], dtype=np.int64)
    save_us = np.array([life.checkpoint_us for life in lifecycles], dtype=np.int64)
    save_us *= not mechanism.free_checkpoints
    run_us, width = jobs.run_us, np.where(kind == MALLEABLE, jobs.nodes, 1)
    request_us = np.maximum(run_us, jobs.requested_us)
    every_us[kind != RIGID] = 0
    left_us = run_us - setup_us
    cycle_us = np.maximum(every_us + save_us, 1)
    rest_us = left_us % cycle_us
    work_us = np.where(every_us > 0, left_us // cycle_us * every_us + np.minimum(rest_us, every_us), left_us)
    saves = np.where((every_us > 0) & (work_us > 0), (work_us - 1) // np.maximum(every_us, 1), 0)
    setup_us = setup_us + left_us - work_us - saves * save_us
    often_us = every_us * mechanism.interval.numerator // mechanism.interval.denominator
    return (
        setup_us * whole,
        np.where(every_us > 0, np.maximum(often_us, 1), 0) * whole,
        np.where(every_us > 0, save_us, 0) * whole,
        (request_us - run_us) * whole * width,
        work_us * whole * width,
    )
