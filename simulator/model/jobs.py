"""A job as the simulator knows it beforehand, and the lifecycles of many jobs of few kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The node counts that a malleable job runs on.

    Parameters
    ----------
    least, preferred, most
        The fewest, those that it likes best, and the most; the size that it asks for lies between the first
        and the last.
    rates
        How fast it goes on 1, 2, ..., ``most`` nodes, in whole numbers: only their ratios matter (see
        ``simulator.model.job_sizes``).
    """

    least: int
    preferred: int
    most: int
    rates: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLifecycle:
    """What makes a job more than one run of a fixed size.

    Parameters
    ----------
    sizes
        Node counts of a malleable job; None: the job is rigid.
    setup_us
        What each start costs on dedicated cores before the work begins, or goes on.
    checkpoint_every_us
        Work, on dedicated cores and the nodes that it asks for, between two checkpoints; None: it has none.
    checkpoint_us
        What writing a checkpoint costs on dedicated cores.
    notice_us, predicted_us
        When the job announces itself, and when its notice says that it will come; None: it does not.
    on_demand
        Whether it is to start the moment it comes.
    """

    sizes: Sizes | None = None
    setup_us: int = 0
    checkpoint_every_us: int | None = None
    checkpoint_us: int = 0
    notice_us: int | None = None
    predicted_us: int | None = None
    on_demand: bool = False


