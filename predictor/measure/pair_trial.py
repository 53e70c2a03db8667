"""One trial of a pair: alone, together, alone again; each in windows in which all other programs are frozen.

In a window of gang slices, programs take turns on all its CPUs, as gangd's agents let jobs on a node. A turn
stops one program, every rank of it, and lets the next one run; so the ranks of a job that wait for each other
run at the same time. Signals go to all processes of a program one after the other, within tens of
microseconds of each other on one host; on several nodes gangd's broadcast does that.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from foundation.cpu_time import CpuTime, cpu_time
from foundation.errors import HostError
from predictor.dataset import PairKind, opponent_loss, victim_loss
from predictor.measure.frozen_program import FrozenProgram, ProgramError
from predictor.programs.program_catalogue import CatalogueApplication
from workloads.task.slurm_task import available_bytes
from workloads.task.step_meter import MeterReading

# A window is lengthened until everybody has made so many steps, but not beyond so many times its length.
LEAST_STEPS = 3
MOST_LENGTHENING = 12
_POLL_S = 0.05
_MOST_TAKEN = 0.9

PassTime = Callable[[float], None]
"""Lets at least so many seconds pass, in which programs run as their kind wants it."""


@dataclass(frozen=True, slots=True)
class ProgramPace:
    """What a program did in a window.

    Attributes
    ----------
    steps
        Completed.
    wall_s
        From the end of the last step before the window to that of the last one in it: whole steps in whole
        time, however long a step is.
    busy_s
        Of it, in steps: computing, or kept from it.
    cpu_s
        CPU time in the window.
    taken
        Share of the window that others took of the CPU while a measured program wanted it (``share_taken``).
    """

    steps: int
    wall_s: float
    busy_s: float
    cpu_s: float
    taken: float = 0.0

    @property
    def speed(self) -> float:
        """Steps a second of the time that others left."""
        return self.steps / (self.wall_s * (1.0 - self.taken))

    @property
    def busy(self) -> float:
        """The share of time in steps, above 0."""
        return min(1.0, max(self.busy_s / self.wall_s, 1e-6))


@dataclass(frozen=True, slots=True)
class SpeedWindow:
    """What happened in a window: a pace for each program, and what others took of its CPUs, in seconds."""

    started: datetime
    seconds: float
    paces: tuple[ProgramPace, ...]
    foreign_cpu_s: float
    steal_s: float


def measure(
    programs: Sequence[FrozenProgram],
    cpus: Sequence[int],
    warm_up_s: float,
    seconds: float,
    slice_s: float | None = None,
) -> SpeedWindow:
    """Let these programs run together and return what they did.

    Parameters
    ----------
    programs
        Frozen and pinned; frozen again afterwards.
    cpus
        Those that they were pinned to.
    warm_up_s
        What passes before the window, in which caches fill.
    seconds
        The window's least length.
    slice_s
        They take turns of this length; None: they run at the same time.

    Raises
    ------
    ProgramError
        One has ended, or makes too few steps.
    """
    started = datetime.now(UTC)
    frozen = [program.read() for program in programs]
    pass_time: PassTime = time.sleep
    if slice_s is None:
        for program in programs:
            program.resume()
    else:
        pass_time = RoundClock(programs, slice_s)
    try:
        pass_time(warm_up_s)
        _await_first_steps(programs, frozen, MOST_LENGTHENING * seconds, pass_time)
        host, cpu = _of_host(cpus), [program.cpu_s() for program in programs]
        begin_s, before = time.monotonic(), [program.read() for program in programs]
        pass_time(seconds)
        while True:
            after = [program.read() for program in programs]
            slow = [
                program
                for program, first, last in zip(programs, before, after, strict=True)
                if last.steps - first.steps < LEAST_STEPS
            ]
            lasted_s = time.monotonic() - begin_s
            if not slow:
                break
            if lasted_s > MOST_LENGTHENING * seconds:
                raise ProgramError(
                    slow[0].application.name,
                    f"{slow[0].application.name} makes fewer than {LEAST_STEPS} steps in {lasted_s:.0f} s; "
                    "give a longer --window or leave it out",
                )
            pass_time(_POLL_S)
        used_s = [program.cpu_s() - first for program, first in zip(programs, cpu, strict=True)]
        of_host = _of_host(cpus).since(host)
    finally:
        for program in programs:
            program.freeze()
    foreign_s, steal_s = max(0.0, of_host.used_s - sum(used_s)), of_host.steal_s
    whole = [
        ProgramPace(last.steps - first.steps, last.last_s - first.last_s, last.busy_s - first.busy_s, cpu_s)
        for first, last, cpu_s in zip(before, after, used_s, strict=True)
    ]
    ranks = sum(program.application.ranks for program in programs)
    taken = shares_taken(lasted_s, foreign_s + steal_s, whole, len(set(cpus)), ranks)
    paces = tuple(replace(pace, taken=share) for pace, share in zip(whole, taken, strict=True))
    return SpeedWindow(started, lasted_s, paces, foreign_s, steal_s)


def shares_taken(
    seconds: float, others_s: float, paces: Sequence[ProgramPace], cpus: int, ranks: int
) -> list[float]:
    """Return ``share_taken`` of each program: of all on one CPU, or of each on a CPU of its own.

    Where jobs of several ranks share CPUs nothing tells whom the others kept waiting: 0.
    """
    if cpus == 1:
        return [share_taken(seconds, others_s, paces)] * len(paces)
    if cpus == ranks == len(paces):
        return [share_taken(seconds, others_s, [pace]) for pace in paces]
    return [0.0] * len(paces)


def share_taken(seconds: float, others_s: float, paces: Sequence[ProgramPace]) -> float:
    """Return which share of a window on one CPU others took while a measured program wanted it.

    That is the time in which one of the programs was busy and none had the CPU; at most what the others
    used, for a program that waits for a disk wants no CPU. Programs that sleep do so independently.

    Parameters
    ----------
    seconds
        Of the window.
    others_s
        CPU seconds that other processes and the hypervisor took.
    paces
        Of the measured programs.
    """
    wanted_s = seconds * (1.0 - math.prod(1.0 - pace.busy for pace in paces))
    had_s = sum(pace.cpu_s for pace in paces)
    return min(_MOST_TAKEN, max(0.0, min(others_s, wanted_s - had_s)) / seconds)


def _of_host(cpus: Collection[int]) -> CpuTime:
    used = cpu_time(cpus)
    if used is None:
        raise HostError(f"the kernel does not tell who used the CPUs {', '.join(map(str, cpus))}")
    return used


def _await_first_steps(
    programs: Sequence[FrozenProgram], frozen: Sequence[MeterReading], most_s: float, pass_time: PassTime
) -> None:
    """Return when each program has made a step: one that was frozen within a step has its end long ago."""
    deadline_s = time.monotonic() + most_s
    while slow := [
        program
        for program, before in zip(programs, frozen, strict=True)
        if program.read().steps == before.steps
    ]:
        if time.monotonic() > deadline_s:
            name = slow[0].application.name
            raise ProgramError(
                name, f"{name} makes no step in {most_s:.0f} s; give a longer --window or leave it out"
            )
        pass_time(_POLL_S / 10)


@dataclass(frozen=True, slots=True)
class RoundClock:
    """Passes time in whole rounds, in each of which every program has a turn.

    Parameters
    ----------
    programs
        Frozen, and frozen again whenever a call returns or raises.
    slice_s
        How long a turn is.
    pause
        Waits, in seconds.
    """

    programs: Sequence[FrozenProgram]
    slice_s: float
    pause: PassTime = field(default=time.sleep)

    def __call__(self, seconds: float) -> None:
        """Let whole rounds pass, for at least so many seconds and at least one round."""
        rounds = max(1, math.ceil(seconds / (self.slice_s * len(self.programs)) - 1e-9))
        for _ in range(rounds):
            for program in self.programs:
                program.resume()
                try:
                    self.pause(self.slice_s)
                finally:
                    program.freeze()


# Below this nothing more is started before something has been ended.
LEAST_FREE_BYTES = 1 << 30


class ProgramPool:
    """Running programs by name and instance; an application paired with itself has two.

    Parameters
    ----------
    folder
        Private, for meters.
    cpus
        Where programs start.
    niceness
        Of all of them.
    """

    def __init__(self, folder: Path, cpus: Sequence[int], niceness: int) -> None:
        self._folder = folder
        self._cpus = cpus
        self._niceness = niceness
        self._running: dict[tuple[str, int], FrozenProgram] = {}
        self.footprints_kib: dict[str, int] = {}
        """Resident memory of each application that ran, when it had started."""

    def get(
        self, application: CatalogueApplication, instance: int = 0, keep: Iterable[FrozenProgram] = ()
    ) -> FrozenProgram:
        """Return the program, frozen; start it where it does not run.

        Raises
        ------
        ProgramError
            It cannot be started.
        """
        key = application.name, instance
        running = self._running.pop(key, None)
        if running is None:
            self._end_others(set(keep))
            running = FrozenProgram(application, self._folder, self._cpus, self._niceness)
            self.footprints_kib[application.name] = running.footprint_kib()
        self._running[key] = running  # the latest is last
        return running

    def drop(self, application: CatalogueApplication) -> None:
        """End all instances of an application."""
        for key in [key for key in self._running if key[0] == application.name]:
            self._running.pop(key).close()

    def close(self) -> None:
        """End all."""
        for running in self._running.values():
            with contextlib.suppress(HostError):
                running.close()
        self._running.clear()

    def _end_others(self, keep: set[FrozenProgram]) -> None:
        while (free := available_bytes()) is not None and free < LEAST_FREE_BYTES:
            key = next((key for key, running in self._running.items() if running not in keep), None)
            if key is None:
                raise ProgramError(
                    None, f"{free >> 20} MiB of memory are free; a pair needs {LEAST_FREE_BYTES >> 20}"
                )
            self._running.pop(key).close()


Row = dict[str, object]

# A run alone counts as the one before a pair's window if it is not older.
FRESH_S = 4.0


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long these last, in seconds: a pair's window, a run alone, what passes before; a gang slice."""

    pair_s: float = 1.0
    solo_s: float = 0.4
    warm_up_s: float = 0.12
    slice_s: float = 0.1


