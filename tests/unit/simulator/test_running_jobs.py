"""Running jobs of a cluster as a question: who can be evicted, what that frees, what it loses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation import slurm
from foundation.errors import UsageError
from simulator.eviction import EvictionChoice, EvictionSolver
from simulator.eviction.eviction_problem import Question
from simulator.eviction.programme_table import MOST_OPTIONS
from simulator.eviction.running_jobs import (
    MOST_TOGETHER,
    EvictionRules,
    EvictionWorld,
    OperatorKnowledge,
    answer_world,
    group_items,
    look,
)
from tests.fixtures.tier import examples

NOW = 1_000_000
CORES = 4


def node(name: str, *states: str) -> slurm.SlurmNode:
    return slurm.SlurmNode(
        name=name, states=frozenset(states or ("ALLOCATED",)), cores=CORES, threads_per_core=1,
        memory_mib=1000, cpus_allocated=0, features=frozenset(),
    )  # fmt: skip


def partition(name: str, nodes: Sequence[str]) -> slurm.Partition:
    return slurm.Partition(
        name=name, nodes=tuple(nodes), multiplicity=1, forced=False, is_default=True, is_up=True,
        preempt_mode="OFF",
    )  # fmt: skip


def job(number: int, nodes: str, hours: float = 1, cores: int = CORES, **changes: object) -> slurm.SlurmJob:
    plain = slurm.SlurmJob(
        job_id=number, name="$(reboot)", user="u", uid=1, partition="main",
        state=slurm.SlurmJobState.RUNNING, reason="None", num_nodes=len(nodes),
        cores=tuple(slurm.NodeCores(name, tuple(range(cores))) for name in nodes),
        start_time=int(NOW - 3600 * hours), comment="ts_min=0",
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


NODES = [node(name) for name in "abcdefgh"]


def world(
    jobs: Sequence[slurm.SlurmJob],
    rules: EvictionRules | None = None,
    nodes: Sequence[slurm.SlurmNode] = NODES,
) -> EvictionWorld:
    everywhere = [partition("main", [one.name for one in nodes])]
    return look(slurm.JobSnapshot(tuple(jobs)), nodes, everywhere, NOW, rules or EvictionRules())


def specs(found: EvictionWorld) -> list[str]:
    return [running.spec for running in found.jobs]


def test_loss_is_node_time_since_the_start() -> None:
    found = world([job(1, "abc", hours=2), job(2, "d", hours=0.5, cores=1)])
    assert [running.job.loss for running in found.jobs] == [6.0, 0.125]
    assert [running.job.nodes for running in found.jobs] == [3, 1]
    assert found.idle == 4


def test_regular_checkpoints_are_counted_from_the_start() -> None:
    found = world([job(1, "ab", hours=2.25)], EvictionRules(every_min=60))
    assert found.jobs[0].job.loss == pytest.approx(0.5)


def test_what_an_operator_knows_goes_before_what_holds_for_all() -> None:
    rules = EvictionRules(
        app_min=3,
        system_min=9,
        known={"2": OperatorKnowledge(loss=7, ta_min=1), "9": OperatorKnowledge(loss=1)},
    )
    first, second = (running.job for running in world([job(1, "a"), job(2, "b")], rules).jobs)
    assert (first.loss, first.ts_min, first.ta_min) == (1, 9, 3)
    assert (second.loss, second.ts_min, second.ta_min) == (7, 9, 1)


def test_named_jobs_that_do_not_run_are_reported() -> None:
    rules = EvictionRules(known={"9": OperatorKnowledge()}, keep=frozenset({"8"}))
    assert world([job(1, "a")], rules).notes == ("These named jobs do not run: 8, 9.",)


def test_a_suspended_job_can_only_be_killed() -> None:
    (running,) = world([job(1, "a", state=slurm.SlurmJobState.SUSPENDED)], EvictionRules(app_min=3)).jobs
    assert (running.job.ta_min, running.job.ts_min) == (None, None)


def test_a_node_counts_if_all_its_jobs_can_go() -> None:
    jobs = [job(1, "ab", cores=2), job(2, "b", cores=1), job(3, "c"), job(4, "cd"), job(5, "e")]
    found = world(jobs, EvictionRules(keep=frozenset({"2", "3"})))
    assert specs(found) == ["1", "4", "5"]
    assert set(found.holders) == {"a", "d", "e"}
    assert [running.job.nodes for running in found.jobs] == [1, 1, 1]


@pytest.mark.parametrize(
    "state",
    [
        slurm.SlurmJobState.CONFIGURING,
        slurm.SlurmJobState.RESIZING,
        slurm.SlurmJobState.STOPPED,
        slurm.SlurmJobState.STAGE_OUT,
        slurm.SlurmJobState.SIGNALING,
    ],
)
def test_jobs_in_between_are_left_alone(state: slurm.SlurmJobState) -> None:
    assert world([job(1, "a", state=state)]).holders == {}


def test_completing_jobs_leave_by_themselves() -> None:
    found = world([job(1, "a", state=slurm.SlurmJobState.COMPLETING), job(2, "a")])
    assert specs(found) == ["2"]
    assert "without eviction: 1 job." in found.notes[0]


def test_nodes_that_take_no_jobs_or_are_elsewhere_do_not_count() -> None:
    nodes = [node("a"), node("b", "ALLOCATED", "DRAIN"), node("c", "DOWN"), node("d"), node("e", "IDLE")]
    parts = [partition("main", ["a", "b", "c"]), partition("other", ["d", "e"])]
    jobs = slurm.JobSnapshot((job(1, "ab"), job(2, "c"), job(3, "d")))
    assert set(look(jobs, nodes, parts, NOW, EvictionRules()).holders) == {"a", "d"}
    inside = look(jobs, nodes, parts, NOW, EvictionRules(partition="other"))
    assert (set(inside.holders), inside.idle, specs(inside)) == ({"d"}, 1, ["3"])


def test_a_heterogeneous_job_is_one_and_a_task_of_an_array_is_itself() -> None:
    found = world(
        [
            job(10, "a", het_job_id=10, het_job_offset=0),
            job(11, "bc", het_job_id=10, het_job_offset=1),
            job(20, "d", array_job_id=20, array_task_id=0),
            job(22, "e", array_job_id=20, array_task_id=1),
        ]
    )
    assert specs(found) == ["10", "20_0", "20_1"]
    assert found.jobs[0].job.nodes == 3


def test_jobs_that_cannot_be_read_are_reported() -> None:
    snapshot = slurm.JobSnapshot((job(1, "a"),), (slurm.UnreadableJob(2, "odd"),))
    assert (
        "1 job cannot be read"
        in look(snapshot, NODES, [partition("main", "a")], NOW, EvictionRules()).notes[0]
    )


def test_nodes_with_jobs_that_cannot_be_seen_neither_count_nor_are_idle() -> None:
    """As with PrivateData, or with jobs whose records cannot be read."""
    nodes = [
        replace(node(name), cpus_allocated=busy) for name, busy in (("a", 4), ("b", 4), ("c", 1), ("d", 0))
    ]
    found = world([job(1, "a"), job(2, "b", cores=2)], nodes=nodes)
    assert (set(found.holders), found.idle, specs(found)) == ({"a"}, 1, ["1"])
    assert found.notes == ("Not counted, for jobs there cannot be seen or read: 2 nodes.",)
    threaded = [replace(nodes[0], threads_per_core=2, cpus_allocated=8)]
    assert set(world([job(1, "a")], nodes=threaded).holders) == {"a"}


def test_jobs_that_share_a_node_go_together() -> None:
    jobs = [job(1, "a", cores=2, hours=1), job(2, "a", cores=2, hours=1), job(3, "b", hours=2)]
    found = answer_world(world(jobs), 1, 0)
    assert found.answers[0].choices == {"1": EvictionChoice.KILL, "2": EvictionChoice.KILL}
    assert (found.answers[0].loss, found.answers[0].nodes) == (1.0, 1)
    assert "2 jobs share nodes" in found.notes[0]


def test_more_nodes_than_eviction_can_free_are_refused() -> None:
    with pytest.raises(UsageError, match=r"3 nodes .* hold 2; besides, 6 are idle already"):
        answer_world(world([job(1, "a", cores=2), job(2, "ab", cores=2)]), 3, 5)


def test_baselines_take_jobs_one_by_one() -> None:
    shared = world([job(1, "a", cores=2), job(2, "a", cores=2)])
    with pytest.raises(UsageError, match="share nodes"):
        answer_world(shared, 1, 5, solver=EvictionSolver.GREEDY)
    assert answer_world(world([job(1, "a")]), 1, 5, solver=EvictionSolver.GREEDY).answers[0].possible


@pytest.mark.slow
def test_a_large_heap_is_cleared_node_by_node_and_that_is_reported() -> None:
    names = [f"n{number}" for number in range(300)]
    jobs = [
        job(number, "", cores=0, start_time=NOW - 3600 * (number % 7 + 1)) for number in range(1, len(names))
    ]
    chained = [
        replace(one, cores=(slurm.NodeCores(names[place], (0, 1)), slurm.NodeCores(names[place + 1], (0, 1))))
        for place, one in enumerate(jobs)
    ]
    found = world(chained, nodes=[node(name) for name in names])
    for need in (7, 300):
        live = answer_world(found, need, 3)
        answer = live.answers[-1]
        places = frozenset(place for place, one in enumerate(found.jobs) if one.spec in answer.choices)
        assert answer.nodes is not None
        assert answer.nodes >= need
        assert answer.nodes == len(found.freed(places))
        assert any("node by node" in note for note in live.notes)
    question = Question(jobs=[one.job for one in found.jobs], need=1, deadline_min=3)
    (item,) = group_items(question, found).items
    assert len(item) <= MOST_OPTIONS


@st.composite
def shared_worlds(draw: st.DrawFn) -> tuple[EvictionWorld, int, int]:
    names = "abcdef"
    jobs = []
    for number in range(1, draw(st.integers(2, MOST_TOGETHER)) + 1):
        held = draw(st.sets(st.sampled_from(names), min_size=1, max_size=3))
        hours = draw(st.sampled_from([0.5, 1, 2, 3.25]))
        jobs.append(job(number, "".join(sorted(held)), hours=hours, cores=1))
    known = {
        str(number): OperatorKnowledge(
            ta_min=draw(st.none() | st.integers(0, 4)), ts_min=draw(st.none() | st.integers(1, 4))
        )
        for number in range(1, len(jobs) + 1)
    }
    found = world(jobs, EvictionRules(known=known))
    return found, draw(st.integers(0, len(found.holders))), draw(st.integers(0, 5))


@examples(40)
@given(shared_worlds())
def test_shared_nodes_are_freed_at_the_least_loss_of_all_sets(drawn: tuple[EvictionWorld, int, int]) -> None:
    found, need, deadline = drawn
    live = answer_world(found, need, deadline)
    jobs = [running.job for running in found.jobs]
    for step, answer in enumerate(live.answers):
        best: tuple[float, float, int] | None = None
        for taken in product([*EvictionChoice, None], repeat=len(jobs)):
            chosen = [(place, choice) for place, choice in enumerate(taken) if choice is not None]
            minutes = [jobs[place].minutes(choice) for place, choice in chosen]
            nodes = len(found.freed(frozenset(place for place, _ in chosen)))
            spent = sum(one or 0 for one in minutes)
            if None not in minutes and spent <= step and nodes >= need:
                loss = sum(jobs[place].loss or 0 for place, choice in chosen if choice is EvictionChoice.KILL)
                key = (round(loss, 6), spent, nodes)
                best = key if best is None else min(best, key)
        assert answer.possible == (best is not None)
        if best is not None:
            assert answer.loss is not None
            assert (round(answer.loss, 6), answer.checkpoint_min, answer.nodes) == pytest.approx(
                best, abs=3e-6
            )
