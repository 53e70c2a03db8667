"""Which sources of counters this host offers, best first, and why the others are missing."""

from __future__ import annotations

from dataclasses import dataclass

from foundation.errors import HostError
from predictor.counters.cachegrind_counters import CachegrindCounters
from predictor.counters.counter_source import Provider
from predictor.counters.perf_counters import PerfCounters
from predictor.counters.system_counters import SystemCounters
from predictor.dataset import Source

_ALL: tuple[Provider, ...] = (PerfCounters(), CachegrindCounters(), SystemCounters())


@dataclass(frozen=True, slots=True)
class Offer:
    """A source, and why it is missing here; None: it is not."""

    provider: Provider
    missing: str | None


def offers() -> list[Offer]:
    """Return every source with what it says of this host."""
    return [Offer(provider, provider.missing()) for provider in _ALL]


def provider_of(source: Source) -> Provider:
    """Return the provider of a source.

    Raises
    ------
    HostError
        This host does not have it.
    """
    provider = next(each for each in _ALL if each.source is source)
    why = provider.missing()
    if why is not None:
        raise HostError(f"no counters from {source}: {why}")
    return provider
