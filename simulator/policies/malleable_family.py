"""The malleable strategies, and the family of policies that they are.

Malleable strategies over EASY: MIN, PREF, AVG and KEEPPREF (Zojer, Posner, Oezden, section 2.1).

A pass has three steps. (1) EASY starts waiting jobs; a malleable one starts at its minimum (MIN, AVG), at the
size that it prefers (KEEPPREF), or at that or what is free (PREF). (2) In order of the queue, until one
cannot be served: running malleable jobs give nodes, highest priority first, so that a waiting job can start.
(3) Idle nodes go to running malleable jobs, lowest priority first.

The priority is the number of nodes beyond the minimum (MIN) or beyond the preferred size (PREF, KEEPPREF), or
the share of what lies between minimum and maximum (AVG). A job gives down to its minimum; with KEEPPREF down
to the preferred size; with PREF so, too, as long as that serves a waiting job. It takes up to its maximum;
with PREF all take up to what they prefer first. With AVG one node changes hands at a time, else a job gives
or takes all that it can before the next one does. ``docs/malleable.md`` says which of this is our reading.

This is the policy in plain Python; ``malleable_loop`` has the same as kernels.

The malleable strategies in the registry: their options, and how jobs become malleable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from foundation.errors import UsageError
from foundation.units import seconds_to_us
from simulator.jit.field_records import Ints, RecordTable, StateAllocator
from simulator.model.job_sizes import Amdahl, Downey, Efficiencies, Fractions, SizeConversion, read_sizes
from simulator.model.jobs import JobLifecycles, PoolJobs, SimulatedJob, Sizes
from simulator.policies.easy.backfill_state import new_outlook, shapes_of
from simulator.policies.malleable_loop import (
    FreedRecord,
    MalleablePlan,
    PlaceRecord,
    SizeRecord,
    StrategyRecord,
    run_malleable_events,
)
from simulator.policies.policy_family import Family, PolicyOption, Value, choice, number
from simulator.policy_interface import Event, Program, SchedulerContext, SimulationStarted, Timer
from simulator.state.engine_state import EngineState

TICK = "tick"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """What distinguishes the strategies.

    Parameters
    ----------
    prefers
        Priorities count from the preferred size, at which jobs start and beyond which they give; else from
        the minimum.
    yields
        Where that serves no job a job may start on fewer nodes, and give down to its minimum.
    evenly
        One node changes hands at a time, and priorities are relative to the range of sizes.
    """

    prefers: bool = False
    yields: bool = False
    evenly: bool = False

    def start_size(self, job: SimulatedJob) -> int:
        """Return the nodes that a job starts on, if nothing hinders it."""
        if job.life.sizes is None:
            return job.nodes
        return job.life.sizes.preferred if self.prefers else job.life.sizes.least

    def priority(self, job: SimulatedJob, nodes: int) -> Fraction:
        """Return the priority of a malleable job that runs on so many nodes."""
        assert job.life.sizes is not None
        base = job.life.sizes.preferred if self.prefers else job.life.sizes.least
        span = max(1, job.most_nodes - job.least_nodes) if self.evenly else 1
        return Fraction(nodes - base, span)


@dataclass
class Malleable:
    """A strategy at work.

    Parameters
    ----------
    strategy
        Which one.
    needs_idle
        Jobs give nodes only while at least one node idles.
    protects_head
        No job starts that would delay the head of the queue, as EASY has it; else each that fits.
    tick_us
        Passes are made at multiples of this; 0: at every event.
    cost_us, cost_a_node_us
        Set-up time of a resize, and for each node that comes or goes.
    """

    keeps_lifecycles: ClassVar[bool] = True

    strategy: Strategy
    needs_idle: bool = False
    protects_head: bool = True
    tick_us: int = 0
    cost_us: int = 0
    cost_a_node_us: int = 0
    _ticking: bool = False
    _rang: bool = False
    _changed: dict[int, tuple[int, bool]] = field(default_factory=dict)

    def program(self, make: StateAllocator, state: EngineState, jobs: PoolJobs) -> Program:
        """See ``KernelPolicy``."""
        strategy = self.strategy
        plan = MalleablePlan(
            strategy=make.table(
                StrategyRecord,
                1,
                prefers=int(strategy.prefers),
                yields=int(strategy.yields),
                evenly=int(strategy.evenly),
                needs_idle=int(self.needs_idle),
                unprotected=int(not self.protects_head),
                tick_us=self.tick_us,
                cost_us=self.cost_us,
                cost_a_node_us=self.cost_a_node_us,
            ),
            sizes=self._sizes(make, jobs),
            places=make.table(PlaceRecord, jobs.count),
            freed=make.table(FreedRecord, len(state.class_of)),
        )
        outlook = new_outlook(make, state, shapes_of(state), elsewhere=False)
        return Program(run_malleable_events, (state, state.lifecycles, outlook, plan))

    def _sizes(self, make: StateAllocator, jobs: PoolJobs) -> RecordTable[SizeRecord]:
        """Return the table of sizes."""
        lifecycles = jobs.every_lifecycle

        def nodes(value: Callable[[Sizes], int]) -> Ints:
            chosen = lifecycles.column(lambda life: 0 if life.sizes is None else value(life.sizes))
            return np.where(chosen > 0, chosen, jobs.nodes)

        least = nodes(lambda sizes: sizes.least)
        preferred = nodes(lambda sizes: sizes.preferred)
        most = nodes(lambda sizes: sizes.most)
        base = preferred if self.strategy.prefers else least
        span = np.maximum(1, most - least) if self.strategy.evenly else np.ones(jobs.count, dtype=np.int64)
        return make.table(
            SizeRecord,
            jobs.count,
            least=least,
            preferred=preferred,
            most=most,
            start=base,
            base=base,
            span=span,
        )

    def hear(self, context: SchedulerContext, event: Event) -> None:
        """See to it that the next tick makes a pass."""
        self._rang = isinstance(event, Timer) and event.kind == TICK
        if self._rang:
            self._ticking = False
        elif self.tick_us and not self._ticking and not isinstance(event, SimulationStarted):
            self._ticking = True
            context.set_timer(-(-context.now_us // self.tick_us) * self.tick_us, TICK)

    def schedule(self, context: SchedulerContext) -> None:
        """Make a pass, unless it waits for a tick."""
        if self.tick_us and not self._rang:
            return
        self._start_by_easy(context)
        while context.waiting and self._free_nodes(context, context.waiting[0]):
            pass
        if self.strategy.prefers and self.strategy.yields:
            self._hand_out(context, "preferred")
        self._hand_out(context, "most")

    def _start_by_easy(self, context: SchedulerContext) -> None:
        """Step 1."""
        while context.waiting:
            size = self._size_now(context, context.waiting[0])
            if size is None:
                break
            self._start(context, context.waiting[0], size)
        if not context.waiting:
            return
        head, *rest = context.waiting
        wanted = self.strategy.start_size(head)
        start_us: int | None = None  # not known, as always when something has started
        for job in rest:
            size = self._size_now(context, job)
            if size is None:
                continue
            if self.protects_head:
                start_us = context.earliest_start_us(head, nodes=wanted) if start_us is None else start_us
                on = context.place(job, size)
                if context.earliest_start_us(head, started=job, on=on, nodes=wanted) > start_us:
                    continue
            self._start(context, job, size)
            start_us = None

    def _size_now(self, context: SchedulerContext, job: SimulatedJob) -> int | None:
        """Return the size at which a job can start now, None if it cannot."""
        wanted = self.strategy.start_size(job)
        least = job.least_nodes if self.strategy.yields else wanted
        return next((size for size in range(wanted, least - 1, -1) if context.place(job, size)), None)

    def _start(self, context: SchedulerContext, job: SimulatedJob, size: int) -> bool:
        self._changed[job.index] = (context.now_us, False)
        return context.start(job, size)

    def _free_nodes(self, context: SchedulerContext, head: SimulatedJob) -> bool:
        """Step 2: start the head of the queue on nodes that running jobs give; return whether it did."""
        size, strategy = self.strategy.start_size(head), self.strategy
        attempts = [(size, "preferred" if strategy.prefers else "least")]
        if strategy.prefers and strategy.yields:
            attempts += [(head.least_nodes, "preferred"), (head.least_nodes, "least")]
        for wanted, floor in attempts:
            targets = self._plan_givers(context, head, wanted, floor)
            if targets is not None:
                self._meet(context, targets)
                return self._start(context, head, wanted)
        return False

    def _plan_givers(
        self, context: SchedulerContext, head: SimulatedJob, wanted: int, floor: str
    ) -> dict[int, int] | None:
        """Return to which sizes jobs go down so that ``head`` fits on so many nodes, None if it won't."""
        if self.needs_idle and not context.idle_nodes():
            return None
        cores, kib = Counter[int](), Counter[int]()

        def has_space(node: int) -> bool:
            enough = context.free_cores(node) + cores[node] >= head.cores
            return enough and context.free_memory_kib(node) + kib[node] >= head.memory_kib

        have = sum(map(has_space, range(context.nodes)))
        running = {job.index: job for job in context.running}
        targets: dict[int, int] = {}
        for index, target in self._moves(context, floor, -1):
            if have >= wanted:
                break
            job = running[index]
            node = sorted(context.held(job))[target]
            had_space = has_space(node)
            cores[node] += job.cores
            kib[node] += job.memory_kib
            have += has_space(node) - had_space
            targets[index] = target
        return targets if have >= wanted else None

    def _hand_out(self, context: SchedulerContext, ceiling: str) -> None:
        """Step 3: give idle nodes to running jobs, up to a ceiling."""
        idle = len(context.idle_nodes())
        self._meet(context, dict(islice(self._moves(context, ceiling, 1), idle)))

    def _moves(self, context: SchedulerContext, bound: str, sign: int) -> Iterator[tuple[int, int]]:
        """Yield who gives (-1) or takes (1) the next node, and its size then, until all are at a bound."""
        soft = [job for job in context.running if job.life.sizes is not None]
        sizes = {job.index: len(context.held(job)) for job in soft}
        bounds: dict[int, int] = {job.index: getattr(job.life.sizes, bound) for job in soft}

        def is_able(job: SimulatedJob) -> bool:
            return (bounds[job.index] - sizes[job.index]) * sign > 0

        def rank(job: SimulatedJob) -> tuple[Fraction, int, int]:
            return (
                sign * self.strategy.priority(job, sizes[job.index]),
                sign * job.submit_us,
                sign * job.index,
            )

        able = [job for job in soft if is_able(job)]
        while able:
            job = min(able, key=rank)
            while True:
                sizes[job.index] += sign
                yield job.index, sizes[job.index]
                if self.strategy.evenly or not is_able(job):
                    break
            able = [job for job in able if is_able(job)]

    def _meet(self, context: SchedulerContext, targets: Mapping[int, int]) -> None:
        """Resize jobs, in the order in which they began to give or take."""
        running = {job.index: job for job in context.running}
        for index, target in targets.items():
            job = running[index]
            changed = abs(target - len(context.held(job)))
            at_us, resized = self._changed.get(job.index, (-1, True))
            if at_us < context.now_us:
                self._changed[job.index] = (context.now_us, True)
                cost_us = self.cost_us + self.cost_a_node_us * changed
            else:
                cost_us = self.cost_a_node_us * changed if resized else 0
            context.resize(job, target, cost_us=cost_us)


