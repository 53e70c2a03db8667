"""Nodes with the same jobs on the same cores are one class; no schedule depends on it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine import build_state as building
from simulator.engine.engine_invariants import Invariants
from simulator.engine.pool_run import PoolRun, run_pool
from simulator.engine.run_rules import RunRules
from simulator.jit.field_records import StateAllocator
from simulator.lifecycle.job_progress import hold, let_go
from simulator.model.jobs import PoolJobs
from simulator.model.system import NodePool
from simulator.placement import PlacementRule, SlurmPlacement, ThesisPlacement, place
from simulator.policies.easy.plain_policies import Easy, EasyElsewhere, Fcfs
from simulator.policy_interface import QueuePolicy
from simulator.sharing import Proportional
from simulator.state.allocations import PoolState, members, parts_of
from simulator.state.engine_state import EngineState
from simulator.state.node_sets import WORD_BITS
from tests.fixtures.tier import choose, examples

Holders = dict[int, dict[int, list[int]]]


def some_jobs(dice: Random, count: int, nodes: int, cores: int, memory_kib: int = 0) -> PoolJobs:
    """Return wide and narrow jobs that come at nearly the same time."""
    run_us = np.array([dice.randint(1, 60) for _ in range(count)])
    return PoolJobs(
        submit_us=np.array([dice.randint(0, 40) for _ in range(count)]),
        requested_us=run_us + np.array([dice.choice((0, 5, 40)) for _ in range(count)]),
        nodes=np.array([dice.choice((1, 2, dice.randint(1, nodes), nodes // 3 + 1)) for _ in range(count)]),
        cores=np.array([dice.randint(1, cores) for _ in range(count)]),
        memory_kib=np.array([dice.randint(0, memory_kib) for _ in range(count)]),
        app=np.zeros(count, dtype=np.int64),
        phase_at=np.arange(count + 1) * 2,
        phase_us=np.stack((np.zeros(count, dtype=np.int64), run_us), axis=1).ravel(),
    )


def new_state(dice: Random, jobs: int, pool: NodePool) -> EngineState:
    tables = Proportional.of(1).tables(pool.multiplicity, pool.first, pool.nodes)
    every = some_jobs(dice, jobs, pool.nodes, pool.cores)
    return building.build_state(StateAllocator(compiled=False), every, pool, tables, with_rows=True)


def choose_cores(state: EngineState, dice: Random, job: int) -> bool:
    """Name in the parts of a job any cores that have a free slot; return whether there are enough."""
    cluster, asked = PoolState(state), state.jobs[job]
    spare = {
        node: np.flatnonzero(cluster.jobs_a_core(node) < cluster.multiplicity).tolist()
        for node in range(cluster.nodes)
    }
    suited = [node for node, ids in spare.items() if len(ids) >= asked.cores]
    if len(suited) < asked.nodes:
        return False
    for part, node in zip(parts_of(state, job), sorted(dice.sample(suited, asked.nodes)), strict=True):
        ids = spare[node][: asked.cores] if dice.random() < 0.9 else dice.sample(spare[node], asked.cores)
        state.parts[part].node = node
        state.mask[part, 0] = sum(1 << core for core in ids)
    return True


def check_classes(state: EngineState, holders: Holders) -> int:
    """Check that each node is in one class and has its jobs; return how many classes there are."""
    cluster, seen = PoolState(state), 0
    for index in range(state.clock[0].classes):
        nodes = [node for node in range(cluster.nodes) if state.class_of[node] == index]
        one = state.classes[index]
        assert one.nodes == len(nodes)
        seen += bool(nodes)
        if len(nodes) > 1:
            words = [state.sets[one.row, word] for word in range(one.low, one.high + 1)]
            assert [one.low * WORD_BITS + node for node in members(words)] == nodes
    for node in range(cluster.nodes):
        held = {job: cores[node] for job, cores in holders.items() if node in cores}
        assert cluster.holders(node) == held
        one = state.classes[state.class_of[node]]
        assert one.used == sum(map(len, held.values()))
    return seen


@examples(60)
@given(seed=st.integers(0, 2**32 - 1))
def test_each_node_has_its_jobs_whatever_its_class(seed: int) -> None:
    dice = Random(seed)
    pool = NodePool(
        name="main",
        first=0,
        nodes=dice.choice((3, 9, 70, 130)),
        cores=dice.randint(1, 4),
        multiplicity=dice.randint(2, 4),
    )
    state = new_state(dice, 20, pool)
    holders: Holders = {}
    most = 1
    for _ in range(40):
        idle = [job for job in range(20) if job not in holders]
        if idle and dice.random() < 0.6:
            job = dice.choice(idle)
            if choose_cores(state, dice, job):
                hold(state, job)
                holders[job] = PoolState(state).cores_of(job)
        elif holders:
            job = dice.choice(sorted(holders))
            let_go(state, job)
            del holders[job]
        most = max(most, check_classes(state, holders))
    for job in sorted(holders):
        let_go(state, job)
    assert check_classes(state, {}) <= most
    assert state.clock[0].pieces <= len(state.pieces)


def classes_of(state: EngineState) -> set[tuple[str, str]]:
    """Return the nodes of each class and the jobs on them, by letter."""
    cluster = PoolState(state)
    found: dict[int, str] = {}
    for node in range(cluster.nodes):
        found[state.class_of[node]] = found.get(state.class_of[node], "") + str(node)
    return {
        (nodes, "".join(sorted("ABC"[job] for job in cluster.holders(int(nodes[0])))))
        for nodes in found.values()
    }


def test_the_example_of_the_page_on_the_simulator() -> None:
    every = replace(some_jobs(Random(1), 3, 8, 1), nodes=np.array([4, 6, 8]))
    pool = NodePool(name="main", first=0, nodes=8, cores=1, multiplicity=2)
    tables = Proportional.of(1).tables(2, 0, 8)
    state = building.build_state(StateAllocator(compiled=False), every, pool, tables, with_rows=False)
    steps = [
        ("A", {("0123", "A"), ("4567", "")}),
        ("B", {("01", "AB"), ("23", "A"), ("4567", "B")}),
        ("a", {("01", "B"), ("23", ""), ("4567", "B")}),
        ("b", {("014567", ""), ("23", "")}),
        ("C", {("014567", "C"), ("23", "C")}),
        ("c", {("01234567", "")}),
    ]
    assert classes_of(state) == {("01234567", "")}
    for step, expected in steps:
        job = "ABC".index(step.upper())
        if step.isupper():
            assert place(state, job)
            hold(state, job)
        else:
            let_go(state, job)
        assert classes_of(state) == expected


def digest_of(run: PoolRun) -> str:
    """Return a digest of when and where each job ran."""
    cores = run.places.sets[run.places.cores]
    columns = (run.start_us, run.end_us, run.places.offsets, run.places.first, run.places.count, cores)
    return hashlib.sha256(b"".join(np.asarray(column, np.int64).tobytes() for column in columns)).hexdigest()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let there be no sets for classes: a node that was ever taken from the others is a class of its own."""
    monkeypatch.setenv("OSUB_JIT", "0")
    return monkeypatch


