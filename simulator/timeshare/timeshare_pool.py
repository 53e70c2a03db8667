"""A pool of time-shared nodes run to its end: its policy, noise of nodes, memory of jobs, the result.

Time-sharing on whole nodes, and the batch scheduler to compare with (Hofmeyr et al., HPCC 2016).

Nodes that are slower for a step of ten seconds (Hofmeyr et al., section VI).

What jobs need of a node's memory, where the trace does not tell (Hofmeyr et al., section II).

Of Edison's jobs is printed that 90% of the node-hours use less than 60% of a node, that memory does
not depend on size, and that nodes have 9 jobs in the mean, 20 at times, the vast majority of them admitted
at once. How it is distributed is not printed. By default most need little: the logarithm is normal, with a
median of 2% of a node, and 99% of the node-hours are below 60%; what would exceed a node is drawn anew. That
is an assumption under which memory hardly matters. ``draw_memory_below`` draws what is printed, in two forms.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from foundation.errors import InputError, UsageError
from foundation.interruption import ShortCalls
from simulator.engine.engine_invariants import InvariantError
from simulator.engine.pool_run import PoolRun, PoolWork
from simulator.engine.run_rules import RunRules
from simulator.jit.compilation import Compilation, Compiled, compilation_wanted
from simulator.jit.field_records import Ints, StateAllocator, column, only_record
from simulator.model.jobs import PoolJobs
from simulator.state.allocations import Places
from simulator.state.node_sets import full_set
from simulator.timeshare.fair_rates import seat
from simulator.timeshare.timeshare_loop import DONE, NO_NOISE, STEP_US, run_floor
from simulator.timeshare.timeshare_state import (
    MEMORY,
    SPAN_US,
    WHOLE,
    NoiseRecord,
    SharingConfig,
    TimeshareClockRecord,
    TimeshareDemands,
    TimeshareState,
    longest_us,
    new_floor,
    part_at,
)

PIECE = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """In each step each node has this probability to run at a speed from ``least`` to 1, for that step."""

    probability: float
    least: float = 0.5
    seed: int = 1

    def supply(self, nodes: int) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield, piece by piece and for ever, instants, nodes and speeds; nothing without noise.

        A piece ends with a step: steps and nodes are counted through, and the distance to the next noisy one
        is geometric.
        """
        if self.probability <= 0:
            return
        rng = np.random.default_rng([self.seed, 104_729])
        lowest = max(1, round(self.least * WHOLE))
        last = -1
        while True:
            places = last + np.cumsum(rng.geometric(self.probability, PIECE))
            last = int(places[-1])
            speeds = rng.integers(lowest, WHOLE + 1, PIECE)
            yield places // nodes * STEP_US, places % nodes, speeds


NO_NOISE_AT_ALL = Noise(probability=0.0)


