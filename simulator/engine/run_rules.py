"""What holds for a run: its plug-ins, and when nodes fail."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.model.system import Failing, NodePool, Outage
from simulator.placement import PlacementRule, SlurmPlacement, ThesisPlacement
from simulator.policy_interface import KernelPolicy, PolicyError, QueuePolicy
from simulator.sharing import BuiltinSharing, SharingModel


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """The three plug-ins of a run, and what holds for its nodes.

    Parameters
    ----------
    policy, placement, sharing
        The plug-ins.
    node_memory_kib
        Memory of a node; None is unlimited.
    policy_name
        What the policy is called in messages; None: as its class.
    outages, failing, after_failure
        When nodes fail, or how it is drawn when, and how their jobs go on (one of ``AFTER_FAILURE``).
    together
        Whether one scheduling pass follows all that happens at one instant; else one follows each event.
    """

    policy: QueuePolicy
    placement: PlacementRule
    sharing: SharingModel
    node_memory_kib: int | None = None
    policy_name: str | None = None
    outages: Sequence[Outage] = ()
    failing: Failing | None = None
    after_failure: str = "checkpoint"
    together: bool = False

    @property
    def called(self) -> str:
        """The policy's name in messages."""
        return self.policy_name or type(self.policy).__name__

    def own_policy(self) -> QueuePolicy:
        """Return a copy of the policy, which may remember things, for one pool of one run.

        Raises
        ------
        PolicyError
            It cannot be copied.
        """
        try:
            return copy.deepcopy(self.policy)
        except Exception as error:
            raise PolicyError(f"policy {self.called} cannot be copied for a run: {error}") from error

    def failing_until(self, nodes: int, horizon_us: int) -> RunRules:
        """Return the rules with the outages that are drawn for ``nodes`` nodes up to an instant."""
        if self.failing is None:
            return self
        return replace(self, outages=self.failing.outages(nodes, horizon_us))

    def outages_of(self, pool: NodePool) -> list[Outage]:
        """Return the outages of the pool's nodes, numbered as there."""
        last = pool.first + pool.nodes
        return [
            replace(outage, node=outage.node - pool.first)
            for outage in self.outages
            if pool.first <= outage.node < last
        ]

    @property
    def fails(self) -> bool:
        """Whether nodes fail."""
        return bool(self.outages) or self.failing is not None

    @property
    def are_built_in(self) -> bool:
        """Whether kernels know all of them."""
        return (
            isinstance(self.policy, KernelPolicy)
            and isinstance(self.placement, ThesisPlacement | SlurmPlacement)
            and isinstance(self.sharing, BuiltinSharing)
        )
