"""Hybrid scheduling in random worlds: nothing is lost or made up, and without its jobs it is EASY."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given

from simulator.engine.pool_run import run_pool
from simulator.engine.run_rules import RunRules
from simulator.hybrid.hybrid_pool import HybridOutcome, check_world, run_jobs
from simulator.hybrid.hybrid_state import BASELINE, COLLECT, NOTHING, PLAN, SHARE
from simulator.model.jobs import PLAIN_LIFECYCLE
from simulator.model.system import NodePool
from simulator.placement import ThesisPlacement
from simulator.policies.easy.plain_policies import Easy
from simulator.sharing import Proportional
from simulator.state.lifecycle_state import BY_RESIZE
from tests.fixtures.tier import examples
from tests.property.simulator.hybrid_cases import SEEDS, HybridWorld, baseline, sharing, world_of
from tests.property.simulator.reference_hybrid import Reference

RESIZED_AS_THEY_START = (103, 938)


pytestmark = pytest.mark.usefixtures("plain")


def run(world: HybridWorld) -> HybridOutcome:
    """Run a world, with all invariants checked after each event."""
    return run_jobs(world.jobs, world.nodes, world.mechanism, records=True, after_event=check_world)


@examples(150)
@given(seed=SEEDS)
@example(seed=17)
def test_node_time_is_conserved_and_no_node_is_held_twice(seed: int) -> None:
    world = world_of(seed)
    found = run(world)
    held = found.stretches
    assert int(((held.to_us - held.from_us) * held.nodes).sum()) == int(found.column("held_node_us").sum())
    spent = sum(
        found.column(name).sum()
        for name in ("useful_node_us", "lost_node_us", "setup_node_us", "save_node_us", "warned_node_us")
    )
    assert spent == found.column("held_node_us").sum()
    assert not found.column("fresh_node_us").any()
    _no_node_twice(found, world.nodes)
    assert (found.column("ready_us") >= found.column("submit_us")).all()


def _no_node_twice(found: HybridOutcome, nodes: int) -> None:
    """Every node is held by one job at a time."""
    begins: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
    for stretch in found.stretches:
        for node in stretch.cores:
            begins[node].append((stretch.from_us, stretch.to_us))
    for own in begins:
        own.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(own))


@examples(150)
@given(seed=SEEDS)
@example(seed=RESIZED_AS_THEY_START[0])
@example(seed=RESIZED_AS_THEY_START[1])
def test_a_resize_follows_a_stretch_that_took_time(seed: int) -> None:
    held = run(world_of(seed)).stretches
    order = np.lexsort((held.from_us, held.job))
    job, why = held.job[order], held.why[order]
    first = np.append(True, job[1:] != job[:-1])[: len(job)]
    assert not (first & (why == BY_RESIZE)).any()
    follows = np.append(False, held.from_us[order][1:] == held.to_us[order][:-1])[: len(job)] & ~first
    assert follows[why == BY_RESIZE].all()
    assert (held.to_us > held.from_us).all()


@examples(100)
@given(seed=SEEDS)
def test_useful_work_is_what_the_jobs_set_out_to_do(seed: int) -> None:
    """However often a job is preempted or resized its work is done once, up to the clock's rounding."""
    world = world_of(seed)
    world = replace(world, mechanism=replace(world.mechanism, interval=Fraction(1)))
    found = run(world)
    jobs = world.jobs
    run_node_us = jobs.run_us * jobs.nodes
    done = found.column("useful_node_us") + found.column("save_node_us")
    done += found.column("setup_node_us") - found.column("again_node_us")
    undisturbed = (found.column("preemptions") == 0) & (found.column("shrinks") == 0)
    same_size = found.column("attempts") == 1
    sizes = found.stretches.nodes
    whole = np.array(
        [(sizes[found.stretches.job == job] == jobs.nodes[job]).all() for job in range(jobs.count)]
    )
    exact = undisturbed & same_size & whole
    assert (done[exact] == run_node_us[exact]).all()
    malleable = found.column("kind") == 1
    useful = found.column("useful_node_us")[malleable]
    assert jobs.lifecycles is not None
    setup = np.array([lifecycle.setup_us for lifecycle in jobs.lifecycles], dtype=np.int64)
    work = ((jobs.run_us - setup) * jobs.nodes)[malleable]
    changes = np.bincount(found.stretches.job, minlength=jobs.count)[malleable]
    assert (useful >= work).all()
    assert (useful <= work + (changes + 1) * jobs.nodes[malleable]).all()


