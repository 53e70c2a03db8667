"""Makes the lifecycle tables from the jobs' lifecycles and the nodes' failures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foundation.errors import InputError
from simulator.jit.field_records import Ints, StateAllocator
from simulator.model.jobs import JobLifecycle, JobLives, Sizes
from simulator.model.system import NodePool, Outage
from simulator.state.engine_state import FAR_US, NEVER
from simulator.state.lifecycle_state import (
    IntervalRecord,
    LifeRecord,
    Lives,
    LivesClock,
    Log,
    LoggedPart,
    NodeLifeRecord,
    OutageRecord,
    TimerRecord,
)
from simulator.state.node_sets import full_set

AFTER_FAILURE = ("checkpoint", "scratch", "give-up")
"""How a job goes on whose node has failed; the places are those of ``life_state.FROM_CHECKPOINT`` and on."""

MOST_UNITS = 1 << 62
"""More units of work than this are not counted."""

_SPARE_STRETCHES = 4096
_SPARE_PARTS = 1 << 16
"""How much of the log may be full before it is emptied, besides what one event can log."""


def build_lives(
    make: StateAllocator,
    lives: JobLives,
    nodes: Ints,
    pool: NodePool,
    outages: Sequence[Outage] = (),
    after_failure: str = "checkpoint",
) -> Lives:
    """Return the tables at the beginning of a run.

    Parameters
    ----------
    make
        Makes tables for compiled kernels or for plain Python.
    lives, nodes
        What each job can do, and the nodes that it asks for.
    pool
        The nodes.
    outages
        When they fail, by index in the pool.
    after_failure
        One of ``AFTER_FAILURE``.
    """
    slots = pool.nodes * pool.cores * pool.multiplicity
    stretches = 2 * slots + _SPARE_STRETCHES
    parts = 2 * slots + _SPARE_PARTS
    count = len(lives)
    timers = 4 * count + _SPARE_STRETCHES
    rate_at, rates = _rates(lives)
    is_rigid = rate_at == NEVER
    asked_rate = _ints(rates or [1])[np.where(is_rigid, 0, rate_at + nodes - 1)]
    events = sorted(
        [(outage.down_us, 1, outage.node) for outage in outages]
        + [(outage.up_us, 0, outage.node) for outage in outages if outage.up_us < FAR_US]
    )
    return Lives(
        clock=make.table(
            LivesClock,
            1,
            unfinished=count,
            outages=len(events),
            after_failure=AFTER_FAILURE.index(after_failure),
        ),
        jobs=make.table(
            LifeRecord,
            count,
            asked=nodes,
            rate_at=rate_at,
            rate=np.where(is_rigid, 1, asked_rate),
            setup_us=lives.column(lambda life: life.setup_us),
            every_us=lives.column(
                lambda life: NEVER if life.checkpoint_every_us is None else life.checkpoint_every_us
            ),
            checkpoint_us=lives.column(lambda life: life.checkpoint_us),
        ),
        nodes=make.table(NodeLifeRecord, pool.nodes),
        rates=make.row(rates or [1]),
        outages=make.table(
            OutageRecord,
            len(events),
            at_us=_ints(at_us for at_us, _, _ in events),
            goes_down=_ints(goes_down for _, goes_down, _ in events),
            node=_ints(node for _, _, node in events),
        ),
        timers=make.table(TimerRecord, timers, heap=np.arange(timers)),
        log=Log(
            stretches=make.table(IntervalRecord, stretches, lazily=True),
            parts=make.table(LoggedPart, parts, lazily=True),
            mask=make.grid(parts, len(full_set(pool.cores))),
        ),
    )


def _rates(lives: JobLives) -> tuple[Ints, list[int]]:
    """Return where the rates of each job begin (``NEVER``: it is rigid), and all of them."""
    begins: dict[tuple[int, ...], int] = {}
    rates: list[int] = []

    def begin(life: JobLifecycle) -> int:
        if life.sizes is None:
            return NEVER
        if life.sizes.rates not in begins:
            begins[life.sizes.rates] = len(rates)
            rates.extend(life.sizes.rates)
        return begins[life.sizes.rates]

    return lives.column(begin), rates


def most_nodes(lives: JobLives, nodes: Ints) -> Ints:
    """Return the most nodes that each job can hold."""
    most = lives.column(lambda life: 0 if life.sizes is None else life.sizes.most)
    return np.where(most == 0, nodes, most)


def sizes_of(lives: JobLives) -> Ints:
    """Return a number for each job: 0 if it is rigid, the same for all of the same sizes."""
    place: dict[Sizes, int] = {}
    return lives.column(
        lambda life: 0 if life.sizes is None else place.setdefault(life.sizes, len(place) + 1)
    )


def check_lives(lives: JobLives, nodes: Ints, phase_at: Ints, run_us: Ints, scale: int) -> None:
    """Refuse lifecycles that contradict themselves, or that are too long to be counted.

    ``run_us`` is the longer of the run time and the request of each job; ``scale`` the model's units of work.

    Raises
    ------
    InputError
        The message names the job by its index.
    """
    soft = lives.column(lambda life: life.sizes is not None)
    least = lives.column(lambda life: 1 if life.sizes is None else life.sizes.least)
    most = lives.column(
        lambda life: MOST_UNITS if life.sizes is None else min(life.sizes.most, len(life.sizes.rates))
    )
    slowest = lives.column(lambda life: 1 if life.sizes is None else min(life.sizes.rates, default=0))
    rate = lives.column(lambda life: 1 if life.sizes is None else max(life.sizes.rates, default=0))
    pauses_us = lives.column(
        lambda life: max(life.setup_us, life.checkpoint_us, life.checkpoint_every_us or 0)
    )
    is_past = lives.column(
        lambda life: min(life.setup_us, life.checkpoint_us) < 0 or (life.checkpoint_every_us or 1) < 1
    )
    longest_us = np.maximum(run_us, pauses_us)
    for bad, what in (
        ((least < 1) | (least > nodes) | (nodes > most) | (slowest < 1), "{} nodes are not among its sizes"),
        ((soft > 0) & (np.diff(phase_at) > 2), "is malleable and interactive: it can only be one of them"),
        (is_past > 0, "its set-up or its checkpoints take negative time"),
        (
            longest_us >= MOST_UNITS // scale // np.maximum(rate, 1),
            "runs for too long for its speed-up to be counted",
        ),
    ):
        if bad.any():
            job = int(np.flatnonzero(bad)[0])
            raise InputError(f"job {job}: {what.format(nodes[job])}")


def _ints(values: object) -> Ints:
    return np.array(list(values), dtype=np.int64)  # type: ignore[call-overload]
