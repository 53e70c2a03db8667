"""Counters of a command alone, from what this host offers: PMU, simulation, operating system."""

from __future__ import annotations

from predictor.counters.counter_source import Count, Provider
from predictor.counters.offered_sources import Offer, offers, provider_of

__all__ = ["Count", "Offer", "Provider", "offers", "provider_of"]
