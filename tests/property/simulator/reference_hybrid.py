"""The hybrid mechanisms written plainly, a microsecond at a time; nothing is kept that can be counted."""

from __future__ import annotations

import copy

from simulator.hybrid.hybrid_state import BASELINE, COLLECT, ON_DEMAND, PLAN
from tests.property.simulator.hybrid_cases import HybridWorld
from tests.property.simulator.reference_hybrid_jobs import (
    COMING,
    GATHERING,
    LEAVING,
    OVER,
    RUNNING,
    WAITING,
    Loan,
    Plan,
    RefJob,
    jobs_of,
)

FAR = 10**12


class Reference:
    """One run; ``jobs`` tell what came of it."""

    def __init__(self, world: HybridWorld) -> None:
        self.rules = world.mechanism
        self.jobs = jobs_of(world)
        self.node_job: list[RefJob | None] = [None] * world.nodes
        self.node_lease: list[RefJob | None] = [None] * world.nodes
        self.queue: list[RefJob] = []
        self.loans: list[Loan] = []
        self.plans: list[Plan] = []
        self.now = 0

    # What there is.

    def nodes_of(self, job: RefJob) -> list[int]:
        return [node for node, holder in enumerate(self.node_job) if holder is job]

    def plain_of(self, job: RefJob) -> list[int]:
        return [node for node in self.nodes_of(job) if self.node_lease[node] is None]

    def leased_to(self, demand: RefJob) -> list[int]:
        return [node for node, lease in enumerate(self.node_lease) if lease is demand]

    def free(self) -> list[int]:
        return [n for n, job in enumerate(self.node_job) if job is None and self.node_lease[n] is None]

    def missing(self, demand: RefJob) -> int:
        return demand.asked - len(self.leased_to(demand))

    def active(self) -> list[RefJob]:
        return [job for job in self.jobs if job.status in (RUNNING, LEAVING, GATHERING)]

    def expected(self) -> list[RefJob]:
        known = [job for job in self.jobs if job.known and job.status == COMING]
        return sorted(known, key=lambda job: (job.notice, job.number))

    def is_demand(self, job: RefJob) -> bool:
        return self.rules.strategy != BASELINE and job.kind == ON_DEMAND

    # Time.

    def run(self) -> None:
        while any(job.status != OVER for job in self.jobs):
            assert self.now < 10**6, "it never ends"
            while self.happen():
                self.schedule()
            for job in self.jobs:
                if job.status == RUNNING:
                    job.tick(len(self.nodes_of(job)), self.now + 1)
            self.now += 1

    def happen(self) -> bool:
        """Let one thing that is due happen; return False if nothing is."""
        for job in self.jobs:
            if job.status == RUNNING and job.finished:
                self.end(job)
                return True
            if job.status == LEAVING and job.leaves <= self.now:
                self.leave(job)
                return True
        due = [plan for plan in self.plans if plan.at <= self.now]
        if due:
            self.carry_out(min(due, key=lambda plan: (plan.at, plan.overhead)))
            return True
        for job in sorted(self.expected(), key=lambda job: job.predicted or 0):
            if (job.predicted or 0) + self.rules.release_us <= self.now:
                self.give_up(job)
                return True
        for job in self.jobs:
            if job.notice is not None and job.notice <= self.now and not job.known:
                job.known = True
                if self.rules.strategy in (COLLECT, PLAN) and job.status == COMING:
                    self.expect(job)
                    return True
        for job in self.jobs:
            if job.status == COMING and job.submit <= self.now:
                self.arrive(job)
                return True
        return False

    def arrive(self, job: RefJob) -> None:
        if self.is_demand(job):
            self.meet(job)
        else:
            self.enqueue(job)

    def enqueue(self, job: RefJob) -> None:
        job.status = WAITING
        self.queue.append(job)
        self.queue.sort(key=lambda one: (not self.is_demand(one), one.submit, one.number))

    # Nodes.

    def take(self, node: int, job: RefJob) -> None:
        assert self.node_job[node] is None
        self.node_job[node] = job
        if self.node_lease[node] is job:
            self.node_lease[node] = None

    def vacate(self, node: int) -> None:
        self.node_job[node] = None
        lease = self.node_lease[node]
        if lease is not None:
            if lease.status == GATHERING:
                lease.start = self.now if not self.nodes_of(lease) else lease.start
                self.take(node, lease)
            return
        if self.rules.strategy in (COLLECT, PLAN):
            for collector in self.expected():
                if self.missing(collector) > 0:
                    self.node_lease[node] = collector
                    return

    def vacate_all(self, job: RefJob) -> None:
        for node in self.nodes_of(job):
            self.vacate(node)
        for other in self.active():
            if other.status == GATHERING and len(self.nodes_of(other)) == other.asked:
                other.begin(self.now)

    def hold(self, job: RefJob) -> None:
        if job.start is None:
            job.start = self.now
        job.attempt += 1
        job.begun = self.now

    # Ends.

    def end(self, job: RefJob) -> None:
        order = sorted(
            (loan for loan in self.loans if loan.borrower is job),
            key=lambda loan: (not loan.shrank, loan.lender.submit, loan.lender.number),
        )
        for loan in order:
            self.give_back(job, loan)
            self.loans.remove(loan)
        job.status, job.end = OVER, self.now
        self.vacate_all(job)

    def give_back(self, job: RefJob, loan: Loan) -> None:
        lender = loan.lender
        nodes = self.plain_of(job)[: loan.nodes]
        if lender.attempt != loan.attempt:
            return
        if loan.shrank and lender.status == RUNNING:
            nodes = nodes[: lender.asked - len(self.nodes_of(lender))]
        elif not loan.shrank and lender.status == WAITING and len(nodes) >= lender.least:
            nodes = nodes[: lender.asked]
            self.queue.remove(lender)
            self.hold(lender)
            lender.begin(self.now)
        else:
            return
        for node in nodes:
            self.node_job[node] = lender

    def leave(self, job: RefJob) -> None:
        job.status, job.squats = WAITING, False
        self.vacate_all(job)
        self.enqueue(job)

    def preempt(self, job: RefJob) -> None:
        job.preemptions += 1
        if job.kind == 1:
            job.work -= job.done
            job.done = 0
            if self.rules.warning_us:
                job.status, job.leaves = LEAVING, self.now + self.rules.warning_us
                return
        else:
            job.lost += job.since_saved
            job.work -= job.saved_work()
        self.leave(job)

    # Before an on-demand job comes.

    def expect(self, demand: RefJob) -> None:
        for node in self.free()[: demand.asked]:
            self.node_lease[node] = demand
        if self.rules.strategy == PLAN:
            self.mark(demand)
            self.plan(demand)

    def mark(self, demand: RefJob) -> None:
        able = [job for job in self.active() if job.status == RUNNING and not job.squats]
        for job in sorted(able, key=self.estimate):
            if self.estimate(job) <= (demand.predicted or 0):
                missing = self.missing(demand)
                for node in list(reversed(self.plain_of(job)))[:missing]:
                    self.node_lease[node] = demand

    def plan(self, demand: RefJob) -> None:
        wanted = self.missing(demand)
        options = []
        for job in self.victims():
            if not job.squats:
                at = self.when(demand, job)
                options.append(Plan(demand, job, job.attempt, at, self.overhead(job, at)))
        options.sort(key=lambda plan: self.rank(plan.victim, plan.overhead))
        chosen = []
        for option in options:
            if wanted > 0:
                chosen.append(option)
                wanted -= len(self.plain_of(option.victim))
        if wanted <= 0:
            self.plans += chosen

    def when(self, demand: RefJob, job: RefJob) -> int:
        predicted = demand.predicted or 0
        if job.kind == 1:
            return max(self.now, predicted - self.rules.warning_us)
        twin = self.ahead(job, predicted)
        if twin.commits and twin.commits[-1] >= self.now:
            return twin.commits[-1]
        return predicted

    def ahead(self, job: RefJob, until: int) -> RefJob:
        """Return the job as it will be at an instant, if nothing happens to it."""
        twin = copy.copy(job)
        twin.commits = list(job.commits)
        for then in range(self.now + 1, until + 1):
            if not twin.finished:
                twin.tick(len(self.nodes_of(job)), then)
            else:
                twin.since_saved += 1
        return twin

    def overhead(self, job: RefJob, at: int) -> int:
        lost = 0 if job.kind == 1 else self.ahead(job, at).since_saved
        return len(self.nodes_of(job)) * (job.setup + lost)

    def rank(self, job: RefJob, overhead: int) -> tuple[int, int, int, int]:
        return (overhead, len(self.nodes_of(job)), -job.begun, -job.number)

    def victims(self) -> list[RefJob]:
        return [
            job
            for job in self.active()
            if job.status == RUNNING and job.kind != ON_DEMAND and self.plain_of(job)
        ]

    def carry_out(self, plan: Plan) -> None:
        place = self.plans.index(plan)
        missing = self.missing(plan.borrower)
        for other, rival in enumerate(self.plans):
            cheaper = (rival.overhead, other) < (plan.overhead, place)
            if rival is not plan and rival.borrower is plan.borrower and cheaper and self.is_good(rival):
                missing -= len(self.plain_of(rival.victim))
        good = self.is_good(plan)
        self.plans.remove(plan)
        if good and missing > 0:
            self.take_from(plan.borrower, plan.victim)

    def is_good(self, plan: Plan) -> bool:
        waits = plan.borrower in self.expected()
        return waits and plan.victim.attempt == plan.attempt and plan.victim in self.victims()

    def give_up(self, demand: RefJob) -> None:
        for node in self.leased_to(demand):
            self.node_lease[node] = None
        demand.notice, demand.known = None, False
        self.loans = [loan for loan in self.loans if loan.borrower is not demand]
        for job in self.active():
            if len(self.plain_of(job)) == len(self.nodes_of(job)):
                job.squats = False

    # When it comes.

    def meet(self, demand: RefJob) -> None:
        demand.status = WAITING
        squatters = []
        for node in self.leased_to(demand):
            holder = self.node_job[node]
            if holder is None or holder.status != RUNNING:
                continue
            if not holder.squats:
                self.node_lease[node] = None
            elif holder not in squatters:
                squatters.append(holder)
        for job in squatters:
            self.preempt(job)
        need = self.missing(demand) - len(self.free())
        if need > 0 and not (self.rules.shrinks and self.shrink_for(demand, need)):
            if sum(len(self.plain_of(job)) for job in self.victims()) < need:
                self.enqueue(demand)
                return
            for node in self.free():
                self.node_lease[node] = demand
            chosen = []
            for job in sorted(self.victims(), key=lambda job: self.rank(job, self.overhead(job, self.now))):
                if need > 0:
                    chosen.append(job)
                    need -= len(self.plain_of(job))
            for job in chosen:
                self.take_from(demand, job)
        self.start_demand(demand)

    def take_from(self, demand: RefJob, victim: RefJob) -> None:
        nodes = list(reversed(self.plain_of(victim)))[: self.missing(demand)]
        for node in nodes:
            self.node_lease[node] = demand
        if nodes:
            self.loans.append(Loan(demand, victim, len(nodes), victim.attempt, False))
        self.preempt(victim)

    def shrink_for(self, demand: RefJob, need: int) -> bool:
        capacity = {
            job: max(0, min(len(self.nodes_of(job)) - job.least, len(self.plain_of(job))))
            for job in self.active()
            if job.kind == 1 and job.status == RUNNING
        }
        if sum(capacity.values()) < need:
            return False
        gives = dict.fromkeys(capacity, 0)
        while need:
            level = min(given for job, given in gives.items() if given < capacity[job])
            job = next(job for job, given in gives.items() if given == level and given < capacity[job])
            gives[job] += 1
            need -= 1
        for job, count in gives.items():
            if count:
                self.loans.append(Loan(demand, job, count, job.attempt, True))
                nodes = list(reversed(self.plain_of(job)))[:count]
                for node in nodes:
                    self.node_lease[node] = demand
                    self.vacate(node)
        return True

    def start_demand(self, demand: RefJob) -> None:
        own = [node for node in self.leased_to(demand) if self.node_job[node] is None]
        extra = self.free()[: self.missing(demand)]
        self.hold(demand)
        for node in own + extra:
            self.take(node, demand)
        if len(self.nodes_of(demand)) == demand.asked:
            demand.begin(self.now)
        else:
            demand.status, demand.setup_left, demand.leaves = GATHERING, demand.setup, 0
            demand.leaves = self.now + self.rules.warning_us

    # EASY.

    def estimate(self, job: RefJob) -> int:
        if job.status == LEAVING:
            return job.leaves
        nodes = len(self.nodes_of(job)) if job.kind == 1 else 1
        begin = job.leaves if job.status == GATHERING else self.now
        return begin + job.setup_left - (-(job.left() + job.slack) // nodes)

    def wants(self, job: RefJob, nodes: int) -> int:
        twin = copy.copy(job)
        twin.begin(0)
        return job.setup - (-(twin.left() + job.slack) // (nodes if job.kind == 1 else 1))

    def start_head(self) -> bool:
        head, free = self.queue[0], self.free()
        if self.is_demand(head):
            if len(free) < self.missing(head):
                return False
            self.queue.pop(0)
            self.start_demand(head)
            return True
        if len(free) < head.least:
            return False
        self.queue.pop(0)
        self.begin(head, free[: head.asked])
        return True

    def begin(self, job: RefJob, nodes: list[int]) -> None:
        self.hold(job)
        job.squats = any(self.node_lease[node] is not None for node in nodes)
        for node in nodes:
            self.take(node, job)
        job.begin(self.now)

    def shadow(self) -> tuple[int, int]:
        head = self.queue[0]
        need = self.missing(head) if self.is_demand(head) else head.least
        if self.rules.strategy in (COLLECT, PLAN):
            need += sum(max(0, self.missing(job)) for job in self.expected())
        have, at = len(self.free()), FAR
        for when in sorted({self.estimate(job) for job in self.active()}):
            have += sum(len(self.plain_of(job)) for job in self.active() if self.estimate(job) == when)
            if have >= need:
                return max(when, self.now), have - need
        return at, have - need

    def schedule(self) -> None:
        while self.queue and self.start_head():
            pass
        if not self.queue:
            return
        shadow, extra = self.shadow()
        if shadow == FAR and self.is_demand(self.queue[0]):
            behind = [
                node
                for node, lease in enumerate(self.node_lease)
                if lease not in (None, self.queue[0])
                and lease is not None
                and lease.status != COMING
                and self.node_job[node] is None
            ]
            for node in behind:
                self.node_lease[node] = None
            if behind:
                while self.queue and self.start_head():
                    pass
                if not self.queue:
                    return
                shadow, extra = self.shadow()
        for job in list(self.queue[1:]):
            extra = self.backfill(job, shadow, extra)

    def backfill(self, job: RefJob, shadow: int, extra: int) -> int:
        free, demand = self.free(), self.is_demand(job)
        own = len(self.leased_to(job)) if demand else 0
        reserved = []
        if not demand and self.rules.squatting:
            reserved = [
                node
                for node, lease in enumerate(self.node_lease)
                if lease is not None and lease.status == COMING and self.node_job[node] is None
            ]
        for most in (len(free), max(0, min(len(free), extra))):
            nodes = min(job.asked, own + most + len(reserved))
            if nodes < job.least:
                return extra
            late = self.now + self.wants(job, nodes) > shadow
            if late and most > max(0, min(len(free), extra)):
                continue
            plain = min(nodes - own, most)
            self.queue.remove(job)
            if demand:
                self.start_demand(job)
            else:
                self.begin(job, free[:plain] + reserved[: nodes - plain])
            return extra - plain if late else extra
        return extra
