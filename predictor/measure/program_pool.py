"""The programs of a measurement: started when wanted, frozen meanwhile, ended when memory runs short."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from foundation.errors import HostError
from predictor.measure.frozen_program import ProgramError, Running
from predictor.programs.program_catalogue import Application
from workloads.task.host_memory import available_bytes

# Below this nothing more is started before something has been ended.
LEAST_FREE_BYTES = 1 << 30


class Pool:
    """Running programs by name and instance; an application beside itself has two.

    Parameters
    ----------
    folder
        Private, for meters.
    cpus
        Where programs start.
    niceness
        Of all of them.
    """

    def __init__(self, folder: Path, cpus: Sequence[int], niceness: int) -> None:
        self._folder = folder
        self._cpus = cpus
        self._niceness = niceness
        self._running: dict[tuple[str, int], Running] = {}
        self.footprints_kib: dict[str, int] = {}
        """Resident memory of each application that ran, when it had started."""

    def get(self, application: Application, instance: int = 0, keep: Iterable[Running] = ()) -> Running:
        """Return the program, frozen; start it where it does not run.

        Raises
        ------
        ProgramError
            It cannot be started.
        """
        key = application.name, instance
        running = self._running.pop(key, None)
        if running is None:
            self._make_room(set(keep))
            running = Running(application, self._folder, self._cpus, self._niceness)
            self.footprints_kib[application.name] = running.footprint_kib()
        self._running[key] = running  # the latest is last
        return running

    def drop(self, application: Application) -> None:
        """End all instances of an application."""
        for key in [key for key in self._running if key[0] == application.name]:
            self._running.pop(key).close()

    def close(self) -> None:
        """End all."""
        for running in self._running.values():
            with contextlib.suppress(HostError):
                running.close()
        self._running.clear()

    def _make_room(self, keep: set[Running]) -> None:
        while (free := available_bytes()) is not None and free < LEAST_FREE_BYTES:
            key = next((key for key, running in self._running.items() if running not in keep), None)
            if key is None:
                raise ProgramError(
                    None, f"{free >> 20} MiB of memory are free; a pair needs {LEAST_FREE_BYTES >> 20}"
                )
            self._running.pop(key).close()
