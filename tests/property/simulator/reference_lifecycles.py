"""General lifecycles in the plainest Python: jobs are resized, preempted, suspended, lost, started again.

The oracle for the engine's actions. Written from ``docs/mechanisms.md``, not from the engine: work is counted
in exact fractions, everything is recomputed at every event, and looking ahead copies the whole world. It
takes the same policies as the engine, for it is a ``SchedulerContext``; it shares only the words of that
protocol.
"""

from __future__ import annotations

from simulator.policy_interface import Event, JobArrived, NodeDown, NodeState, NodeUp
from tests.property.simulator.reference_lifecycle_context import LifecycleContext
from tests.property.simulator.reference_lifecycle_record import Status


class ReferenceLifecycles(LifecycleContext):
    """Runs jobs to their end on construction; ``lifecycles`` and ``rows`` then tell what became of them."""

    # the loop

    def run(self) -> None:
        arrivals = sorted(self.jobs, key=lambda job: (job.submit_us, job.index))
        ups = sorted((outage.up_us, outage.node) for outage in self.outages)
        downs = sorted((outage.down_us, outage.node) for outage in self.outages)
        is_pass_due = False

        def candidates() -> list[tuple[int, int, int]]:
            unfinished = arrivals or any(
                record.status in (Status.WAITING, Status.RUNNING, Status.SUSPENDED)
                for record in self.lifecycles
            )
            if not unfinished:
                return []
            found = [
                (self.segment_end(record), 0 if self.frees(record) else 1, record.job.index)
                for record in self.lifecycles
                if record.status is Status.RUNNING
            ]
            found += [(at, 2, node) for at, node in ups[:1]]
            found += [(at, 3, node) for at, node in downs[:1]]
            found += [(at, 4, timer.number) for at, timer in self.timers]
            return found + [(job.submit_us, 5, job.index) for job in arrivals[:1]]

        while upcoming := candidates():
            at, kind, which = min(upcoming)
            self.advance(at)
            event: Event | None = None
            if kind == 1:
                self.change(self.lifecycles[which])
            elif kind == 0:
                event = self.stop(self.lifecycles[which])
            elif kind == 2:
                ups.pop(0)
                event = self.repair(which)
            elif kind == 3:
                downs.pop(0)
                event = self.fail(which)
            elif kind == 4:
                event = self.ring(which)
            else:
                job = arrivals.pop(0)
                event = JobArrived(job)
                record = self.lifecycles[which]
                record.status = Status.WAITING
                record.now = record.saved = self.beginning(job)
            if event is not None:
                self.tell(event)
                is_pass_due = True
            is_over = not self.together or all(at > self.now_us for at, *_ in candidates())
            if is_pass_due and is_over:
                is_pass_due = False
                self.policy.schedule(self)  # type: ignore[attr-defined]

    # nodes

    def fail(self, node: int) -> Event:
        self.states[node] = NodeState.DOWN
        lost = []
        for record in self.lifecycles:
            if record.status in (Status.RUNNING, Status.SUSPENDED) and node in record.held:
                lost.append(record.job)
                self.lose(record)
                if record.status is Status.RUNNING:
                    self.leave(record, "requeue")
                if self.after_failure == "scratch":
                    record.now = record.saved = self.beginning(record.job)
                    record.node_us["lost"] += record.node_us["useful"]
                    record.wasted_us += record.useful_us
                    record.node_us["useful"] = record.useful_us = 0
                record.status, record.why = Status.WAITING, "checkpoint" if record.useful_us else "requeue"
                if self.after_failure == "fail":
                    record.status, record.end_us, record.given_up = Status.ENDED, self.now_us, True
        return NodeDown(node, tuple(lost))

    def repair(self, node: int) -> Event:
        self.states[node] = NodeState.UP
        return NodeUp(node)

    def ring(self, number: int) -> Event:
        timer = next(timer for _, timer in self.timers if timer.number == number)
        self.cancel(timer)
        if timer.kind == "expiry" and timer.about is not None:
            self.release(timer.about)
        return timer
