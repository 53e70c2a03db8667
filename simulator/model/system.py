"""The simulated system: nodes, cores, how queues share them, and when nodes are down.

When nodes fail and are repaired: read from a file, or drawn at random.

Times between failures of a node are drawn from an exponential or a Weibull distribution, repair times from an
exponential one. In nine years of records of 22 systems at Los Alamos a Weibull distribution with a shape of
0.7 to 0.8 fits the times between failures, an exponential one does not, and the mean repair took six hours.
Source: B. Schroeder and G. A. Gibson, A large-scale study of failures in high-performance computing systems,
DSN 2006 (also IEEE TDSC 7(4), 2010).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path

import numpy as np

from foundation.csv_table import CsvRow, read_csv, shown
from foundation.errors import InputError, UsageError
from foundation.units import US_PER_S, seconds_to_us

FAR_US = 1 << 62
"""When a job ends that does not get on."""

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


_COLUMNS = ("node", "down_s", "up_s")
_MOST_LINES = 1_000_000
_MOST_S = 1e10
_S_PER_H = 3600.0
_LEAST_MTBF_H, _MOST_MTBF_H = 1e-3, 1e9


@dataclass(frozen=True, slots=True, order=True)
class Outage:
    """Node ``node`` (from 0) is down from ``down_us`` to ``up_us``, which is ``FAR_US`` if it stays down."""

    down_us: int
    up_us: int
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """How nodes fail at random.

    Parameters
    ----------
    mtbf_h
        Mean time between failures of one node while it is up, in hours of the run's own time.
    repair_h
        Mean time to repair it.
    shape
        Shape of the Weibull distribution of the time between failures; 1 is the exponential one.
    seed
        The same seed gives the same outages, of each node for itself.
    """

    mtbf_h: float
    repair_h: float = 6.0
    shape: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        if not _LEAST_MTBF_H <= self.mtbf_h <= _MOST_MTBF_H:
            raise UsageError.naming(
                f"{{mtbf}} is {_LEAST_MTBF_H:g} to {_MOST_MTBF_H:g} hours, not {self.mtbf_h:g}"
            )
        if not 0 < self.repair_h <= _MOST_MTBF_H:
            raise UsageError.naming(f"{{repair}} is a positive number of hours, not {self.repair_h:g}")
        if not 0.1 <= self.shape <= 10:
            raise UsageError.naming(f"{{failure_shape}} is 0.1 to 10, not {self.shape:g}")

    def outages(self, nodes: int, horizon_us: int) -> tuple[Outage, ...]:
        """Return the outages of ``nodes`` nodes that begin before ``horizon_us``, in order of time.

        A longer horizon adds outages and changes none.
        """
        found = [outage for node in range(nodes) for outage in self._of_node(node, horizon_us)]
        return tuple(sorted(found))

    def _of_node(self, node: int, horizon_us: int) -> Iterable[Outage]:
        rng = np.random.default_rng([self.seed, node])
        scale_s = self.mtbf_h * _S_PER_H / math.gamma(1 + 1 / self.shape)
        at_us = 0
        while True:
            at_us += seconds_to_us(scale_s * float(rng.weibull(self.shape)))
            repair_us = max(1, seconds_to_us(self.repair_h * _S_PER_H * float(rng.exponential())))
            if at_us >= horizon_us:
                return
            yield Outage(at_us, at_us + repair_us, node)
            at_us += repair_us


def read_outages(path: Path, nodes: int) -> tuple[Outage, ...]:
    """Read a failure trace: CSV with the header ``node,down_s,up_s``, one outage a line.

    ``node`` is a name such as ``n3``; an empty ``up_s`` means that the node is not repaired.

    Parameters
    ----------
    path
        The file.
    nodes
        How many nodes there are.

    Raises
    ------
    InputError
        The file cannot be read, has another form, names a node that is not there, or two outages of a node
        overlap; the message names file, line and column.
    """
    names = {name: node for node, name in enumerate(node_names(nodes))}
    lines = [_outage(row, names) for row in read_csv(path, _COLUMNS, most_rows=_MOST_LINES)]
    _check_apart(lines)
    return tuple(sorted(outage for _, outage in lines))


def _outage(row: CsvRow, names: dict[str, int]) -> tuple[str, Outage]:
    node, down_s, up_s = row.text("node"), row.number("down_s", _MOST_S), row.number("up_s", _MOST_S)
    if node not in names:
        raise row.error("node", f"there is no node {shown(node)}; they are n1 to n{len(names)}")
    if down_s is None:
        raise row.error("down_s", "it is empty")
    down_us, up_us = round(down_s * US_PER_S), FAR_US if up_s is None else round(up_s * US_PER_S)
    if up_us <= down_us:
        raise row.error("up_s", f"the node is up again at {up_s:g} s, not after it went down")
    return row.where, Outage(down_us, up_us, names[node])


def _check_apart(lines: Sequence[tuple[str, Outage]]) -> None:
    """Refuse outages of one node that overlap."""
    ordered = sorted(lines, key=lambda line: (line[1].node, line[1].down_us))
    for (_, first), (where, second) in pairwise(ordered):
        if first.node == second.node and second.down_us < first.up_us:
            raise InputError(f"{where}: n{second.node + 1} goes down while it is down already")
