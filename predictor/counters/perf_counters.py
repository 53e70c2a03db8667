"""Counters of the processor's PMU through ``perf stat``: a command and all that it starts on this host.

There are more events than counters, so the kernel takes turns (multiplexing); perf scales the counts up,
and tells the share of time in which each event was counted. (perf-stat(1), "CSV FORMAT".)
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from predictor.counters.counter_source import Count, per, run_whole
from predictor.dataset import Source

EVENTS = {
    "instructions": "PAPI_TOT_INS",
    "cycles": "PAPI_TOT_CYC",
    "branches": "PAPI_BR_INS",
    "branch-misses": "PAPI_BR_MSP",
    "L1-dcache-loads": "PAPI_LD_INS",
    "L1-dcache-load-misses": "PAPI_L1_LDM",
    "L1-icache-load-misses": "PAPI_L1_ICM",
    "l2_rqsts.miss": "PAPI_L2_TCM",
    "cache-references": "PAPI_L3_TCA",
    "cache-misses": "PAPI_L3_TCM",
    "LLC-load-misses": "PAPI_L3_LDM",
    "dTLB-load-misses": "PAPI_TLB_DM",
    "iTLB-load-misses": "PAPI_TLB_IM",
    "stalled-cycles-backend": "PAPI_RES_STL",
    "stalled-cycles-frontend": "PAPI_STL_ICY",
}
"""perf's event to PAPI's preset; what a processor lacks is null."""

_NO_EVENT = ("<not supported>", "<not counted>")


@dataclass(frozen=True, slots=True)
class Event:
    """An event's count, scaled up, and the share of time in which it was counted; None: not counted."""

    value: float | None
    share: float | None


def parse_stat(text: str) -> dict[str, Event]:
    """Return the events of ``perf stat -x,``: value, unit, event, run time, percentage, and more.

    Lines that are not of that form (comments, warnings) are passed over.
    """
    events: dict[str, Event] = {}
    for line in text.splitlines():
        fields = line.split(",")
        if line.startswith("#") or len(fields) < 5:
            continue
        name = fields[2].partition(":")[0]
        try:
            share = float(fields[4]) / 100
            value = None if fields[0] in _NO_EVENT else float(fields[0])
        except ValueError:
            continue
        events[name] = Event(value, None if value is None else min(1.0, max(0.0, share)))
    return events


class PerfCounters:
    """The PMU through ``perf``."""

    source = Source.PERF

    def missing(self) -> str | None:
        """Return why there are no counters of the processor."""
        if shutil.which("perf") is None:
            return "perf is not installed (Debian: apt-get install linux-perf)"
        try:
            events = self._stat(["true"], None, ["instructions"])
        except (OSError, subprocess.SubprocessError) as error:
            return f"perf does not run: {error}"
        if events.get("instructions", Event(None, None)).value is not None:
            return None
        paranoid = _paranoid()
        if paranoid is not None and paranoid > 2:
            return f"the kernel refuses the PMU; set kernel.perf_event_paranoid to 2 (it is {paranoid})"
        return "the PMU is refused on this host, as on most virtual machines; a host that offers it is needed"

    def count(self, command: Sequence[str], environment: Mapping[str, str]) -> list[Count]:
        """Run the command under ``perf stat``."""
        with tempfile.TemporaryDirectory(prefix="osub-perf-") as folder:
            to = Path(folder) / "stat"
            words = ["perf", "stat", "-x,", "-o", str(to)]
            for event in self._known(list(EVENTS)):
                words += ["-e", event]
            run_whole([*words, "--", *command], command, environment)
            events = parse_stat(to.read_text(errors="replace"))
        base = events.get("instructions", Event(None, None)).value
        counts = []
        for name, preset in EVENTS.items():
            if name == "instructions":
                continue
            found = events.get(name, Event(None, None))
            value = per(found.value, base)
            counts.append(Count(preset, "instruction", value, None if value is None else found.share))
        return counts

    def _known(self, events: list[str]) -> list[str]:
        """Return the events that perf has a name for: one that it has not fails the whole command."""
        return [event for event in events if self._stat(["true"], None, [event])]

    def _stat(
        self, command: list[str], environment: Mapping[str, str] | None, events: list[str]
    ) -> dict[str, Event]:
        words = ["perf", "stat", "-x,", *(word for event in events for word in ("-e", event)), "--", *command]
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", env=environment, check=False, timeout=30
        )
        return parse_stat(done.stderr)


def _paranoid(path: Path = Path("/proc/sys/kernel/perf_event_paranoid")) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
