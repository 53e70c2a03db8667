"""General lives in the plainest Python: jobs that are resized, preempted, suspended, lost, started again.

The oracle for the engine's actions. Written from ``docs/mechanisms.md``, not from the engine: work is counted
in exact fractions, everything is recomputed at every event, and looking ahead copies the whole world. It
takes the same policies as the engine, for it is a ``SchedulerContext``; it shares only the words of that
protocol.
"""

from __future__ import annotations

from simulator.policy_interface import Event, JobArrived, NodeDown, NodeState, NodeUp
from tests.property.simulator.reference_life import Status
from tests.property.simulator.reference_lives_desk import LivesDesk


class ReferenceLives(LivesDesk):
    """Runs jobs to their end on construction; ``lifecycles`` and ``rows`` then tell what became of them."""

    # the loop

    def run(self) -> None:
        arrivals = sorted(self.jobs, key=lambda job: (job.submit_us, job.index))
        ups = sorted((outage.up_us, outage.node) for outage in self.outages)
        downs = sorted((outage.down_us, outage.node) for outage in self.outages)
        is_pass_due = False

        def candidates() -> list[tuple[int, int, int]]:
            unfinished = arrivals or any(
                life.status in (Status.WAITING, Status.RUNNING, Status.SUSPENDED) for life in self.lifecycles
            )
            if not unfinished:
                return []
            found = [
                (self.segment_end(life), 0 if self.frees(life) else 1, life.job.index)
                for life in self.lifecycles
                if life.status is Status.RUNNING
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
                life = self.lifecycles[which]
                life.status = Status.WAITING
                life.now = life.saved = self.beginning(job)
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
        for life in self.lifecycles:
            if life.status in (Status.RUNNING, Status.SUSPENDED) and node in life.held:
                lost.append(life.job)
                self.lose(life)
                if life.status is Status.RUNNING:
                    self.leave(life, "requeue")
                if self.after_failure == "scratch":
                    life.now = life.saved = self.beginning(life.job)
                    life.node_us["lost"] += life.node_us["useful"]
                    life.wasted_us += life.useful_us
                    life.node_us["useful"] = life.useful_us = 0
                life.status, life.why = Status.WAITING, "checkpoint" if life.useful_us else "requeue"
                if self.after_failure == "fail":
                    life.status, life.end_us, life.given_up = Status.ENDED, self.now_us, True
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
