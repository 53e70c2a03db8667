"""What the agent tells of itself: its log, its metrics, and whether it is well.

The agent's log: one JSON object a line, with wall-clock time, node, event and its fields.

What the agent tells a monitoring system, and whether it is well.

The loop puts down what it knows once a second (``AgentReading``); pages are made of it in a thread of their
own. The thread that switches has no part in it. A page costs about a millisecond, twice a second at most.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from gangd.agent.memory_process import MeasuredMemory
from gangd.monitor.hand_out import MetricsSource
from gangd.monitor.metrics_requests import Health
from gangd.monitor.metrics_table import UNKNOWN, Buckets, Figures
from gangd.wire.messages import Hello

_SAME_EVENT_S = 1.0


class JsonLog:
    """Writes lines to a descriptor; a full disk or a closed pipe never disturbs the agent.

    An event that repeats within a second is counted and written once a second, so that a flood (of bad
    frames, say) can't fill the disk.
    """

    def __init__(self, fd: int, node: str) -> None:
        self._fd = fd
        self._node = node
        self._last: dict[str, float] = {}
        self._skipped: dict[str, int] = {}

    def __call__(self, event: str, **fields: object) -> None:
        """Write one line, unless the same event was written within the last second."""
        now_s = time.time()
        if now_s - self._last.get(event, 0.0) < _SAME_EVENT_S:
            self._skipped[event] = self._skipped.get(event, 0) + 1
            return
        self._last[event] = now_s
        line: dict[str, object] = {
            "time_s": round(now_s, 6),
            "who": "gang-agent",
            "node": self._node,
            "event": event,
            **fields,
        }
        skipped = self._skipped.pop(event, 0)
        if skipped:
            line["not_shown"] = skipped
        with contextlib.suppress(OSError):
            os.write(self._fd, (json.dumps(line, default=str) + "\n").encode())


LOOP_PATIENCE_NS = 5_000_000_000
"""The loop puts down what it knows once a second."""


@dataclass(frozen=True, slots=True)
class AgentReading:
    """What the loop knew at an instant of CLOCK_MONOTONIC; ``clock_bound_s``: None while not known."""

    at_ns: int
    lease_until_ns: int
    heard_lately: bool
    guarded: bool
    clock_bound_s: float | None
    jobs: int
    steps: int
    without_steps: int
    frozen: int
    yielding: int
    late: Buckets
    switched: Buckets
    frozen_s: float
    yielded_s: float
    leaked_s: float
    faults: Mapping[str, int]
    reports: int
    memory: MeasuredMemory | None = None


@dataclass
class AgentMetrics(MetricsSource[AgentReading]):
    """The latest reading of the agent; ``hello`` is what it says of itself."""

    hello: Hello

    def health(self) -> Health:
        """Look whether the loop turns, the controller is heard, and the guardian watches."""
        reading, now_ns = self._reading, self.clock()
        if reading is None:
            return Health(dict.fromkeys(("loop", "controller", "guardian"), (False, "not known yet")))
        silent_s = (now_ns - reading.at_ns) / 1e9
        left_s = (reading.lease_until_ns - now_ns) / 1e9
        return Health(
            {
                "loop": (now_ns - reading.at_ns < LOOP_PATIENCE_NS, f"last seen {silent_s:.1f} s ago"),
                "controller": (True, f"heard lately, lease of {max(0.0, left_s):.1f} s left")
                if reading.heard_lately
                else (False, "not heard, or not followed: everything runs"),
                "guardian": (True, "watches") if reading.guarded else (False, "is missing: nothing is held"),
            }
        )

    def figures(self) -> Figures:
        """See ``MetricsSource``."""
        reading, now_ns, hello = self._reading, self.clock(), self.hello
        known: dict[str, Mapping[tuple[str, ...], float] | Buckets | float] = {
            "gang_agent_info": {
                (hello.agent_version, hello.freezer, hello.yields or "none", str(hello.dry_run).lower()): 1.0
            },
            "gang_agent_up_seconds": (now_ns - self._since_ns) / 1e9,
            "gang_agent_healthy": self.health().figures(),
            "gang_agent_clock_bound_seconds": UNKNOWN,
            "gang_agent_memory_available_bytes": UNKNOWN,
        }
        if reading is None:
            return known
        bound_s = reading.clock_bound_s
        memory = reading.memory
        if memory is not None:
            known |= {
                "gang_agent_memory_available_bytes": 1024.0 * memory.available,
                "gang_agent_memory_jobs_bytes": 1024.0 * sum(used for _, used, _ in memory.jobs),
                "gang_agent_memory_stalled_seconds_total": memory.stalled_us / 1e6,
                "gang_agent_memory_paged_out_bytes_total": 1024.0 * memory.paged,
            }
        return {
            **known,
            "gang_agent_lease_seconds": max(0.0, (reading.lease_until_ns - now_ns) / 1e9),
            "gang_agent_clock_bound_seconds": UNKNOWN if bound_s is None else bound_s,
            "gang_agent_jobs": reading.jobs,
            "gang_agent_steps": reading.steps,
            "gang_agent_jobs_without_steps": reading.without_steps,
            "gang_agent_steps_held": {("freeze",): reading.frozen, ("yield",): reading.yielding},
            "gang_agent_switch_late_seconds": reading.late,
            "gang_agent_switch_seconds": reading.switched,
            "gang_agent_held_job_seconds_total": {
                ("freeze",): reading.frozen_s,
                ("yield",): reading.yielded_s,
            },
            "gang_agent_leaked_cpu_seconds_total": reading.leaked_s,
            "gang_agent_faults_total": {(kind,): count for kind, count in reading.faults.items()},
            "gang_agent_reports_total": reading.reports,
        }
