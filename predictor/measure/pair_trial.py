"""One trial of a pair: each alone, both together, each alone again; and what that says of E_v and E_o."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from foundation.errors import HostError
from predictor.dataset import PairKind, opponent_loss, victim_loss
from predictor.measure.frozen_program import FrozenProgram, ProgramError
from predictor.measure.speed_window import ProgramPace, SpeedWindow, measure
from predictor.programs.program_catalogue import CatalogueApplication
from workloads.task.slurm_task import available_bytes

# Below this nothing more is started before something has been ended.
LEAST_FREE_BYTES = 1 << 30


class ProgramPool:
    """Running programs by name and instance; an application paired with itself has two.

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
        self._running: dict[tuple[str, int], FrozenProgram] = {}
        self.footprints_kib: dict[str, int] = {}
        """Resident memory of each application that ran, when it had started."""

    def get(
        self, application: CatalogueApplication, instance: int = 0, keep: Iterable[FrozenProgram] = ()
    ) -> FrozenProgram:
        """Return the program, frozen; start it where it does not run.

        Raises
        ------
        ProgramError
            It cannot be started.
        """
        key = application.name, instance
        running = self._running.pop(key, None)
        if running is None:
            self._end_others(set(keep))
            running = FrozenProgram(application, self._folder, self._cpus, self._niceness)
            self.footprints_kib[application.name] = running.footprint_kib()
        self._running[key] = running  # the latest is last
        return running

    def drop(self, application: CatalogueApplication) -> None:
        """End all instances of an application."""
        for key in [key for key in self._running if key[0] == application.name]:
            self._running.pop(key).close()

    def close(self) -> None:
        """End all."""
        for running in self._running.values():
            with contextlib.suppress(HostError):
                running.close()
        self._running.clear()

    def _end_others(self, keep: set[FrozenProgram]) -> None:
        while (free := available_bytes()) is not None and free < LEAST_FREE_BYTES:
            key = next((key for key, running in self._running.items() if running not in keep), None)
            if key is None:
                raise ProgramError(
                    None, f"{free >> 20} MiB of memory are free; a pair needs {LEAST_FREE_BYTES >> 20}"
                )
            self._running.pop(key).close()


Row = dict[str, object]

# A run alone counts as the one before a pair's window if it is not older.
FRESH_S = 4.0


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long these last, in seconds: a pair's window, a run alone, what passes before; a gang slice."""

    pair_s: float = 1.0
    solo_s: float = 0.4
    warm_up_s: float = 0.12
    slice_s: float = 0.1


@dataclass(frozen=True, slots=True)
class TrialCpus:
    """Where the two run: a CPU for each rank; ``shared`` are those on which both compute."""

    kind: PairKind
    victim: tuple[int, ...]
    opponent: tuple[int, ...]

    def used(self, ranks: int) -> list[int]:
        """Return the CPUs that applications of so many ranks use."""
        return sorted({*self.victim[:ranks], *self.opponent[:ranks]})


