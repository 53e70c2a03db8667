"""After every event no slot is used twice, memory is not over, the tables agree and work is conserved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.engine_invariants import InvariantError, Invariants
from simulator.engine.pool_run import run_pool
from simulator.engine.python_engine import PythonEngine
from simulator.engine.run_rules import RunRules
from simulator.model.system import NodePool
from simulator.placement import SlurmPlacement, ThesisPlacement
from simulator.policies.easy.plain_policies import Easy, Fcfs
from simulator.sharing import NoisyNodes, Proportional, SharingModel
from tests.fixtures.kinds import PAIRWISE
from tests.fixtures.tier import examples
from tests.property.simulator.cases import World, pool_jobs, run_world, worlds
from tests.property.simulator.reference_engine import RefJob


@examples(60)
@given(
    world=worlds(most_jobs=10),
    easy=st.booleans(),
    slurm=st.booleans(),
    kind=st.sampled_from(["proportional", "pairwise", "noisy"]),
)
def test_invariants_hold_after_every_event(world: World, easy: bool, slurm: bool, kind: str) -> None:
    plain = Proportional(world.overhead)
    models: dict[str, SharingModel] = {
        "proportional": plain,
        "pairwise": PAIRWISE,
        "noisy": NoisyNodes.draw(plain, world.pool.nodes, 0.1, seed=2),
    }
    rules = RunRules(
        policy=Easy() if easy else Fcfs(),
        placement=SlurmPlacement() if slurm else ThesisPlacement(),
        sharing=models[kind],
        node_memory_kib=world.memory_kib,
    )
    jobs, numbers = pool_jobs(world.jobs)
    invariants = Invariants()
    checked = run_pool(jobs, numbers, world.pool, rules, after_event=invariants)
    assert invariants.events == checked.events
    unchecked = run_world(world, rules)
    assert checked.end_us.tolist() == unchecked.end_us.tolist()


def spoil_slots(stepper: PythonEngine) -> None:
    stepper.state.classes[0].free -= 1


def spoil_work(stepper: PythonEngine) -> None:
    for job in range(stepper.state.rules[0].jobs):
        if stepper.state.runs[job].speed > 0:
            stepper.state.runs[job].left = 0


@pytest.mark.parametrize(
    ("spoil", "message"), [(spoil_slots, "tables of the nodes"), (spoil_work, "units of work")]
)
def test_a_spoilt_state_is_noticed(spoil: Callable[[PythonEngine], None], message: str) -> None:
    jobs, numbers = pool_jobs(
        (RefJob(1, 0, 1, 1, [0, 50], 50), RefJob(2, 5, 1, 1, [0, 50], 50), RefJob(3, 90, 1, 1, [0, 5], 5))
    )
    pool = NodePool(name="main", first=0, nodes=1, cores=1, multiplicity=2)
    rules = RunRules(policy=Fcfs(), placement=ThesisPlacement(), sharing=Proportional.of(1))
    invariants = Invariants()

    def check(stepper: PythonEngine) -> None:
        invariants(stepper)
        if invariants.events == 1:
            spoil(stepper)

    with pytest.raises(InvariantError, match=message):
        run_pool(jobs, numbers, pool, rules, after_event=check)
