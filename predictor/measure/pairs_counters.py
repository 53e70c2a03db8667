"""Counters of the applications that are measured in pairs, into the same folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from foundation.errors import HostError
from predictor.counters.counter_source import Count, Provider
from predictor.dataset import Source
from predictor.measure.frozen_program import Running
from predictor.measure.pairs_store import Store
from predictor.measure.speed_window import measure
from predictor.measure.steady_counters import rows_of, simulated_counts, system_counts
from predictor.programs.program_catalogue import Application

# A command that is counted whole makes steps for about as long.
WHOLE_S = 2.0


def count_all(
    applications: Sequence[Application],
    providers: Sequence[Provider],
    store: Store,
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


def _alone(application: Application, cpus: tuple[int, ...]) -> tuple[float, list[Count]]:
    """Return an application's speed alone, and what the operating system counted meanwhile."""
    with tempfile.TemporaryDirectory(prefix="osub-pairs-") as folder:
        running = Running(application, Path(folder), cpus, 0)
        try:
            window = measure([running], cpus[: application.ranks], 0.05, 0.2)
            return window.paces[0].speed, system_counts(running, cpus)
        finally:
            running.close()


def _count(provider: Provider, application: Application, speed: float, system: list[Count]) -> list[Count]:
    if provider.source is Source.OS:
        return system
    if provider.source is Source.CACHEGRIND:
        return simulated_counts(application, speed)
    return provider.count(application.command(max(3, round(speed * WHOLE_S))), os.environ)
