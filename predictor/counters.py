"""Counters of a command alone, from what this host offers, best first: PMU, simulation, operating system.

The processor's counters have the names of PAPI's presets where one means the same (PAPI_L2_TCM: cache
misses of level 2); a simulation's have names of their own (``l2_data_misses``), for it counts no hardware.
Counts are per instruction, or per second of the run where the name has no instruction in it. What was not
measured is None.

* The processor's PMU through ``perf stat``: a command and all that it starts on this host. There are more
  events than counters, so the kernel takes turns (multiplexing); perf scales the counts up, and tells the
  share of time in which each event was counted. (perf-stat(1), "CSV FORMAT".) The PMU of some virtual
  machines counts hardly anything: each is tried with a known loop first.
* A simulated core through valgrind's cachegrind: no PMU is needed, 20 to 100 times slower. It simulates two
  levels, so the command runs twice: with this host's second level, then with its third as the last one.
  Misses are of an empty machine and of no prefetcher; branches by a simple predictor. (Valgrind's manual,
  chapter 5: "Cachegrind".) Processes that a command starts are followed and added up.
* The operating system (getrusage(2)): every host has it, and it tells nothing of caches.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec

from foundation.errors import HostError, InputError
from foundation.one_line import one_line
from predictor.dataset import CounterSource, counter_name
from predictor.programs.repeated_command import run_whole

Per = Literal["instruction", "second"]

_MOST_BYTES = 1 << 20
_MOST_VALUE = 1e30


@dataclass(frozen=True, slots=True)
class Count:
    """A counter's value per instruction or per second; None: not measured.

    ``scaled`` is the share of time in which the event was on a counter of the processor; None where nothing
    was multiplexed.
    """

    counter: Annotated[str, msgspec.Meta(max_length=100)]
    per: Per
    value: float | None = None
    scaled: float | None = None


class Provider(Protocol):
    """A source of counters."""

    @property
    def source(self) -> CounterSource:
        """Which one."""
        ...

    def missing(self) -> str | None:
        """Return in one line why this host does not have it, and what to do; None if it does."""
        ...

    def count(self, command: Sequence[str], environment: Mapping[str, str]) -> list[Count]:
        """Run the command to its end, with all that it starts, and return its counters.

        Raises
        ------
        HostError
            The command cannot be started or fails, or the source does.
        """
        ...


def per(value: float | None, base: float | None) -> float | None:
    """Return value/base; None if either is not known, or there is no base."""
    return None if value is None or not base else value / base


def read_counts(path: Path) -> dict[str, float]:
    """Return what was counted, by source and counter: ``os:cpu_user``; what was not measured is left out.

    Raises
    ------
    InputError
        It cannot be read, or is none; one line.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB; it is no list of counters")
        by_source = msgspec.json.decode(path.read_bytes(), type=dict[CounterSource, list[Count]])
    except OSError as error:
        raise InputError(
            f"cannot read counters from {path}: {error.strerror}; "
            "`osub predict counters --json -- CMD... > FILE` makes them"
        ) from error
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is not what `osub predict counters --json` prints: {one_line(str(error), 120)}"
        ) from error
    found = {
        f"{source}:{counter_name(source, count.counter)}": count.value
        for source, counts in by_source.items()
        for count in counts
        if count.value is not None
    }
    odd = next((name for name, value in found.items() if not 0 <= value < _MOST_VALUE), None)
    if odd is not None:
        raise InputError(f"{path}: {one_line(odd, 60)} cannot be {found[odd]:g}")
    return found


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

_LOOP = [sys.executable, "-S", "-E", "-c", "sum(range(3_000_000))"]
"""What the PMU is tried with: some 10^8 instructions, wherever it runs."""
_LEAST_COUNTS = 1e7
"""Of that loop, and of a second of CPU time: a core that is busy has a hundred times as many."""
_START_UP_S = 0.2
"""CPU time that perf itself may take at most."""
_OF_A_CORE_KIND = re.compile(r"cpu(?:_\w+)?/([^/]+)/.*")
"""How perf names an event of a processor with several kinds of cores, such as ``cpu_core/instructions/``."""

_NO_EVENT = ("<not supported>", "<not counted>")

