"""A measurement from its plan to the PAIRS folder: resumable, within a budget, every trial kept at once."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from foundation.errors import HostError, UsageError
from foundation.units import counted
from predictor.dataset import Kind
from predictor.measure.frozen_program import ProgramError
from predictor.measure.measured_host import thread_siblings
from predictor.measure.next_pair import Plan, pairs_of
from predictor.measure.pair_trial import Bench, Lengths, Place
from predictor.measure.pairs_store import Store
from predictor.measure.program_pool import Pool
from predictor.programs.program_catalogue import Application


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked for.

    Attributes
    ----------
    applications
        To be measured with each other.
    kinds
        How they share.
    budget_s
        Seconds of measurement in all, divided evenly among the kinds.
    width
        Of the 95% interval of E_v, at most.
    most
        Trials of a pair, at most.
    seed
        Of the order.
    lanes
        CPUs on which different ``timeslice`` pairs are measured at once.
    niceness
        Of the measured programs.
    cpus
        To be used, in this order; None: all that this process may use.
    against
        Names, of which each pair has one at least; None: all pairs.
    lengths
        Of windows.
    """

    applications: list[Application]
    kinds: list[Kind]
    budget_s: float
    width: float = 0.05
    most: int = 10
    seed: int = 1
    lanes: int = 1
    niceness: int = 0
    cpus: tuple[int, ...] | None = None
    against: frozenset[str] | None = None
    lengths: Lengths = field(default_factory=Lengths)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a kind is: trials made now, missing at least, seconds left, and the pair just measured."""

    kind: Kind
    made: int
    missing: int
    left_s: float
    pair: str


Tell = Callable[[Progress], None]
Warn = Callable[[str], None]


def places(kind: Kind, settings: Settings) -> list[Place]:
    """Return where pairs of a kind are measured, a place a lane.

    Raises
    ------
    HostError
        This host has no such place.
    UsageError
        The applications don't fit the kind.
    """
    cpus = settings.cpus or tuple(sorted(os.sched_getaffinity(0)))
    odd = sorted(set(cpus) - os.sched_getaffinity(0))
    if odd:
        raise UsageError(f"CPU {odd[0]} is none of those that this process may use")
    ranks = {application.ranks for application in settings.applications}
    if max(ranks) > len(cpus):
        raise HostError(
            f"applications have {counted(max(ranks), 'rank')}, and {counted(len(cpus), 'CPU')} may be used"
        )
    if kind is Kind.TIMESLICE:
        if settings.lanes > len(cpus) or (settings.lanes > 1 and max(ranks) > 1):
            raise UsageError(f"--lanes is {settings.lanes}; each needs a CPU, and applications of one rank")
        turned = [(*cpus[lane:], *cpus[:lane]) for lane in range(settings.lanes)]
        return [Place(kind, order, order) for order in turned]
    if kind in {Kind.NAIVE, Kind.GANG}:
        if min(ranks) == 1:
            raise UsageError(f"{kind} is for applications of two ranks; give --apps coupled")
        return [Place(kind, cpus, cpus)]
    if max(ranks) > 1:
        raise UsageError(f"{kind} is for applications of one rank; give --apps single")
    if kind is Kind.THREADS:
        both = thread_siblings()
        if both is None:
            raise HostError("this host has no hardware threads that share a core; leave out threads")
        return [Place(kind, (both[0],), (both[1],))]
    if len(cpus) < 2:
        raise HostError("cores needs two CPUs, and this process may use one")
    return [Place(kind, cpus[:1], cpus[1:2])]


class Measurement:
    """Measures what the settings ask for into a store; ``run`` may be interrupted at any instant."""

    def __init__(self, settings: Settings, store: Store, tell: Tell, warn: Warn) -> None:
        self._settings = settings
        self._store = store
        self._tell = tell
        self._warn = warn
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self) -> None:
        """Measure all kinds; what was measured is in the folder when this returns or raises.

        Raises
        ------
        OsubError
            The host cannot, or the folder cannot be written.
        """
        where = [(kind, places(kind, self._settings)) for kind in self._settings.kinds]
        end_s = time.monotonic() + self._settings.budget_s
        try:
            for number, (kind, lanes) in enumerate(where):
                now_s = time.monotonic()
                self._run_kind(kind, lanes, now_s + (end_s - now_s) / (len(where) - number))
        finally:
            self._store.flush()

    def _run_kind(self, kind: Kind, lanes: list[Place], end_s: float) -> None:
        settings = self._settings
        plan = Plan(
            pairs_of(settings.applications, settings.against),
            settings.width,
            settings.most,
            settings.seed,
        )
        plan.note(self._store.trials_of(kind))
        state = _State(kind, plan, iter(plan.rounds()), end_s, time.monotonic())
        failures: list[BaseException] = []
        self._stop.clear()

        def work(place: Place) -> None:
            try:
                self._lane(state, place)
            except BaseException as error:
                failures.append(error)
                self._stop.set()

        threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in lanes]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]

    def _lane(self, state: _State, place: Place) -> None:
        with tempfile.TemporaryDirectory(prefix="osub-pairs-", dir=_meters()) as folder:
            pool = Pool(Path(folder), place.victim, self._settings.niceness)
            try:
                bench = Bench(pool, place, self._settings.lengths)
                while not self._stop.is_set() and time.monotonic() < state.end_s:
                    pair = self._next(state)
                    if pair is None:
                        return
                    self._measure(state, bench, pool, pair)
            finally:
                pool.close()

    def _next(self, state: _State) -> tuple[Application, Application] | None:
        with self._lock:
            return next(state.order, None)

    def _measure(
        self, state: _State, bench: Bench, pool: Pool, pair: tuple[Application, Application]
    ) -> None:
        first, second = pair
        try:
            trial = bench.trial(first, second, state.plan.trials(first, second) + 1)
        except ProgramError as error:
            gone = next((each for each in pair if each.name == error.name), None)
            if gone is None:
                raise
            with self._lock:
                state.plan.failed.add(gone.name)
            pool.drop(gone)
            self._store.note(f"left out: {error}")
            self._warn(f"{error}; it is left out")
            return
        rows = trial.rows()
        with self._lock:
            self._store.append(rows, bench.solo_rows, pool.footprints_kib)
            bench.solo_rows = []
            state.plan.note(rows)
            state.made += 1
            self._tell(state.progress(f"{first.name} + {second.name}"))


@dataclass(slots=True)
class _State:
    kind: Kind
    plan: Plan
    order: Iterator[tuple[Application, Application]]
    end_s: float
    begin_s: float
    made: int = 0

    def progress(self, pair: str) -> Progress:
        now_s = time.monotonic()
        missing = self.plan.left()
        each_s = (now_s - self.begin_s) / max(1, self.made)
        return Progress(
            self.kind, self.made, missing, max(0.0, min(self.end_s - now_s, missing * each_s)), pair
        )


def _meters() -> str | None:
    """Return where meters are kept: in memory, so that no store waits for a disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a private folder in it