@dataclass(frozen=True, slots=True)
class TrialCpus:
    """Where the two run: a CPU for each rank; ``shared`` are those on which both compute."""

    kind: PairKind
    victim: tuple[int, ...]
    opponent: tuple[int, ...]

    def used(self, ranks: int) -> list[int]:
        """Return the CPUs that applications of so many ranks use."""
        return sorted({*self.victim[:ranks], *self.opponent[:ranks]})


@dataclass(frozen=True, slots=True)
class ProgramPairTrial:
    """A trial of the unordered pair: what each did alone, before and after, and together."""

    kind: PairKind
    names: tuple[str, str]
    number: int
    before: tuple[ProgramPace, ProgramPace]
    together: SpeedWindow
    after: tuple[ProgramPace, ProgramPace]

    def rows(self) -> list[Row]:
        """Return the rows of the trials table: each of the two as victim; one if they are the same."""
        places = ((0, 1),) if self.names[0] == self.names[1] else ((0, 1), (1, 0))
        return [self._row(victim, opponent) for victim, opponent in places]

    def _row(self, victim: int, opponent: int) -> Row:
        alone = [(self.before[who].speed + self.after[who].speed) / 2 for who in (0, 1)]
        shared = self.together.paces
        return {
            "kind": str(self.kind),
            "victim": self.names[victim],
            "opponent": self.names[opponent],
            "trial": self.number,
            "started": self.together.started,
            "speed_victim": shared[victim].speed,
            "speed_opponent": shared[opponent].speed,
            "solo_victim_before": self.before[victim].speed,
            "solo_victim_after": self.after[victim].speed,
            "solo_opponent_before": self.before[opponent].speed,
            "solo_opponent_after": self.after[opponent].speed,
            "busy_victim": shared[victim].busy,
            "busy_opponent": shared[opponent].busy,
            "e_v": victim_loss(alone[victim], shared[victim].speed, shared[opponent].busy),
            "e_o": self._busy_loss(opponent),
            "foreign_cpu_s": self.together.foreign_cpu_s,
            "steal_s": self.together.steal_s,
        }

    def _busy_loss(self, who: int) -> float:
        """Return E_o, from steps a second of busy time."""
        alone = [pace.speed / pace.busy for pace in (self.before[who], self.after[who])]
        shared = self.together.paces[who]
        return opponent_loss(sum(alone) / 2, shared.speed / shared.busy)


