"""The engine gives the schedule of the plainest possible implementation of its rules."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.run_rules import RunRules
from simulator.jit.field_records import StateAllocator, only_record
from simulator.model.system import NodePool
from simulator.placement import SlurmPlacement, ThesisPlacement
from simulator.policies.easy.backfill_state import BackfillState, new_outlook
from simulator.policies.easy.plain_policies import Easy, EasyElsewhere, EasyNcs, Fcfs
from simulator.policies.easy.waiting_shapes import LanesRecord
from simulator.policy_interface import QueuePolicy
from simulator.sharing import Proportional
from simulator.state.engine_state import EngineState
from tests.fixtures.tier import choose, examples
from tests.property.simulator.cases import World, crowds, placements, run_world, worlds
from tests.property.simulator.reference_engine import (
    RefCluster,
    ReferenceEngine,
    RefJob,
    check_no_core_over_used,
    proportional,
)


@dataclass(frozen=True, slots=True)
class EasyInLanes(Easy):
    """EASY that keeps lanes however few jobs wait."""

    def outlook(self, make: StateAllocator, state: EngineState, shapes: int) -> BackfillState:
        """See ``EasyKernels``."""
        outlook = new_outlook(make, state, shapes, elsewhere=False)
        assert outlook.lanes is not None
        leaves = only_record(LanesRecord, outlook.lanes.head).leaves
        always = make.table(LanesRecord, 1, leaves=leaves, worth_from=2, fewest=2, fewest_a_lane=0)
        return outlook._replace(lanes=outlook.lanes._replace(head=always))


POLICIES: dict[str, QueuePolicy] = {
    "easy-in-lanes": EasyInLanes(),
    "fcfs": Fcfs(),
    "easy": Easy(),
    "easy-elsewhere": EasyElsewhere(),
    "easy-ncs": EasyNcs(),
}
Schedule = list[tuple[int, int | None, int | None, dict[int, list[int]]]]


def schedule_of(jobs: list[RefJob]) -> Schedule:
    return [(job.number, job.start_us, job.end_us, job.placement) for job in jobs]


def engine_schedule(
    world: World, policy: str, placement: str = "thesis", *, stepping: bool, together: bool = False
) -> Schedule:
    rules = RunRules(
        policy=POLICIES[policy],
        placement=SlurmPlacement() if placement == "lln" else ThesisPlacement(),
        sharing=Proportional(world.overhead),
        node_memory_kib=world.memory_kib,
        together=together,
    )
    run = run_world(world, rules, stepping=stepping)
    return [
        (job.number, int(start), int(end), cores)
        for job, start, end, cores in zip(world.jobs, run.start_us, run.end_us, placements(run), strict=True)
    ]


def reference_schedule(
    world: World, policy: str, placement: str = "thesis", *, together: bool = False
) -> Schedule:
    jobs = copy.deepcopy(list(world.jobs))
    cluster = RefCluster(world.pool.nodes, world.pool.cores, world.pool.multiplicity, world.memory_kib)
    ReferenceEngine(jobs, cluster, proportional(world.overhead), policy, placement, together=together)
    check_no_core_over_used(jobs, world.pool.multiplicity)
    return schedule_of(jobs)


@pytest.mark.parametrize(
    ("made", "policy", "placement"),
    [
        (worlds(), "fcfs", "thesis"),
        (worlds(), "easy", "thesis"),
        (worlds(most_jobs=20, interactive=False, most_multiplicity=8), "easy", "thesis"),
        (worlds(most_jobs=20), "fcfs", "lln"),
        (worlds(most_jobs=20), "easy", "lln"),
        (worlds(most_jobs=20), "easy-elsewhere", "thesis"),
        (worlds(most_jobs=20), "easy-elsewhere", "lln"),
        (worlds(most_jobs=20, most_nodes=4), "easy-ncs", "thesis"),
    ],
)
@examples(80)
@given(data=st.data())
def test_kernels_give_the_reference_schedule(
    data: st.DataObject, made: st.SearchStrategy[World], policy: str, placement: str
) -> None:
    world = data.draw(made)
    schedule = engine_schedule(world, policy, placement, stepping=False)
    assert schedule == reference_schedule(world, policy, placement)


@pytest.mark.parametrize("placement", ["thesis", "lln"])
@settings(max_examples=choose(25, 50, 2_000))
@given(world=crowds())
def test_crowded_clusters_of_dedicated_cores_give_the_reference_schedule(
    world: World, placement: str
) -> None:
    assert engine_schedule(world, "easy", placement, stepping=False) == reference_schedule(
        world, "easy", placement
    )


@pytest.mark.parametrize("multiplicity", [1, 2])
@pytest.mark.parametrize("placement", ["thesis", "lln"])
@settings(max_examples=choose(25, 50, 2_000))
@given(world=crowds())
def test_going_along_lanes_gives_the_reference_schedule(
    world: World, placement: str, multiplicity: int
) -> None:
    world = replace(world, pool=replace(world.pool, multiplicity=multiplicity))
    schedule = engine_schedule(world, "easy-in-lanes", placement, stepping=False)
    assert schedule == reference_schedule(world, "easy", placement)


def test_a_refused_job_is_tried_again_once_a_start_has_moved_its_nodes() -> None:
    """On N2C4 job 5 takes the node that job 4 would have taken; the other one the head can spare."""
    lines = [(1, 0, 2, 10), (2, 0, 3, 100), (3, 1, 4, 50), (4, 2, 1, 200), (5, 3, 2, 5), (6, 4, 4, 50)]
    jobs = tuple(RefJob(number, submit, 1, procs, [0, run], run) for number, submit, procs, run in lines)
    world = World(NodePool(name="main", first=0, nodes=2, cores=4, multiplicity=1), None, Fraction(1), jobs)
    schedule = engine_schedule(world, "easy", stepping=False)
    assert schedule == reference_schedule(world, "easy")
    assert {number: start for number, start, *_ in schedule}[4] == 4


@pytest.mark.parametrize("together", [False, True])
@examples(60)
@given(
    world=worlds(most_jobs=10),
    policy=st.sampled_from(["fcfs", "easy", "easy-elsewhere", "easy-ncs"]),
    placement=st.sampled_from(["thesis", "lln"]),
)
def test_plug_ins_in_plain_python_give_the_same_schedule(
    world: World, policy: str, placement: str, *, together: bool
) -> None:
    stepped = engine_schedule(world, policy, placement, stepping=True, together=together)
    assert stepped == engine_schedule(world, policy, placement, stepping=False, together=together)


@pytest.mark.parametrize("multiplicity", [1, 2])
@pytest.mark.parametrize("policy", ["fcfs", "easy", "easy-in-lanes"])
@settings(max_examples=choose(10, 25, 1_000))
@given(world=crowds(), placement=st.sampled_from(["thesis", "lln"]))
def test_crowds_at_one_instant_give_the_reference_schedule(
    world: World, policy: str, placement: str, multiplicity: int
) -> None:
    world = replace(world, pool=replace(world.pool, multiplicity=multiplicity))
    schedule = engine_schedule(world, policy, placement, stepping=False, together=True)
    rules = policy.removesuffix("-in-lanes")
    assert schedule == reference_schedule(world, rules, placement, together=True)


@examples(60)
@given(
    world=worlds(most_jobs=14),
    policy=st.sampled_from(["fcfs", "easy", "easy-elsewhere", "easy-ncs"]),
    placement=st.sampled_from(["thesis", "lln"]),
)
def test_events_of_one_instant_give_the_reference_schedule(world: World, policy: str, placement: str) -> None:
    placement = "thesis" if policy == "easy-ncs" else placement
    schedule = engine_schedule(world, policy, placement, stepping=False, together=True)
    assert schedule == reference_schedule(world, policy, placement, together=True)
