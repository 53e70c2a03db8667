"""The sampler: a job's utilisation every few seconds while it runs, in its file as soon as it was taken."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol

import psutil

from foundation.errors import HostError, OutputError, UsageError
from workloads.behaviour.utilisation_series import HEADING, SAMPLE_S, UtilisationSeries, series_row

CGROUP_ROOT = Path("/sys/fs/cgroup")
_DEPTH = 7
_NS_PER_S, _US_PER_S = 1e9, 1e6


class Usage(Protocol):
    """A source of CPU time."""

    def cpu_s(self) -> float | None:
        """Return the CPU seconds used so far, ``None`` once there is nothing left of the job."""


class CgroupUsage:
    """CPU time of cgroups together, such as one a node where nodes share a host.

    Of either generation: ``cpu.stat``, or ``cpuacct.usage`` of v1.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._files = [_counting_file(folder) for folder in folders]
        self._last_s = [0.0] * len(folders)

    def cpu_s(self) -> float | None:
        """Return the sum, ``None`` after all were removed; one that is gone counts as when last seen."""
        found = [_used_s(file) for file in self._files]
        if all(used_s is None for used_s in found):
            return None
        self._last_s = [last if now is None else now for now, last in zip(found, self._last_s, strict=True)]
        return sum(self._last_s)


def _counting_file(folder: Path) -> Path:
    for file in (folder / "cpu.stat", folder / "cpuacct.usage"):
        if _used_s(file) is not None:
            return file
    raise UsageError(f"{folder} is no cgroup that counts CPU time: it has no cpu.stat and no cpuacct.usage")


def _used_s(file: Path) -> float | None:
    try:
        text = file.read_text()
    except OSError:
        return None
    if file.name == "cpuacct.usage":
        return int(text) / _NS_PER_S
    used = next((line.split()[1] for line in text.splitlines() if line.startswith("usage_usec ")), None)
    return None if used is None else int(used) / _US_PER_S


class TreeUsage:
    """CPU time of a process and its descendants, those that ended and were waited for included.

    Descendants stay members when they are adopted by another process; what such a one used is lost
    when it ends.
    """

    def __init__(self, pid: int) -> None:
        try:
            self._members = {psutil.Process(pid)}
        except (psutil.NoSuchProcess, ValueError) as error:
            raise UsageError(f"there is no process {pid}: give the one to record") from error

    def cpu_s(self) -> float | None:
        """Return the CPU seconds so far, ``None`` when no member is left."""
        used_s = 0.0
        living: set[psutil.Process] = set()
        for member in self._members:
            try:
                living.update((member, *member.children(recursive=True)))
            except psutil.NoSuchProcess:
                continue
        counted: set[psutil.Process] = set()
        ended = True
        for process in living:
            try:
                times = process.cpu_times()
                # one that was not waited for is still there, with what it used, but does nothing any more
                ended = ended and process.status() == psutil.STATUS_ZOMBIE
            except psutil.NoSuchProcess:
                continue
            used_s += times.user + times.system + times.children_user + times.children_system
            counted.add(process)
        self._members = counted
        return None if ended else used_s


def job_cgroups(job: int, root: Path = CGROUP_ROOT) -> list[Path]:
    """Return the cgroups of Slurm job ``job`` on this host that count CPU time.

    v2: ``.../[<node>_]slurmstepd.scope/job_J``; v1: ``cpuacct/slurm[_<node>]/uid_U/job_J``, or below
    another controller that is mounted together with cpuacct.

    Raises
    ------
    HostError
        There is none: the job is not here, or Slurm does not use cgroups.
    """
    found: dict[tuple[int, int], Path] = {}
    for folder in _folders(root, f"job_{job}"):
        if (folder / "cpu.stat").exists() or (folder / "cpuacct.usage").exists():
            # cpu and cpuacct may be one hierarchy under two names
            status = folder.stat()
            found.setdefault((status.st_dev, status.st_ino), folder)
    counting = [folder for folder in found.values() if (folder / "cpuacct.usage").exists()]
    chosen = counting or list(found.values())
    if not chosen:
        raise HostError(
            f"no cgroup of Slurm job {job} here: run this on a node of the job, or give --pid or --cgroup"
        )
    return sorted(chosen)


def _folders(root: Path, name: str) -> Iterator[Path]:
    base = len(root.parts)
    for folder, names, _ in os.walk(root):
        here = Path(folder)
        if len(here.parts) - base >= _DEPTH:
            names.clear()
        if name in names:
            yield here / name
            names.remove(name)


SHORTEST_SAMPLE_S = 0.05


@dataclass(frozen=True, slots=True)
class BehaviourSample:
    """One sample: its end, its length, and the cores in use on average during it."""

    elapsed_s: float
    length_s: float
    cores: float


def record(
    usage: Usage,
    clock: Callable[[], float],
    wait: Callable[[float], bool],
    every_s: float = SAMPLE_S,
    most_s: float = float("inf"),
) -> Iterator[BehaviourSample]:
    """Yield samples until the job is over, ``most_s`` have passed, or ``wait`` says to stop.

    Parameters
    ----------
    usage
        The job.
    clock
        Monotonic seconds.
    wait
        Sleeps so many seconds; returns whether to stop.
    every_s
        Time from sample to sample. Samples stay on their grid however late one of them is taken.
    most_s
        Time to record at most.

    Raises
    ------
    UsageError
        ``every_s`` is too short, or ``most_s`` shorter than a sample.
    """
    if not SHORTEST_SAMPLE_S <= every_s < float("inf") or not most_s >= every_s:
        raise UsageError(
            f"samples of {every_s:g} s over {most_s:g} s are not possible: give at least "
            f"{SHORTEST_SAMPLE_S} s each, and time for one"
        )
    start_s = last_s = clock()
    used_s = usage.cpu_s()
    while used_s is not None and last_s - start_s + every_s / 2 <= most_s:
        # the next instant of the grid that is at least half a sample ahead
        number = math.floor((clock() - start_s) / every_s + 0.5) + 1
        if wait(max(0.0, start_s + number * every_s - clock())):
            return
        now_s, now_used_s = clock(), usage.cpu_s()
        if now_used_s is None:
            return
        length_s = now_s - last_s
        if length_s <= 0:
            continue
        yield BehaviourSample(now_s - start_s, length_s, max(0.0, now_used_s - used_s) / length_s)
        last_s, used_s = now_s, now_used_s


def write_as_taken(
    out: Path, name: str, taken: Iterator[BehaviourSample], tell: Callable[[BehaviourSample], None]
) -> UtilisationSeries | None:
    """Write samples to a CSV file while they are taken, and return them all as a series.

    Parameters
    ----------
    out
        The file; it is made with the first sample, and replaced where there is one.
    name
        Of the job in the file.
    taken
        The samples, as ``record`` yields them.
    tell
        Called with each when it is in the file.

    Returns
    -------
    UtilisationSeries | None
        None where there was no sample, and so is no file.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    first = next(taken, None)
    if first is None:
        return None
    samples: list[BehaviourSample] = []
    try:
        with out.open("w", newline="", encoding="utf-8", buffering=1) as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(HEADING)
            for sample in chain([first], taken):
                samples.append(sample)
                writer.writerow(series_row(name, sample.elapsed_s, sample.cores))
                tell(sample)
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror}") from error
    return UtilisationSeries(
        name, tuple(one.length_s for one in samples), tuple(one.cores for one in samples)
    )
