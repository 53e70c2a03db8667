"""Counters of a simulated core through valgrind's cachegrind: no PMU is needed, 20 to 100 times slower.

It simulates two levels, so the command runs twice: with this host's second level, then with its third as
the last one. Misses are of an empty machine and of no prefetcher; branches by a simple predictor.
(Valgrind's manual, chapter 5: "Cachegrind".) Processes that a command starts are followed and added up.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from foundation.errors import HostError
from predictor.counters.counter_source import Count, per, run_whole
from predictor.dataset import Source

CPUS = Path("/sys/devices/system/cpu")
_USUAL = {2: "1048576,8,64", 3: "33554432,16,64"}
_PRESETS = {
    "PAPI_LD_INS": ("Dr",),
    "PAPI_SR_INS": ("Dw",),
    "PAPI_L1_ICM": ("I1mr",),
    "PAPI_L1_LDM": ("D1mr",),
    "PAPI_L1_STM": ("D1mw",),
    "PAPI_L1_DCM": ("D1mr", "D1mw"),
    "PAPI_BR_CN": ("Bc",),
    "PAPI_BR_INS": ("Bc", "Bi"),
    "PAPI_BR_MSP": ("Bcm", "Bim"),
}
_LAST = {
    "PAPI_L{}_ICM": ("ILmr",),
    "PAPI_L{}_LDM": ("DLmr",),
    "PAPI_L{}_STM": ("DLmw",),
    "PAPI_L{}_DCM": ("DLmr", "DLmw"),
}


class CachegrindCounters:
    """A simulated core.

    Parameters
    ----------
    levels
        Which of this host's caches is simulated as the last one, a run each.
    """

    source = Source.CACHEGRIND

    def __init__(self, levels: Sequence[int] = (2, 3)) -> None:
        self._levels = levels

    def missing(self) -> str | None:
        """Return why there is no simulation."""
        if shutil.which("valgrind") is None:
            return "valgrind is not installed (Debian: apt-get install valgrind)"
        return None

    def count(self, command: Sequence[str], environment: Mapping[str, str]) -> list[Count]:
        """Run the command under cachegrind, once for each level."""
        return counts_of({level: self.events(command, environment, level) for level in self._levels})

    def events(self, command: Sequence[str], environment: Mapping[str, str], level: int) -> Counter[str]:
        """Return cachegrind's own events of one run, of all processes."""
        if shutil.which(command[0], path=environment.get("PATH")) is None:
            raise HostError(f"cannot start {command[0]}: it is not there, or is no program")
        with tempfile.TemporaryDirectory(prefix="osub-cachegrind-") as folder:
            words = [
                "valgrind",
                "--tool=cachegrind",
                "--cache-sim=yes",
                "--branch-sim=yes",
                "--trace-children=yes",
                f"--LL={last_level(level)}",
                f"--cachegrind-out-file={folder}/%p",
            ]
            run_whole([*words, *command], command, environment)
            texts = [path.read_text(errors="replace") for path in Path(folder).iterdir()]
        total: Counter[str] = Counter()
        for text in texts:
            total.update(parse_summary(text))  # a sum of Counters would leave out what is 0
        return total


def counts_of(events: Mapping[int, Mapping[str, int]]) -> list[Count]:
    """Return the counters per instruction, of the events by simulated last level."""
    counts = []
    first = next(iter(events.values()))
    tables = [(preset, names, first) for preset, names in _PRESETS.items()]
    for level, found in events.items():
        tables += [(preset.format(level), names, found) for preset, names in _LAST.items()]
    for preset, names, found in tables:
        known = all(name in found for name in names)
        value = per(sum(found[name] for name in names), found.get("Ir")) if known else None
        counts.append(Count(preset, "instruction", value))
    return counts


def parse_summary(text: str) -> Counter[str]:
    """Return the totals of a cachegrind file, by event; none of one that is cut."""
    events: list[str] = []
    for line in text.splitlines():
        if line.startswith("events:"):
            events = line.split()[1:]
        if line.startswith("summary:"):
            numbers = line.replace(",", "").split()[1:]
            if len(numbers) == len(events) and all(number.isdigit() for number in numbers):
                return Counter(dict(zip(events, map(int, numbers), strict=True)))
    return Counter()


def last_level(level: int, cpus: Path = CPUS) -> str:
    """Return size, ways and line of this host's cache of a level, as ``--LL`` wants it; a usual one else."""
    cpu = min(os.sched_getaffinity(0))
    for index in sorted((cpus / f"cpu{cpu}" / "cache").glob("index*")):
        try:
            if int((index / "level").read_text()) != level:
                continue
            size = (index / "size").read_text().strip()
            size_bytes = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1]]
            ways = int((index / "ways_of_associativity").read_text())
            line = int((index / "coherency_line_size").read_text())
        except (OSError, ValueError, KeyError, IndexError):
            continue
        sets = size_bytes // (ways * line) if ways * line else 0
        # The simulation wants a power of two of sets: fewer of them, in a cache that is a little smaller.
        if sets:
            sets = 1 << (sets.bit_length() - 1)
            return f"{sets * ways * line},{ways},{line}"
    return _USUAL.get(level, _USUAL[3])