class Bench:
    """Measures trials of one kind in one place, and keeps the runs alone that are still fresh."""

    def __init__(self, pool: ProgramPool, place: TrialCpus, lengths: Lengths) -> None:
        self._pool = pool
        self._place = place
        self._lengths = lengths
        self._alone: dict[tuple[str, tuple[int, ...]], tuple[float, ProgramPace]] = {}
        self.solo_rows: list[Row] = []
        """Rows of the solo table since they were last taken; their trials are not numbered yet."""

    def trial(
        self, first: CatalogueApplication, second: CatalogueApplication, number: int
    ) -> ProgramPairTrial:
        """Measure one trial of a pair.

        Raises
        ------
        ProgramError
            One of them died or makes no steps.
        """
        one = self._pool.get(first)
        other = self._pool.get(second, instance=int(first == second), keep=[one])
        cpus = self._place.victim, self._place.opponent
        before = self._solo(one, cpus[0], fresh=True), self._solo(other, cpus[1], fresh=True)
        one.pin(cpus[0])
        other.pin(cpus[1])
        used = self._place.used(max(first.ranks, second.ranks))
        lengths = self._lengths
        slice_s = lengths.slice_s if self._place.kind is PairKind.GANG else None
        window = measure([one, other], used, lengths.warm_up_s, lengths.pair_s, slice_s)
        # The second one first: its successor comes anew, the first one's run serves the next pair, too.
        later = self._solo(other, cpus[1], fresh=False)
        after = self._solo(one, cpus[0], fresh=False), later
        names = first.name, second.name
        return ProgramPairTrial(self._place.kind, names, number, before, window, after)

    def _solo(self, program: FrozenProgram, cpus: tuple[int, ...], *, fresh: bool) -> ProgramPace:
        key = program.application.name, cpus
        kept = self._alone.get(key)
        if fresh and kept is not None and time.monotonic() - kept[0] < FRESH_S:
            return kept[1]
        program.pin(cpus)
        used = sorted(set(cpus[: program.application.ranks]))
        window = measure([program], used, self._lengths.warm_up_s, self._lengths.solo_s)
        pace = window.paces[0]
        self._alone[key] = time.monotonic(), pace
        self.solo_rows.append(self._solo_row(program, window))
        return pace

    def _solo_row(self, program: FrozenProgram, window: SpeedWindow) -> Row:
        pace = window.paces[0]
        return {
            "application": program.application.name,
            "kind": str(self._place.kind),
            "started": window.started,
            "wall_s": pace.wall_s,
            "steps": float(pace.steps),
            "speed": pace.speed,
            "cpu_s": pace.cpu_s,
            "steal_s": window.steal_s,
            "foreign_cpu_s": window.foreign_cpu_s,
        }
