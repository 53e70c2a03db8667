"""A job as the simulator knows it beforehand."""

from __future__ import annotations

from dataclasses import dataclass


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
        ``simulator.world.malleable_speedup``).
    """

    least: int
    preferred: int
    most: int
    rates: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
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


PLAIN_LIFE = Life()
"""One run of a fixed size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
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
    app
        Class of its application, an index into a pairwise model.
    user
        Number of its user (SWF field 12); None is not known.
    life
        What it can do beside running once at its size.
    """

    index: int
    number: int
    nodes: int
    cores: int
    submit_us: int
    phases_us: tuple[int, ...]
    requested_us: int
    memory_kib: int = 0
    app: int = 0
    user: int | None = None
    life: Life = PLAIN_LIFE

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
