"""The events of a policy: one at a time, before the scheduling pass that follows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from simulator.world import SimulatedJob


class NodeState(StrEnum):
    """Whether a node takes jobs: ``UP`` yes; ``DRAINED`` none that start now; ``DOWN`` none at all."""

    UP = "up"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class SimulationStarted:
    """The run begins: nothing has arrived yet. The moment to set the first timers."""


@dataclass(frozen=True, slots=True)
class JobArrived:
    """``job`` has come and waits."""

    job: SimulatedJob


@dataclass(frozen=True, slots=True)
class JobEnded:
    """``job`` has done its work and holds nothing any more."""

    job: SimulatedJob


@dataclass(frozen=True, slots=True)
class JobPreempted:
    """``job``, preempted with a warning, has saved its work, holds nothing any more and waits."""

    job: SimulatedJob


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer rings. ``number`` is given when it is set; ``about`` is the job it was set for."""

    number: int
    kind: str
    about: SimulatedJob | None = None


@dataclass(frozen=True, slots=True)
class NodeDown:
    """``node`` has failed; ``lost`` are the jobs that were on it, which wait again or are given up."""

    node: int
    lost: tuple[SimulatedJob, ...]


@dataclass(frozen=True, slots=True)
class NodeUp:
    """``node`` is repaired."""

    node: int


Event: TypeAlias = SimulationStarted | JobArrived | JobEnded | JobPreempted | Timer | NodeDown | NodeUp
