"""Rows of the slice record, from what a node reports of a slice."""

from __future__ import annotations

from collections.abc import Iterable

from gangd.core.jobs.gang import Gang
from gangd.core.terms.scheduler_commands import SliceRow
from gangd.core.terms.scheduler_events import SliceUse
from gangd.core.terms.states import GangState
from gangd.core.terms.timebase import Timebase

ROLE = {GangState.BUSY: "run", GangState.IDLE: "idle"}


def slice_rows(
    node: str, number: int, use: SliceUse, time: Timebase, gangs: Iterable[Gang]
) -> tuple[SliceRow, ...]:
    """One row for each job of ``gangs`` on ``node``, which has ``number`` in the core's numbering.

    Components of a heterogeneous job that are elsewhere have no row here.
    ``held`` is what the node says that it froze, ``leftover`` what it let yield: its CPU time is what the
    owners of the slice left. A job that was not held has the role of its gang's state at the time of the
    report: ``run`` for a busy one, ``idle``, or ``free`` for all that the slices do not rule.
    """
    held = dict.fromkeys(use.held, "held") | dict.fromkeys(use.yielding, "leftover")
    cpu_us = {sample.job: sample.cpu_us for sample in use.samples}
    rows = []
    for gang in gangs:
        for job, view in gang.views.items():
            if number not in view.cores.nodes:
                continue
            role = held.get(job) or ROLE.get(gang.state, "free")
            rows.append(
                SliceRow(
                    use.number,
                    time.start_ns(use.number),
                    time.length_ns(use.number),
                    job,
                    node,
                    role,
                    cpu_us.get(job),
                    use.skew_us,
                    use.freeze_us,
                )
            )
    return tuple(rows)
