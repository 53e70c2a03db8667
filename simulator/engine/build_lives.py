"""Makes the tables of lives from what jobs can do, and from when nodes fail."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from osub.errors import InputError
from simulator.engine.bits import full_set
from simulator.engine.life_state import (
    LifeRecord,
    Lives,
    LivesClock,
    Log,
    LoggedPart,
    NodeLifeRecord,
    OutageRecord,
    StretchRecord,
    TimerRecord,
)
from simulator.engine.records import Ints, Maker
from simulator.engine.state import FAR_US, NEVER
from simulator.job import Life, Sizes
from simulator.outages import Outage
from simulator.system import Pool

AFTER_FAILURE = ("checkpoint", "scratch", "give-up")
"""How a job goes on whose node has failed; the places are those of ``life_state.FROM_CHECKPOINT`` and on."""

MOST_UNITS = 1 << 62
"""More units of work than this are not counted."""

_SPARE_STRETCHES = 4096
_SPARE_PARTS = 1 << 16
"""How much of the log may be full before it is emptied, beside what one event can log."""


def build_lives(
    make: Maker,
    lives: Sequence[Life],
    nodes: Ints,
    pool: Pool,
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
    kinds, kind = kinds_of(lives)
    rate_at, rates = _rates(kinds)
    is_rigid = rate_at[kind] == NEVER
    asked_rate = _ints(rates or [1])[np.where(is_rigid, 0, rate_at[kind] + nodes - 1)]
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
            rate_at=rate_at[kind],
            rate=np.where(is_rigid, 1, asked_rate),
            setup_us=_ints(life.setup_us for life in kinds)[kind],
            every_us=_ints(
                NEVER if life.checkpoint_every_us is None else life.checkpoint_every_us for life in kinds
            )[kind],
            checkpoint_us=_ints(life.checkpoint_us for life in kinds)[kind],
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
            stretches=make.table(StretchRecord, stretches),
            parts=make.table(LoggedPart, parts),
            mask=make.grid(parts, len(full_set(pool.cores))),
        ),
    )


def kinds_of(lives: Sequence[Life]) -> tuple[list[Life], Ints]:
    """Return the different lives, and for each job which one it has: thousands of jobs share a few."""
    place: dict[int, int] = {}
    kind = _ints(place.setdefault(id(life), len(place)) for life in lives)
    return [lives[int(first)] for first in np.unique(kind, return_index=True)[1]], kind


def _rates(kinds: Sequence[Life]) -> tuple[Ints, list[int]]:
    """Return where the rates of each kind of life begin (``NEVER``: it is rigid), and all of them."""
    begins: dict[tuple[int, ...], int] = {}
    rates: list[int] = []
    for life in kinds:
        if life.sizes is not None and life.sizes.rates not in begins:
            begins[life.sizes.rates] = len(rates)
            rates += life.sizes.rates
    return _ints(NEVER if life.sizes is None else begins[life.sizes.rates] for life in kinds), rates


def most_nodes(lives: Sequence[Life] | None, nodes: Ints) -> Ints:
    """Return the most nodes that each job can hold."""
    if lives is None:
        return nodes
    kinds, kind = kinds_of(lives)
    most = _ints(0 if life.sizes is None else life.sizes.most for life in kinds)
    return np.where(most[kind] == 0, nodes, most[kind])


def sizes_of(lives: Sequence[Life] | None, count: int) -> Ints:
    """Return a number for each of ``count`` jobs: 0 if it is rigid, the same for all of the same sizes."""
    if lives is None:
        return np.zeros(count, dtype=np.int64)
    kinds, kind = kinds_of(lives)
    place: dict[Sizes, int] = {}
    return _ints(0 if life.sizes is None else place.setdefault(life.sizes, len(place) + 1) for life in kinds)[
        kind
    ]


def check_lives(lives: Sequence[Life], nodes: Ints, phase_at: Ints, run_us: Ints, scale: int) -> None:
    """Refuse lives that contradict themselves, or that are too long to be counted.

    ``run_us`` is the longer of the run time and the request of each job; ``scale`` the model's units of work.

    Raises
    ------
    InputError
        The message names the job by its index.
    """
    kinds, kind = kinds_of(lives)
    sizes = [life.sizes for life in kinds]
    least = _ints(1 if size is None else size.least for size in sizes)[kind]
    most = _ints(MOST_UNITS if size is None else min(size.most, len(size.rates)) for size in sizes)[kind]
    slowest = _ints(1 if size is None else min(size.rates, default=0) for size in sizes)[kind]
    rate = _ints(1 if size is None else max(size.rates, default=0) for size in sizes)[kind]
    is_soft = np.array([size is not None for size in sizes], dtype=bool)[kind]
    pauses_us = _ints(
        max(life.setup_us, life.checkpoint_us, life.checkpoint_every_us or 0) for life in kinds
    )[kind]
    is_past = np.array(
        [min(life.setup_us, life.checkpoint_us) < 0 or (life.checkpoint_every_us or 1) < 1 for life in kinds]
    )[kind]
    longest_us = np.maximum(run_us, pauses_us)
    for bad, what in (
        ((least < 1) | (least > nodes) | (nodes > most) | (slowest < 1), "{} nodes are not among its sizes"),
        (is_soft & (np.diff(phase_at) > 2), "is malleable and interactive: it can only be one of them"),
        (is_past, "its set-up or its checkpoints take negative time"),
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
