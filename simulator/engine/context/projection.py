"""The projection behind backfilling, as it is defined: a copy of the run without new jobs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from simulator.engine.context.context_actions import Actions
from simulator.jit.field_records import IntegerGrid, LazyTable, PlainGrid, RecordTable
from simulator.lifecycle.job_progress import finish, set_speed, settle
from simulator.model.jobs import SimulatedJob
from simulator.placement import Cores
from simulator.policy_interface import PolicyError
from simulator.state.allocations import running_jobs
from simulator.state.engine_state import FAR_US, NEVER, EngineState
from simulator.state.event_queue import enter_agenda, present
from simulator.state.lifecycle_state import Lives

_Record = TypeVar("_Record")


class _Copies(dict[int, _Record]):
    """A table of records that are copied when they are first looked at."""

    def __init__(self, table: RecordTable[_Record]) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, index: int) -> _Record:
        self[index] = record = copy.copy(self._table[index])
        return record


class _GridCopy(dict[tuple[int, ...], int]):
    """A grid whose changes stay its own."""

    def __init__(self, grid: IntegerGrid) -> None:
        super().__init__()
        self._grid = grid
        self.shape = grid.shape

    def __missing__(self, index: tuple[int, ...]) -> int:
        return self._grid[index]


def _copied(field: Any) -> Any:
    """Return what can be changed instead of a field of a state in plain Python."""
    if field is None:
        return None
    if isinstance(field, Lives):
        return _copied_lives(field)
    if isinstance(field, tuple):
        return type(field)(*map(_copied, field))
    if isinstance(field, PlainGrid | _GridCopy):
        return _GridCopy(field)
    if isinstance(field, _Copies | LazyTable) or (
        isinstance(field, list) and field and not isinstance(field[0], int)
    ):
        return _Copies(field)
    return list(field)


def fork(state: EngineState) -> EngineState:
    """Return a state in plain Python that goes on from this one and leaves it as it is."""
    unchanging = {"rules": state.rules, "phase_us": state.phase_us}
    fields: list[Any] = [
        unchanging.get(name) or _copied(field) for name, field in zip(state._fields, state, strict=True)
    ]
    return EngineState(*fields)


def _copied_lives(lives: Lives) -> Lives:
    return lives._replace(
        clock=_copied(lives.clock), jobs=_copied(lives.jobs), nodes=_copied(lives.nodes), rates=lives.rates
    )


def project(
    context: Actions,
    job: SimulatedJob,
    beside: SimulatedJob | None = None,
    on: Cores | None = None,
    nodes: int | None = None,
) -> Actions:
    """Return the pool when the waiting ``job`` could start if nothing else started, but ``beside`` now.

    Every job that holds cores counts as busy and goes on until it has done its requested work. All that ends
    at one instant has ended before ``job`` is tried, which is to say, before the placement is asked. It is
    ``FAR_US`` if it does not fit even then.
    """
    view = context.fork(fork(context.state))
    state = view.state
    if beside is not None and not view.start(beside, on=on):
        raise PolicyError(f"job {beside.number} does not fit now")
    _let_all_be_busy(view, running_jobs(state))
    clock, runs = state.clock[0], state.runs
    while True:
        ending = state.lists[0].agenda
        due = clock.agenda > 0 and runs[ending].next_us <= clock.now_us
        if not due and view.place(job, nodes) is not None:
            return view
        if clock.agenda == 0:
            clock.now_us = FAR_US
            return view
        clock.now_us = runs[ending].next_us
        finish(state, ending)
        view.set_speeds(ending)


def _let_all_be_busy(view: Actions, holders: Sequence[int]) -> None:
    """Give every job that holds cores the requested work that it has left, in one last busy phase."""
    state = view.state
    now_us = state.clock[0].now_us
    for job in holders:
        run = state.runs[job]
        settle(run, now_us)
        run.left = run.request_left
        run.busy, run.last, run.speed, run.agenda_at = 1, 1, 0, NEVER
    if state.busy is not None:
        for node in range(state.rules[0].nodes):
            for level in range(state.rules[0].slots):
                for word in range(len(state.valid)):
                    state.busy[node, level, word] = state.occupied[node, level, word]
    state.clock[0].agenda = 0
    line = present(state)
    for job in holders:
        set_speed(line, job, view.speed(job))
        enter_agenda(line, job)
