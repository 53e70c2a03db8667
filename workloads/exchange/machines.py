"""The machines that another simulator places jobs on: a host for each core, or for each node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from foundation.errors import InputError

_SYSTEM = re.compile(r"N([1-9]\d{0,6})C([1-9]\d{0,6})")


class Unit(StrEnum):
    """What a host stands for."""

    CORE = "core"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Machines:
    """``nodes`` nodes of ``cores`` cores, and what a host of the other simulator stands for.

    By cores the host of core c of node n is ``n * cores + c``, both from 0.
    """

    nodes: int
    cores: int
    unit: Unit = Unit.CORE

    @classmethod
    def named(cls, system: str, unit: str, where: str) -> Machines:
        """Read a system such as N12C12 and a unit; ``InputError`` for anything else, after ``where``."""
        match = _SYSTEM.fullmatch(system)
        if match is None or unit not in set(Unit):
            raise InputError(
                f"{where}: {system[:20]!r}, {unit[:20]!r} are no system and unit such as N12C12, core"
            )
        return cls(int(match[1]), int(match[2]), Unit(unit))

    @property
    def system(self) -> str:
        """The system's name."""
        return f"N{self.nodes}C{self.cores}"

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return self.nodes if self.unit is Unit.NODE else self.nodes * self.cores

    @property
    def cores_of_host(self) -> int:
        """How many cores a host stands for."""
        return self.cores if self.unit is Unit.NODE else 1

    def asked(self, procs: int) -> int:
        """Return how many hosts hold so many processors."""
        return -(-procs // self.cores_of_host)
