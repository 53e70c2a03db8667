"""From a number of processors to nodes and cores a node, for a system of equal nodes.

Source: thesis 5.2.4. (1) As few nodes as possible; (2) the same number of cores on each of them, so that
15 cores on eight-core nodes become 3 x 5; (3) where the memory of a node does not suffice, the next
larger number of nodes that divides the cores.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobShape:
    """``nodes`` nodes with ``cores`` cores on each: n2c8 is ``JobShape(2, 8)``."""

    nodes: int
    cores: int

    def __str__(self) -> str:
        return f"n{self.nodes}c{self.cores}"


def job_shape(
    procs: int, nodes: int, cores: int, memory_mib: float | None = None, node_memory_mib: float | None = None
) -> JobShape | None:
    """Return the shape of a job of ``procs`` processors on ``nodes`` nodes of ``cores`` cores.

    Parameters
    ----------
    procs
        Processors that the job asks for, at least 1.
    nodes, cores
        The system: number of nodes, cores on each.
    memory_mib
        Memory a processor, MiB; None is unconstrained.
    node_memory_mib
        Memory of a node, MiB; None is unlimited.

    Returns
    -------
    JobShape or None
        None where no equal division fits: the job can never run there.
    """
    fewest = -(-procs // cores)
    for count in range(fewest, min(nodes, procs) + 1):
        if procs % count:
            continue
        share = procs // count
        if memory_mib is None or node_memory_mib is None or share * memory_mib <= node_memory_mib:
            return JobShape(count, share)
    return None
