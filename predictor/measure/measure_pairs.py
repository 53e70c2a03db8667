"""A measurement of pairs and their counters, from its plan to the PAIRS folder; every trial kept at once.

A solver's start (an interpreter, libraries, compiled code that is loaded) has more instructions than a second
of its steps. So the operating system's counters are of a window in which the program only steps, and
cachegrind's are the difference of two runs, of few steps and of more.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

from analysis.claims import estimate
from foundation.errors import HostError, UsageError
from foundation.units import counted
from predictor.counters import CachegrindCounters, Count, Provider, counts_of
from predictor.dataset import STRESSOR, CounterSource, PairKind
from predictor.measure.frozen_program import FrozenProgram, ProgramError
from predictor.measure.pair_trial import Bench, Lengths, ProgramPool, Row, TrialCpus, measure
from predictor.measure.pairs_store import PairsStore, thread_siblings
from predictor.model.pair_records import MeasuredPair
from predictor.programs.program_catalogue import CatalogueApplication
from predictor.programs.repeated_command import run_whole

# A command that is counted whole makes steps for about as long.
WHOLE_S = 2.0

FEWEST_STEPS = 3
# Of steps at their pace alone: enough to wash out the caches' first fill, little enough for a simulation.
SIMULATED_S = 0.05
LEVELS = (2, 3)
# valgrind offers no more than this to a program; kernels compiled for more would not run.
SIMULATED_CPU = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "", "PYTHONHASHSEED": "0"}
_NAMES = (
    "cpu_user",
    "cpu_system",
    "faults_minor",
    "faults_major",
    "switches_voluntary",
    "switches_involuntary",
    "run_delay",
)


def count_all(
    applications: Sequence[CatalogueApplication],
    providers: Sequence[Provider],
    store: PairsStore,
    cpus: tuple[int, ...],
    tell: Callable[[str], None],
    warn: Callable[[str], None],
) -> None:
    """Count each application alone with each provider, and write after each; those that are there stay.

    What cannot be counted (an application that dies, several ranks in a simulation) is one line and no row.
    """
    for application in applications:
        todo = [provider for provider in providers if application.name not in store.counted(provider.source)]
        if not todo:
            continue
        tell(f"counters of {application.name}")
        try:
            speed, system = _alone(application, cpus)
        except HostError as error:
            warn(f"{error}; it has no counters")
            continue
        for provider in todo:
            try:
                counts = _count(provider, application, speed, system)
            except HostError as error:
                warn(f"{error}; no counters from {provider.source} of {application.name}")
                continue
            store.add_counters(rows_of(application, provider.source, counts))
        store.keep()


def _alone(application: CatalogueApplication, cpus: tuple[int, ...]) -> tuple[float, list[Count]]:
    """Return an application's speed alone, and what the operating system counted meanwhile."""
    with tempfile.TemporaryDirectory(prefix="osub-pairs-") as folder:
        running = FrozenProgram(application, Path(folder), cpus, 0)
        try:
            window = measure([running], cpus[: application.ranks], 0.05, 0.2)
            return window.paces[0].speed, system_counts(running, cpus)
        finally:
            running.close()


def _count(
    provider: Provider, application: CatalogueApplication, speed: float, system: list[Count]
) -> list[Count]:
    if provider.source is CounterSource.OS:
        return system
    if provider.source is CounterSource.CACHEGRIND:
        return simulated_counts(application, speed)
    return provider.count(application.command(max(3, round(speed * WHOLE_S))), os.environ)


def rows_of(application: CatalogueApplication, source: CounterSource, counts: Sequence[Count]) -> list[Row]:
    """Return counts as rows of the counters table."""
    return [{"application": application.name, "source": str(source), **asdict(count)} for count in counts]


def system_counts(program: FrozenProgram, cpus: tuple[int, ...], seconds: float = 0.5) -> list[Count]:
    """Return the operating system's counters of a window in which the program runs alone, per second."""
    program.pin(cpus)
    program.resume()
    try:
        time.sleep(seconds / 5)
        begin_s, before = time.monotonic(), _accounts(program)
        time.sleep(seconds)
        after, lasted_s = _accounts(program), time.monotonic() - begin_s
    finally:
        program.freeze()
    return [Count(name, "second", max(0.0, (after[name] - before[name]) / lasted_s)) for name in _NAMES]


def simulated_counts(application: CatalogueApplication, speed: float) -> list[Count]:
    """Return cachegrind's counters of some steps of an application, per instruction.

    Parameters
    ----------
    application
        Of one rank.
    speed
        Its steps a second alone, which decides how many are simulated.

    Raises
    ------
    HostError
        The simulation fails, or its steps have no instructions.
    """
    if application.ranks > 1:
        raise HostError(f"{application.name} has several ranks; cachegrind simulates one core")
    simulation = CachegrindCounters()
    environment = {**os.environ, **SIMULATED_CPU}
    # Compiled for that processor before, and not in one of the two runs.
    run_whole(application.command(FEWEST_STEPS), application.command(FEWEST_STEPS), environment)
    more = FEWEST_STEPS + max(1, round(speed * SIMULATED_S))
    differences: dict[int, Counter[str]] = {}
    for level in LEVELS:
        few = simulation.events(application.command(FEWEST_STEPS), environment, level)
        many = simulation.events(application.command(more), environment, level)
        differences[level] = Counter({name: max(0, many[name] - few[name]) for name in many})
        if differences[level]["Ir"] == 0:
            raise HostError(f"cachegrind saw no steps of {application.name}")
    return counts_of(differences)


