"""The engine gives the schedule of the plainest possible implementation of its rules."""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.engine.pool_run import Rules
from simulator.placement.plain import SlurmPlacement, ThesisPlacement
from simulator.policies.plain import Easy, EasyElsewhere, Fcfs
from simulator.policies.rule import QueuePolicy
from simulator.sharing.proportional import Proportional
from tests.property.simulator.cases import World, placements, run_world, worlds
from tests.property.simulator.reference_engine import (
    RefCluster,
    ReferenceEngine,
    RefJob,
    check_no_core_over_used,
    proportional,
)

POLICIES: dict[str, QueuePolicy] = {"fcfs": Fcfs(), "easy": Easy(), "easy-elsewhere": EasyElsewhere()}
Schedule = list[tuple[int, int | None, int | None, dict[int, list[int]]]]


def schedule_of(jobs: list[RefJob]) -> Schedule:
    return [(job.number, job.start_us, job.end_us, job.placement) for job in jobs]


def engine_schedule(world: World, policy: str, placement: str = "thesis", *, stepping: bool) -> Schedule:
    rules = Rules(
        policy=POLICIES[policy],
        placement=SlurmPlacement() if placement == "lln" else ThesisPlacement(),
        sharing=Proportional(world.overhead),
        node_memory_kib=world.memory_kib,
    )
    run = run_world(world, rules, stepping=stepping)
    return [
        (job.number, int(start), int(end), cores)
        for job, start, end, cores in zip(world.jobs, run.start_us, run.end_us, placements(run), strict=True)
    ]


def reference_schedule(world: World, policy: str, placement: str = "thesis") -> Schedule:
    jobs = copy.deepcopy(list(world.jobs))
    cluster = RefCluster(world.pool.nodes, world.pool.cores, world.pool.multiplicity, world.memory_kib)
    ReferenceEngine(jobs, cluster, proportional(world.overhead), policy, placement)
    check_no_core_over_used(jobs, world.pool.multiplicity)
    return schedule_of(jobs)


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds())
def test_kernels_give_the_reference_schedule(world: World, policy: str) -> None:
    assert engine_schedule(world, policy, stepping=False) == reference_schedule(world, policy)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(most_jobs=20, interactive=False, most_multiplicity=8))
def test_busy_clusters_give_the_reference_schedule(world: World) -> None:
    assert engine_schedule(world, "easy", stepping=False) == reference_schedule(world, "easy")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(most_jobs=20), policy=st.sampled_from(["fcfs", "easy"]))
def test_rows_as_slurm_keeps_them_give_the_reference_schedule(world: World, policy: str) -> None:
    assert engine_schedule(world, policy, "lln", stepping=False) == reference_schedule(world, policy, "lln")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(most_jobs=20), placement=st.sampled_from(["thesis", "lln"]))
def test_a_second_choice_of_nodes_gives_the_reference_schedule(world: World, placement: str) -> None:
    schedule = engine_schedule(world, "easy-elsewhere", placement, stepping=False)
    assert schedule == reference_schedule(world, "easy-elsewhere", placement)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    world=worlds(most_jobs=8),
    policy=st.sampled_from(["fcfs", "easy"]),
    placement=st.sampled_from(["thesis", "lln"]),
)
def test_plug_ins_in_plain_python_give_the_same_schedule(world: World, policy: str, placement: str) -> None:
    stepped = engine_schedule(world, policy, placement, stepping=True)
    assert stepped == engine_schedule(world, policy, placement, stepping=False)
