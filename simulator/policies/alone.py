"""A policy that runs its pool itself: nodes, rates, queue are its own, and the records the engine's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from simulator.engine.outcome import PoolRun
    from simulator.engine.pool_run import PoolWork


@runtime_checkable
class AlonePolicy(Protocol):
    """A policy whose jobs hold whole nodes and whose loop is its own."""

    def seeded(self, seed: int) -> Self:
        """Return the policy for a seed of all that it draws."""
        ...

    def run_alone(
        self,
        work: PoolWork,
        node_memory_kib: int | None,
        *,
        progress: Callable[[int], None] | None = None,
        check: bool = False,
    ) -> PoolRun:
        """Run the jobs of a pool to their end; with ``check``, check what must hold after every event."""
        ...
