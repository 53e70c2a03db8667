"""Windows: some programs run, all others are frozen, and steps are read at both ends.

In a window of gang slices, programs take turns on all its CPUs, as gangd's agents let jobs on a node. A turn
stops one program, every rank of it, and lets the next one run; so the ranks of a job that wait for each other
run at the same time. Signals go to all processes of a program one after the other, within tens of
microseconds of each other on one host; on several nodes gangd's broadcast does that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from foundation.cpu_time import CpuTime, cpu_time
from foundation.errors import HostError
from predictor.measure.frozen_program import FrozenProgram, ProgramError
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
