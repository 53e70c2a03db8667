"""What a fault is: something that strikes the stage at a random instant and is healed after a while."""

from __future__ import annotations

import random
from typing import ClassVar

from tests.chaos.stage import ALLOWANCE_S, Stage
from tests.chaos.troupe import Troupe


class Fault:
    """Root of all faults; a subclass draws its parameters in ``__init__`` and says them in ``detail``.

    name: its kind, as the table has it.
    allowance_s: how long a job may be suspended without a break while it lasts.
    holds_s: how long the campaign waits between ``inject`` and ``heal``.
    """

    name: ClassVar[str]
    share: ClassVar[float] = 1.0
    short: ClassVar[bool] = True
    allowance_s: float = ALLOWANCE_S

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        self.stage = stage
        self.troupe = troupe
        self.dice = dice
        self.brief = brief
        self.holds_s = dice.uniform(0.2, 1.5 if brief else 3.5)
        self.detail = ""

    def inject(self) -> None:
        """Let it happen."""
        raise NotImplementedError

    def heal(self) -> None:
        """Undo it as an administrator or a service manager would; called however ``inject`` ended."""

    def check(self) -> None:
        """Check what only this fault promises; raises Broken."""

    def a_node(self) -> str:
        """Draw a node."""
        return self.dice.choice(self.stage.nodes)