if TYPE_CHECKING:
    from simulator.model.system import PoolQueues
    from simulator.simulation import Workload

STRATEGIES: dict[str, tuple[Strategy, str]] = {
    "malleable-min": (Strategy(), "jobs start at their minimum; few change size at a time"),
    "malleable-pref": (
        Strategy(prefers=True, yields=True),
        "jobs start at the size that they prefer, or smaller",
    ),
    "malleable-avg": (Strategy(evenly=True), "jobs start at their minimum; nodes are shared out evenly"),
    "malleable-keep-pref": (Strategy(prefers=True), "jobs never have fewer nodes than they prefer"),
}
"""Section 2.1: MIN, PREF, AVG, KEEPPREF."""

OPTIONS = (
    number(
        "malleable_share",
        1.0,
        0.0,
        1.0,
        "share of the batch jobs that are malleable, drawn by --seed; also --malleable-share",
    ),
    choice(
        "conversion",
        ("amdahl", "downey", "fractions"),
        "how a request becomes sizes: amdahl or downey with efficiencies, or fractions of it",
    ),
    number("efficiency_min", 0.95, 0.01, 1.0, "more than this at the minimum size"),
    number("efficiency_preferred", 0.8, 0.01, 1.0, "more than this at the preferred size"),
    number("efficiency_max", 0.5, 0.01, 1.0, "more than this at the maximum size"),
    number("average", 16, 1, 1e6, "downey: least average parallelism"),
    number("sigma", 1.0, 0.0, 1e3, "downey: variance of the parallelism"),
    number("min_fraction", 0.5, 1e-3, 1.0, "fractions: minimum over request"),
    number("max_fraction", 2.0, 1.0, 1e3, "fractions: maximum over request"),
    PolicyOption(
        name="sizes", help="or a CSV file of sizes: trace_job, min_nodes, ... (docs/malleable.md)", default=""
    ),
    number("tick", 0.0, 0.0, 1e6, "seconds between passes; 0: a pass at every event"),
    number("cost", 0.0, 0.0, 1e6, "seconds that a job sets up when it is resized"),
    number("cost_a_node", 0.0, 0.0, 1e6, "and seconds for each node that comes or goes"),
    choice(
        "protect_head", ("yes", "no"), "no job starts that would delay the head of the queue, as EASY has it"
    ),
    choice("shrink_needs_idle", ("yes", "no"), "jobs give nodes only while a node idles", default="no"),
)


