"""Watches, from outside, how long any job is frozen or stopped without a break, and how often it switches.

A thread reads ``freezer.state`` of every step of the nodes some fifty times a second, at irregular instants
so that it does not beat with the time slices, and the state of the tasks (T: stopped) five times a second.
Where jobs yield it reads which of them do. Those are held, and run by turns, but are not frozen.
"""

from __future__ import annotations

import glob
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

FREEZER = Path("/sys/fs/cgroup/freezer")
CPU = Path("/sys/fs/cgroup/cpu")
YIELDS = "yields"
_PAUSE_S = (0.012, 0.026)
_LIST_S = 0.1
_TASKS_S = 0.2
_BLIND_S = 0.5


@dataclass(frozen=True, slots=True)
class Excess:
    """A job that stood still for longer than was allowed."""

    job: int
    what: str
    lasted_s: float


@dataclass
class Window:
    """What was seen since it was opened.

    allowance_s: how long a job may be suspended without a break.
    worst_s: the longest that one did.
    blind_s: seconds in which the watcher itself was kept from looking.
    """

    allowance_s: float
    worst_s: float = 0.0
    blind_s: float = 0.0
    excesses: dict[tuple[int, str], Excess] = field(default_factory=dict)


class Watcher:
    """The thread; ``close`` it.

    spared: jobs that Slurm has suspended: gangd does not limit for how long.
    """

    def __init__(self, nodes: Iterable[str], allowance_s: float, *, yields: bool = False) -> None:
        self.spared: frozenset[int] = frozenset()
        self._nodes = tuple(nodes)
        self._yields = yields
        self._window = Window(allowance_s)
        self._switches: Counter[tuple[str, int]] = Counter()
        self._since: dict[tuple[str, int, str], float] = {}
        self._steps: list[tuple[str, int, Path]] = []
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def open(self, allowance_s: float) -> Window:
        """Begin a new window; what is suspended already is counted from its beginning."""
        if not self._thread.is_alive():
            raise RuntimeError("the watcher has ended: nothing that follows would be seen")
        with self._lock:
            self._window = Window(allowance_s)
            return self._window

    def switches(self) -> Counter[tuple[str, int]]:
        """Return how often a step of a job on a node was seen to be held and go on again, so far."""
        with self._lock:
            return Counter(self._switches)

    def held(self) -> list[str]:
        """Return what is held now."""
        with self._lock:
            return sorted(f"job {job} on {node} ({what})" for node, job, what in self._since)

    def is_held(self, job: int) -> bool:
        """Whether a step of the job was held at the newest look."""
        with self._lock:
            return any(key[1] == job for key in self._since)

    def steps_of(self, job: int) -> list[Path]:
        """Return the cgroups of a job's steps that exist now."""
        return [path for node in self._nodes for _, number, path in _list_steps(node) if number == job]

    def cpu_s(self, node: str) -> dict[int, float]:
        """Return the CPU time that the processes of each held job on a node have used."""
        with self._lock:
            jobs = {job for where, job, _ in self._since if where == node}
        return {job: self.cpu_of(job, node) for job in jobs}

    def cpu_of(self, job: int, node: str) -> float:
        """Return the CPU time that the processes of a job on a node have used, seconds."""
        paths = [path for _, number, path in _list_steps(node) if number == job]
        return sum(_cpu_s(pid) for path in paths for pid in _pids(path))

    def close(self) -> None:
        """End the thread."""
        self._leaving.set()
        self._thread.join(5)

    def _run(self) -> None:
        dice = random.Random(0)
        listed_s = tasks_s = 0.0
        looked_s = time.monotonic()
        while not self._leaving.wait(dice.uniform(*_PAUSE_S)):
            now_s = time.monotonic()
            if now_s - looked_s > _BLIND_S:
                with self._lock:  # what happened in between was not seen: count anew
                    self._window.blind_s += now_s - looked_s
                    self._since.clear()
            looked_s = now_s
            if now_s - listed_s > _LIST_S:
                listed_s = now_s
                self._steps = [step for node in self._nodes for step in _list_steps(node)]
            with self._lock:
                self._look_at_cgroups(now_s)
                if self._yields:
                    self._look_at_groups(now_s)
                if now_s - tasks_s > _TASKS_S:
                    tasks_s = now_s
                    self._look_at_tasks(now_s)

    def _look_at_cgroups(self, now_s: float) -> None:
        seen = set()
        for node, job, path in self._steps:
            try:
                state = (path / "freezer.state").read_text().strip()
            except OSError:
                continue
            if state != "THAWED":
                seen.add((node, job, path.name))
        others = {key for key in self._since if key[2].startswith("T ") or key[2] == YIELDS}
        self._follow(self._since.keys() - others, seen, now_s)

    def _look_at_groups(self, now_s: float) -> None:
        seen = set()
        for node in self._nodes:
            for name in glob.glob(f"{CPU}/gangd_{node}_job_*/cpu.idle"):  # noqa: PTH207
                with suppress(OSError):
                    path = Path(name)
                    if path.read_text().strip() == "1":
                        seen.add((node, int(path.parent.name.rpartition("_")[2]), YIELDS))
        self._follow({key for key in self._since if key[2] == YIELDS}, seen, now_s)

    def _look_at_tasks(self, now_s: float) -> None:
        seen = set()
        for node, job, path in self._steps:
            for pid in _pids(path):
                if _task_state(pid) == "T":
                    seen.add((node, job, f"T {pid}"))
        self._follow({key for key in self._since if key[2].startswith("T ")}, seen, now_s)

    def _follow(
        self, before: set[tuple[str, int, str]], seen: set[tuple[str, int, str]], now_s: float
    ) -> None:
        window = self._window
        for key in before - seen:
            del self._since[key]
            self._switches[key[:2]] += 1
        for key in seen:
            lasted_s = now_s - self._since.setdefault(key, now_s)
            if key[2] == YIELDS:
                continue
            if key[1] in self.spared:
                self._since[key] = now_s
                continue
            window.worst_s = max(window.worst_s, lasted_s)
            if lasted_s > window.allowance_s:
                window.excesses[key[1], key[2]] = Excess(key[1], f"{key[0]} {key[2]}", lasted_s)


def _list_steps(node: str) -> list[tuple[str, int, Path]]:
    # pathlib's glob raises where a folder vanishes while it looks, and all that it found so far is lost.
    found = map(Path, glob.glob(f"{FREEZER}/slurm_{node}/uid_*/job_*/step_*"))  # noqa: PTH207
    return [(node, int(path.parent.name.removeprefix("job_")), path) for path in found]


def _pids(path: Path) -> list[int]:
    try:
        return [int(word) for word in (path / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _cpu_s(pid: int) -> float:
    try:
        return time.clock_gettime((~pid << 3) | 2)  # a process's clock: clock_getcpuclockid(3)
    except OSError:
        return 0.0


def _task_state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
