"""What the controller tells a monitoring system, and whether it is well.

The loop tells what it knows once a second (``ControllerReading``); a page is made of that in the server's
thread. Between the two nothing is shared but whole values that never change.
"""

from __future__ import annotations

import collections
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version

from foundation.units import counted_of
from gangd.controller.controller_status import ControllerStatus
from gangd.core import AgentState, GangScheduler, HoldMode
from gangd.core.terms.states import GangState
from gangd.monitor.histogram import Histogram
from gangd.monitor.metric_figures import UNKNOWN, Figures
from gangd.monitor.metrics_requests import Health
from gangd.monitor.metrics_table import DECISION_S
from gangd.threads import Death

SLURM_PATIENCE_S = 30.0
"""Slurm is well if it has answered within that; it is asked every five seconds at least."""


@dataclass(frozen=True, slots=True)
class GangCounts:
    """Gangs by state, and jobs that are held in a slice by how."""

    gangs: Mapping[GangState, int]
    held: Mapping[HoldMode, int]


def census(scheduler: GangScheduler, number: int) -> GangCounts:
    """Count the gangs in slice ``number``."""
    running = scheduler.owners(number)
    gangs: Counter[GangState] = Counter()
    held: Counter[HoldMode] = Counter()
    for gang in scheduler.gangs.values():
        gangs[gang.state] += 1
        if gang.gang not in running:
            held[gang.hold] += len(gang.views)
    return GangCounts(gangs, held)


@dataclass(frozen=True, slots=True)
class ControllerReading:
    """What the loop knew at an instant of CLOCK_MONOTONIC."""

    at_ns: int
    status: ControllerStatus
    census: GangCounts
    faults: Mapping[str, int]
    slurm_failures: int
    ends_moved: int
    ends_refused: int
    connections: int
    record_bytes: int


@dataclass
class ControllerMetrics:
    """The latest reading of the controller.

    Attributes
    ----------
    decisions, decisions_cpu
        How long decisions took, and how much CPU time of the loop's thread; the loop adds.
    beat_ns
        When leases were renewed last; None before the first time.
    is_served
        Whether metrics are served; if not, none needs to be updated.
    """

    clock: Callable[[], int] = time.monotonic_ns
    decisions: Histogram = field(default_factory=lambda: Histogram(DECISION_S))
    decisions_cpu: Histogram = field(default_factory=lambda: Histogram(DECISION_S))
    beat_ns: int | None = None
    is_served: bool = False
    _reading: ControllerReading | None = None
    _since_ns: int = field(default_factory=time.monotonic_ns)
    _deaths: collections.deque[Death] = field(default_factory=lambda: collections.deque(maxlen=8))

    def update(self, reading: ControllerReading) -> None:
        """Take what the loop knows."""
        self._reading = reading

    def on_death(self, death: Death) -> None:
        """Keep what befell the thread that serves, for the loop to raise an alarm."""
        self._deaths.append(death)

    def take_deaths(self) -> list[Death]:
        """Take what befell the thread that serves."""
        taken: list[Death] = []
        with suppress(IndexError):
            while True:
                taken.append(self._deaths.popleft())
        return taken

    def health(self) -> Health:
        """Look whether leases are renewed, Slurm answers and agents are joined."""
        now_ns, reading = self.clock(), self._reading
        if reading is None:
            unknown = "not known yet"
            return Health(
                dict.fromkeys(("lease", "slurm", "agents"), False),
                dict.fromkeys(("lease", "slurm", "agents"), unknown),
            )
        silent_s = (now_ns - (self.beat_ns or self._since_ns)) / 1e9
        nodes = Counter(node.agent for node in reading.status.nodes)
        joined, lost = nodes[AgentState.JOINED.value], nodes[AgentState.LOST.value]
        age_s = self._slurm_age_s(reading, now_ns)
        return Health(
            {
                "lease": silent_s < reading.status.lease_ms / 1000,
                "slurm": age_s is not None and age_s < SLURM_PATIENCE_S,
                "agents": joined > lost,
            },
            {
                "lease": f"renewed {silent_s:.1f} s ago, lasts {reading.status.lease_ms / 1000:g} s",
                "slurm": "has not answered yet" if age_s is None else f"answered {age_s:.1f} s ago",
                "agents": f"{counted_of(joined, len(reading.status.nodes), 'node')} joined, {lost} lost",
            },
        )

    def figures(self) -> Figures:
        """Return the value of every metric that is known."""
        reading, now_ns = self._reading, self.clock()
        up: dict[str, Mapping[tuple[str, ...], float] | float] = {
            "gangd_up_seconds": (now_ns - self._since_ns) / 1e9,
            "gangd_healthy": {(check,): float(holds) for check, holds in self.health().checks.items()},
            "gangd_slurm_age_seconds": UNKNOWN,
            "gangd_switch_lost_ratio": UNKNOWN,
        }
        decisions: Figures = {
            "gangd_decision_seconds": self.decisions.buckets(),
            "gangd_decision_cpu_seconds": self.decisions_cpu.buckets(),
        }
        if reading is None:
            return {**up, **decisions}
        status = reading.status
        age_s = self._slurm_age_s(reading, now_ns)
        nodes = Counter(node.agent for node in status.nodes)
        alarms = Counter(alarm.kind for alarm in status.alarms)
        return {
            **up,
            "gangd_info": {(version("osub"), str(status.dry_run).lower()): 1.0},
            **decisions,
            "gangd_nodes": _labelled(nodes),
            "gangd_gangs": _labelled({state.value: count for state, count in reading.census.gangs.items()}),
            "gangd_jobs_running": status.running_jobs,
            "gangd_jobs_shared": status.shared_jobs,
            "gangd_jobs_held": _labelled({hold.value: count for hold, count in reading.census.held.items()}),
            "gangd_slice_seconds": status.quantum_ms / 1000,
            "gangd_slice_asked_seconds": status.asked_quantum_ms / 1000,
            "gangd_lookahead_slices": status.lookahead,
            "gangd_switch_lost_ratio": UNKNOWN if status.lost_share is None else status.lost_share,
            "gangd_lease_seconds": status.lease_ms / 1000,
            "gangd_slurm_age_seconds": UNKNOWN if age_s is None else age_s,
            "gangd_slurm_failures_total": reading.slurm_failures,
            "gangd_ends_moved_total": reading.ends_moved,
            "gangd_ends_refused_total": reading.ends_refused,
            "gangd_messages_dropped_total": _labelled(status.dropped),
            "gangd_agent_faults_total": _labelled(reading.faults),
            "gangd_alarms": _labelled(alarms),
            "gangd_connections": reading.connections,
            "gangd_record_bytes": reading.record_bytes,
        }

    @staticmethod
    def _slurm_age_s(reading: ControllerReading, now_ns: int) -> float | None:
        known_s = reading.status.slurm_age_s
        return None if known_s is None else known_s + (now_ns - reading.at_ns) / 1e9


def _labelled(counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(name,): float(count) for name, count in counts.items()}
