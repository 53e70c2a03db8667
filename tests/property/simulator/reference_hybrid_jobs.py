"""What the plain hybrid mechanisms work on: jobs as small machines, loans and plans."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from simulator.hybrid.hybrid_state import BASELINE, ON_DEMAND, RIGID
from tests.property.simulator.hybrid_cases import HybridWorld

COMING, WAITING, RUNNING, LEAVING, GATHERING, OVER = (
    "coming", "waiting", "running", "leaving", "gathering", "over",
)  # fmt: skip


@dataclass(eq=False)
class RefJob:
    """A job and where it is."""

    number: int
    kind: int
    asked: int
    least: int
    submit: int
    notice: int | None
    predicted: int | None
    setup: int
    every: int
    save: int
    work: int
    slack: int
    status: str = COMING
    known: bool = False
    attempt: int = 0
    begun: int = 0
    setup_left: int = 0
    since_saved: int = 0
    cycle: int = 0
    saving: int = 0
    done: int = 0
    leaves: int = 0
    squats: bool = False
    start: int | None = None
    end: int | None = None
    preemptions: int = 0
    lost: int = 0
    commits: list[int] = field(default_factory=list)

    def begin(self, now: int) -> None:
        """Start or restart the work."""
        self.status, self.setup_left = RUNNING, self.setup
        self.since_saved = self.cycle = self.saving = self.done = 0
        self.commits = []

    def tick(self, nodes: int, then: int) -> None:
        """Let a running job go on until ``then``, a microsecond later."""
        if self.setup_left:
            self.setup_left -= 1
            return
        if self.kind != RIGID or not self.every:
            self.done += nodes if self.kind == 1 else 1
            self.since_saved += self.kind != 1
            return
        self.since_saved += 1
        if self.saving:
            self.saving -= 1
        else:
            self.done += 1
            self.cycle += 1
            if self.cycle < self.every or self.done >= self.work:
                return
            self.saving = self.save
        if not self.saving:
            self.cycle = self.since_saved = 0
            self.commits.append(then)

    def left(self) -> int:
        """Return how much longer it takes on one node that counts once: it is run to its end."""
        if self.kind == 1:
            return self.work - self.done
        twin, steps = copy.copy(self), 0
        twin.commits, twin.setup_left = [], 0
        while not twin.finished:
            twin.tick(1, 0)
            steps += 1
        return steps

    @property
    def finished(self) -> bool:
        """Whether all is done."""
        return self.setup_left == 0 and self.done >= self.work

    def saved_work(self) -> int:
        """Return the work of this attempt that is safe."""
        return len(self.commits) * self.every


@dataclass
class Loan:
    """What a lender gave, in which of its attempts."""

    borrower: RefJob
    lender: RefJob
    nodes: int
    attempt: int
    shrank: bool


@dataclass
class Plan:
    """Whom to preempt, when, for whom."""

    borrower: RefJob
    victim: RefJob
    attempt: int
    at: int
    overhead: int


def jobs_of(world: HybridWorld) -> list[RefJob]:
    """Return the jobs; the work is what set-up and the checkpoints that are due leave of the run."""
    jobs = []
    mechanism = world.mechanism
    assert world.jobs.lifecycles is not None
    for number, lifecycle in enumerate(world.jobs.lifecycles):
        run, asked = int(world.jobs.run_us[number]), int(world.jobs.nodes[number])
        setup, work = lifecycle.setup_us, run - lifecycle.setup_us
        every = (
            lifecycle.checkpoint_every_us or 0 if lifecycle.sizes is None and not lifecycle.on_demand else 0
        )
        if every:
            work = max(
                done
                for done in range(run - setup + 1)
                if done + lifecycle.checkpoint_us * max(0, (done - 1) // every) <= run - setup
            )
            setup = run - work - lifecycle.checkpoint_us * max(0, (work - 1) // every)
            every = max(1, int(every * mechanism.interval))
        soft = lifecycle.sizes is not None
        jobs.append(
            RefJob(
                number=number,
                kind=ON_DEMAND if lifecycle.on_demand else 1 if soft else RIGID,
                asked=asked,
                least=lifecycle.sizes.least
                if lifecycle.sizes is not None and mechanism.strategy != BASELINE
                else asked,
                submit=int(world.jobs.submit_us[number]),
                notice=lifecycle.notice_us if lifecycle.on_demand else None,
                predicted=lifecycle.predicted_us,
                setup=setup,
                every=every,
                save=lifecycle.checkpoint_us,
                work=work * (asked if soft else 1),
                slack=int(world.jobs.requested_us[number] - run) * (asked if soft else 1),
            )
        )
    return jobs
