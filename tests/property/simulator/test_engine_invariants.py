"""After every event no slot is used twice, memory is not over, the tables agree and work is conserved."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
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
from tests.fixtures.tier import choose, examples
from tests.property.simulator.cases import World, crowds, pool_jobs, run_world, worlds
from tests.property.simulator.reference_engine import RefCluster, ReferenceEngine, RefJob, proportional
from tests.property.simulator.test_engine_against_reference import engine_schedule, reference_schedule


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


def exact(world: World) -> World:
    """Return the world in which every job asks for what it needs."""
    return replace(world, jobs=tuple(replace(job, requested_us=sum(job.phases_us)) for job in world.jobs))


def promises(world: World, placement: str) -> dict[int, int]:
    """Return the earliest start of each job when it first was the head and another was to overtake it."""
    pool = world.pool
    cluster = RefCluster(pool.nodes, pool.cores, pool.multiplicity, world.memory_kib)
    jobs = copy.deepcopy(list(world.jobs))
    return ReferenceEngine(jobs, cluster, proportional(world.overhead), "easy", placement).promises


@pytest.mark.parametrize("placement", ["thesis", "lln"])
@settings(max_examples=choose(10, 40, 600))
@given(world=crowds(multiplicity=2))
def test_a_head_starts_no_later_than_promised_where_requests_are_exact(world: World, placement: str) -> None:
    reported = promises(exact(world), placement)
    starts = {
        number: start
        for number, start, *_ in engine_schedule(exact(world), "easy", placement, stepping=False)
    }
    late = {
        number: (reported[number], starts[number])
        for number in reported
        if (starts[number] or 0) > reported[number]
    }
    assert not late


@pytest.mark.parametrize("multiplicity", [2, 3])
@settings(max_examples=choose(10, 40, 600))
@given(world=crowds(multiplicity=2))
def test_crowds_on_rows_give_the_reference_schedule(world: World, multiplicity: int) -> None:
    world = replace(world, pool=replace(world.pool, multiplicity=multiplicity))
    assert engine_schedule(world, "easy", "lln", stepping=False) == reference_schedule(world, "easy", "lln")


def test_a_job_of_no_length_gives_the_reference_schedule() -> None:
    """At 60 the reservation that the head once had is in the past, and job 18 ends as soon as it starts."""
    lines = [
        (1, 3, 3, 1, 5, 6), (3, 5, 2, 1, 80, 87), (4, 8, 2, 2, 3, 3), (5, 10, 4, 1, 20, 70),
        (14, 42, 4, 2, 20, 20), (16, 49, 3, 2, 0, 200), (17, 59, 1, 2, 8, 8), (18, 60, 2, 2, 0, 0),
    ]  # fmt: skip
    jobs = tuple(
        RefJob(number, submit, nodes, cores, [0, run] if run else [0], request)
        for number, submit, nodes, cores, run, request in lines
    )
    pool = NodePool(name="main", first=0, nodes=4, cores=2, multiplicity=3)
    world = World(pool, None, Fraction(6, 5), jobs)
    for placement in ("lln", "thesis"):
        schedule = engine_schedule(world, "easy", placement, stepping=False)
        assert schedule == reference_schedule(world, "easy", placement)