def _maker(strategy: Strategy) -> Callable[[Mapping[str, Value]], Malleable]:
    def make(values: Mapping[str, Value]) -> Malleable:
        return Malleable(
            strategy=strategy,
            needs_idle=values["shrink_needs_idle"] == "yes",
            protects_head=values["protect_head"] == "yes",
            tick_us=seconds_to_us(float(values["tick"])),
            cost_us=seconds_to_us(float(values["cost"])),
            cost_a_node_us=seconds_to_us(float(values["cost_a_node"])),
        )

    return make


def conversion_of(values: Mapping[str, Value]) -> SizeConversion:
    """Return how requests become sizes.

    Raises
    ------
    UsageError
        Thresholds contradict each other.
    """

    def exact(name: str) -> Fraction:
        return Fraction(str(values[name]))

    efficiencies = Efficiencies(
        least=exact("efficiency_min"), preferred=exact("efficiency_preferred"), most=exact("efficiency_max")
    )
    if values["conversion"] == "amdahl":
        return Amdahl(efficiencies)
    if values["conversion"] == "downey":
        return Downey(efficiencies, int(values["average"]), float(values["sigma"]))
    return Fractions(exact("min_fraction"), exact("max_fraction"), efficiencies)


def prepare(workload: Workload, queues: PoolQueues, values: Mapping[str, Value], seed: int) -> Workload:
    """Return the workload with a share of its batch jobs malleable: the same for every strategy.

    A larger share has the jobs of a smaller one.

    Raises
    ------
    UsageError
        Thresholds contradict each other, or malleable jobs would share cores.
    InputError
        See ``read_sizes``.
    """
    conversion, nodes = conversion_of(values), queues.batch.nodes
    batch = np.flatnonzero(~workload.interactive)
    given: dict[int, Sizes] = {}
    if values["sizes"]:
        asked = zip(workload.number[batch].tolist(), workload.nodes[batch].tolist(), strict=True)
        given = read_sizes(Path(str(values["sizes"])), dict(asked), nodes)
        batch = batch[np.isin(workload.number[batch], list(given))]
    count = int(float(values["malleable_share"]) * len(batch) + 0.5)
    if count == 0:
        return workload
    if queues.batch.multiplicity > 1:
        raise UsageError.naming("malleable jobs share no cores: their nodes take {multiplicity} 1")
    chosen = batch[np.random.default_rng(seed).permutation(len(batch))[:count]]
    if given:
        sizes, which = [given[number] for number in workload.number[chosen].tolist()], np.arange(count)
    else:
        requests, which = np.unique(workload.nodes[chosen], return_inverse=True)
        sizes = [conversion.sizes(request, nodes) for request in requests.tolist()]
    lifecycles = JobLifecycles.of(workload.lifecycles, workload.count)
    return replace(workload, lifecycles=lifecycles.with_sizes(chosen, sizes, which))


FAMILIES = tuple(
    Family(
        name=name,
        help=f"malleable jobs over EASY: {text}",
        make=_maker(strategy),
        options=OPTIONS,
        prepare=prepare,
        times_passes=True,
    )
    for name, (strategy, text) in STRATEGIES.items()
)