MOST_PLAIN_PARTS = 3_000
"""Jobs times nodes up to which plain Python is quicker than to load a compiler."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TimeshareResult:
    """What became of the jobs.

    Parameters
    ----------
    start_us, end_us
        Shape (jobs,).
    part_at, node
        Nodes of job ``j`` are ``node[part_at[j]:part_at[j + 1]]``.
    delayed
        How many jobs did not start at once.
    most
        Most jobs on a node at a time.
    load, progress
        Mean number of jobs on a node, and mean share of its time that jobs used, by span of six hours.
    events, engine_cpu_s
        Starts and ends, and CPU time of the loop.
    """

    start_us: Ints
    end_us: Ints
    part_at: Ints
    node: npt.NDArray[np.int32]
    delayed: int
    most: int
    load: npt.NDArray[np.float64]
    progress: npt.NDArray[np.float64]
    events: int
    engine_cpu_s: float


def run(
    jobs: TimeshareDemands,
    nodes: int,
    manner: SharingConfig,
    noise: Noise = NO_NOISE_AT_ALL,
    *,
    progress: Callable[[int], None] | None = None,
    after_instant: Callable[[TimeshareState], None] | None = None,
) -> TimeshareResult:
    """Run all jobs to their end.

    Parameters
    ----------
    jobs, nodes, manner, noise
        What runs, on how many nodes, and how.
    progress
        Called now and then with the number of jobs that have arrived.
    after_instant
        Called with the state after each instant at which something happened; the loop runs plain then.
    """
    plain = after_instant is not None or _is_plain(jobs)
    floor = new_floor(jobs, nodes, manner, compiled=not plain)
    step: Callable[[TimeshareState, int], int] = run_floor
    if not plain:
        loop = Compiled(run_floor, (floor, 0))
        loop.prepare()
        step = loop
    began = time.process_time()
    supply = noise.supply(nodes)
    floor = _more_noise(floor, next(supply, None), plain=plain)
    several = ShortCalls(step, None if after_instant is None else 1)
    while (why := several(floor)) != DONE:
        if why == NO_NOISE:
            floor = _more_noise(floor, next(supply, None), plain=plain)
        elif after_instant is not None:
            after_instant(floor)
        if progress is not None:
            progress(int(column(floor.clock, "arrived")[0]))
    return _course(jobs, floor, nodes, time.process_time() - began)


def _is_plain(jobs: TimeshareDemands) -> bool:
    wanted = compilation_wanted()
    return wanted is Compilation.NEVER or (
        wanted is Compilation.WHEN_IT_PAYS and int(jobs.nodes.sum()) <= MOST_PLAIN_PARTS
    )


def _more_noise(
    floor: TimeshareState, piece: tuple[Ints, Ints, Ints] | None, *, plain: bool
) -> TimeshareState:
    if piece is None:
        return floor
    at_us, node, speed = piece
    make = StateAllocator(compiled=not plain)
    return floor._replace(noise=make.table(NoiseRecord, len(at_us), at_us=at_us, node=node, speed=speed))


def _course(
    jobs: TimeshareDemands, floor: TimeshareState, nodes: int, engine_cpu_s: float
) -> TimeshareResult:
    clock = only_record(TimeshareClockRecord, floor.clock)
    part = floor.part
    spans = clock.now // SPAN_US
    return TimeshareResult(
        start_us=column(floor.jobs, "start_us")[:-1],
        end_us=column(floor.jobs, "end_us")[:-1],
        part_at=part_at(jobs),
        node=part
        if isinstance(part, np.ndarray)
        else np.array([part[place] for place in range(len(part))], dtype=np.int32),
        delayed=clock.delayed,
        most=clock.most,
        load=column(floor.spans, "load_us")[:spans] / (nodes * SPAN_US),
        progress=column(floor.spans, "progress_us")[:spans] / (WHOLE * SPAN_US),
        events=clock.events,
        engine_cpu_s=engine_cpu_s,
    )


MEDIAN, SPREAD = 0.02, 1.5
"""Of the memory that a job needs of each of its nodes, and standard deviation of its logarithm."""


HIGH = 0.6
"""The part of a node of which the paper tells how many node-hours are below it."""
MemoryForm = Literal["all need more", "some need most"]


def draw_memory(count: int, seed: int, median: float = MEDIAN, spread: float = SPREAD) -> Ints:
    """Return thousandths of a node's memory for ``count`` jobs, at least 1, at most all."""
    rng = np.random.default_rng([seed, 88])
    drawn = median * np.exp(spread * rng.standard_normal(count))
    while (over := drawn > 1).any():
        drawn[over] = median * np.exp(spread * rng.standard_normal(int(over.sum())))
    thousandths: Ints = np.clip(np.ceil(drawn * MEMORY), 1, MEMORY).astype(np.int64)
    return thousandths


def draw_memory_below(count: int, seed: int, share: float, form: MemoryForm) -> Ints:
    """Return memory of which a share of the jobs, and so of the node-hours, needs less than ``HIGH``.

    Parameters
    ----------
    count, seed
        As of ``draw_memory``.
    share
        Between 0.8 and 0.99.
    form
        Whether the median is higher than by default for all, or the others need from ``HIGH`` to a whole node
        and the rest is as by default.
    """
    if form == "all need more":
        return draw_memory(count, seed, _median_of(share))
    drawn = draw_memory(count, seed)
    rng = np.random.default_rng([seed, 89])
    high = rng.permutation(count)[: round((1 - share) * count)]
    low = np.minimum(drawn, int(HIGH * MEMORY) - 1)
    low[high] = rng.integers(int(HIGH * MEMORY), MEMORY + 1, len(high))
    return low


