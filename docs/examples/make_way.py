"""A queue policy of one's own that preempts: who has work for long makes way for those who have waited.

    osub simulate TRACE --system N12C12 --out RUN \
        --policy docs/examples/make_way.py:MakeWay --set patience_s=900

Jobs start in order of arrival. A short job that still waits when its patience is over goes to the front of
the queue, and nodes are reserved for it: idle ones, and those of running jobs with the most work left, which
save their work within two minutes, leave, and wait again.
"""

from __future__ import annotations

from simulator.model.jobs import SimulatedJob
from simulator.policy_interface import Event, JobArrived, Preemption, SchedulerContext, Timer


class MakeWay:
    """First come, first served, until somebody with little to do has waited for too long."""

    def __init__(self, patience_s: float = 600, short_s: float = 1800, warning_s: float = 120) -> None:
        self.patience_us, self.short_us = int(patience_s * 1e6), int(short_s * 1e6)
        self.warning_us = int(warning_s * 1e6)

    def hear(self, context: SchedulerContext, event: Event) -> None:
        """Let a short job that arrives grow impatient, and act when it is."""
        if isinstance(event, JobArrived) and event.job.requested_us <= self.short_us:
            context.set_timer(context.now_us + self.patience_us, "impatient", event.job)
        if isinstance(event, Timer) and event.about in context.waiting:
            self.make_way(context, event.about)

    def make_way(self, context: SchedulerContext, job: SimulatedJob) -> None:
        """Reserve nodes for a job; whoever is on them saves its work and leaves."""
        nodes, victims = list(context.idle_nodes()), []
        for other in sorted(context.running, key=context.remaining_us, reverse=True):
            free = [
                node for node in context.held(other) if context.lease_of(node) is None and node not in nodes
            ]
            if len(nodes) < job.nodes and free and context.remaining_us(other) > self.short_us:
                victims.append(other)
                nodes += free
        if len(nodes) < job.nodes:
            return
        context.put_first(job)
        context.reserve(nodes[: job.nodes], job)
        for victim in victims:
            context.preempt(victim, Preemption.CHECKPOINT, warning_us=self.warning_us)

    def schedule(self, context: SchedulerContext) -> None:
        """Start jobs in the order of the queue; the first that does not fit holds up the rest."""
        for job in context.waiting:
            if not context.start(job):
                return
