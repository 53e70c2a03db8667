"""``--order-of RUN``: jobs start in the order in which a real Slurm started them.

Where a job goes depends on which jobs hold cores at that instant, and milliseconds decide that. Once starts
and ends come in Slurm's order, what is left between a run and its simulation are run times and the placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from analysis.metrics import stretches
from foundation.errors import InputError
from foundation.records import Run
from simulator.fit.job_starts import SAME_PASS_S, read_starts
from simulator.policy_interface import Event, JobEnded, SchedulerContext


@dataclass(frozen=True, slots=True)
class Decision:
    """A job, by its number in the trace, started or, with ``ends``, gave its cores back."""

    job: int
    ends: bool = False


def order_of(run: Run) -> tuple[Decision, ...]:
    """Return the starts and ends of a real run in the order in which Slurm decided on them.

    A job stamps its start some time after the decision: by how much, the shortest wait of all tells. Starts
    less than half a second apart between which no job ended are of one pass, which goes through the queue in
    order of submission. A job that began more than once counts from its first start to its last end.

    Raises
    ------
    InputError
        It is a simulation, or no job of it has started.
    """
    if run.info.kind != "real":
        raise InputError(f"{run.info.label} is a simulation: --order-of takes the RUN of a replay")
    held = stretches(run.jobs, run.allocations).group_by("row").agg(pl.col("start_s").min())
    jobs = run.jobs.select("trace_job", "job_id", "submit_s", "end_s", "state").with_row_index("row")
    known = jobs.join(held, on="row").drop_nulls("start_s")
    if not known.height:
        raise InputError(f"no job of {run.info.label} has started: it has no order")
    starts = read_starts(run)
    dispatch_s = min([*starts.arrived, *starts.released], default=0.0)
    begun = known.select(pl.col("start_s") - dispatch_s, "trace_job", "job_id", "submit_s").rows()
    ended = known.filter(pl.col("state").is_not_null()).select("end_s", "trace_job").drop_nulls().rows()
    instants = sorted([(at_s, 1, job, number, came_s) for at_s, job, number, came_s in begun])
    instants += [(at_s, 0, job, None, None) for at_s, job in ended]
    order: list[Decision] = []
    of_one_pass: list[tuple[int, int]] = []
    since_s = float("-inf")
    for at_s, starts_job, job, number, came_s in sorted(instants, key=lambda one: one[:3]):
        if not starts_job or at_s > since_s + SAME_PASS_S or came_s > since_s:
            order += [Decision(one) for _, one in sorted(of_one_pass)]
            of_one_pass, since_s = [], at_s
        if starts_job:
            of_one_pass.append((number or 0, job))
        else:
            order.append(Decision(job, ends=True))
    return (*order, *(Decision(one) for _, one in sorted(of_one_pass)))


class RecordedOrder:
    """Policy: starts jobs in a given order, each as soon as it fits and what was decided before is done.

    Jobs that the order does not have start after all others, first come, first served.
    """

    def __init__(self, order: Iterable[Decision]) -> None:
        self._order: Sequence[Decision] = tuple(order)
        self._done = 0
        self._ended: set[int] = set()

    def hear(self, context: SchedulerContext, event: Event) -> None:  # noqa: ARG002
        """Note what has ended."""
        if isinstance(event, JobEnded):
            self._ended.add(event.job.number)

    def schedule(self, context: SchedulerContext) -> None:
        """Go on in the order as far as can be."""
        waiting = {job.number: job for job in context.waiting}
        for decision in self._order[self._done :]:
            if decision.ends:
                happened = decision.job in self._ended
            else:
                happened = decision.job in waiting and context.start(waiting[decision.job])
            if not happened:
                return
            self._done += 1
        for job in tuple(context.waiting):
            if not context.start(job):
                return
