"""Counters of a command alone, from what this host offers: PMU, simulation, operating system."""

from __future__ import annotations

from predictor.counters.choose import Offer, offers, provider_of
from predictor.counters.provider import Count, Provider

__all__ = ["Count", "Offer", "Provider", "offers", "provider_of"]
