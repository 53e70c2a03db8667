"""What a policy is: to the engine, to the registry, to a user who writes one."""

from __future__ import annotations

from simulator.policies.interface.policy_events import (
    Event,
    JobArrived,
    JobEnded,
    JobPreempted,
    NodeDown,
    NodeState,
    NodeUp,
    SimulationStarted,
    Timer,
)
from simulator.policies.interface.policy_rule import (
    AlonePolicy,
    EventListener,
    PolicyError,
    Preemption,
    QueuePolicy,
    SchedulerContext,
)

__all__ = [
    "AlonePolicy",
    "Event",
    "EventListener",
    "JobArrived",
    "JobEnded",
    "JobPreempted",
    "NodeDown",
    "NodeState",
    "NodeUp",
    "PolicyError",
    "Preemption",
    "QueuePolicy",
    "SchedulerContext",
    "SimulationStarted",
    "Timer",
]
