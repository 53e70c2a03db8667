"""Who runs the points: processes of this host; a Dask cluster is ``dask_points``.

A point that ends its process (out of memory, a fault in compiled code) ends no other. So a process has one
point at a time, and a worker that dies is replaced.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from foundation.one_line import one_line
from osub.sweep.points import Outcome, Point
from osub.sweep.spec import Parameters
from osub.sweep.worker import remove_scratch

Work = Callable[[Parameters], Outcome]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a point has no outcome, and whether another try may end otherwise."""

    why: str
    again: bool


Ended = tuple[Point, Outcome | Failure]
_LOOK_S = 0.2
KILLED = Failure("its process was killed, or ran out of memory", again=True)


class Workers(Protocol):
    """Runs points and yields each as it ends, in any order."""

    def run(self, points: Sequence[Point]) -> Iterator[Ended]:
        """Yield each point with its outcome, or with why it has none."""
        ...


class Processes:
    """Processes of this host, each with a point at a time.

    Parameters
    ----------
    work
        What runs a point: a function of a module, which the processes import.
    count
        How many at a time; None: as many as this process may use CPUs.
    """

    def __init__(self, work: Work, count: int | None = None) -> None:
        self._work = f"{work.__module__}:{work.__name__}"
        self._count = len(os.sched_getaffinity(0)) if count is None else count

    def run(self, points: Sequence[Point]) -> Iterator[Ended]:
        """Yield each point as it ends; a caller that stops ends the processes."""
        waiting: queue.SimpleQueue[Point] = queue.SimpleQueue()
        for point in points:
            waiting.put(point)
        ended: queue.SimpleQueue[Ended | BaseException] = queue.SimpleQueue()
        scratch = tempfile.mkdtemp(prefix="osub-sweep-")
        team: list[_Worker] = []
        try:
            team += [
                _Worker([self._work, f"{scratch}/{number}"], waiting, ended)
                for number in range(min(self._count, len(points)))
            ]
            for worker in team:
                worker.start()
            for _ in points:
                outcome = _next(ended)
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
        finally:
            for worker in team:
                worker.end()
            remove_scratch(Path(scratch))


def _next(ended: queue.SimpleQueue[Ended | BaseException]) -> Ended | BaseException:
    """Wait for the next point that ends; a wait without a limit might not be left for a signal."""
    while True:
        try:
            return ended.get(timeout=_LOOK_S)
        except queue.Empty:
            continue


class _Worker(threading.Thread):
    """Has one process work off the points that wait."""

    def __init__(
        self,
        words: Sequence[str],
        waiting: queue.SimpleQueue[Point],
        ended: queue.SimpleQueue[Ended | BaseException],
    ) -> None:
        super().__init__(daemon=True)
        self._command = [sys.executable, "-m", "osub.sweep.worker", *words]
        self._scratch = words[-1]
        self._waiting = waiting
        self._ended = ended
        self._over = threading.Event()
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        """Work until nothing waits."""
        try:
            while not self._over.is_set():
                try:
                    point = self._waiting.get_nowait()
                except queue.Empty:
                    return
                outcome = self._ask(point)
                if not self._over.is_set():
                    self._ended.put((point, outcome))
        except BaseException as error:
            self._ended.put(error)
        finally:
            self._dismiss()

    def end(self) -> None:
        """End the process, and wait for it."""
        self._over.set()
        while self.is_alive():  # it may be about to start a process
            process = self._process
            if process is not None:
                process.kill()
            self.join(_LOOK_S)

    def _ask(self, point: Point) -> Outcome | Failure:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env=os.environ | {"TMPDIR": self._scratch},
                process_group=0,  # Ctrl-C is the sweep's
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(point.parameters) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        if not line.endswith("\n"):
            self._dismiss()
            return KILLED
        answer = json.loads(line)
        if "raised" in answer:
            return Failure(one_line(answer["raised"]), answer["again"])
        outcome: Outcome = answer["outcome"]
        return outcome

    def _dismiss(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what was not written yet has no reader any more
                if pipe is not None:
                    pipe.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
