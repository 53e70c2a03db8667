"""What became of the time that jobs held cores: useful, lost, set up once more; and what interrupted them."""

from __future__ import annotations

import msgspec
import polars as pl


class WorkMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the core seconds that jobs held, all jobs and all of their lives together.

    Parameters
    ----------
    allocated_core_s
        What they held; a core that two jobs hold counts twice.
    lost_core_s, again_core_s
        The parts of it that were thrown away, and that set up once more.
    useful_core_s
        The rest.
    missing
        Jobs that started, and of which it is not known how long they held what: they are in no sum.
    preemptions, requeues, resumptions, resizes
        How often jobs were preempted; started again after a requeue, and after a preemption or from a
        checkpoint; and went on with other cores.
    jobs_again
        Jobs that started more than once.
    """

    allocated_core_s: float
    useful_core_s: float
    lost_core_s: float
    again_core_s: float
    missing: int
    preemptions: int
    requeues: int
    resumptions: int
    resizes: int
    jobs_again: int


def work_of(ran: pl.DataFrame) -> WorkMetrics:
    """Add up the jobs that started; ``ran`` has their derived columns."""
    known = ran.filter(pl.col("allocated_core_s").is_not_null())
    allocated, lost, again = (
        float(known.get_column(name).sum()) for name in ("allocated_core_s", "lost_core_s", "again_core_s")
    )
    counts = {name: int(ran.get_column(name).sum()) for name in ("requeues", "resumptions", "resizes")}
    return WorkMetrics(
        allocated_core_s=allocated,
        useful_core_s=allocated - lost - again,
        lost_core_s=lost,
        again_core_s=again,
        missing=ran.height - known.height,
        preemptions=int(ran.select(preemptions().sum()).item()),
        jobs_again=ran.filter(pl.col("lives") > 1).height,
        **counts,
    )


def preemptions() -> pl.Expr:
    """Return how often each job was preempted: as it says, and at least as often as it came back."""
    return pl.max_horizontal("preemptions", pl.col("resumptions").fill_null(0))