def _median_of(share: float) -> float:
    normal = NormalDist(sigma=SPREAD)
    low, high = MEDIAN, HIGH
    for _ in range(60):
        middle = (low * high) ** 0.5
        below = normal.cdf(math.log(HIGH / middle)) / normal.cdf(math.log(1 / middle))
        low, high = (middle, high) if below > share else (low, middle)
    return high


if TYPE_CHECKING:
    from simulator.policy_interface import SchedulerContext


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSharing:
    """How nodes are shared, what disturbs them, and what memory jobs need of which the trace does not tell.

    ``memory`` is the median of what is drawn, a share of a node, and ``memory_spread`` the standard deviation
    of its logarithm.
    """

    manner: SharingConfig
    noise: Noise = NO_NOISE_AT_ALL
    memory: float = MEDIAN
    memory_spread: float = SPREAD
    seed: int = 1

    def seeded(self, seed: int) -> TimeSharing:
        """See ``AlonePolicy``."""
        return replace(self, seed=seed, noise=replace(self.noise, seed=seed))

    def schedule(self, context: SchedulerContext) -> None:  # noqa: ARG002
        """Refuse.

        Raises
        ------
        UsageError
            Always: it does not go with the engine.
        """
        raise UsageError("time-sharing on whole nodes has its own scheduler and takes no policy")

    def run_pool(
        self, work: PoolWork, rules: RunRules, *, check: bool, progress: Callable[[int], None] | None
    ) -> PoolRun:
        """See ``PoolPolicy``.

        Raises
        ------
        InputError
            A job runs too long.
        InvariantError
            An invariant does not hold.
        """
        jobs, pool = work.jobs, work.pool
        _check_lengths(work, longest_us(self.manner.overhead))
        demands = TimeshareDemands(
            submit_us=jobs.submit_us,
            run_us=jobs.run_us,
            request_us=jobs.requested_us,
            nodes=jobs.nodes,
            memory=self._memory(jobs, rules.node_memory_kib),
        )
        course = run(
            demands,
            pool.nodes,
            self.manner,
            self.noise,
            progress=progress,
            after_instant=Check(work.numbers) if check else None,
        )
        every = full_set(pool.cores)
        return PoolRun(
            start_us=course.start_us,
            end_us=course.end_us,
            places=Places.of_parts(
                course.part_at[:-1],
                course.part_at[1:],
                course.node,
                np.broadcast_to(every, (len(course.node), len(every))),
            ),
            events=course.events,
            engine_cpu_s=course.engine_cpu_s,
            most_jobs=1 if self.manner.batch else max(1, self.manner.cap or course.most),
        )

    def _memory(self, jobs: PoolJobs, node_memory_kib: int | None) -> Ints:
        """Return thousandths of a node's memory: as the trace says where it does, else drawn."""
        drawn = draw_memory(jobs.count, self.seed, self.memory, self.memory_spread)
        if node_memory_kib is None:
            return drawn
        known = np.clip(-(-jobs.memory_kib * MEMORY // node_memory_kib), 1, MEMORY)
        return np.where(jobs.memory_kib > 0, known, drawn)


def _check_lengths(work: PoolWork, most_us: int) -> None:
    run_us = work.jobs.run_us
    longest = int(run_us.argmax())
    if run_us[longest] > most_us:
        raise InputError(
            f"job {work.numbers[longest]}: a run time (run_s) of {run_us[longest] / 1e6:g} s is too long to "
            f"be shared; at most {most_us / 1e6:g} s"
        )


class Check:
    """To be called after each instant of one run.

    No memory is over, no node has more jobs than it may, none gives more than its time; every job is held by
    a node that has no time left for it; and what all jobs did is what they set out to do.

    Parameters
    ----------
    numbers
        The jobs' numbers in the trace.
    """

    def __init__(self, numbers: Ints) -> None:
        self._numbers = numbers
        self._done: dict[int, int] = {}
        self._rates: dict[int, int] = {}
        self._then_us = 0

    def __call__(self, floor: TimeshareState) -> None:
        """Check the state.

        Raises
        ------
        InvariantError
            Something does not hold; the message says what, of which job or node, and when.
        """
        now_us = floor.clock[0].now
        try:
            self._conserve(floor, now_us - self._then_us)
            self._then_us = now_us
            held = {floor.agenda[at]: _nodes_of(floor, floor.agenda[at]) for at in range(_running(floor))}
            on = _members(floor, held)
            for node, here in on.items():
                _check_node(floor, node, here)
            for slot, nodes in held.items():
                self._check_rate(floor, slot, nodes, on)
        except InvariantError as error:
            raise InvariantError(f"at {now_us} us: {error}") from error

    def _conserve(self, floor: TimeshareState, passed_us: int) -> None:
        for job, rate in self._rates.items():
            self._done[job] = self._done.get(job, 0) + rate * passed_us
            if floor.jobs[job].end_us >= 0:
                surplus = self._done.pop(job) - floor.jobs[job].work
                slack_us = max(1, floor.rules[0].tick_us)
                if not 0 <= surplus <= rate * slack_us:
                    raise InvariantError(f"job {self._numbers[job]} did {surplus} units more than it had to")
        slots = [floor.agenda[at] for at in range(_running(floor))]
        self._rates = {floor.slots[slot].job: floor.rate[slot] for slot in slots}

    def _check_rate(
        self, floor: TimeshareState, slot: int, nodes: Sequence[int], on: Mapping[int, Sequence[int]]
    ) -> None:
        """Fail unless the job has its mean share, or a node holds it: full, and no job there is faster."""
        rate = floor.rate[slot]
        if not floor.rules[0].is_spmd:
            shares = sum(floor.nodes[node].capacity // len(on[node]) for node in nodes)
            if rate != shares // len(nodes):
                raise InvariantError(f"job {self._job(floor, slot)} has not the mean of its nodes' shares")
            return
        for node in nodes:
            rates = [floor.rate[other] for other in on[node]]
            full = floor.nodes[node].capacity - sum(rates) < 2 * len(rates)
            if full and max(rates) <= rate + 2 * len(rates):
                return
        raise InvariantError(f"job {self._job(floor, slot)} could be faster at no other's expense")

    def _job(self, floor: TimeshareState, slot: int) -> int:
        return int(self._numbers[floor.slots[slot].job])


def _running(floor: TimeshareState) -> int:
    return floor.clock[0].running


def _nodes_of(floor: TimeshareState, slot: int) -> list[int]:
    job = floor.jobs[floor.slots[slot].job]
    return [floor.part[at] for at in range(job.part_at, job.part_at + job.nodes)]


def _members(floor: TimeshareState, held: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    on: dict[int, list[int]] = {node: [] for node in range(floor.rules[0].nodes)}
    for slot, nodes in held.items():
        for node in nodes:
            on[node].append(slot)
    return on


def _check_node(floor: TimeshareState, node: int, here: Sequence[int]) -> None:
    rules, state = floor.rules[0], floor.nodes[node]
    if sorted(here) != sorted(floor.members[seat(floor, node, index)] for index in range(state.count)):
        raise InvariantError(f"node {node} has other jobs than those that hold it")
    used = sum(floor.jobs[floor.slots[slot].job].memory for slot in here)
    if len(here) > rules.depth or state.free != MEMORY - used or used > MEMORY:
        raise InvariantError(f"node {node} has {len(here)} jobs with {used} thousandths of its memory")
    if rules.is_spmd and sum(floor.rate[slot] for slot in here) > state.capacity:
        raise InvariantError(f"node {node} gives more time than it has")
