"""What a policy is told: one event at a time, before the scheduling pass that follows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from simulator.world import Job


class NodeState(StrEnum):
    """Whether a node takes jobs: ``UP`` yes; ``DRAINED`` none that start now; ``DOWN`` none at all."""

    UP = "up"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Begun:
    """The run begins: nothing has arrived yet. The moment to set the first timers."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """``job`` has come and waits."""

    job: Job


@dataclass(frozen=True, slots=True)
class Ended:
    """``job`` has done its work and holds nothing any more."""

    job: Job


@dataclass(frozen=True, slots=True)
class Left:
    """``job``, preempted with a warning, has saved its work, holds nothing any more and waits."""

    job: Job


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer rings. ``number`` is given when it is set; ``about`` is the job it was set for."""

    number: int
    kind: str
    about: Job | None = None


@dataclass(frozen=True, slots=True)
class NodeDown:
    """``node`` has failed; ``lost`` are the jobs that were on it, which wait again or are given up."""

    node: int
    lost: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class NodeUp:
    """``node`` is repaired."""

    node: int


Event: TypeAlias = Begun | Arrived | Ended | Left | Timer | NodeDown | NodeUp