@pytest.mark.parametrize("policy", [Easy(), Fcfs(), EasyElsewhere()])
@pytest.mark.parametrize("placement", [SlurmPlacement(), ThesisPlacement()])
@pytest.mark.parametrize("multiplicity", [1, 2, 3])
@pytest.mark.parametrize("seed", range(choose(1, 1, 20)))
def test_classes_of_one_node_give_the_same_schedule(
    alone: pytest.MonkeyPatch, policy: QueuePolicy, placement: PlacementRule, multiplicity: int, seed: int
) -> None:
    dice = Random(seed)
    memory_kib = dice.choice((None, 10))
    pool = NodePool(name="main", first=0, nodes=90, cores=3, multiplicity=multiplicity)
    jobs = some_jobs(dice, 30, pool.nodes, pool.cores, memory_kib or 0)
    rules = RunRules(
        policy=policy, placement=placement, sharing=Proportional.of("1.2"), node_memory_kib=memory_kib
    )
    run = run_pool(jobs, np.arange(30), pool, rules)
    alone.setattr(building, "_LEAST_SETS", 1)
    alone.setattr(building, "_SET_WORDS", 1)
    assert digest_of(run_pool(jobs, np.arange(30), pool, rules)) == digest_of(run)


@pytest.mark.parametrize("policy", [Easy(), Fcfs()])
def test_invariants_hold_on_wide_jobs(monkeypatch: pytest.MonkeyPatch, policy: QueuePolicy) -> None:
    monkeypatch.setenv("OSUB_JIT", "0")
    pool = NodePool(name="main", first=0, nodes=70, cores=2, multiplicity=3)
    jobs = some_jobs(Random(7), 25, pool.nodes, pool.cores, 5)
    rules = RunRules(
        policy=policy, placement=SlurmPlacement(), sharing=Proportional.of("1.2"), node_memory_kib=12
    )
    checked = run_pool(jobs, np.arange(25), pool, rules, after_event=Invariants())
    assert digest_of(checked) == digest_of(run_pool(jobs, np.arange(25), pool, rules))


FIVE_THOUSAND = {
    1: "8292d37a6895795ff18b1bdb65b0ce673819f6b595e4f6caada6536d4f785410",
    2: "14407de0846569e613ff5bf7af7d7147b30f2d314d221623d82ec87629c2e2bd",
    4: "5849b17bbd5623402601f8ebf4bf1ad1930fdfed2ac7911ee2e3d69062e6092c",
}  # digests of the schedules of an engine that had a record for each node of each job


@pytest.mark.parametrize("multiplicity", FIVE_THOUSAND)
def test_five_thousand_nodes_have_the_schedule_that_they_had_without_classes(
    monkeypatch: pytest.MonkeyPatch, multiplicity: int
) -> None:
    monkeypatch.setenv("OSUB_JIT", "0")
    dice = Random(multiplicity)
    pool = NodePool(name="main", first=0, nodes=5000, cores=2, multiplicity=multiplicity)
    rules = RunRules(policy=Easy(), placement=SlurmPlacement(), sharing=Proportional.of("1.2"))
    run = run_pool(some_jobs(dice, 60, pool.nodes, pool.cores), np.arange(60), pool, rules)
    assert digest_of(run) == FIVE_THOUSAND[multiplicity]
