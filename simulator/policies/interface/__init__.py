"""What a policy is: to the engine, to the registry, to a user who writes one."""

from __future__ import annotations

from simulator.policies.interface.policy_events import (
    Arrived,
    Begun,
    Ended,
    Event,
    Left,
    NodeDown,
    NodeState,
    NodeUp,
    Timer,
)
from simulator.policies.interface.policy_rule import (
    AlonePolicy,
    Desk,
    Hearer,
    PolicyError,
    Preemption,
    QueuePolicy,
)

__all__ = [
    "AlonePolicy",
    "Arrived",
    "Begun",
    "Desk",
    "Ended",
    "Event",
    "Hearer",
    "Left",
    "NodeDown",
    "NodeState",
    "NodeUp",
    "PolicyError",
    "Preemption",
    "QueuePolicy",
    "Timer",
]
