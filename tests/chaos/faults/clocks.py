"""Clocks that disagree, by time namespaces.

A time namespace shifts CLOCK_MONOTONIC for the processes that begin in it, and for good: a clock that *jumps*
is a daemon that is replaced by one whose clock differs. Moving the controller is a jump under the feet of
agents that go on running. A clock that *drifts* cannot be had this way; ``network.Drift`` has what an agent
would see of it.
"""

from __future__ import annotations

import random

from tests.chaos.fault import Fault
from tests.chaos.stage import CONTROLLER, Stage
from tests.chaos.troupe import Troupe


class ClockFault(Fault):
    """A daemon whose CLOCK_MONOTONIC is off."""

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.offset_s = dice.choice([1, 3, 60, 3600, 10_000_000, -1, -60])
        self.role = CONTROLLER

    def inject(self) -> None:
        stage = self.stage
        stage.replace(self.role, prefix=["/usr/bin/unshare", "--time", "--monotonic", str(self.offset_s)])
        stage.wait_joined()
        self.troupe.wait_turns()  # with clocks that differ the schedule works all the same
        self.detail = f"{self.role}, {self.offset_s:+d} s"
        self.holds_s = self.dice.uniform(0.0, 0.5)

    def heal(self) -> None:
        self.stage.replace(self.role)


class ControllerClock(ClockFault):
    """The controller's clock jumps while agents run, and jumps back."""

    name = "clock jump, controller"


class AgentClock(ClockFault):
    """A node's clock is off."""

    name = "clock jump, one node"

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.role = stage.agent(self.a_node())


class AgentClockKilled(AgentClock):
    """An agent in another time namespace dies with jobs held; one with the right clock takes over."""

    name = "clock jump, agent killed"

    def heal(self) -> None:
        for process in self.stage.processes(self.role):
            process.kill()
            process.wait(5)
        self.stage.revive()


CLOCK_FAULTS: tuple[type[Fault], ...] = (ControllerClock, AgentClock, AgentClockKilled)
