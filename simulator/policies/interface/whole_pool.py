"""A policy that runs its pool itself: nodes, rates, queue are its own, and the records the engine's."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable


@runtime_checkable
class AlonePolicy(Protocol):
    """A ``PoolPolicy`` whose jobs hold whole nodes, and that draws something by a seed."""

    def seeded(self, seed: int) -> Self:
        """Return the policy for a seed of all that it draws."""
        ...
