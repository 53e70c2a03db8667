"""Record of a job with a general lifecycle: its phase, its allocation, what its node time was spent on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction

from simulator.model.jobs import SimulatedJob

FAR_US = 1 << 62
Cores = dict[int, list[int]]


class Status(Enum):
    FUTURE = auto()
    WAITING = auto()
    RUNNING = auto()
    SUSPENDED = auto()
    ENDED = auto()


class Doing(Enum):
    SETUP = auto()
    WORK = auto()
    SAVE = auto()
    LEAVE = auto()


@dataclass(frozen=True)
class Progress:
    """Where a job is: its phase, work left of it, and work left of its request, both at rate 1."""

    phase: int
    left: Fraction
    request: Fraction


@dataclass
class LifecycleRecord:
    """What became of a job; node time in node microseconds by what it was spent on."""

    job: SimulatedJob
    status: Status = Status.FUTURE
    doing: Doing = Doing.WORK
    held: Cores = field(default_factory=dict)
    now: Progress = Progress(0, Fraction(0), Fraction(0))
    saved: Progress = Progress(0, Fraction(0), Fraction(0))
    pause_left: Fraction = Fraction(0)
    until_save: Fraction | None = None
    in_front: bool = False
    why: str = "start"
    starts: int = 0
    preemptions: int = 0
    given_up: bool = False
    start_us: int | None = None
    end_us: int | None = None
    stretch_us: int = 0
    fresh_us: int = 0
    useful_us: int = 0
    setup_us: int = 0
    wasted_us: int = 0
    node_us: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("fresh", "useful", "lost", "setup", "save"), 0)
    )

    @property
    def nodes(self) -> int:
        return len(self.held)

    @property
    def rate(self) -> int:
        return self.job.rate(self.nodes)

    @property
    def is_idle(self) -> bool:
        """Whether it computes nothing: an idle phase, or a job that has been warned."""
        return self.doing is Doing.LEAVE or (self.doing is Doing.WORK and self.now.phase % 2 == 0)

    @property
    def is_last(self) -> bool:
        return self.now.phase == len(self.job.phases_us) - 1


Row = tuple[int, int, int, Cores, str]  # job number, from, to, cores, why


@dataclass(frozen=True)
class Outage:
    node: int
    down_us: int
    up_us: int
