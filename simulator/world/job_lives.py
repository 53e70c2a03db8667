"""The lives of many jobs, of which there are few kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import numpy.typing as npt

from simulator.world.simulated_job import PLAIN_LIFE, Life, Sizes

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class JobLives(Sequence[Life]):
    """A life for each job; job ``j`` has the life ``kinds[kind[j]]``."""

    kinds: tuple[Life, ...]
    kind: Ints

    @classmethod
    def of(cls, lives: Sequence[Life] | None, count: int) -> JobLives:
        """Return these lives; without any ``count`` plain ones."""
        if isinstance(lives, JobLives):
            return lives
        if lives is None:
            return cls((PLAIN_LIFE,), np.zeros(count, dtype=np.int64))
        place: dict[int, int] = {}
        found: list[Life] = []
        for life in lives:
            if place.setdefault(id(life), len(found)) == len(found):
                found.append(life)
        return cls(tuple(found), np.array([place[id(life)] for life in lives], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.kind)

    @overload
    def __getitem__(self, index: int) -> Life: ...

    @overload
    def __getitem__(self, index: slice) -> JobLives: ...

    def __getitem__(self, index: int | slice) -> Life | JobLives:
        if isinstance(index, slice):
            return JobLives(self.kinds, self.kind[index])
        return self.kinds[int(self.kind[index])]

    def select(self, jobs: Ints) -> JobLives:
        """Return the lives of some jobs."""
        return JobLives(self.kinds, self.kind[jobs])

    def column(self, value: Callable[[Life], int | bool]) -> Ints:
        """Return a whole number for each job."""
        return np.array([int(value(life)) for life in self.kinds] or [0], dtype=np.int64)[self.kind]

    def changed(self, change: Callable[[Life], Life]) -> JobLives:
        """Return the lives with something changed in all of them."""
        return JobLives(tuple(map(change, self.kinds)), self.kind)

    def with_sizes(self, jobs: Ints, sizes: Sequence[Sizes], which: Ints) -> JobLives:
        """Return the lives in which the job ``jobs[i]`` has the sizes ``sizes[which[i]]``."""
        pairs, new = np.unique(self.kind[jobs] * len(sizes) + which, return_inverse=True)
        kind = self.kind.copy()
        kind[jobs] = len(self.kinds) + new
        more = [
            replace(self.kinds[pair // len(sizes)], sizes=sizes[pair % len(sizes)]) for pair in pairs.tolist()
        ]
        return JobLives((*self.kinds, *more), kind)
