"""A job as the simulator knows it beforehand."""

from __future__ import annotations

from dataclasses import dataclass


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
        Its shape: nodes, and cores on each.
    submit_us
        When it arrives, in microseconds.
    phases_us
        Idle, busy, idle, ... periods on dedicated cores, idle first.
    requested_us
        The run time that it asks for, on dedicated cores.
    memory_kib
        Memory that it needs on each node; 0 needs none.
    app
        Class of its application, an index into a pairwise model.
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

    @property
    def run_us(self) -> int:
        """Run time on dedicated cores."""
        return sum(self.phases_us)
