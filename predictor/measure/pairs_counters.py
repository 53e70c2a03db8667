"""Counters of the applications that are measured in pairs, of their steps alone, into the same folder.

A solver's start (an interpreter, libraries, compiled code that is loaded) has more instructions than a second
of its steps. So the operating system's counters are of a window in which the program only steps, and
cachegrind's are the difference of two runs, of few steps and of more.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from foundation.errors import HostError
from predictor.counters.counter_source import Count, Provider, run_whole
from predictor.counters.offered_sources import CachegrindCounters, counts_of
from predictor.dataset import CounterSource
from predictor.measure.frozen_program import FrozenProgram
from predictor.measure.pair_trial import Row
from predictor.measure.pairs_store import PairsStore
from predictor.measure.speed_window import measure
from predictor.programs.program_catalogue import CatalogueApplication

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
    return [
        {
            "application": application.name,
            "source": str(source),
            "counter": count.counter,
            "per": count.per,
            "value": count.value,
            "scaled": count.scaled,
        }
        for count in counts
    ]


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