CPUS = Path("/sys/devices/system/cpu")
_USUAL = {2: "1048576,8,64", 3: "33554432,16,64"}
_SIMULATED = {
    "data_reads": ("Dr",),
    "data_writes": ("Dw",),
    "l1_instruction_misses": ("I1mr",),
    "l1_read_misses": ("D1mr",),
    "l1_write_misses": ("D1mw",),
    "l1_data_misses": ("D1mr", "D1mw"),
    "conditional_branches": ("Bc",),
    "branches": ("Bc", "Bi"),
    "branch_misses": ("Bcm", "Bim"),
}
_LAST = {
    "l{}_instruction_misses": ("ILmr",),
    "l{}_read_misses": ("DLmr",),
    "l{}_write_misses": ("DLmw",),
    "l{}_data_misses": ("DLmr", "DLmw"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """An event's count, scaled up, and the share of time in which it was counted; None: not counted."""

    value: float | None
    share: float | None


def parse_stat(text: str) -> dict[str, Event]:
    """Return the events of ``perf stat -x,``: value, unit, event, run time, percentage, and more.

    An event that each kind of core counts (``cpu_core/cycles/``, ``cpu_atom/cycles/``) is the sum of those
    that were counted. Lines that are not of that form (comments, warnings) are passed over.
    """
    events: dict[str, Event] = {}
    for line in text.splitlines():
        fields = line.split(",")
        if line.startswith("#") or len(fields) < 5:
            continue
        of_a_kind = _OF_A_CORE_KIND.fullmatch(fields[2])
        name = of_a_kind[1] if of_a_kind else fields[2].partition(":")[0]
        try:
            share = float(fields[4]) / 100
            value = None if fields[0] in _NO_EVENT else float(fields[0])
        except ValueError:
            continue
        event = Event(value, None if value is None else min(1.0, max(0.0, share)))
        events[name] = _sum(events[name], event) if of_a_kind and name in events else event
    return events


def _sum(one: Event, other: Event) -> Event:
    """Return an event of two kinds of cores; the share is of the kind that counted more."""
    if one.value is None or other.value is None:
        return other if one.value is None else one
    return Event(one.value + other.value, max(one, other, key=lambda event: event.value or 0).share)


class PerfCounters:
    """The PMU through ``perf``."""

    source = CounterSource.PERF

    def missing(self) -> str | None:
        """Return why there are no counters of the processor."""
        if shutil.which("perf") is None:
            return "perf is not installed (Debian: apt-get install linux-perf)"
        try:
            events = self._stat(_LOOP, None, ["instructions", "cycles"])
        except (OSError, subprocess.SubprocessError) as error:
            return f"perf does not run: {error}"
        counted = {name: event.value for name, event in events.items() if event.value is not None}
        if "instructions" in counted:
            if min(counted.values()) >= _LEAST_COUNTS:
                return None
            found = " and ".join(f"{value:,.0f} {name}" for name, value in counted.items())
            return f"the PMU is not believed: perf counts {found} in a loop of over {_LEAST_COUNTS:,.0f}"
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
            before_s = _cpu_s_of_children()
            run_whole([*words, "--", *command], command, environment)
            cpu_s = _cpu_s_of_children() - before_s
            events = parse_stat(to.read_text(errors="replace"))
        base = events.get("instructions", Event(None, None)).value
        if base is not None and base < _LEAST_COUNTS * (cpu_s - _START_UP_S):
            raise HostError(
                f"the PMU is not believed: perf counts {base:,.0f} instructions in {cpu_s:.1f} s of CPU time"
            )
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


def _cpu_s_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _paranoid(path: Path = Path("/proc/sys/kernel/perf_event_paranoid")) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


class CachegrindCounters:
    """A simulated core.

    Parameters
    ----------
    levels
        Which of this host's caches is simulated as the last one, a run each.
    """

    source = CounterSource.CACHEGRIND

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
    tables = [(counter, names, first) for counter, names in _SIMULATED.items()]
    for level, found in events.items():
        tables += [(counter.format(level), names, found) for counter, names in _LAST.items()]
    for counter, names, found in tables:
        known = all(name in found for name in names)
        value = per(sum(found[name] for name in names), found.get("Ir")) if known else None
        counts.append(Count(counter, "instruction", value))
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
    for cache, size_bytes in caches_of(cpu, level, cpus):
        try:
            ways = int((cache / "ways_of_associativity").read_text())
            line = int((cache / "coherency_line_size").read_text())
        except (OSError, ValueError):
            continue
        sets = size_bytes // (ways * line) if ways * line else 0
        # The simulation wants a power of two of sets: fewer of them, in a cache that is a little smaller.
        if sets:
            sets = 1 << (sets.bit_length() - 1)
            return f"{sets * ways * line},{ways},{line}"
    return _USUAL.get(level, _USUAL[3])


def caches_of(cpu: int, level: int, cpus: Path = CPUS) -> Iterator[tuple[Path, int]]:
    """Yield the folders of a CPU's caches of a level, each with its size in bytes."""
    for cache in sorted((cpus / f"cpu{cpu}" / "cache").glob("index*")):
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            if int((cache / "level").read_text()) == level:
                size = (cache / "size").read_text().strip()
                yield cache, int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1]]


class SystemCounters:
    """CPU time, faults, switches and blocks of a command and all that it waited for, per second."""

    source = CounterSource.OS

    def missing(self) -> str | None:
        """Return None: every host has them."""
        return None

    def count(self, command: Sequence[str], environment: Mapping[str, str]) -> list[Count]:
        """Run the command and return what the kernel accounted to it."""
        if shutil.which(command[0], path=environment.get("PATH")) is None:
            raise HostError(f"cannot start {one_line(command[0])}: it is not there, or is no program")
        begin_s = time.monotonic()
        try:
            process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(environment)
            )
        except OSError as error:
            raise HostError(f"cannot start {one_line(command[0])}: {error.strerror}") from error
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        seconds = max(time.monotonic() - begin_s, 1e-6)
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code
        if code != 0:
            how = f"ended with code {code}" if code > 0 else f"was killed by signal {-code}"
            raise HostError(f"{one_line(' '.join(command), 80)} {how}")
        values = {
            "cpu_user": usage.ru_utime,
            "cpu_system": usage.ru_stime,
            "faults_minor": usage.ru_minflt,
            "faults_major": usage.ru_majflt,
            "switches_voluntary": usage.ru_nvcsw,
            "switches_involuntary": usage.ru_nivcsw,
            "blocks_in": usage.ru_inblock,
            "blocks_out": usage.ru_oublock,
        }
        return [Count(name, "second", value / seconds) for name, value in values.items()]


_ALL: tuple[Provider, ...] = (PerfCounters(), CachegrindCounters(), SystemCounters())


@dataclass(frozen=True, slots=True)
class Offer:
    """A source, and why it is missing here; None: it is not."""

    provider: Provider
    missing: str | None


def offers() -> list[Offer]:
    """Return every source with what it says of this host."""
    return [Offer(provider, provider.missing()) for provider in _ALL]


def provider_of(source: CounterSource) -> Provider:
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
