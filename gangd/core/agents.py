"""Which nodes have an agent that reports, as the scheduler believes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangd.core.terms.states import AGENT_TABLE, AgentInput, AgentState, transition


@dataclass(frozen=True, slots=True)
class Change:
    """A node's agent began or ceased to count; ``first`` if it never did before."""

    joined: bool
    first: bool


class Agents:
    """State of the agent of each node, by node number.

    Parameters
    ----------
    planned_ns
        Until when the agents of a former controller go by its plan.
    """

    def __init__(self, planned_ns: int = 0) -> None:
        self._planned_ns = planned_ns
        self._states: list[AgentState] = []
        self._heard_ns: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._joined: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._reported: list[int] = []
        self._unattended_ns: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def grow(self, nodes: int) -> None:
        """Grow to ``nodes`` nodes."""
        missing = nodes - len(self._states)
        if missing > 0:
            self._states.extend([AgentState.UNKNOWN] * missing)
            self._reported.extend([-1] * missing)
            planned = np.full(missing, self._planned_ns, dtype=np.int64)
            self._heard_ns = np.concatenate((self._heard_ns, planned))
            self._unattended_ns = np.concatenate((self._unattended_ns, np.zeros(missing, dtype=np.int64)))
            self._joined = np.concatenate((self._joined, np.zeros(missing, dtype=np.bool_)))

    def state(self, node: int) -> AgentState:
        """Return the state of the agent of a node."""
        return self._states[node] if node < len(self._states) else AgentState.UNKNOWN

    def joined(self, node: int) -> bool:
        """Whether the agent of a node counts."""
        return self.state(node) is AgentState.JOINED

    def fresh(self, node: int, number: int) -> bool:
        """Whether slice ``number`` of a node was not reported before; it is now."""
        if number <= self._reported[node]:
            return False
        self._reported[node] = number
        return True

    def missing(self) -> list[int]:
        """List the nodes whose agent does not count."""
        return [int(node) for node in np.flatnonzero(~self._joined)]

    def unattended_since(self, node: int, now_ns: int) -> int:
        """Return since when no agent is known to have acted on a node; the next call counts from now on."""
        since_ns = int(self._heard_ns[node])
        self._heard_ns[node] = max(since_ns, now_ns)
        self._unattended_ns[node] += max(0, now_ns - since_ns)
        return since_ns

    def unattended_ns(self, node: int) -> int:
        """Return for how long in all no agent has acted on a node, as far as that was asked for."""
        return int(self._unattended_ns[node]) if node < len(self._unattended_ns) else 0

    def happen(self, node: int, happened: AgentInput, now_ns: int, name: str) -> Change | None:
        """Apply an input; returns what changed."""
        before = self._states[node]
        after = transition(AGENT_TABLE, before, happened, f"agent of {name}")
        self._states[node] = after
        joined = after is AgentState.JOINED
        self._joined[node] = joined
        if joined:
            self._heard_ns[node] = now_ns
        if (before is AgentState.JOINED) == joined:
            return None
        return Change(joined, before is AgentState.UNKNOWN)

    def reports(self, node: int, now_ns: int) -> bool:
        """Note a report of an agent that counts already, as nearly all do; False if it did not."""
        if not self._joined[node]:
            return False
        self._heard_ns[node] = now_ns
        return True

    def silent(self, now_ns: int, lease_ns: int) -> list[int]:
        """List the joined nodes that were not heard of for a lease."""
        late = self._joined & (self._heard_ns + lease_ns <= now_ns)
        return [int(node) for node in np.flatnonzero(late)]
