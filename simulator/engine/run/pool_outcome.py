"""What became of the jobs of a pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foundation.errors import InputError
from foundation.units import counted, verb
from simulator.engine.building.build_state import PoolJobs
from simulator.jit.field_records import Ints, array_of, column, column_view
from simulator.slices.gang_stepper import GangStepper
from simulator.state.allocations import AllocationIntervals, Places, joined
from simulator.state.engine_state import EngineState
from simulator.state.lifecycle_state import OVER, Accounting, Lives, books_of


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoolRun:
    """What became of the jobs of a pool.

    Parameters
    ----------
    start_us, end_us
        When each job started and ended.
    places
        The nodes and cores that each job held last.
    events
        How many events there were.
    engine_cpu_s
        CPU time in the engine.
    gang
        With exact slices: the stepper, which has the record of the slices.
    stretches
        What was held from when to when, of jobs that held more than one thing; None where every job ran once.
    books
        What time was spent on; None where every job ran once.
    most_jobs
        Most jobs on a core, where the policy and not the pool decides; None: as the pool says.
    """

    start_us: Ints
    end_us: Ints
    places: Places
    events: int
    engine_cpu_s: float
    gang: GangStepper | None = None
    stretches: AllocationIntervals | None = None
    books: Accounting | None = None
    most_jobs: int | None = None

    def cores_of(self, job: int) -> dict[int, list[int]]:
        """Return the core ids by node that the job with index ``job`` held last."""
        return self.places.cores_of(job)


def run_of(
    state: EngineState,
    jobs: PoolJobs,
    engine_cpu_s: float,
    gang: GangStepper | None = None,
    logged: Sequence[AllocationIntervals] = (),
) -> PoolRun:
    """Return what became of a pool's jobs, now that all events are processed.

    Raises
    ------
    InputError
        A job waits for ever.
    """
    if state.lives is not None:
        _check_all_over(state.lives, jobs)
    return PoolRun(
        start_us=column(state.runs, "start_us")[:-1],
        end_us=column(state.runs, "end_us")[:-1],
        places=Places.of_parts(
            jobs.part_at[:-1],
            column(state.jobs, "part_end")[:-1],
            column_view(state.parts, "node"),
            array_of(state.mask),
        ),
        events=int(column(state.clock, "events")[0]),
        engine_cpu_s=engine_cpu_s,
        gang=gang,
        stretches=None if state.lives is None else joined(logged, state.mask.shape[1]),
        books=None if state.lives is None else books_of(state.lives),
    )


def _check_all_over(lives: Lives, jobs: PoolJobs) -> None:
    """Refuse a run in which a job waits for ever, because nodes stay down."""
    waiting = np.flatnonzero(column(lives.jobs, "status") != OVER)
    if len(waiting):
        wanted = int(jobs.nodes[waiting[0]])
        raise InputError(
            f"{counted(len(waiting), 'job')} never {verb(len(waiting), 'ends', 'end')}: too few nodes come "
            f"back for one that asks for {counted(wanted, 'node')}"
        )