PLAIN_LIFECYCLE = JobLifecycle()
"""One run of a fixed size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """One job of a pool.

    Parameters
    ----------
    index
        Its place among the jobs of the pool, in order of job number.
    number
        Its number in the trace (SWF field 1).
    nodes, cores
        Its shape: nodes that it asks for, and cores on each.
    submit_us
        When it arrives, in microseconds.
    phases_us
        Idle, busy, idle, ... periods on dedicated cores and the nodes that it asks for, idle first.
    requested_us
        The run time that it asks for, on dedicated cores.
    memory_kib
        Memory that it needs on each node; 0 needs none.
    used_kib
        The most that it really uses on each of its cores; 0: that is not looked at.
    app
        Class of its application, an index into a pairwise model.
    user
        Number of its user (SWF field 12); None is not known.
    life
        Its lifecycle, where it does more than run once at its size.
    """

    index: int
    number: int
    nodes: int
    cores: int
    submit_us: int
    phases_us: tuple[int, ...]
    requested_us: int
    memory_kib: int = 0
    used_kib: int = 0
    app: int = 0
    user: int | None = None
    life: JobLifecycle = PLAIN_LIFECYCLE

    @property
    def run_us(self) -> int:
        """Run time on dedicated cores."""
        return sum(self.phases_us)

    @property
    def least_nodes(self) -> int:
        """The fewest nodes that it runs on."""
        return self.nodes if self.life.sizes is None else self.life.sizes.least

    @property
    def most_nodes(self) -> int:
        """The most nodes that it runs on."""
        return self.nodes if self.life.sizes is None else self.life.sizes.most

    def rate(self, nodes: int) -> int:
        """Return how fast it goes on ``nodes`` nodes, in its own whole numbers; 1 for a rigid job."""
        return 1 if self.life.sizes is None else self.life.sizes.rates[nodes - 1]


@dataclass(frozen=True, slots=True, eq=False)
class JobLifecycles(Sequence[JobLifecycle]):
    """A life for each job; job ``j`` has the life ``kinds[kind[j]]``."""

    kinds: tuple[JobLifecycle, ...]
    kind: Ints

    @classmethod
    def of(cls, lifecycles: Sequence[JobLifecycle] | None, count: int) -> JobLifecycles:
        """Return these lifecycles; without any ``count`` plain ones."""
        if isinstance(lifecycles, JobLifecycles):
            return lifecycles
        if lifecycles is None:
            return cls((PLAIN_LIFECYCLE,), np.zeros(count, dtype=np.int64))
        place: dict[int, int] = {}
        found: list[JobLifecycle] = []
        for life in lifecycles:
            if place.setdefault(id(life), len(found)) == len(found):
                found.append(life)
        return cls(tuple(found), np.array([place[id(life)] for life in lifecycles], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.kind)

    @overload
    def __getitem__(self, index: int) -> JobLifecycle: ...

    @overload
    def __getitem__(self, index: slice) -> JobLifecycles: ...

    def __getitem__(self, index: int | slice) -> JobLifecycle | JobLifecycles:
        if isinstance(index, slice):
            return JobLifecycles(self.kinds, self.kind[index])
        return self.kinds[int(self.kind[index])]

    def select(self, jobs: Ints) -> JobLifecycles:
        """Return the lifecycles of some jobs."""
        return JobLifecycles(self.kinds, self.kind[jobs])

    def column(self, value: Callable[[JobLifecycle], int | bool]) -> Ints:
        """Return a whole number for each job."""
        return np.array([int(value(life)) for life in self.kinds] or [0], dtype=np.int64)[self.kind]

    def changed(self, change: Callable[[JobLifecycle], JobLifecycle]) -> JobLifecycles:
        """Return the lifecycles with something changed in all of them."""
        return JobLifecycles(tuple(map(change, self.kinds)), self.kind)

    def with_sizes(self, jobs: Ints, sizes: Sequence[Sizes], which: Ints) -> JobLifecycles:
        """Return the lifecycles in which job ``jobs[i]`` has the sizes ``sizes[which[i]]``."""
        pairs, new = np.unique(self.kind[jobs] * len(sizes) + which, return_inverse=True)
        kind = self.kind.copy()
        kind[jobs] = len(self.kinds) + new
        more = [
            replace(self.kinds[pair // len(sizes)], sizes=sizes[pair % len(sizes)]) for pair in pairs.tolist()
        ]
        return JobLifecycles((*self.kinds, *more), kind)


def most_nodes(lifecycles: JobLifecycles, nodes: Ints) -> Ints:
    """Return the most nodes that each job can hold."""
    most = lifecycles.column(lambda life: 0 if life.sizes is None else life.sizes.most)
    return np.where(most == 0, nodes, most)


def sizes_of(lifecycles: JobLifecycles) -> Ints:
    """Return a number for each job: 0 if it is rigid, the same for all of the same sizes."""
    place: dict[Sizes, int] = {}
    return lifecycles.column(
        lambda life: 0 if life.sizes is None else place.setdefault(life.sizes, len(place) + 1)
    )


@dataclass(frozen=True, slots=True, eq=False)
class JobDependencies:
    """Which jobs are submitted after another has ended, as arrays of length J.

    Parameters
    ----------
    preceding
        Index of the job that precedes it; -1: none does.
    think_us
        How long after the end of that one a job is submitted; -1: at its own time, but not before that end.
    """

    preceding: Ints
    think_us: Ints

    @property
    def count(self) -> int:
        """How many jobs depend on another."""
        return int((self.preceding >= 0).sum())

    def later(self, by_us: int) -> JobDependencies:
        """Return them with think times longer by ``by_us``, which may be negative, but never below 0."""
        longer_us = np.maximum(self.think_us + by_us, 0)
        return JobDependencies(self.preceding, np.where(self.think_us < 0, self.think_us, longer_us))

    def select(self, members: Ints) -> JobDependencies | None:
        """Return those of some jobs on each other, ``members`` ascending; None if there are none."""
        place = np.full(len(self.preceding) + 1, -1, dtype=np.int64)
        place[members] = np.arange(len(members))
        chosen = JobDependencies(place[self.preceding[members]], self.think_us[members])
        return chosen if chosen.count else None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoolJobs:
    """Jobs of a pool as arrays of length J, by job number; see ``SimulatedJob`` for what they mean.

    ``phase_us`` holds the periods of job ``j`` from ``phase_at[j]`` to ``phase_at[j + 1]``: idle, busy, idle,
    ..., of which only the first may be zero. ``lifecycles`` are for jobs that do more than run once; None:
    there are none. ``user`` is -1 where it is not known. ``dependencies`` is None where no job has one.
    """

    submit_us: Ints
    requested_us: Ints
    nodes: Ints
    cores: Ints
    memory_kib: Ints
    app: Ints
    phase_at: Ints
    phase_us: Ints
    lifecycles: Sequence[JobLifecycle] | None = None
    user: Ints | None = None
    dependencies: JobDependencies | None = None
    used_kib: Ints | None = None

    @classmethod
    def blank(cls, count: int, lifecycles: Sequence[JobLifecycle] | None = None) -> PoolJobs:
        """Return so many jobs that ask for nothing and do nothing."""
        none = np.zeros(count, dtype=np.int64)
        return cls(
            submit_us=none,
            requested_us=none,
            nodes=none,
            cores=none,
            memory_kib=none,
            app=none,
            phase_at=np.zeros(count + 1, dtype=np.int64),
            phase_us=none[:0],
            lifecycles=lifecycles,
        )

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.submit_us)

    @property
    def has_sizes(self) -> bool:
        """Whether a job is malleable; then spare parts, behind all others, are for nodes that it gets."""
        return self.lifecycles is not None and any(
            life.sizes is not None for life in self.every_lifecycle.kinds
        )

    @property
    def every_lifecycle(self) -> JobLifecycles:
        """What each job can do, in any case."""
        return JobLifecycles.of(self.lifecycles, self.count)

    @property
    def run_us(self) -> Ints:
        """How long each job runs on dedicated cores, all its phases together."""
        return np.diff(np.concatenate(([0], np.cumsum(self.phase_us)))[self.phase_at])

    @property
    def part_at(self) -> Ints:
        """Where the parts of each job begin, and the number of parts; shape (jobs + 1,)."""
        return np.concatenate(
            (np.zeros(1, dtype=np.int64), np.cumsum(most_nodes(self.every_lifecycle, self.nodes)))
        )

    @property
    def shapes(self) -> Ints:
        """A number for each job, the same for all of the same shape, memory, class and sizes."""
        shape = sizes_of(self.every_lifecycle)
        for values in (self.nodes, self.cores, self.memory_kib, self.app):
            shape = np.unique(shape * (values.max(initial=0) + 1) + values, return_inverse=True)[1]
        return shape
