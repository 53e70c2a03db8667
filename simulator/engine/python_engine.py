"""The engine event by event, with plug-ins in plain Python, and the projection behind backfilling.

The engine event by event, with plug-ins in plain Python: slower than ``run_events``, never different.

The projection behind backfilling, as it is defined: a copy of the run without new jobs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

from foundation.errors import OsubError
from simulator.cores import node_fitting as owners
from simulator.cores.node_fitting import fits
from simulator.engine.context_actions import Actions
from simulator.engine.run_rules import RunRules
from simulator.jit.field_records import IntegerGrid, LazyTable, PlainGrid, RecordTable
from simulator.lifecycle import lifecycle_actions
from simulator.lifecycle.events import (
    ARRIVED,
    CHANGED,
    ENDED,
    LEFT,
    NODE_UP,
    NOTHING,
    RANG,
    come_next,
    find_next,
    next_lifecycle_event,
    next_outage,
    ring,
)
from simulator.lifecycle.job_progress import change_phase, finish, set_speed, settle
from simulator.lifecycle.segments import rate_of
from simulator.model.jobs import SimulatedJob
from simulator.model.system import FAR_US, NodePool
from simulator.placement import Cores
from simulator.policy_interface import (
    Event,
    EventListener,
    JobArrived,
    JobEnded,
    JobPreempted,
    NodeDown,
    NodeUp,
    PolicyError,
    SimulationStarted,
    Timer,
)
from simulator.state.allocations import (
    AllocationIntervals,
    class_at,
    members,
    parts_of,
    running_jobs,
    take_log,
    words_of,
)
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.event_queue import KINDS, enter_agenda, present
from simulator.state.lifecycle_state import OVER, WAITING, LifecycleTables
from simulator.state.node_sets import flip

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
    if isinstance(field, LifecycleTables):
        return _copied_lifecycles(field)
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


def _copied_lifecycles(lifecycles: LifecycleTables) -> LifecycleTables:
    return lifecycles._replace(
        clock=_copied(lifecycles.clock),
        jobs=_copied(lifecycles.jobs),
        nodes=_copied(lifecycles.nodes),
        rates=lifecycles.rates,
    )


def project(
    context: Actions,
    job: SimulatedJob,
    started: SimulatedJob | None = None,
    on: Cores | None = None,
    nodes: int | None = None,
) -> Actions:
    """Return the pool when the waiting ``job`` could start if nothing else started, but ``started`` now.

    Every job that holds cores counts as busy and goes on until it has done its requested work. All that ends
    at one instant has ended before ``job`` is tried, which is to say, before the placement is asked. It is
    ``FAR_US`` if it does not fit even then.
    """
    view = context.fork(fork(context.state))
    state = view.state
    if started is not None and not view.start(started, on=on):
        raise PolicyError(f"job {started.number} does not fit now")
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
        for one in range(state.clock[0].classes):
            for level in range(state.rules[0].slots):
                for word in range(len(state.valid)):
                    state.busy[one, level, word] = state.occupied[one, level, word]
    state.clock[0].agenda = 0
    line = present(state)
    for job in holders:
        set_speed(line, job, view.speed(job))
        enter_agenda(line, job)


_MOST_TIMERS_IN_A_ROW = 1_000_000


class PythonEngine(Actions):
    """One pool, event by event; it is the ``SchedulerContext`` of its policy.

    Parameters
    ----------
    state
        The pool at the beginning of the run, with lifecycle tables.
    jobs
        Its jobs, by index.
    rules
        The plug-ins; the policy is the pool's own.
    pool
        The nodes.
    after_event
        Called after each event and its scheduling pass, and whatever else changes a speed.

    Attributes
    ----------
    logged
        What was held, of jobs that held more than one thing.
    killed
        Jobs that found no memory; None where the run does not look at that.
    """

    def __init__(
        self,
        state: EngineState,
        jobs: list[SimulatedJob],
        rules: RunRules,
        pool: NodePool,
        after_event: Callable[[PythonEngine], None] | None = None,
    ) -> None:
        super().__init__(state, jobs)
        self.pool_name = pool.name
        self.pools: Mapping[str, PythonEngine] = {pool.name: self}
        self.timer_kinds = list(KINDS)
        self.logged: list[AllocationIntervals] = []
        self.killed: set[int] | None = None
        self._rules = rules
        self._pool = pool
        self._after_event = after_event
        self._timers_in_a_row = 0
        self._is_pass_due = False

    def run(self) -> None:
        """Process every event.

        Raises
        ------
        PolicyError
            The policy did what cannot be, raised, or let a job wait for ever.
        InputError
            A placement gave a job what it cannot have.
        """
        self.begin()
        while self.step():
            pass
        self.check_end()

    def begin(self) -> None:
        """Tell the policy that the run begins."""
        self._inform(SimulationStarted())

    @property
    def next_us(self) -> int:
        """When the next event happens; ``FAR_US``: never."""
        return find_next(self.state, self.lifecycles)[1]

    def step(self) -> bool:
        """Process the next event; return False if there is none."""
        if not self.process_event():
            return False
        self.show()
        return True

    def show(self) -> None:
        """Call the after-event hook."""
        if self._after_event is not None:
            self._after_event(self)

    def check_end(self) -> None:
        """Refuse an end at which a job has not ended."""
        for job in self.jobs:
            if self.lifecycles.jobs[job.index].status != OVER:
                self._blame(
                    PolicyError(f"job {job.number} {self._state_of(job)} for ever: nothing more happens")
                )

    def process_event(self) -> bool:
        """Process the next event without showing it; return False if there is none."""
        kind = next_lifecycle_event(self.state, self.lifecycles)
        if kind == NOTHING:
            return False
        self._note_timers(kind)
        if kind == CHANGED:
            job = self.state.lists[0].agenda
            change_phase(self.state, job)
            self.set_speeds(job)
        else:
            self._inform(self._happen(kind))
            self._is_pass_due = True
        self._make_due_passes()
        self._empty_log()
        return True

    def _make_due_passes(self) -> None:
        """Make the pass that is due, unless it waits for what else happens at this instant in any pool."""
        pools: Iterable[PythonEngine] = (self,)
        if self.state.rules[0].together:
            pools = self.pools.values()
            if any(pool.next_us == self.now_us for pool in pools):
                return
        for pool in pools:
            if pool.make_pass() and pool is not self:
                pool.show()

    def make_pass(self) -> bool:
        """Make a pass if one is due; return whether it was."""
        if not self._is_pass_due:
            return False
        self._is_pass_due = False
        self._ask()
        self._empty_log()
        return True

    def _empty_log(self) -> None:
        taken = take_log(self.lifecycles)
        if taken is not None:
            self.logged.append(taken)

    def _note_timers(self, kind: int) -> None:
        """Refuse a policy that sets timers for ever while nothing else happens."""
        self._timers_in_a_row = self._timers_in_a_row + 1 if kind == RANG else 0
        if self._timers_in_a_row > _MOST_TIMERS_IN_A_ROW:
            self._blame(PolicyError(f"{_MOST_TIMERS_IN_A_ROW} timers have rung and nothing else happened"))

    def _happen(self, kind: int) -> Event:
        """Let the next event happen."""
        state = self.state
        if kind == ARRIVED:
            job = come_next(state, self.lifecycles)
            if self.jobs[job].submit_us != state.jobs[job].submit_us:  # it depended on another
                self.jobs[job] = replace(self.jobs[job], submit_us=state.jobs[job].submit_us)
            return JobArrived(self.jobs[job])
        if kind in (ENDED, LEFT):
            job = state.lists[0].agenda
            (lifecycle_actions.end if kind == ENDED else lifecycle_actions.leave)(state, self.lifecycles, job)
            self.set_speeds(job)
            return JobEnded(self.jobs[job]) if kind == ENDED else JobPreempted(self.jobs[job])
        if kind == RANG:
            timer = self.lifecycles.timers[ring(state, self.lifecycles)]
            about = None if timer.about == NEVER else self.jobs[timer.about]
            return Timer(timer.number, self.timer_kinds[timer.kind], about)
        node = next_outage(self.lifecycles)
        if kind == NODE_UP:
            owners.set_down(state, self.lifecycles, node, 0)
            return NodeUp(node)
        return NodeDown(node, self._lose_node(node))

    def _lose_node(self, node: int) -> tuple[SimulatedJob, ...]:
        lost = []
        job = lifecycle_actions.next_on_node(self.state, self.lifecycles, node, NEVER)
        while job != NEVER:
            lifecycle_actions.lose_node(self.state, self.lifecycles, job)
            self.set_speeds(job)
            lost.append(self.jobs[job])
            job = lifecycle_actions.next_on_node(self.state, self.lifecycles, node, job)
        owners.set_down(self.state, self.lifecycles, node, 1)
        return tuple(lost)

    def _inform(self, event: Event) -> None:
        if isinstance(self._rules.policy, EventListener):
            hear = self._rules.policy.hear
            self._guarded(lambda: hear(self, event))

    def _ask(self) -> None:
        self._guarded(lambda: self._rules.policy.schedule(self))

    def _guarded(self, call: Callable[[], None]) -> None:
        """Call a policy; what it raises becomes one line."""
        try:
            call()
        except PolicyError as error:
            self._blame(error)
        except OsubError:
            raise
        except Exception as error:
            self._blame(PolicyError(f"raised {type(error).__name__}: {error}"), error)

    def _blame(self, error: PolicyError, cause: Exception | None = None) -> None:
        reason = " ".join(str(error).split())
        raise PolicyError(f"policy {self._rules.called}, at {self.now_us / 1e6:g} s: {reason}") from cause

    def act(self) -> None:
        """See ``Actions``."""
        self._empty_log()

    def place(self, job: SimulatedJob, nodes: int | None = None, off: Sequence[int] = ()) -> Cores | None:
        """See ``SchedulerContext``."""
        self._expect(job, WAITING, "place")
        return self.place_on(job, self._size(job, nodes, None), sorted(set(off)))

    def place_on(
        self, job: SimulatedJob, nodes: int, barred: Sequence[int] = (), *, is_running: bool = False
    ) -> Cores | None:
        """See ``Actions``."""
        asked = self.state.jobs[job.index]
        kept = (asked.nodes, asked.part_at, asked.part_end)
        if is_running:  # what it holds stays in its first parts
            asked.part_at = asked.part_end
        asked.nodes, asked.part_end = nodes, asked.part_at + nodes
        for node in barred:
            flip(self.state.barred, node)
        self.cluster.asking = job.index
        try:
            wanted = job if nodes == job.nodes else replace(job, nodes=nodes)
            return self._rules.placement.place(self.cluster, wanted)
        finally:
            for node in barred:
                flip(self.state.barred, node)
            asked.nodes, asked.part_at, asked.part_end = kept

    def earliest_start_us(
        self,
        job: SimulatedJob,
        started: SimulatedJob | None = None,
        on: Cores | None = None,
        nodes: int | None = None,
    ) -> int:
        """See ``SchedulerContext``."""
        return project(self, job, started, on, nodes).now_us

    def nodes_at_start(self, job: SimulatedJob) -> list[int]:
        """See ``SchedulerContext``."""
        state = project(self, job).state
        asked = state.jobs[job.index]
        suited = [node for node in range(self.nodes) if fits(asked, class_at(state, node))]
        return sorted(sorted(suited, key=lambda node: (class_at(state, node).used, node))[: job.nodes])

    def running_at_start(self, job: SimulatedJob) -> list[SimulatedJob]:
        """See ``SchedulerContext``."""
        return [self.jobs[other] for other in running_jobs(project(self, job).state)]

    def fork(self, state: EngineState) -> PythonEngine:
        """Return a stepper with the same plug-ins on another state."""
        return PythonEngine(state, self.jobs, self._rules, self._pool)

    def set_speeds(self, job: int) -> None:
        """See ``Actions``."""
        state, line = self.state, present(self.state)
        felt = [state.lists[place].affected for place in range(state.clock[0].affected)]
        for other in (*([job] if state.runs[job].busy else []), *felt):
            set_speed(line, other, self.speed(other))

    def speed(self, job: int) -> int:
        """Return the speed of a job's slowest core at its size, in units a microsecond."""
        state = self.state
        slowest: float | Fraction | None = None
        for part in parts_of(state, job):
            node = state.parts[part].node
            busy = {
                other: set(ids) for other, ids in self.cluster.holders(node).items() if state.runs[other].busy
            }
            groups = {
                tuple(sorted(other for other, ids in busy.items() if core in ids and other != job))
                for core in members(words_of(state.mask, part))
            }
            for others in groups:
                speed = self._rules.sharing.core_speed(
                    self.jobs[job], [self.jobs[other] for other in others], node + self._pool.first
                )
                slowest = speed if slowest is None else min(slowest, speed)
        even = max(1, round((1 if slowest is None else slowest) * state.rules[0].scale))
        return even * rate_of(self.state.lifecycles, job)
