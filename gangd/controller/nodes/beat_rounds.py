"""Who is sent a beat when: of many nodes a part at a time.

Ten thousand beats at once keep a controller from reading for a tenth of a second, and what agents say then, a
probe of its clock most of all, waits for as long. Pure: the caller has the clock.
"""

from __future__ import annotations

from collections.abc import Iterable

A_PART, MOST_PARTS = 500, 8
FIRST_ROUNDS, ANNOUNCED_EVERY = 60, 4
"""A controller that has just begun announces itself in each round, later in every few: who obeys another one
says hello as soon as he hears of it, and who hears nothing says hello anyway."""


class BeatRounds:
    """Rounds in which each agent has its turn once.

    Attributes
    ----------
    parts
        Into how many the round is divided that was begun last.
    """

    def __init__(self) -> None:
        self.parts = 1
        self._begun = 0
        self._nodes: list[str] = []
        self._part = 0

    @property
    def announces(self) -> bool:
        """Whether all nodes hear at once of this controller with the next part."""
        is_announced = self._begun < FIRST_ROUNDS or self._begun % ANNOUNCED_EVERY == 0
        return self._part == 0 and is_announced

    def take(self, agents: Iterable[str]) -> list[str]:
        """Return the nodes of the next part; ``agents`` are those there are, and count as a round begins.

        An agent that joins later has had a schedule, which is worth as much as a heartbeat.
        """
        if self._part == 0:
            self._begun += 1
            self._nodes = list(agents)
            self.parts = min(MOST_PARTS, 1 + len(self._nodes) // A_PART)
        nodes = self._nodes[self._part :: self.parts]
        self._part = (self._part + 1) % self.parts
        return nodes
