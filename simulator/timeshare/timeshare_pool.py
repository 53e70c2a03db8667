"""Time-sharing on whole nodes, and the batch scheduler to compare with (Hofmeyr et al., HPCC 2016)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foundation.errors import InputError, UsageError
from simulator.engine.engine_invariants import InvariantError
from simulator.engine.pool_run import PoolRun, PoolWork
from simulator.engine.run_rules import RunRules
from simulator.jit.field_records import Ints
from simulator.model.jobs import PoolJobs
from simulator.state.allocations import Places
from simulator.state.node_sets import full_set
from simulator.timeshare.assumed_memory import MEDIAN, SPREAD, draw_memory
from simulator.timeshare.fair_rates import seat
from simulator.timeshare.step_noise import NO_NOISE_AT_ALL, Noise
from simulator.timeshare.timeshare_build import longest_us
from simulator.timeshare.timeshare_run import run
from simulator.timeshare.timeshare_state import MEMORY, SharingConfig, TimeshareDemands, TimeshareState

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
        slots = [floor.slots[floor.agenda[at]] for at in range(_running(floor))]
        self._rates = {slot.job: slot.rate for slot in slots}

    def _check_rate(
        self, floor: TimeshareState, slot: int, nodes: Sequence[int], on: Mapping[int, Sequence[int]]
    ) -> None:
        """Fail unless the job has its mean share, or a node holds it: full, and no job there is faster."""
        rate = floor.slots[slot].rate
        if not floor.rules[0].is_spmd:
            shares = sum(floor.nodes[node].capacity // len(on[node]) for node in nodes)
            if rate != shares // len(nodes):
                raise InvariantError(f"job {self._job(floor, slot)} has not the mean of its nodes' shares")
            return
        for node in nodes:
            rates = [floor.slots[other].rate for other in on[node]]
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
    if rules.is_spmd and sum(floor.slots[slot].rate for slot in here) > state.capacity:
        raise InvariantError(f"node {node} gives more time than it has")
