"""Slurm's main and backfill schedulers, and the plan of the latter.

Slurm's two schedulers: starts in order of priority at ends and looks, backfilling now and then.

The main scheduler goes through the queue by priority and stops at the first job that does not fit. It runs
when the nodes of a job that has ended are done with it. Jobs that have arrived wait until the controller
looks, once a ``tick``, and has not looked for such jobs for ``delay`` seconds; it also runs ``every`` so
often while jobs wait.

The backfill scheduler runs ``interval`` seconds after it ran last, if anything has changed since; else it
looks whether anything has, once a tick. For each of the first ``depth`` jobs it finds the earliest start
(``slurm_plan``); who can start now starts, and the others, as many as ``reserve``, are kept nodes, if they
start within ``window`` seconds.

Priority is multifactor: age up to ``max_age``, size, and fair share ``2^(-usage/share)`` with usage that
decays by half in ``half_life`` and equal shares. Sources: slurm.conf(5), SchedulerParameters; Slurm's
documents on multifactor priority (classic fair share); ``_slurmctld_background``, ``_schedule``,
``backfill_agent`` and ``set_priority_factors`` in Slurm 22.05.

What Slurm's backfill scheduler foresees: when limits run out, and which nodes are kept for whom.

Running jobs hold their cores until their limits end. A job that cannot start now is kept nodes, whole, from
when it can start until its limit would end. Sets of nodes are numbers, a bit a node. Sources:
``_attempt_backfill`` and ``_add_reservation`` of ``sched/backfill``, ``_will_run_test`` of
``select/cons_common``, Slurm 22.05.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from foundation.units import US_PER_S
from simulator.model.jobs import SimulatedJob
from simulator.policy_interface import (
    Event,
    JobArrived,
    JobEnded,
    JobPreempted,
    NodeState,
    SchedulerContext,
    SimulationStarted,
    Timer,
)

_FIRST_WINDOW_US = 30 * US_PER_S


class PlannedNode:
    """The cores of a node, as they will be; ``multiplicity`` jobs share each."""

    def __init__(self, cores: int, multiplicity: int) -> None:
        self._slots = [multiplicity] * cores
        self._held: list[tuple[int, int]] = []
        self._steps: list[int] | None = None

    def hold(self, cores: Iterable[int], ends_us: int) -> None:
        """Let a job hold cores."""
        self._held = sorted([*self._held, *((ends_us, core) for core in cores)])
        self._steps = None

    def free_cores(self, at_us: int) -> int:
        """Return how many cores have a free slot at an instant, once all that ends then has ended."""
        if self._steps is None:
            self._steps = self._room_after_each_end()
        return self._steps[bisect_right(self._held, (at_us, len(self._slots)))]

    def _room_after_each_end(self) -> list[int]:
        left = list(self._slots)
        for _, core in self._held:
            left[core] -= 1
        gains = []
        for _, core in self._held:
            left[core] += 1
            gains.append(int(left[core] == 1))
        return list(accumulate(gains, initial=len(left) - sum(gains)))


class BackfillPlan:
    """What one pass of the backfill scheduler foresees.

    Parameters
    ----------
    now_us
        When the pass is.
    nodes
        The nodes that take jobs, by number.
    resolution_us
        To what the times are rounded down for which nodes are kept.
    """

    def __init__(self, now_us: int, nodes: dict[int, PlannedNode], resolution_us: int) -> None:
        self._now_us = now_us
        self._nodes = nodes
        self._resolution_us = max(1, resolution_us)
        self._ends: dict[int, int] = {}
        self._fits: dict[tuple[int, int], int] = {}
        # From each instant to the next these nodes are kept for no job.
        self._instants = [min(0, now_us)]
        self._free = [_bits(nodes)]

    def hold(self, node: int, cores: Iterable[int], ends_us: int) -> None:
        """Let a running job hold cores until its limit ends, which is never thought to be past."""
        if node not in self._nodes:
            return
        ends_us = max(ends_us, self._now_us + US_PER_S)
        self._nodes[node].hold(cores, ends_us)
        self._ends[ends_us] = self._ends.get(ends_us, 0) | 1 << node
        self._fits.clear()

    def keep(self, nodes: Iterable[int], start_us: int, limit_us: int) -> None:
        """Keep nodes, whole, for a job."""
        step = self._resolution_us
        since = start_us // step * step
        until = max((start_us + limit_us) // step * step, since + step)
        first, last = self._cut(since), self._cut(until)
        kept = _bits(nodes)
        for place in range(first, last):
            self._free[place] &= ~kept

    def usable(self, start_us: int, limit_us: int) -> list[int]:
        """Return the nodes that are kept for no job in that time."""
        return _numbers(self._usable(start_us, limit_us))

    def later(self, job: SimulatedJob, limit_us: int) -> tuple[int, list[int]] | None:
        """Return when and where a job that cannot start now can, or None if that is not foreseen."""
        tries = [self._now_us, *self._releases()]
        for place, from_us in enumerate(tries):
            usable = self._usable(from_us, limit_us)
            fit_us = self._first_fit_us(job, usable)
            if fit_us is None:
                continue
            start_us = max(fit_us, from_us)
            if place + 1 < len(tries) and tries[place + 1] < start_us:
                continue  # more nodes are free by then
            chosen = self._roomiest(job, usable, start_us)
            if not _bits(chosen) & ~self._usable(start_us, limit_us):
                return start_us, chosen
        return None

    def _cut(self, at_us: int) -> int:
        """Return the place of an instant, from which on other nodes can be kept."""
        place = bisect_left(self._instants, at_us)
        if place == len(self._instants) or self._instants[place] != at_us:
            self._instants.insert(place, at_us)
            self._free.insert(place, self._free[place - 1])
        return place

    def _releases(self) -> Iterator[int]:
        """Yield the instants to come at which a node is no longer kept."""
        for place in range(max(1, bisect_right(self._instants, self._now_us)), len(self._instants)):
            if self._free[place] & ~self._free[place - 1]:
                yield self._instants[place]

    def _usable(self, start_us: int, limit_us: int) -> int:
        first = bisect_right(self._instants, start_us) - 1
        last = bisect_right(self._instants, start_us + limit_us)
        free = self._free[first]
        for place in range(first + 1, last):
            free &= self._free[place]
        return free

    def _first_fit_us(self, job: SimulatedJob, usable: int) -> int | None:
        """Return the first instant that Slurm tries at which enough of the nodes are free."""
        if usable.bit_count() < job.nodes:
            return None
        if (self._fit(job.cores, self._now_us) & usable).bit_count() >= job.nodes:
            return self._now_us + US_PER_S
        for at_us in windows(sorted(ends_us for ends_us, nodes in self._ends.items() if nodes & usable)):
            if (self._fit(job.cores, at_us) & usable).bit_count() >= job.nodes:
                return at_us
        return None

    def _fit(self, cores: int, at_us: int) -> int:
        """Return the nodes that have so many free cores then."""
        if (cores, at_us) not in self._fits:
            fit = (number for number, node in self._nodes.items() if node.free_cores(at_us) >= cores)
            self._fits[cores, at_us] = _bits(fit)
        return self._fits[cores, at_us]

    def _roomiest(self, job: SimulatedJob, usable: int, at_us: int) -> list[int]:
        """Return the nodes that a job would get then: those with the most free resources."""
        fit = _numbers(self._fit(job.cores, at_us) & usable)
        return sorted(fit, key=lambda node: -self._nodes[node].free_cores(at_us))[: job.nodes]


def _bits(nodes: Iterable[int]) -> int:
    return sum(1 << node for node in nodes)


def _numbers(nodes: int) -> list[int]:
    return [node for node in range(nodes.bit_length()) if nodes >> node & 1]


def windows(ends_us: Sequence[int]) -> Iterator[int]:
    """Yield the last end of each window: jobs that end close in time are taken to end together.

    The first window goes to 30 s beyond the first whole half minute after the first end, the next twice as
    far beyond it, and so on; empty ones are left out.
    """
    if not ends_us:
        return
    barrier = (ends_us[0] // _FIRST_WINDOW_US + 1) * _FIRST_WINDOW_US
    window = _FIRST_WINDOW_US
    last = ends_us[0]
    for at_us in ends_us:
        if at_us > barrier + window:
            yield last
        while at_us > barrier + window:
            window *= 2
        last = at_us
    yield last


LOOK, SOON, BACKFILL, COMPLETED = "look", "soon", "backfill", "completed"
_DAY_US = 86_400_000_000


@dataclass(kw_only=True)
class SlurmSchedulers:
    """See the module, and the options of the family; times in microseconds."""

    tick_us: int = 0
    delay_us: int = 0
    every_us: int = 0
    spacing_us: int = 0
    ends_wait: bool = False
    interval_us: int = 30_000_000
    phase_us: int = 0
    depth: int = 500
    window_us: int = _DAY_US
    reserve: int = 0
    resolution_us: int = 0
    backfills: bool = True
    completing_us: int = 0
    limits: int = 0
    age: float = 0.0
    size: float = 0.0
    fair: float = 0.0
    small: bool = False
    max_age_us: int = 7 * _DAY_US
    calc_us: int = 0
    half_life_us: int = 7 * _DAY_US
    _asked: bool = False
    _ran_us: int | None = None
    _soon: bool = False
    _new: bool = False
    _looked_us: int | None = None
    _sweep_us: int | None = None
    _look: tuple[int, Timer] | None = None
    _changed: bool = False
    _filled_us: int | None = None
    _fills: bool = False
    _began_us: dict[int, int] = field(default_factory=dict)
    _usage: dict[int | None, float] = field(default_factory=lambda: defaultdict(float))
    _decayed_us: int = 0
    _completing: dict[int, int] = field(default_factory=dict)

    def hear(self, context: SchedulerContext, event: Event) -> None:
        """Note what is due."""
        match event:
            case SimulationStarted():
                return
            case JobArrived():
                self._want(new=True)
            case JobEnded(job) | JobPreempted(job):
                self._charge(context, job)
                self._complete(context, job)
            case Timer(kind=kind, about=about):
                self._ring(context, kind, about)
                if kind != COMPLETED:
                    return
            case _:
                self._want(new=True)
        self._changed = True

    def schedule(self, context: SchedulerContext) -> None:
        """Run the main scheduler, if it is due and not too soon; see to it that both run again."""
        if self._asked:
            again_us = 0 if self._ran_us is None else self._ran_us + self.spacing_us
            if context.now_us >= again_us:
                self._main(context)
            elif not self._soon:
                context.set_timer(again_us, SOON)
                self._soon = True
        self._set_look(context)
        if self._changed and self.backfills and not self._fills:
            context.set_timer(self._next_fill_us(context.now_us), BACKFILL)
            self._fills = True

    def _want(self, *, new: bool) -> None:
        """Ask for the main scheduler: at once, or, for a new job, with the next look."""
        if new and (self.tick_us or self.delay_us):
            self._new = True
        else:
            self._asked = True

    def _ring(self, context: SchedulerContext, kind: str, about: SimulatedJob | None) -> None:
        if kind == LOOK:
            self._look = None
            self._look_around(context.now_us)
        elif kind == SOON:
            self._soon = False
        elif kind == BACKFILL:
            self._fills = False
            self._backfill(context)
        elif kind == COMPLETED and about is not None:
            self._completed(context, about)

    def _look_around(self, now_us: int) -> None:
        sweeps = self._sweep_us is not None and now_us >= self._sweep_us
        if sweeps:
            self._sweep_us = None
        if sweeps or (self._new and now_us >= self._next_for_new_us()):
            self._asked, self._new, self._looked_us = True, False, now_us

    def _next_for_new_us(self) -> int:
        return 0 if self._looked_us is None else self._looked_us + self.delay_us

    def _set_look(self, context: SchedulerContext) -> None:
        """See to it that the controller looks once there will be anything to find."""
        if not context.waiting or not self.every_us:
            self._sweep_us = None
        elif self._sweep_us is None:
            self._sweep_us = (context.now_us // self.every_us + 1) * self.every_us
        due = [] if self._sweep_us is None else [self._sweep_us]
        due += [self._next_for_new_us()] if self._new else []
        if not due:
            return
        at_us = self._next_tick_us(max(min(due), context.now_us), context.now_us)
        if self._look is not None:
            if self._look[0] <= at_us:
                return
            context.cancel(self._look[1])
        self._look = at_us, context.set_timer(at_us, LOOK)

    def _next_tick_us(self, at_us: int, now_us: int) -> int:
        """Return the first look that is still to come at an instant or after it.

        Looks are amid the multiples of a tick, so that jobs of a trace in whole seconds wait half a second
        for a tick of a second, as they do on average.
        """
        if not self.tick_us:
            return at_us
        first_us = self.tick_us // 2
        look_us = first_us - (first_us - at_us) // self.tick_us * self.tick_us
        return look_us if look_us > now_us else look_us + self.tick_us

    def _next_fill_us(self, now_us: int) -> int:
        """Return when the backfill scheduler runs, now that something has changed."""
        if self._filled_us is None and not self.phase_us:
            return self._next_tick_us(now_us, now_us)
        if self._filled_us is None:
            self._filled_us = now_us - (now_us - self.phase_us) % self.interval_us
        again_us = self._filled_us + self.interval_us
        if now_us <= again_us or not self.tick_us:
            return max(now_us, again_us)
        return again_us - (again_us - now_us) // self.tick_us * self.tick_us

    def _main(self, context: SchedulerContext) -> None:
        self._asked, self._ran_us = False, context.now_us
        queue = self._queue(context)
        started = 0
        for job in queue:
            if not context.start(job):
                break
            self._note_start(context, job)
            started += 1
        # Slurm counts it as a change that it looked at a job behind one that does not fit.
        self._changed = self._changed or started > 0 or len(queue) - started > 1

    def _note_start(self, context: SchedulerContext, job: SimulatedJob) -> None:
        self._began_us[job.number] = context.now_us

    def _backfill(self, context: SchedulerContext) -> None:
        self._filled_us, self._changed = context.now_us, False
        if not context.waiting:
            return
        plan = self._plan(context)
        kept = 0
        for job in self._queue(context)[: self.depth]:
            limit_us = max(context.remaining_us(job), 1)
            if self._start_now(context, plan, job, limit_us):
                self._changed = True
            elif not self.reserve or kept < self.reserve:
                found = plan.later(job, limit_us)
                if found is not None and found[0] <= context.now_us + self.window_us:
                    plan.keep(found[1], found[0], limit_us)
                    kept += 1

    def _start_now(
        self, context: SchedulerContext, plan: BackfillPlan, job: SimulatedJob, limit_us: int
    ) -> bool:
        usable = set(plan.usable(context.now_us, limit_us))
        cores = context.place(job, off=[node for node in range(context.nodes) if node not in usable])
        if cores is None or not context.start(job, on=cores):
            return False
        self._note_start(context, job)
        for node, ids in cores.items():
            plan.hold(node, ids, context.now_us + limit_us)
        return True

    def _plan(self, context: SchedulerContext) -> BackfillPlan:
        up = [node for node in range(context.nodes) if context.node_state(node) is not NodeState.DOWN]
        nodes = {node: PlannedNode(context.cores, context.multiplicity) for node in up}
        plan = BackfillPlan(context.now_us, nodes, self.resolution_us)
        for job in context.running:
            for node, cores in context.held(job).items():
                plan.hold(node, cores, self._ends_us(context, job))
        return plan

    def _ends_us(self, context: SchedulerContext, job: SimulatedJob) -> int:
        """Return when a job ends by its limit, which is a time on the wall where jobs share cores."""
        if self.limits > 1 and job.number in self._began_us:
            return self._began_us[job.number] + job.requested_us
        return context.now_us + context.remaining_us(job)

    def _queue(self, context: SchedulerContext) -> list[SimulatedJob]:
        if not (self.age or self.size or self.fair):
            return list(context.waiting)
        self._decay(context)
        return sorted(context.waiting, key=lambda job: -self._priority(context, job))

    def _priority(self, context: SchedulerContext, job: SimulatedJob) -> int:
        known_us = context.now_us - context.now_us % self.calc_us if self.calc_us else context.now_us
        age = min(1.0, max(0, known_us - job.submit_us) / self.max_age_us)
        size = (job.nodes / context.nodes + job.nodes * job.cores / (context.nodes * context.cores)) / 2
        whole = sum(self._usage.values())
        share = 1 / max(1, len(self._usage))
        used = self._usage.get(job.user, 0.0) / whole if whole else 0.0
        fair = float(2.0 ** (-used / share))
        return int(self.age * age + self.size * (1 - size if self.small else size) + self.fair * fair)

    def _decay(self, context: SchedulerContext) -> None:
        factor = 0.5 ** ((context.now_us - self._decayed_us) / self.half_life_us)
        self._decayed_us = context.now_us
        for user in self._usage:
            self._usage[user] *= factor

    def _charge(self, context: SchedulerContext, job: SimulatedJob) -> None:
        """Charge a job's user."""
        self._decay(context)
        self._usage[job.user] += job.nodes * job.cores * job.run_us / 1e6

    def _complete(self, context: SchedulerContext, job: SimulatedJob) -> None:
        """Let the nodes of a job that has ended complete, or be done with it at once."""
        if not self.completing_us:
            self._want(new=self.ends_wait)
            return
        for node in context.held(job):
            context.drain(node)
            self._completing[node] = job.number
        context.set_timer(context.now_us + self.completing_us, COMPLETED, job)

    def _completed(self, context: SchedulerContext, job: SimulatedJob) -> None:
        for node in [node for node, number in self._completing.items() if number == job.number]:
            del self._completing[node]
            context.drain(node, drained=False)
        self._want(new=self.ends_wait)
