"""One running program that is frozen but for the windows in which it is measured.

Starting a solver takes a second or more, a window one. So each program is started once, stopped by SIGSTOP,
and let run (SIGCONT) on the CPUs of a window only. Its steps are read from its meter; its CPU time from
``/proc/PID/task/*/schedstat`` (ns).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from foundation.errors import HostError
from foundation.one_line import one_line
from foundation.units import counted
from predictor.programs.dies_with_parent import with_parent
from predictor.programs.program_catalogue import CatalogueApplication
from workloads.rrba.ranks.shared_segments import discard_segments
from workloads.task.step_meter import METER_VARIABLE, MeterReading, make_meter, read_meter

START_S = 60.0
_LAUNCHER_S = 5.0
_RANKS_S = 10.0
"""After the first steps all ranks have begun to run the program within this time."""
_POLL_S = 0.005


class ProgramError(HostError):
    """A measured program could not be started, ended by itself, or makes no steps; ``name`` is which."""

    def __init__(self, name: str | None, message: str) -> None:
        super().__init__(message)
        self.name = name


class FrozenProgram:
    """A program from its start to ``close``; frozen unless between ``resume`` and ``freeze``.

    Parameters
    ----------
    application
        What to run.
    folder
        A private folder for its meter, output and files.
    cpus
        Where it starts.
    niceness
        The priority of its processes.

    Raises
    ------
    ProgramError
        It does not start, or makes no step in ``START_S``.
    """

    def __init__(
        self, application: CatalogueApplication, folder: Path, cpus: Sequence[int], niceness: int
    ) -> None:
        self.application = application
        name = f"{application.name}-{secrets.token_hex(4)}"
        self._meter = make_meter(folder / f"{name}.meter")
        self._errors = folder / f"{name}.errors"
        environment = {**os.environ, METER_VARIABLE: str(folder / f"{name}.meter"), "TMPDIR": str(folder)}
        for threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            environment[threads] = "1"
        words = [*with_parent(), *application.command()]
        try:
            with self._errors.open("wb") as errors:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise ProgramError(
                application.name, f"cannot start {application.name} ({words[0]}): {error.strerror}"
            ) from error
        self._ranks: list[list[psutil.Process]] = [[psutil.Process(self._process.pid)]]
        try:
            os.sched_setaffinity(self._process.pid, set(cpus))
            self._await_steps()
            self._ranks = self._find_ranks()
            self._set_niceness(niceness)
            self.pin(cpus)
            self.freeze()
        except BaseException:
            self.close()
            raise

    @property
    def processes(self) -> list[psutil.Process]:
        """All processes that compute."""
        return [process for rank in self._ranks for process in rank]

    def read(self) -> MeterReading:
        """Return what the meter says.

        Raises
        ------
        ProgramError
            The program has ended.
        """
        reading = read_meter(self._meter)
        if reading is None or self._process.poll() is not None:
            raise self._ended()
        return reading

    def pin(self, cpus: Sequence[int]) -> None:
        """Bind rank i, with all that it started, to the i-th of these CPUs; the last serves the rest."""
        self._look_again()
        for place, rank in enumerate(self._ranks):
            cpu = cpus[min(place, len(cpus) - 1)]
            for process in rank:
                for thread in _threads(process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.sched_setaffinity(thread, {cpu})

    def resume(self) -> None:
        """Let it run."""
        self._signal(signal.SIGCONT)

    def freeze(self) -> None:
        """Stop it where it is."""
        self._signal(signal.SIGSTOP)
        while self._look_again():
            self._signal(signal.SIGSTOP)

    def cpu_s(self) -> float:
        """Return the CPU time of its processes so far."""
        total_ns = 0
        self._look_again()
        if self.application.renews:  # those that have ended are on their parents' account
            for process in self.processes:
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    total_ns += round((times.children_user + times.children_system) * 1e9)
        for process in self.processes:
            for thread in _threads(process.pid):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    total_ns += int(
                        Path(f"/proc/{process.pid}/task/{thread}/schedstat").read_text().split()[0]
                    )
        return total_ns / 1e9

    def footprint_kib(self) -> int:
        """Return its resident memory."""
        total = 0
        for process in self.processes:
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        return total // 1024

    def close(self) -> None:
        """End it, whatever it does, and reap it; a launcher of ranks first removes its files in ``/tmp``."""
        with contextlib.suppress(psutil.Error):
            whole = psutil.Process(self._process.pid)
            below = whole.children(recursive=True)
            if ranks := _by_rank(below):
                _kill([process for of in ranks.values() for process in of])
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LAUNCHER_S)
            _kill([*below, whole, *self.processes])
        self._process.wait()
        self._meter.close()

    def _look_again(self) -> bool:
        """Find the processes of a program that goes on by new ones; return whether there were any."""
        if not self.application.renews:
            return False
        known = {process.pid for process in self.processes}
        with contextlib.suppress(psutil.NoSuchProcess):
            self._ranks = self._find_ranks()
        return bool({process.pid for process in self.processes} - known)

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _await_steps(self) -> None:
        deadline_s = time.monotonic() + START_S
        while (reading := read_meter(self._meter)) is None or reading.steps < 2:
            if self._process.poll() is not None:
                raise self._ended()
            if time.monotonic() > deadline_s:
                name = self.application.name
                remedy = "give it a shorter input" if self.application.renews else "see OSUB_METER"
                raise ProgramError(name, f"{name} made no two steps in {START_S:g} s; {remedy}")
            time.sleep(_POLL_S)

    def _find_ranks(self) -> list[list[psutil.Process]]:
        """Return the processes of each rank; of a program without MPI, all that it started."""
        whole = psutil.Process(self._process.pid)
        if self.application.ranks == 1:
            return [[whole, *whole.children(recursive=True)]]
        deadline_s = time.monotonic() + _RANKS_S
        while len(ranks := _by_rank(whole.children(recursive=True))) != self.application.ranks:
            if self._process.poll() is not None:
                raise self._ended()
            if time.monotonic() > deadline_s:
                raise ProgramError(
                    self.application.name,
                    f"{self.application.name} has {counted(len(ranks), 'rank')} with PMI_RANK, not "
                    f"{self.application.ranks}; is its mpiexec MPICH's?",
                )
            time.sleep(_POLL_S)
        return [ranks[number] for number in sorted(ranks)]

    def _set_niceness(self, niceness: int) -> None:
        for process in self.processes:
            try:
                process.nice(niceness)
            except psutil.AccessDenied as error:
                raise HostError(f"niceness {niceness} is for root; leave out --nice") from error
            except psutil.Error:
                continue
            if niceness:
                weigh_session(Path("/proc", str(process.pid)), niceness)

    def _ended(self) -> ProgramError:
        code = self._process.poll()
        how = "has left its meter" if code is None else f"ended with code {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        said = self._errors.read_text(errors="replace").strip().splitlines() if self._errors.exists() else []
        return ProgramError(
            self.application.name,
            f"{self.application.name} {how}" + (f": {one_line(said[-1])}" if said else ""),
        )


def _by_rank(processes: Iterable[psutil.Process]) -> dict[int, list[psutil.Process]]:
    """Return the processes of each rank; one that was forked and has yet to run its program has none."""
    ranks: dict[int, list[psutil.Process]] = {}
    for process in processes:
        with contextlib.suppress(psutil.Error, KeyError, ValueError):
            ranks.setdefault(int(process.environ()["PMI_RANK"]), []).append(process)
    return ranks


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            discard_segments(Path(f"/proc/{process.pid}/maps"))
            process.kill()


def weigh_session(process: Path, niceness: int) -> None:
    """Give the whole session of a process (its folder in ``/proc``) a niceness, where the kernel has such.

    Where it groups processes by session (sched(7), autogroup), a niceness counts among those of one session
    only. A measured program is a session of its own, and would get no more than any other.
    """
    with contextlib.suppress(OSError), (process / "autogroup").open("r+", encoding="ascii") as weight:
        weight.write(str(niceness))


def _threads(pid: int) -> list[int]:
    try:
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
