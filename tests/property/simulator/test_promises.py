"""The head of the queue starts at its reservation, with placement in Slurm's order and without."""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings

from simulator.model.system import NodePool
from tests.fixtures.tier import choose
from tests.property.simulator.cases import World, crowds
from tests.property.simulator.reference_engine import RefCluster, ReferenceEngine, RefJob, proportional
from tests.property.simulator.test_engine_against_reference import engine_schedule, reference_schedule


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
