"""What the agent has done since it began, added up for whoever monitors it; filled by the loop alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gangd.monitor.histogram import Histogram
from gangd.monitor.metrics_table import SWITCH_S

MOST_KINDS = 64
OTHER = "other"


@dataclass(slots=True)
class Tally:
    """Counts that only grow.

    Attributes
    ----------
    late, switched
        How long after its instant each switch began, and had made its last write.
    frozen_s, yielded_s
        Time for which jobs were held, all added up.
    leaked_s
        CPU time that frozen jobs used.
    faults
        By kind.
    reports
        Reports made.
    """

    late: Histogram = field(default_factory=lambda: Histogram(SWITCH_S))
    switched: Histogram = field(default_factory=lambda: Histogram(SWITCH_S))
    frozen_s: float = 0.0
    yielded_s: float = 0.0
    leaked_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    reports: int = 0

    def on_switch(self, late_ns: int, took_ns: int) -> None:
        """Count a switch."""
        self.late.add(max(0, late_ns) / 1e9)
        self.switched.add(max(0, took_ns) / 1e9)

    def on_held(self, frozen: int, yielding: int, for_ns: int) -> None:
        """Add a stretch of time in which so many jobs were held."""
        self.frozen_s += frozen * max(0, for_ns) / 1e9
        self.yielded_s += yielding * max(0, for_ns) / 1e9

    def on_fault(self, kind: str) -> None:
        """Count a fault."""
        self.faults[kind if kind in self.faults or len(self.faults) < MOST_KINDS else OTHER] += 1
