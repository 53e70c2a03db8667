"""The projection behind backfilling, as it is defined: a copy of the run that nobody joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from osub.errors import InputError
from simulator.engine.agenda import enter_agenda
from simulator.engine.progress import begin, finish, set_speed, settle
from simulator.engine.room import job_fits
from simulator.engine.state import (
    ACTIVE,
    AGENDA,
    BUSY,
    HEAP,
    HEAP_AT,
    LAST,
    LEFT,
    NEVER,
    NEXT_US,
    NOW,
    REQUEST_LEFT,
    RUNNING,
    SPEED,
    State,
)
from simulator.job import Job

if TYPE_CHECKING:
    from simulator.engine.stepper import Stepper


def project(desk: Stepper, job: Job, beside: Job | None = None) -> int:
    """Return when the waiting ``job`` could start if nothing else started, but ``beside`` now.

    Every job that holds cores counts as busy and goes on until it has done its requested work. All that ends
    at one instant has ended before ``job`` is tried.
    """
    state = State._make(table.copy() for table in desk.state)
    view = desk.fork(state)
    run, clock = state.run, state.clock
    if beside is not None:
        cores = view.place(beside)
        if cores is None:
            raise ValueError(f"job {beside.number} does not fit now")
        view.name_cores(beside, cores)
        begin(state, beside.index)
    holders = run[RUNNING, : clock[ACTIVE]].tolist()
    for other in holders:
        settle(run, clock[NOW], other)
        run[LEFT, other] = run[REQUEST_LEFT, other]
        run[[BUSY, LAST, SPEED, HEAP_AT], other] = (1, 1, 0, NEVER)
    np.copyto(state.busy, state.occupied[: len(state.busy)])
    clock[AGENDA] = 0
    for other in holders:
        set_speed(run, clock, other, view.speed(other))
        enter_agenda(run, clock, other)
    while not job_fits(state, job.index) or (clock[AGENDA] > 0 and run[NEXT_US, run[HEAP, 0]] <= clock[NOW]):
        if clock[AGENDA] == 0:
            raise InputError(f"job {job.number} does not fit on the idle pool")
        ending = int(run[HEAP, 0])
        clock[NOW] = run[NEXT_US, ending]
        finish(state, ending)
        view.set_speeds(ending)
    return int(clock[NOW])
