"""A controller that begins after another: agents may go by the former's plan, up to their lease.

A plan that is sent too early thaws what should go on: before Slurm has answered it names no job, and a gang
runs freely while the agent of one of its nodes has not said hello. So plans are held back until Slurm has
answered and all agents that the former had are back; for a lease at most, for by then nothing is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gangd.core import AgentState

ANNOUNCE_NS = 50_000_000
"""Announcements come so often meanwhile: agents that connect anew must hear one soon."""


class Comeback:
    """Decides when plans go out.

    Parameters
    ----------
    nodes
        Those whose agents the former controller had; none: nothing is waited for.
    start_ns, lease_ns
        When this controller began, and for how long agents hold jobs without a word.
    """

    def __init__(self, nodes: Iterable[str], start_ns: int, lease_ns: int) -> None:
        self._missing = set(nodes)
        self._until_ns = start_ns + lease_ns
        self.waits = bool(self._missing)

    def look(self, now_ns: int, looked: bool, state: Callable[[str], AgentState]) -> bool:
        """Say whether plans are still held back."""
        if self.waits:
            self._missing = {node for node in self._missing if state(node) is not AgentState.JOINED}
            self.waits = now_ns < self._until_ns and (bool(self._missing) or not looked)
        return self.waits
