"""The hybrid mechanisms on nodes whose jobs a real Slurm starts and ends: the simulator's decisions.

The tables are those of a simulated pool. Before each step they are made to say what Slurm says: which job is
on which node, and since when. Then the simulator's kernels decide: what a notice reserves, which plans are
due, who is preempted or shrinks for a job that has come, to whom nodes go back. What the kernels do to jobs
at once takes a real system seconds, so a node that they give to a job that does not hold it yet becomes a
lease, and what they take from a job is an order.

Unlike in the simulator no job is backfilled on reserved nodes, and a job that shrank does not grow again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from foundation.units import US_PER_S
from simulator.hybrid import hybrid_state as state
from simulator.hybrid import ondemand_jobs as demands
from simulator.hybrid.hybrid_build import Mechanism, build_world
from simulator.hybrid.hybrid_lifecycles import end, reserve_free, unreserve
from simulator.hybrid.hybrid_loop import first_over
from simulator.hybrid.hybrid_pool import name_victims
from simulator.jit.field_records import StateAllocator
from simulator.model.jobs import PoolJobs

_MISSED_US = 5 * US_PER_S
"""So long after its decision an on-demand job may wait for nodes on which another job has started since."""


@dataclass(frozen=True, slots=True)
class LiveJob:
    """What Slurm says of a job.

    Parameters
    ----------
    status
        ``WAITING``, ``RUNNING``, ``LEAVING`` (it completes) or ``OVER``; see ``hybrid_state``.
    attempt
        How often it was started before.
    since_us
        Its start, in microseconds of the run.
    nodes
        Indices of the nodes that it holds.
    """

    status: int
    attempt: int = 0
    since_us: int = 0
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOrders:
    """What is to be done now.

    Parameters
    ----------
    preempt
        Jobs to preempt, each with whether it has a warning first.
    shrink
        The nodes that jobs keep.
    reserved
        By job the nodes that no other may have: those that it waits for, or its own if some are to go back.
    """

    preempt: Mapping[int, bool]
    shrink: Mapping[int, tuple[int, ...]]
    reserved: Mapping[int, frozenset[int]]


class LivePool:
    """Decides for jobs by index, on nodes by index.

    Parameters
    ----------
    jobs, nodes, mechanism
        As of a simulated pool; see ``build_world``.
    """

    def __init__(self, jobs: PoolJobs, nodes: int, mechanism: Mechanism) -> None:
        self.world = build_world(
            StateAllocator(compiled=False), jobs, nodes, mechanism, Fraction(1), records=False
        )
        self.lost_us: dict[int, list[int]] = {}
        """What each preemption of a job threw away, in order."""
        self._none = jobs.count
        self._records = cast("list[state.HybridJobRecord]", self.world.jobs)
        self._records.append(state.HybridJobRecord(kind=state.ON_DEMAND, status=state.RUNNING))
        self._evicted: dict[int, int] = {}
        self._met_us: dict[int, int] = {}
        self._lent_until_us: dict[int, int] = {}
        self._live: dict[int, LiveJob] = {}
        self._away: frozenset[int] = frozenset()
        self._held: dict[int, int] = {}

    @classmethod
    def empty(cls, places: int, nodes: int, mechanism: Mechanism) -> LivePool:
        """Return a pool that so many jobs can ``enter`` at a time."""
        pool = cls(PoolJobs.blank(places), nodes, mechanism)
        for place in range(places):
            pool.world.jobs[place].status = state.OVER
        return pool

    def enter(self, entry: state.HybridJobRecord) -> int | None:
        """Take a job in the place of one that is over; return its index, None where all places are taken."""
        world, clock = self.world, self.world.clock[0]
        bound = {world.loans[at].lender for at in range(clock.leases)}
        bound |= {world.plans[at].victim for at in range(clock.plans)}
        for job in range(world.rules[0].jobs):
            if world.jobs[job].status == state.OVER and job not in bound:
                self._records[job] = entry
                for known in (self.lost_us, self._evicted, self._met_us, self._lent_until_us):
                    known.pop(job, None)
                return job
        return None

    def step(self, now_us: int, live: Mapping[int, LiveJob], away: Collection[int] = ()) -> LiveOrders:
        """Take what Slurm says, and decide.

        Parameters
        ----------
        now_us
            Microseconds since the run's second 0.
        live
            The jobs that Slurm has or had, by index; others have not come.
        away
            Nodes that are down, or that others' jobs hold.
        """
        world, clock = self.world, self.world.clock[0]
        clock.now_us = now_us
        counts = [(entry.preemptions, entry.shrinks, entry.lost_us) for entry in self._records]
        for job in sorted(live):
            if live[job].status == state.OVER and world.jobs[job].status != state.OVER:
                self._end(job)
        self._live, self._away = dict(live), frozenset(away)
        self._take_over()
        if world.rules[0].strategy != state.SHARE:
            self._decide()
        victims, shrunk = {}, {}
        for job, (preemptions, shrinks, lost_us) in enumerate(counts):
            entry = world.jobs[job]
            if entry.preemptions > preemptions:
                victims[job] = entry.status == state.LEAVING
                self._evicted[job] = self._live[job].attempt
                self.lost_us.setdefault(job, []).append(entry.lost_us - lost_us)
            elif entry.shrinks > shrinks:
                shrunk[job] = tuple(n for n in range(world.rules[0].nodes) if world.nodes[n].job == job)
        self._take_over()
        return LiveOrders(preempt=victims, shrink=shrunk, reserved=self._reserved())

    def meet_again(self, job: int, *, rigid: bool = False) -> None:
        """Decide anew for the on-demand jobs that wait for nodes of a job that does not give them.

        ``rigid``: it did not shrink, and never will.
        """
        nodes = self.world.nodes
        if rigid:
            self.world.jobs[job].least = self.world.jobs[job].asked
        held = self._live[job].nodes if job in self._live else ()
        for demand in {nodes[node].lease for node in held} & self._met_us.keys():
            self._forget_decision(demand)

    def _end(self, job: int) -> None:
        """Let a job end that Slurm says has ended; its nodes go back to those that lent them."""
        world, entry = self.world, self.world.jobs[job]
        if entry.status in (state.RUNNING, state.LEAVING) and not self._is_evicted(job):
            entry.status = state.RUNNING
            end(world, job)
        elif entry.kind == state.ON_DEMAND:
            demands.give_up_waiting(world, job)
        entry.status = state.OVER
        for node in range(world.rules[0].nodes):
            live = self._live.get(world.nodes[node].job)
            if live is not None and live.status == state.WAITING:
                self._lent_until_us[world.nodes[node].job] = world.clock[0].now_us + world.rules[0].release_us

    def _is_evicted(self, job: int) -> bool:
        live = self._live.get(job)
        return live is not None and self._evicted.get(job) == live.attempt

    def _take_over(self) -> None:
        """Make the tables say what Slurm says; what was given to a job that waits becomes its lease."""
        world, clock, count = self.world, self.world.clock[0], self.world.rules[0].nodes
        held = dict.fromkeys(self._away, self._none)
        for job, live in self._live.items():
            held |= dict.fromkeys(live.nodes, job)
            self._take_over_job(job, live)
        clock.free = clock.waiting = clock.active = 0
        for entry in self._records:
            entry.nodes = entry.plain = entry.got = 0
        for node in range(count):
            cell, holder = world.nodes[node], held.get(node, state.NO_JOB)
            was_given = cell.job not in (state.NO_JOB, holder, self._held.get(node))
            if was_given and world.jobs[cell.job].status == state.WAITING:
                cell.lease = cell.job
            cell.job = holder
            if cell.lease != state.NO_JOB and not self._keeps_lease(cell.lease):
                cell.lease = state.NO_JOB
            if holder == state.NO_JOB:
                clock.free += cell.lease == state.NO_JOB
            else:
                world.jobs[holder].nodes += 1
                world.jobs[holder].plain += cell.lease == state.NO_JOB
        self._held = held
        leases = [world.nodes[node].lease for node in range(count)]
        for job in range(world.rules[0].jobs):
            entry = world.jobs[job]
            if entry.kind == state.ON_DEMAND and entry.status in (state.COMING, state.WAITING):
                entry.missing = entry.asked - leases.count(job) if self._collects(job) else 0
            if entry.status in (state.RUNNING, state.LEAVING):
                world.active[clock.active] = job
                clock.active += 1
            elif entry.status == state.WAITING:
                state.wait(world, job)

    def _take_over_job(self, job: int, live: LiveJob) -> None:
        entry, world = self.world.jobs[job], self.world
        if live.status == state.WAITING:
            is_new = entry.kind == state.ON_DEMAND and job not in self._met_us
            entry.status = state.COMING if is_new else state.WAITING
            entry.attempts = live.attempt
        elif live.status == state.RUNNING and entry.attempts != live.attempt + 1:
            entry.attempts = live.attempt + 1
            entry.status, entry.share = state.RUNNING, world.rules[0].whole
            entry.begun_us = entry.since_us = entry.stretch_us = min(live.since_us, world.clock[0].now_us)
            entry.setup_left = entry.setup
            entry.left = entry.total = entry.work + state.saves_of(entry, entry.work) * entry.save
        elif live.status == state.LEAVING or (live.status == state.RUNNING and self._is_evicted(job)):
            if entry.status != state.LEAVING:
                entry.next_us = world.clock[0].now_us
            entry.status = state.LEAVING
        elif live.status == state.RUNNING and entry.nodes != len(live.nodes):
            state.settle(world, entry)

    def _keeps_lease(self, job: int) -> bool:
        entry, now_us = self.world.jobs[job], self.world.clock[0].now_us
        if entry.kind == state.ON_DEMAND:
            return entry.status in (state.COMING, state.WAITING)
        return self._live[job].status == state.WAITING and now_us < self._lent_until_us.get(job, 0)

    def _collects(self, job: int) -> bool:
        entry = self.world.jobs[job]
        return entry.notice == state.KNOWN or (job in self._met_us and entry.status == state.WAITING)

    def _decide(self) -> None:
        """Let happen what is due, in the simulator's order."""
        world, now_us = self.world, self.world.clock[0].now_us
        while (plan := demands.next_plan(world)) != state.NO_JOB and world.plans[plan].at_us <= now_us:
            demands.carry_out(world, plan)
        while (late := first_over(world)) != state.NO_JOB and (
            world.jobs[late].predicted_us + world.rules[0].release_us <= now_us
        ):
            demands.give_up_waiting(world, late)
        for job in range(world.rules[0].jobs):
            entry = world.jobs[job]
            is_due = entry.notice == state.SILENT and entry.notice_us <= now_us and job not in self._live
            if is_due and demands.expect(world, job) and world.rules[0].strategy == state.PLAN:
                demands.plan_for(world, job)
        for job in sorted(self._live, key=lambda job: world.jobs[job].order):
            if world.jobs[job].kind == state.ON_DEMAND and self._live[job].status != state.OVER:
                self._look_at_demand(job)
        waiting = [job for job in self._met_us if world.jobs[job].status == state.WAITING]
        expected = [world.expected[place] for place in range(world.clock[0].expected)]
        for job in waiting + expected:
            if self._collects(job) and world.jobs[job].missing > 0:
                reserve_free(world, job)

    def _look_at_demand(self, demand: int) -> None:
        """Decide for an on-demand job that has come, once; again if another job took its nodes meanwhile."""
        world, now_us = self.world, self.world.clock[0].now_us
        met_us = self._met_us.setdefault(demand, now_us)
        if self._live[demand].status != state.WAITING:
            world.jobs[demand].notice = state.PAST
            demands.forget_expected(world, demand)
        elif world.jobs[demand].status == state.COMING:
            demands.meet(world, demand)
            if world.clock[0].asking == demand:
                name_victims(world, demand)
                world.clock[0].asking = state.NO_JOB
                demands.evict_for(world, demand)
        elif now_us - met_us > _MISSED_US:
            cells = [world.nodes[node] for node in range(world.rules[0].nodes)]
            holders = [cell.job for cell in cells if cell.lease == demand and cell.job != state.NO_JOB]
            if any(world.jobs[holder].status == state.RUNNING for holder in holders):
                self._forget_decision(demand)

    def _forget_decision(self, demand: int) -> None:
        for node in range(self.world.rules[0].nodes):
            if self.world.nodes[node].lease == demand:
                unreserve(self.world, node)
        self.world.jobs[demand].status = state.COMING
        del self._met_us[demand]

    def _reserved(self) -> dict[int, frozenset[int]]:
        """Return which nodes are to be reserved for whom: all, until an on-demand job has enough."""
        world, every = self.world, frozenset(range(self.world.rules[0].nodes))
        reserved: dict[int, frozenset[int]] = {}
        for node in sorted(every):
            lease = world.nodes[node].lease
            if lease != state.NO_JOB:
                reserved[lease] = reserved.get(lease, frozenset()) | {node}
        for job in range(world.rules[0].jobs):
            if self._collects(job) and world.jobs[job].missing > 0:
                reserved[job] = every
        for borrower in {world.loans[place].borrower for place in range(world.clock[0].leases)}:
            if borrower in self._live and self._live[borrower].status == state.RUNNING:
                reserved[borrower] = frozenset(self._live[borrower].nodes)
        return reserved
