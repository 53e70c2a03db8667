"""The simulated system: nodes, cores, and how queues share them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from foundation.errors import UsageError

MOST_MULTIPLICITY = 8
MOST_CORES = 20_000_000
"""Of a system; the largest that there are have half of them."""
_SYSTEM = re.compile(r"N([1-9]\d{0,6})C([1-9]\d{0,6})")


@dataclass(frozen=True, slots=True)
class System:
    """``nodes`` nodes of ``cores`` cores: N150C12 is ``System(150, 12)``."""

    nodes: int
    cores: int

    @classmethod
    def parse(cls, text: str) -> System:
        """Read a system such as ``N150C12``.

        Raises
        ------
        UsageError
            The text is no such system.
        """
        match = _SYSTEM.fullmatch(text)
        if match is None:
            raise UsageError(f"{text!r} is not a system: write nodes and cores a node, such as N150C12")
        system = cls(int(match[1]), int(match[2]))
        if system.nodes * system.cores > MOST_CORES:
            raise UsageError(f"{text} has more than {MOST_CORES:,} cores: no machine is that large")
        return system

    def __str__(self) -> str:
        return f"N{self.nodes}C{self.cores}"


def node_names(count: int, first: int = 0) -> tuple[str, ...]:
    """Return the names of ``count`` simulated nodes from index ``first``: n1, n2, ..."""
    return tuple(f"n{index + 1}" for index in range(first, first + count))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """The ``nodes`` nodes from ``first`` on behind one queue, with at most ``multiplicity`` jobs a core."""

    name: str
    first: int
    nodes: int
    cores: int
    multiplicity: int

    def __post_init__(self) -> None:
        if not 1 <= self.multiplicity <= MOST_MULTIPLICITY:
            raise UsageError(
                f"a multiplicity of {self.multiplicity} for {self.name} jobs is not possible: "
                f"choose 1 to {MOST_MULTIPLICITY}"
            )


@dataclass(frozen=True, slots=True)
class PoolQueues:
    """Which pool takes which jobs; in a single queue (SQ) both are one."""

    batch: NodePool
    interactive: NodePool

    @property
    def is_mq(self) -> bool:
        """Whether interactive jobs have nodes of their own."""
        return self.batch is not self.interactive

    @property
    def pools(self) -> tuple[NodePool, ...]:
        """The different pools."""
        return (self.interactive, self.batch) if self.is_mq else (self.batch,)


def single_queue(system: System, multiplicity: int) -> PoolQueues:
    """Return SQ: every node takes every job, at most ``multiplicity`` jobs a core."""
    pool = NodePool(name="main", first=0, nodes=system.nodes, cores=system.cores, multiplicity=multiplicity)
    return PoolQueues(pool, pool)


def multiple_queues(
    system: System, interactive_nodes: int, multiplicity: int, multiplicity_interactive: int
) -> PoolQueues:
    """Return MQ: the first ``interactive_nodes`` nodes for interactive jobs, the rest for batch jobs.

    Raises
    ------
    UsageError
        A queue would have no node.
    """
    if not 1 <= interactive_nodes < system.nodes:
        raise UsageError(
            f"{interactive_nodes} interactive nodes of {system}: choose 1 to {system.nodes - 1}, so that "
            "either queue has a node"
        )
    return PoolQueues(
        batch=NodePool(
            name="batch",
            first=interactive_nodes,
            nodes=system.nodes - interactive_nodes,
            cores=system.cores,
            multiplicity=multiplicity,
        ),
        interactive=NodePool(
            name="interactive",
            first=0,
            nodes=interactive_nodes,
            cores=system.cores,
            multiplicity=multiplicity_interactive,
        ),
    )


def nodes_of_share(system: System, share: str) -> int:
    """Return R of the nodes: nearest whole number, halves up, at least 1.

    Parameters
    ----------
    share
        ``5%`` or ``0.05``.

    Raises
    ------
    UsageError
        It is no share between 0 and 1.
    """
    text = share.strip()
    try:
        value = Decimal(text[:-1]) / 100 if text.endswith("%") else Decimal(text)
    except InvalidOperation:
        value = Decimal(-1)
    if not (value.is_finite() and 0 < value < 1):
        raise UsageError(f"{share!r} is not a share of the nodes: write it as 5% or 0.05")
    return max(1, int((value * system.nodes).quantize(Decimal(1), rounding=ROUND_HALF_UP)))
