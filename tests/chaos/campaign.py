"""A campaign: faults drawn by a seed, one after the other, and the invariants after each.

After every fault: (1) no job stood still for longer than lease + 1 s (with agent and guardian killed at
once: the health check's interval), and what is suspended now runs by turns; (2) every job is in the state in
which it should be; (3) cancelled jobs are gone in time; (4) no node is drained or down; and the gang
scheduler works again: every agent has joined and the residents take turns on every node.
"""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from foundation.errors import OsubError
from tests.chaos.broken import Broken, wait_for
from tests.chaos.fault import Fault
from tests.chaos.stage import ALLOWANCE_S, Stage
from tests.chaos.troupe import Troupe


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one fault. ``broken`` names the invariant that did not hold, None if all did.

    ``worst_s`` is the longest time that a job stood still, ``recovered_s`` the time from healing until
    agents had joined and the residents took turns.
    """

    number: int
    name: str
    detail: str
    worst_s: float
    recovered_s: float | None
    lasted_s: float
    broken: str | None


def draw(kinds: Sequence[type[Fault]], count: int, dice: random.Random) -> list[type[Fault]]:
    """Draw faults: every kind once if there are enough, the rest by their share (0: not again), shuffled."""
    chosen = list(kinds[:count])
    if count > len(chosen):
        chosen += dice.choices(kinds, [kind.share or 1e-9 for kind in kinds], k=count - len(chosen))
    dice.shuffle(chosen)
    return chosen


class Campaign:
    """Runs faults on a stage.

    brief: whether every fault is to be as short as it can be.
    say: called with the outcome of each fault.
    """

    def __init__(
        self,
        stage: Stage,
        troupe: Troupe,
        dice: random.Random,
        *,
        brief: bool,
        say: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        self.outcomes: list[Outcome] = []
        self._stage = stage
        self._troupe = troupe
        self._dice = dice
        self._brief = brief
        self._say = say

    def run(self, kinds: Sequence[type[Fault]]) -> None:
        """Run faults of these kinds in this order; the campaign goes on after one that broke something."""
        for number, kind in enumerate(kinds, 1):
            outcome = self._strike(number, kind)
            self.outcomes.append(outcome)
            self._say(outcome)

    def _strike(self, number: int, kind: type[Fault]) -> Outcome:
        stage, began_s = self._stage, time.monotonic()
        fault = kind(stage, self._troupe, self._dice, brief=self._brief)
        broken: list[str] = []
        recovered_s = None
        window = stage.watcher.open(fault.allowance_s)
        guests = self._troupe.guests()
        time.sleep(self._dice.uniform(0.0, 0.2))  # strikes at any instant of a slice
        try:
            try:
                fault.inject()
                time.sleep(fault.holds_s)
            finally:
                fault.heal()
            healed_s = time.monotonic()
            stage.wait_joined()
            fault.check()
            self._troupe.wait_turns()
            recovered_s = time.monotonic() - healed_s
            self._troupe.check()
            self._check_nodes()
        except (Broken, AssertionError) as error:
            broken.append(str(error))
        except Exception as error:  # an outcome like any other: the campaign goes on
            broken.append("".join(traceback.format_exception_only(error)).strip())
        stage.watcher.open(ALLOWANCE_S)
        if broken:
            stage.tell()
            self._troupe.extend(
                time.monotonic() - began_s
            )  # other faults' guests are not to blame for the delay
            with suppress(OsubError):
                self._troupe.abandon(guests)
        broken += [
            f"job {excess.job} stood still for {excess.lasted_s:.1f} s ({excess.what})"
            for excess in window.excesses.values()
        ]
        return Outcome(
            number, fault.name, fault.detail, window.worst_s, recovered_s,
            time.monotonic() - began_s, "; ".join(broken) or None,
        )  # fmt: skip

    def _check_nodes(self) -> None:
        """Every node is in service; one that Slurm has not heard of for a moment is given another."""

        def all_up() -> bool:
            nodes = self._stage.client.nodes()
            for node in nodes:
                if node.states & {"DRAIN", "DOWN", "FAIL", "FAILING"} or node.reason:
                    raise Broken(f"node {node.name} is {'+'.join(sorted(node.states))}: {node.reason}")
            return all(node.is_up for node in nodes)

        wait_for(all_up, 30.0, "every node responds to Slurm")
