"""The malleable strategies: kernels and plain Python agree, and nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.engine_invariants import Invariants
from simulator.engine.pool_run import PoolRun
from simulator.model.jobs import SimulatedJob
from simulator.policies.malleable_family import STRATEGIES, Malleable
from tests.fixtures.tier import choose, examples
from tests.property.simulator.lifecycle_cases import LifecycleCase, lifecycle_cases, world_of
from tests.property.simulator.lifecycle_engine import engine_run, engine_story

pytestmark = pytest.mark.usefixtures("plain")

POLICIES = st.builds(
    Malleable,
    strategy=st.sampled_from([strategy for strategy, _ in STRATEGIES.values()]),
    needs_idle=st.booleans(),
    protects_head=st.sampled_from((True, True, False)),
    tick_us=st.sampled_from((0, 0, 1, 7)),
    cost_us=st.sampled_from((0, 0, 3)),
    cost_a_node_us=st.sampled_from((0, 0, 2)),
)


def alone(world: LifecycleCase) -> LifecycleCase:
    """Return the world with one job a core, jobs that come together, and in half of the cases no checkpoints.

    Without them the kernels know when a job ends by its request; else they project.
    """

    def changed(job: SimulatedJob) -> SimulatedJob:
        every_us = job.life.checkpoint_every_us if world.seed % 2 else None
        lifecycle = replace(job.life, checkpoint_every_us=every_us)
        return replace(job, submit_us=job.submit_us // 20 * 20, life=lifecycle)

    return replace(world, multiplicity=1, jobs=tuple(map(changed, world.jobs)))


def compare(world: LifecycleCase, policy: Malleable) -> None:
    world = alone(world)
    kernels = engine_run(world, policy, stepping=False)
    assert engine_story(world, kernels) == engine_story(world, engine_run(world, policy))


@examples(30)
@given(world=lifecycle_cases(), policy=POLICIES)
def test_the_kernels_give_what_the_policy_gives_at_its_desk(world: LifecycleCase, policy: Malleable) -> None:
    compare(world, policy)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("seed", range(choose(1, 1, 20)))
def test_so_they_do_on_two_hundred_nodes(name: str, seed: int) -> None:
    world = world_of(seed, nodes=200, jobs=choose(30, 40, 100), cores=1 + seed % 2)
    compare(world, Malleable(STRATEGIES[name][0]))


@examples(20)
@given(world=lifecycle_cases(), policy=POLICIES)
def test_after_every_event_the_invariants_hold(world: LifecycleCase, policy: Malleable) -> None:
    invariants = Invariants()
    engine_run(alone(world), policy, after_event=invariants)
    assert invariants.events > 12


@examples(30)
@given(world=lifecycle_cases(), policy=POLICIES)
def test_work_is_the_same_however_often_a_job_is_resized_and_no_core_is_held_twice(
    world: LifecycleCase, policy: Malleable
) -> None:
    world = alone(world)
    run = engine_run(world, policy, stepping=False)
    assert run.books is not None
    held = held_by(world, run)
    books = run.books
    spent = books.useful_node_us + books.lost_node_us + books.setup_node_us + books.save_node_us
    paused = books.spent_setup_us + books.save_node_us + books.lost_us + books.given_up
    for job in world.jobs:
        own = held[job.index]
        assert spent[job.index] == sum((until - since) * len(cores) for since, until, cores in own)
        if not paused[job.index]:
            work = job.run_us * job.rate(job.nodes)
            done = sum((until - since) * job.rate(len(cores)) for since, until, cores in own)
            every_us = job.life.checkpoint_every_us
            # Segments last whole microseconds: up to checkpoints, and up to the end.
            ends = 1 + (0 if every_us is None else job.run_us // every_us)
            assert work <= done < work + ends * job.rate(job.most_nodes) + len(job.phases_us)
    used: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for since, until, cores in (entry for own in held.values() for entry in own):
        for place in ((node, core) for node, ids in cores.items() for core in ids):
            used.setdefault(place, []).append((since, until))
    for times in used.values():
        assert [(b, a) for b, a in pairwise(sorted(times)) if b[1] > a[0]] == []


def held_by(world: LifecycleCase, run: PoolRun) -> dict[int, list[tuple[int, int, Mapping[int, list[int]]]]]:
    """Return what each job held from when to when."""
    held: dict[int, list[tuple[int, int, Mapping[int, list[int]]]]] = {}
    for stretch in run.stretches or ():
        held.setdefault(stretch.job, []).append((stretch.from_us, stretch.to_us, stretch.cores))
    for job in range(len(world.jobs)):
        if job not in held:
            held[job] = [(int(run.start_us[job]), int(run.end_us[job]), run.cores_of(job))]
    return held
