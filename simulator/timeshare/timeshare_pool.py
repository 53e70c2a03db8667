"""Time-sharing on whole nodes, and the batch scheduler beside it (Hofmeyr et al., HPCC 2016)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foundation.errors import InputError, UsageError
from simulator.engine.building.build_state import PoolJobs
from simulator.engine.kernels.field_records import Ints
from simulator.engine.run import PoolRun, PoolWork, Rules
from simulator.engine.state.bit_sets import full_set
from simulator.engine.state.node_ranges import Places
from simulator.timeshare.assumed_memory import MEDIAN, SPREAD, draw_memory
from simulator.timeshare.step_noise import NO_NOISE_AT_ALL, Noise
from simulator.timeshare.timeshare_build import longest_us
from simulator.timeshare.timeshare_invariants import Check
from simulator.timeshare.timeshare_run import run
from simulator.timeshare.timeshare_state import MEMORY, Demands, Manner

if TYPE_CHECKING:
    from simulator.policies.interface import Desk


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSharing:
    """How nodes are shared, what disturbs them, and what memory jobs need of which the trace does not tell.

    ``memory`` is the median of what is drawn, a share of a node, and ``memory_spread`` the standard deviation
    of its logarithm.
    """

    manner: Manner
    noise: Noise = NO_NOISE_AT_ALL
    memory: float = MEDIAN
    memory_spread: float = SPREAD
    seed: int = 1

    def seeded(self, seed: int) -> TimeSharing:
        """See ``AlonePolicy``."""
        return replace(self, seed=seed, noise=replace(self.noise, seed=seed))

    def schedule(self, desk: Desk) -> None:  # noqa: ARG002
        """Refuse.

        Raises
        ------
        UsageError
            Always: it does not go with the engine's desk.
        """
        raise UsageError("time-sharing on whole nodes runs by itself, not at a desk")

    def run_pool(
        self, work: PoolWork, rules: Rules, *, check: bool, progress: Callable[[int], None] | None
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
        demands = Demands(
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