def _accounts(program: FrozenProgram) -> dict[str, float]:
    """Return sums over a program's processes (proc(5): stat, status, schedstat)."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    total = dict.fromkeys(_NAMES, 0.0)
    for process in program.processes:
        folder = Path(f"/proc/{process.pid}")
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            delay_ns = int((folder / "schedstat").read_text().split()[1])
            status = dict(
                line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line
            )
            total["faults_minor"] += int(words[7])
            total["faults_major"] += int(words[9])
            total["cpu_user"] += int(words[11]) * tick_s
            total["cpu_system"] += int(words[12]) * tick_s
            total["run_delay"] += delay_ns / 1e9
            total["switches_voluntary"] += int(status["voluntary_ctxt_switches"])
            total["switches_involuntary"] += int(status["nonvoluntary_ctxt_switches"])
    return total


# Student's t makes an interval of two trials useless.
LEAST_TRIALS = 3


def pairs_of(
    applications: Sequence[CatalogueApplication], against: Collection[str] | None = None
) -> list[tuple[CatalogueApplication, CatalogueApplication]]:
    """Return the unordered pairs to measure: all with all and themselves, but no stressor with a stressor.

    ``against``: names, of which each pair has one at least; of N other applications and K that are named
    these are N x K pairs and those of the K.
    """
    return [
        (first, second)
        for place, first in enumerate(applications)
        for second in applications[place:]
        if [first.family, second.family].count(STRESSOR) < 2
        and (against is None or first.name in against or second.name in against)
    ]


@dataclass(slots=True)
class MeasurementPlan:
    """The state of a measurement of one kind.

    Attributes
    ----------
    pairs
        What is to be measured.
    width
        The 95% interval of E_v is to be as wide at most, each of the two as victim.
    most
        No pair has more trials.
    seed
        Of the order.
    losses
        E_v of the trials so far, by victim and opponent.
    failed
        Applications that died; no pair with one is measured.
    """

    pairs: list[tuple[CatalogueApplication, CatalogueApplication]]
    width: float
    most: int
    seed: int = 1
    losses: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def note(self, rows: Sequence[Row]) -> None:
        """Take the rows of a trial into account."""
        for row in rows:
            key = str(row["victim"]), str(row["opponent"])
            loss = row["e_v"]
            if isinstance(loss, float):
                self.losses.setdefault(key, []).append(loss)

    def trials(self, first: CatalogueApplication, second: CatalogueApplication) -> int:
        """Return how many trials a pair has."""
        return len(self.losses.get((first.name, second.name), ()))

    def is_done(self, first: CatalogueApplication, second: CatalogueApplication) -> bool:
        """Whether a pair needs no more trials."""
        if {first.name, second.name} & self.failed:
            return True
        count = self.trials(first, second)
        if count < min(LEAST_TRIALS, self.most):
            return False
        return count >= self.most or all(
            self._width(key) <= self.width for key in ((first.name, second.name), (second.name, first.name))
        )

    def rounds(self) -> Iterator[tuple[CatalogueApplication, CatalogueApplication]]:
        """Yield pairs until all are done: round by round, each round in an order of its own.

        Pairs with one application follow each other, so that a run alone serves two of them.
        """
        for number in range(1, self.most + 1):
            order = list({first.name for first, _ in self.pairs})
            order.sort()
            random.Random(self.seed * 1_000 + number).shuffle(order)  # noqa: S311 - an order, no secret
            place = {name: at for at, name in enumerate(order)}
            for first, second in sorted(self.pairs, key=lambda pair: place[pair[0].name]):
                if self.trials(first, second) < number and not self.is_done(first, second):
                    yield first, second

    def left(self) -> int:
        """Return how many trials are missing at least."""
        least = min(LEAST_TRIALS, self.most)
        return sum(
            max(1, least - self.trials(first, second))
            for first, second in self.pairs
            if not self.is_done(first, second)
        )

    def _width(self, key: tuple[str, str]) -> float:
        found = estimate(self.losses[key])
        return float("inf") if found.low is None or found.high is None else found.high - found.low


@dataclass(frozen=True, slots=True)
class MeasurementSettings:
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

    applications: list[CatalogueApplication]
    kinds: list[PairKind]
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
class MeasurementProgress:
    """How far a kind is: trials made now, missing at least, seconds left, and the pair just measured."""

    kind: PairKind
    made: int
    missing: int
    left_s: float
    pair: str


Tell = Callable[[MeasurementProgress], None]
Warn = Callable[[str], None]


def places(kind: PairKind, settings: MeasurementSettings) -> list[TrialCpus]:
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
    if kind is PairKind.TIMESLICE:
        if settings.lanes > len(cpus) or (settings.lanes > 1 and max(ranks) > 1):
            raise UsageError(f"--lanes is {settings.lanes}; each needs a CPU, and applications of one rank")
        turned = [(*cpus[lane:], *cpus[:lane]) for lane in range(settings.lanes)]
        return [TrialCpus(kind, order, order) for order in turned]
    if kind in {PairKind.NAIVE, PairKind.GANG}:
        if min(ranks) == 1:
            raise UsageError(f"{kind} is for applications of two ranks; give --apps coupled")
        return [TrialCpus(kind, cpus, cpus)]
    if max(ranks) > 1:
        raise UsageError(f"{kind} is for applications of one rank; give --apps single")
    if kind is PairKind.THREADS:
        both = thread_siblings()
        if both is None:
            raise HostError("this host has no hardware threads that share a core; leave out threads")
        return [TrialCpus(kind, (both[0],), (both[1],))]
    if len(cpus) < 2:
        raise HostError("cores needs two CPUs, and this process may use one")
    return [TrialCpus(kind, cpus[:1], cpus[1:2])]


def pair_measured_here(
    first: CatalogueApplication, second: CatalogueApplication, budget_s: float
) -> MeasuredPair:
    """Measure one pair here, until its interval is narrow or the time is spent; nothing is kept.

    Windows are as long as the slower one's steps need.

    Raises
    ------
    OsubError
        The two have different numbers of ranks, one ends or makes no steps, or there was no time for a trial.
    """
    if first.ranks != second.ranks:
        raise UsageError(
            f"{first.name} and {second.name} have different numbers of ranks: they can't be paired"
        )
    kind = PairKind.TIMESLICE if first.ranks == 1 else PairKind.NAIVE
    settings = MeasurementSettings(applications=[first, second], kinds=[kind], budget_s=budget_s)
    (place,) = places(kind, settings)
    plan = MeasurementPlan([(first, second)], settings.width, settings.most)
    end_s = time.monotonic() + budget_s
    with _pool_at(place, settings.niceness) as pool:
        one = pool.get(first)
        other = pool.get(second, instance=int(first == second), keep=[one])
        readings = [running.read() for running in (one, other)]
        step_s = max(reading.busy_s / max(1, reading.steps) for reading in readings)
        lengths = Lengths(pair_s=max(1.0, step_s), solo_s=max(0.4, step_s))
        bench = Bench(pool, place, lengths)
        for pair in plan.rounds():
            plan.note(bench.trial(*pair, plan.trials(*pair) + 1).rows())
            if time.monotonic() > end_s:
                break
    return MeasuredPair(kind, {pair: estimate(values) for pair, values in plan.losses.items() if values})


class Measurement:
    """Measures what the settings ask for into a store; ``run`` may be interrupted at any instant."""

    def __init__(self, settings: MeasurementSettings, store: PairsStore, tell: Tell, warn: Warn) -> None:
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

    def _run_kind(self, kind: PairKind, lanes: list[TrialCpus], end_s: float) -> None:
        settings = self._settings
        plan = MeasurementPlan(
            pairs_of(settings.applications, settings.against), settings.width, settings.most, settings.seed
        )
        plan.note(self._store.trials_of(kind))
        state = _State(kind, plan, iter(plan.rounds()), end_s, time.monotonic())
        self._stop.clear()
        with ThreadPoolExecutor(len(lanes)) as pool:
            try:
                for lane in as_completed([pool.submit(self._lane, state, place) for place in lanes]):
                    lane.result()
            finally:
                self._stop.set()

    def _lane(self, state: _State, place: TrialCpus) -> None:
        with _pool_at(place, self._settings.niceness) as pool:
            bench = Bench(pool, place, self._settings.lengths)
            while not self._stop.is_set() and time.monotonic() < state.end_s:
                with self._lock:
                    pair = next(state.order, None)
                if pair is None:
                    return
                self._measure(state, bench, pool, pair)

    def _measure(
        self,
        state: _State,
        bench: Bench,
        pool: ProgramPool,
        pair: tuple[CatalogueApplication, CatalogueApplication],
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
    kind: PairKind
    plan: MeasurementPlan
    order: Iterator[tuple[CatalogueApplication, CatalogueApplication]]
    end_s: float
    begin_s: float
    made: int = 0

    def progress(self, pair: str) -> MeasurementProgress:
        now_s = time.monotonic()
        missing = self.plan.left()
        each_s = (now_s - self.begin_s) / max(1, self.made)
        return MeasurementProgress(
            self.kind, self.made, missing, max(0.0, min(self.end_s - now_s, missing * each_s)), pair
        )


@contextlib.contextmanager
def _pool_at(place: TrialCpus, niceness: int) -> Iterator[ProgramPool]:
    """Programs that start at a place; their meters are in memory, so that no store waits for a disk."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a private folder in it
    with tempfile.TemporaryDirectory(prefix="osub-pairs-", dir=memory) as folder:
        pool = ProgramPool(Path(folder), place.victim, niceness)
        try:
            yield pool
        finally:
            pool.close()
