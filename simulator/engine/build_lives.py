"""Makes the tables of lives from what jobs can do, and from when nodes fail."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

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
from simulator.job import Life
from simulator.outages import Outage
from simulator.system import Pool

AFTER_FAILURE = ("checkpoint", "scratch", "give-up")
"""How a job goes on whose node has failed; the places are those of ``life_state.FROM_CHECKPOINT`` and on."""

MOST_UNITS = 1 << 62
"""More units of work than this are not counted."""

_SPARE_STRETCHES = 4096


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
    parts = 2 * slots + _SPARE_STRETCHES * int(most_nodes(lives, nodes).max(initial=1))
    count = len(lives)
    timers = 4 * count + _SPARE_STRETCHES
    sizes = [0 if life.sizes is None else len(life.sizes.rates) for life in lives]
    begins = [0, *accumulate(sizes)]
    rates = [rate for life in lives if life.sizes is not None for rate in life.sizes.rates]
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
            rate_at=_ints(
                NEVER if size == 0 else begin for size, begin in zip(sizes, begins[:-1], strict=True)
            ),
            rate=_ints(
                1 if life.sizes is None else life.sizes.rates[asked - 1]
                for life, asked in zip(lives, nodes.tolist(), strict=True)
            ),
            setup_us=_ints(life.setup_us for life in lives),
            every_us=_ints(
                NEVER if life.checkpoint_every_us is None else life.checkpoint_every_us for life in lives
            ),
            checkpoint_us=_ints(life.checkpoint_us for life in lives),
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


def most_nodes(lives: Sequence[Life] | None, nodes: Ints) -> Ints:
    """Return the most nodes that each job can hold."""
    if lives is None:
        return nodes
    return _ints(
        asked if life.sizes is None else life.sizes.most
        for life, asked in zip(lives, nodes.tolist(), strict=True)
    )


def check_lives(lives: Sequence[Life], nodes: Ints, phase_at: Ints, run_us: Ints, scale: int) -> None:
    """Refuse lives that contradict themselves, or that are too long to be counted.

    ``run_us`` is the longer of the run time and the request of each job; ``scale`` the model's units of work.

    Raises
    ------
    InputError
        The message names the job by its index.
    """
    for job, life in enumerate(lives):
        asked, sizes = int(nodes[job]), life.sizes
        most_us = max(int(run_us[job]), life.setup_us, life.checkpoint_us, life.checkpoint_every_us or 0)
        rate = 1
        if sizes is not None:
            if not 1 <= sizes.least <= asked <= sizes.most <= len(sizes.rates) or min(sizes.rates) < 1:
                raise InputError(f"job {job}: {asked} nodes are not among the sizes that it runs on")
            if phase_at[job + 1] - phase_at[job] > 2:
                raise InputError(f"job {job} is malleable and interactive: it can only be one of them")
            rate = max(sizes.rates)
        if min(life.setup_us, life.checkpoint_us) < 0 or (life.checkpoint_every_us or 1) < 1:
            raise InputError(f"job {job}: its set-up or its checkpoints take negative time")
        if most_us * scale * rate >= MOST_UNITS:
            raise InputError(f"job {job} takes {most_us / 1e6:g} s, too long for its speed-up to be counted")


def _ints(values: object) -> Ints:
    return np.array(list(values), dtype=np.int64)  # type: ignore[call-overload]
