"""The engine gives the lifecycles that the plainest implementation gives, for all actions of a policy."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.engine_invariants import InvariantError, Invariants
from simulator.engine.python_engine import PythonEngine
from simulator.placement import SlurmPlacement
from simulator.policies.easy.plain_policies import Easy, Fcfs
from simulator.policy_interface import QueuePolicy
from tests.fixtures.tier import choose, examples
from tests.property.simulator.lifecycle_cases import (
    LifecycleCase,
    RandomActionPolicy,
    lifecycle_cases,
    world_of,
)
from tests.property.simulator.lifecycle_engine import engine_run, engine_story, oracle_story
from tests.property.simulator.reference_lifecycles import ReferenceLifecycles


def oracle(world: LifecycleCase, policy: object, *, together: bool = False) -> ReferenceLifecycles:
    return ReferenceLifecycles(
        world.jobs, policy, nodes=world.nodes, cores=world.cores, multiplicity=world.multiplicity,
        memory_kib=world.memory_kib, overhead=world.overhead,
        scale=840 * world.overhead.numerator if world.multiplicity > 1 else 1,
        outages=world.outages, after_failure=world.after_failure, together=together,
    )  # fmt: skip


def compare(world: LifecycleCase, *, together: bool = False) -> None:
    expected, seen = RandomActionPolicy(world.seed), RandomActionPolicy(world.seed)
    reference = oracle(world, expected, together=together)
    run = engine_run(world, seen, together=together)
    assert seen.chosen == expected.chosen
    assert engine_story(world, run) == oracle_story(reference)


@examples(30)
@given(world=lifecycle_cases(), slurm=st.booleans())
def test_after_every_event_the_invariants_hold(world: LifecycleCase, slurm: bool) -> None:
    invariants = Invariants()
    engine_run(world, RandomActionPolicy(world.seed), SlurmPlacement() if slurm else None, invariants)
    assert invariants.events > 12


@pytest.mark.parametrize(
    ("field", "message"), [("useful_node_us", "books say"), ("leased", "reserved"), ("in_front", "the queue")]
)
def test_a_spoilt_lifecycle_is_noticed(field: str, message: str) -> None:
    world = world_of(5, nodes=4, jobs=30)
    invariants = Invariants()

    def check(stepper: PythonEngine) -> None:
        invariants(stepper)
        if len(stepper.running) > 1 and len(stepper.waiting) > 2:
            victim = stepper.waiting[-1] if field == "in_front" else stepper.running[0]
            setattr(stepper.lifecycles.jobs[victim.index], field, 1)

    with pytest.raises(InvariantError, match=message):
        engine_run(world, RandomActionPolicy(world.seed), after_event=check)


@examples(40)
@given(world=lifecycle_cases())
def test_whatever_a_policy_does_gives_the_reference_lifecycles(world: LifecycleCase) -> None:
    compare(world)


@examples(30)
@given(world=lifecycle_cases())
def test_a_policy_that_takes_an_instant_together_gives_the_reference_lifecycles(world: LifecycleCase) -> None:
    compare(world, together=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(choose(1, 2, 20)))
def test_so_it_does_on_two_hundred_nodes(seed: int) -> None:
    compare(world_of(seed, nodes=200, jobs=40, cores=2))


@pytest.mark.parametrize("policy", [Fcfs(), Easy()], ids=["fcfs", "easy"])
@examples(30)
@given(world=lifecycle_cases(), together=st.booleans())
def test_built_in_policies_give_the_reference_lifecycles_as_kernels_and_in_plain_python(
    world: LifecycleCase, policy: QueuePolicy, together: bool
) -> None:
    expected = oracle_story(oracle(world, policy, together=together))
    assert engine_story(world, engine_run(world, policy, together=together)) == expected
    kernels = engine_run(world, policy, stepping=False, together=together)
    assert engine_story(world, kernels) == expected


@examples(40)
@given(world=lifecycle_cases())
def test_every_node_second_of_the_oracle_is_booked_once(world: LifecycleCase) -> None:
    reference = oracle(world, RandomActionPolicy(world.seed))
    for record in reference.lifecycles:
        held = sum(
            (to - since) * len(cores)
            for job, since, to, cores, _ in reference.rows
            if job == record.job.number
        )
        assert held == sum(record.node_us.values())
        assert record.node_us["fresh"] == 0
        assert record.end_us is not None


@examples(30)
@given(world=lifecycle_cases())
def test_no_core_of_the_oracle_has_more_jobs_than_slots(world: LifecycleCase) -> None:
    reference = oracle(world, RandomActionPolicy(world.seed))
    for _, since, *_ in reference.rows:
        here = [row for row in reference.rows if row[1] <= since < row[2]]
        for node in range(world.nodes):
            for core in range(world.cores):
                assert sum(core in row[3].get(node, []) for row in here) <= world.multiplicity
    for one, other in combinations(reference.rows, 2):
        assert one[0] != other[0] or one[2] <= other[1] or other[2] <= one[1]


@examples(40)
@given(world=lifecycle_cases(), slurm=st.booleans())
def test_every_node_second_of_the_engine_is_booked_once(world: LifecycleCase, slurm: bool) -> None:
    run = engine_run(world, RandomActionPolicy(world.seed), SlurmPlacement() if slurm else None)
    books = run.books
    assert books is not None
    held = [0] * len(world.jobs)
    assert run.stretches is not None
    for stretch in run.stretches:
        held[stretch.job] += (stretch.to_us - stretch.from_us) * len(stretch.cores)
    for index in range(len(world.jobs)):
        if index not in {stretch.job for stretch in run.stretches} and run.start_us[index] >= 0:
            held[index] = int(run.end_us[index] - run.start_us[index]) * len(run.cores_of(index))
    spent = books.useful_node_us + books.lost_node_us + books.setup_node_us + books.save_node_us
    assert spent.tolist() == held
    assert not books.fresh_node_us.any()