@dataclass(frozen=True, slots=True)
class ProgramPairTrial:
    """A trial of the unordered pair: what each did alone, before and after, and together."""

    kind: PairKind
    names: tuple[str, str]
    number: int
    started: datetime
    before: tuple[ProgramPace, ProgramPace]
    together: tuple[ProgramPace, ProgramPace]
    after: tuple[ProgramPace, ProgramPace]
    foreign_cpu_s: float
    steal_s: float

    def rows(self) -> list[Row]:
        """Return the rows of the trials table: each of the two as victim; one if they are the same."""
        places = ((0, 1),) if self.names[0] == self.names[1] else ((0, 1), (1, 0))
        return [self._row(victim, opponent) for victim, opponent in places]

    def _row(self, victim: int, opponent: int) -> Row:
        alone = [(self.before[who].speed + self.after[who].speed) / 2 for who in (0, 1)]
        shared = self.together
        return {
            "kind": str(self.kind),
            "victim": self.names[victim],
            "opponent": self.names[opponent],
            "trial": self.number,
            "started": self.started,
            "speed_victim": shared[victim].speed,
            "speed_opponent": shared[opponent].speed,
            "solo_victim_before": self.before[victim].speed,
            "solo_victim_after": self.after[victim].speed,
            "solo_opponent_before": self.before[opponent].speed,
            "solo_opponent_after": self.after[opponent].speed,
            "busy_victim": shared[victim].busy,
            "busy_opponent": shared[opponent].busy,
            "e_v": victim_loss(alone[victim], shared[victim].speed, shared[opponent].busy),
            "e_o": self._busy_loss(opponent),
            "foreign_cpu_s": self.foreign_cpu_s,
            "steal_s": self.steal_s,
        }

    def _busy_loss(self, who: int) -> float:
        """Return E_o, from steps a second of busy time."""
        alone = [pace.speed / pace.busy for pace in (self.before[who], self.after[who])]
        return opponent_loss(sum(alone) / 2, self.together[who].speed / self.together[who].busy)


class Bench:
    """Measures trials of one kind in one place, and keeps the runs alone that are still fresh."""

    def __init__(self, pool: ProgramPool, place: TrialCpus, lengths: Lengths) -> None:
        self._pool = pool
        self._place = place
        self._lengths = lengths
        self._alone: dict[tuple[str, tuple[int, ...]], tuple[float, ProgramPace]] = {}
        self.solo_rows: list[Row] = []
        """Rows of the solo table since they were last taken; their trials are not numbered yet."""

    def trial(
        self, first: CatalogueApplication, second: CatalogueApplication, number: int
    ) -> ProgramPairTrial:
        """Measure one trial of a pair.

        Raises
        ------
        ProgramError
            One of them died or makes no steps.
        """
        one = self._pool.get(first)
        other = self._pool.get(second, instance=int(first == second), keep=[one])
        cpus = self._place.victim, self._place.opponent
        before = self._solo(one, cpus[0], fresh=True), self._solo(other, cpus[1], fresh=True)
        one.pin(cpus[0])
        other.pin(cpus[1])
        used = self._place.used(max(first.ranks, second.ranks))
        lengths = self._lengths
        slice_s = lengths.slice_s if self._place.kind is PairKind.GANG else None
        window = measure([one, other], used, lengths.warm_up_s, lengths.pair_s, slice_s)
        # The second one first: its successor comes anew, the first one's run serves the next pair, too.
        later = self._solo(other, cpus[1], fresh=False)
        after = self._solo(one, cpus[0], fresh=False), later
        names = first.name, second.name
        together = window.paces[0], window.paces[1]
        kind = self._place.kind
        return ProgramPairTrial(
            kind, names, number, window.started, before, together, after, window.foreign_cpu_s, window.steal_s
        )

    def _solo(self, program: FrozenProgram, cpus: tuple[int, ...], *, fresh: bool) -> ProgramPace:
        key = program.application.name, cpus
        kept = self._alone.get(key)
        if fresh and kept is not None and time.monotonic() - kept[0] < FRESH_S:
            return kept[1]
        program.pin(cpus)
        used = sorted(set(cpus[: program.application.ranks]))
        window = measure([program], used, self._lengths.warm_up_s, self._lengths.solo_s)
        pace = window.paces[0]
        self._alone[key] = time.monotonic(), pace
        self.solo_rows.append(self._solo_row(program, window))
        return pace

    def _solo_row(self, program: FrozenProgram, window: SpeedWindow) -> Row:
        pace = window.paces[0]
        return {
            "application": program.application.name,
            "kind": str(self._place.kind),
            "started": window.started,
            "wall_s": pace.wall_s,
            "steps": float(pace.steps),
            "speed": pace.speed,
            "cpu_s": pace.cpu_s,
            "steal_s": window.steal_s,
            "foreign_cpu_s": window.foreign_cpu_s,
        }
