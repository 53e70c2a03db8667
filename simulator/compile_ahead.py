"""``python -m simulator.compile_ahead``: compile the engine before it is needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from simulator.engine.pool_run import compiled_loop
from simulator.engine.run_rules import RunRules
from simulator.model.jobs import PoolJobs
from simulator.model.system import NodePool
from simulator.placement import PlacementRule, SlurmPlacement, ThesisPlacement
from simulator.policies.easy.plain_policies import Easy
from simulator.policy_interface import QueuePolicy
from simulator.sharing import Proportional, SharingModel


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCase:
    """What decides which loop a run needs.

    Parameters
    ----------
    multiplicity, placement, policy, sharing
        As of a run; built in.
    with_lifecycles
        Whether jobs may be requeued, resized or saved, or nodes fail.
    """

    multiplicity: int
    placement: PlacementRule
    policy: QueuePolicy = field(default_factory=Easy)
    sharing: SharingModel = field(default_factory=lambda: Proportional.of("1"))
    with_lifecycles: bool = False


CASES = (
    KernelCase(multiplicity=1, placement=SlurmPlacement()),
    KernelCase(multiplicity=2, placement=SlurmPlacement()),
    KernelCase(multiplicity=2, placement=ThesisPlacement()),
)
"""Of the loops that most runs want."""


def compile_engine(cases: Iterable[KernelCase] = CASES) -> None:
    """Compile loops into their cache; each takes over what it has in common with those before."""
    for case in cases:
        jobs = PoolJobs.blank(0, [] if case.with_lifecycles else None)
        pool = NodePool(name="all", first=0, nodes=1, cores=1, multiplicity=case.multiplicity)
        rules = RunRules(policy=case.policy, placement=case.placement, sharing=case.sharing)
        compiled_loop(jobs, pool, rules).prepare()


if __name__ == "__main__":
    compile_engine()
