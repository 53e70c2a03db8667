"""Nodes and cores as numbers: every core of the cluster has one, so that sharing is arithmetic on arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gangd.core.terms.core_faults import InvalidEvent


@dataclass(frozen=True, slots=True)
class CoreSet:
    """The cores of a job, in the numbers of one ``CoreMap``; compares and hashes fast.

    Attributes
    ----------
    packed
        Ascending core numbers as the bytes of an int32 array.
    nodes
        Ascending numbers of the nodes that they are on.
    """

    packed: bytes
    nodes: tuple[int, ...] = field(compare=False)

    def numbers(self) -> NDArray[np.int32]:
        """Core numbers, ascending; read-only."""
        return np.frombuffer(self.packed, dtype=np.int32)


class CoreMap:
    """Numbers for the nodes and cores of a cluster; it grows, and numbers once given out stay.

    A node that turns out to have more cores than before gets new core numbers: pack its jobs again.
    """

    def __init__(self, nodes: Mapping[str, int] | None = None) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._first: list[int] = []
        self._cores: list[int] = []
        self._seats: dict[str, list[int]] = {}
        self.total_cores = 0
        for name, cores in (nodes or {}).items():
            self.add(name, cores)

    def add(self, name: str, cores: int) -> bool:
        """Make node ``name`` with ``cores`` cores known; True if numbers were given out."""
        if cores < 1:
            raise InvalidEvent(f"node {name} has {cores} cores; at least 1 is needed")
        number = self._numbers.get(name)
        if number is not None and self._cores[number] >= cores:
            return False
        if number is None:
            self._numbers[name] = len(self._names)
            self._names.append(name)
            self._first.append(self.total_cores)
            self._cores.append(cores)
        else:
            self._first[number], self._cores[number] = self.total_cores, cores
        self.total_cores += cores
        return True

    def add_seats(self, name: str, count: int) -> None:
        """Let a node have so many seats at least: numbers that are no cores, which jobs hold as if they were.

        Two jobs with the same seat never share a slice, whatever cores they have.
        """
        seats = self._seats.setdefault(name, [])
        more = count - len(seats)
        if more > 0:
            seats.extend(range(self.total_cores, self.total_cores + more))
            self.total_cores += more

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def name(self, number: int) -> str:
        """Return the name of node ``number``."""
        return self._names[number]

    def number(self, name: str) -> int:
        """Return the number of node ``name``; raises ``InvalidEvent`` if it is not known."""
        try:
            return self._numbers[name]
        except KeyError:
            raise InvalidEvent(f"node {name} is not known") from None

    def pack(
        self, placement: Mapping[str, Iterable[int]], seats: Mapping[str, Iterable[int]] | None = None
    ) -> CoreSet:
        """Core set of ``{node name: core indices on it}``, and of seats there (``add_seats``) by number.

        Raises
        ------
        InvalidEvent
            A node is unknown, a core index is beyond the node's cores, or there is no core at all.
        """
        cores: set[int] = set()
        nodes = []
        for name, indices in placement.items():
            number = self.number(name)
            here = set(indices)
            if not here or min(here) < 0 or max(here) >= self._cores[number]:
                raise InvalidEvent(
                    f"node {name} has cores 0 to {self._cores[number] - 1}, not {sorted(here)}"
                )
            first = self._first[number]
            cores.update(first + index for index in here)
            nodes.append(number)
        if not nodes:
            raise InvalidEvent("a placement without cores")
        for name, places in (seats or {}).items():
            cores.update(self._seats[name][place] for place in places)
        return CoreSet(np.array(sorted(cores), dtype=np.int32).tobytes(), tuple(sorted(nodes)))

    def counts(self, cores: CoreSet) -> list[int]:
        """How many cores there are on each of ``cores.nodes``; seats are not among them."""
        first = np.array([self._first[node] for node in cores.nodes])
        end = first + [self._cores[node] for node in cores.nodes]
        numbers = cores.numbers()
        counts: list[int] = (np.searchsorted(numbers, end) - np.searchsorted(numbers, first)).tolist()
        return counts

    def unpack(self, cores: CoreSet) -> dict[str, list[int]]:
        """Core indices by node name, the reverse of ``pack``; seats are not among them."""
        placement: dict[str, list[int]] = {}
        numbers = cores.numbers()
        for node in cores.nodes:
            first = self._first[node]
            here = numbers[(numbers >= first) & (numbers < first + self._cores[node])]
            placement[self._names[node]] = (here - first).tolist()
        return placement