@pytest.mark.parametrize("strategy", [BASELINE, NOTHING, COLLECT, PLAN, SHARE])
@examples(40)
@given(seed=SEEDS)
def test_without_on_demand_and_malleable_jobs_it_is_easy_job_by_job(strategy: int, seed: int) -> None:
    world = world_of(seed, kinds=("rigid",))
    pool = NodePool(name="main", first=0, nodes=world.nodes, cores=1, multiplicity=1)
    rules = RunRules(policy=Easy(), placement=ThesisPlacement(), sharing=Proportional(Fraction(1)))
    bare = replace(world.jobs, lifecycles=None)
    easy = run_pool(bare, np.arange(bare.count), pool, rules)
    mechanism = replace(world.mechanism, strategy=strategy, interval=Fraction(1))
    found = run_jobs(world.jobs, world.nodes, mechanism)
    assert (found.column("start_us") == easy.start_us).all()
    assert (found.column("end_us") == easy.end_us).all()


@examples(40)
@given(seed=SEEDS)
def test_victims_that_are_chosen_together_leave_nothing_undone(seed: int) -> None:
    world = world_of(seed)
    found = run(replace(world, mechanism=replace(world.mechanism, optimal=True)))
    assert (found.column("end_us") > found.column("submit_us")).all()


@examples(100)
@given(seed=SEEDS)
def test_sharing_preempts_no_job_and_both_go_on(seed: int) -> None:
    world = sharing(world_of(seed))
    world = replace(world, mechanism=replace(world.mechanism, interval=Fraction(1)))
    found = run(world)
    assert not found.column("preemptions").any()
    assert not found.column("lost_node_us").any()
    assert jobs_took_no_longer(found, world, found.world.rules[0].whole)
    held = found.stretches
    assert int(((held.to_us - held.from_us) * held.nodes).sum()) == int(found.column("held_node_us").sum())


def jobs_took_no_longer(found: HybridOutcome, world: HybridWorld, whole: int) -> bool:
    """Return whether no job ran longer than if it had shared all the time, at the smaller share."""
    took = found.column("end_us") - found.column("start_us")
    least = np.where(found.column("kind") == 2, found.world.rules[0].guest, found.world.rules[0].host)
    narrow = np.where(found.column("kind") == 1, world.jobs.nodes, 1)  # a malleable job may start small
    return bool((took <= (world.jobs.run_us * narrow + 2) * whole / least + 2).all())


@examples(30)
@given(seed=SEEDS)
def test_jobs_without_lifecycles_are_rigid(seed: int) -> None:
    world = world_of(seed, kinds=("rigid",))
    plain_jobs = replace(world.jobs, lifecycles=[PLAIN_LIFECYCLE] * world.jobs.count)
    bare = replace(world.jobs, lifecycles=None)
    both = [run_jobs(jobs, world.nodes, world.mechanism) for jobs in (plain_jobs, bare)]
    assert (both[0].column("end_us") == both[1].column("end_us")).all()


@pytest.mark.parametrize("alone", [False, True])
@examples(60)
@given(seed=SEEDS)
def test_kernels_do_what_the_mechanisms_say(alone: bool, seed: int) -> None:
    world = baseline(world_of(seed)) if alone else world_of(seed)
    plainly = Reference(world)
    plainly.run()
    found = run_jobs(world.jobs, world.nodes, world.mechanism)
    reported = [(job.start, job.end, job.preemptions, job.lost) for job in plainly.jobs]
    columns = (found.column(name).tolist() for name in ("start_us", "end_us", "preemptions", "lost_us"))
    assert reported == list(zip(*columns, strict=True))
