"""What gangd makes of Slurm's jobs: who has cores, with which weight, held in which way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from foundation.slurm import JobSnapshot, SubmitRequest, UnreadableJob
from foundation.slurm import SlurmJobState as SlurmState
from gangd.controller.job_policy import JobRule, JobRules, Policy
from gangd.controller.slurm_view import ClusterView
from gangd.core import CoreMap, GangJobState, HoldMode
from tests.fixtures.fake_slurm import FakeSlurm

MAIN = JobRules({"main": JobRule(weight=4.0, may_opt_out=True)})


def request(name: str = "job", **more: Any) -> SubmitRequest:
    return SubmitRequest(script="#!/bin/sh\n", name=name, **more)


def test_jobs_with_cores_become_views_and_stay_the_same_objects() -> None:
    slurm = FakeSlurm(nodes=2, cores=2, multiplicity=2, start_time=1000.0)
    for nodes in (2, 1, 2):
        slurm.submit(request(nodes=nodes, tasks_per_node=2, time_limit_minutes=3))
    cores = CoreMap()
    view = ClusterView(cores, Policy())
    view.know_nodes(slurm.nodes())
    first = view.views(slurm.jobs())
    assert [(one.job, cores.unpack(one.cores)) for one in first] == [
        (1, {"n1": [0, 1], "n2": [0, 1]}),
        (2, {"n1": [0, 1]}),
    ], "the third waits"
    assert (first[0].start_s, first[0].end_s) == (1000.0, 1180.0)
    assert all(one is other for one, other in zip(first, view.views(slurm.jobs()), strict=True))
    slurm.suspend(1)
    second = view.views(slurm.jobs())
    assert second[0].state is GangJobState.SUSPENDED
    assert second[1] is first[1]


def test_a_job_without_limit_has_no_end() -> None:
    slurm = FakeSlurm()
    slurm.submit(request())
    view = ClusterView(CoreMap({"n1": 1, "n2": 1}), Policy())
    assert view.views(slurm.jobs())[0].end_s is None


def test_partition_weights_and_opt_outs_apply() -> None:
    slurm = FakeSlurm(nodes=3)
    for comment, constraint in (
        ("nice gangd=off", None),
        (None, "fast&nogang"),
        ("gangd=offline", "nogangs"),
    ):
        slurm.submit(request(comment=comment, constraint=constraint))
    jobs = [
        replace(job, features=feature)
        for job, feature in zip(slurm.jobs().jobs, (None, "fast&nogang", "nogangs"), strict=True)
    ]
    policy = Policy(MAIN, 1.0, frozenset({"gangd=off"}), frozenset({"nogang"}))
    view = ClusterView(CoreMap({"n1": 1, "n2": 1, "n3": 1}), policy)
    views = view.views(JobSnapshot(tuple(jobs)))
    assert [one.opt_out for one in views] == [True, True, False]
    assert {one.weight for one in views} == {4.0}


@pytest.mark.parametrize(
    ("comment", "most", "weight"),
    [
        ("gangd-weight=0.5", 1.0, 2.0),
        ("polite, gangd-weight=0.25", 1.0, 1.0),
        ("gangd-weight=8", 1.0, 4.0),
        ("gangd-weight=8", 2.0, 8.0),
        ("gangd-weight=2 gangd-weight=2.0,gangd-weight=02", 2.0, 8.0),
        ("gangd-weight=much", 2.0, 4.0),
        ("gangd-weight=-1", 2.0, 4.0),
        ("gangd-weight=nan", 2.0, 4.0),
        ("gangd-weight=1e-9", 2.0, 1 / 1024),
    ],
)
def test_a_job_asks_for_weight_as_far_as_it_may(comment: str, most: float, weight: float) -> None:
    slurm = FakeSlurm()
    slurm.submit(request(comment=comment))
    view = ClusterView(CoreMap({"n1": 1}), Policy(MAIN, most))
    assert view.views(slurm.jobs())[0].weight == weight


@pytest.mark.parametrize(
    ("comment", "allowed", "way"),
    [
        (None, (), HoldMode.YIELD),
        ("gangd-hold=freeze", (), HoldMode.YIELD),
        ("gangd-hold=freeze", (HoldMode.FREEZE,), HoldMode.FREEZE),
        ("mine, gangd-hold=freeze", (HoldMode.FREEZE, HoldMode.YIELD), HoldMode.FREEZE),
        ("gangd-hold=freeze gangd-hold=yield", (HoldMode.FREEZE, HoldMode.YIELD), HoldMode.YIELD),
        ("gangd-hold=sleep xgangd-hold=freeze", (HoldMode.FREEZE,), HoldMode.YIELD),
    ],
)
def test_a_job_is_held_as_its_partition_says_or_as_it_asks_if_it_may(
    comment: str | None, allowed: tuple[HoldMode, ...], way: HoldMode
) -> None:
    slurm = FakeSlurm()
    slurm.submit(request(comment=comment))
    policy = Policy(
        JobRules({"main": JobRule(HoldMode.YIELD)}), hold=HoldMode.FREEZE, job_holds=frozenset(allowed)
    )
    assert ClusterView(CoreMap({"n1": 1}), policy).views(slurm.jobs())[0].hold is way
    elsewhere = replace(policy, rules=JobRules({"other": JobRule(HoldMode.YIELD)}), job_holds=frozenset())
    assert ClusterView(CoreMap({"n1": 1}), elsewhere).views(slurm.jobs())[0].hold is HoldMode.FREEZE


def test_components_of_a_heterogeneous_job_get_one_gang() -> None:
    slurm = FakeSlurm(nodes=2)
    slurm.submit(request())
    slurm.submit(request())
    jobs = [replace(job, het_job_id=1) for job in slurm.jobs().jobs]
    view = ClusterView(CoreMap({"n1": 1, "n2": 1}), Policy())
    assert [one.gang for one in view.views(JobSnapshot(tuple(jobs)))] == [1, 1]


def test_a_job_on_an_unknown_node_is_left_out_and_named() -> None:
    slurm = FakeSlurm(nodes=2)
    slurm.submit(request(nodes=2))
    slurm.submit(request())
    view = ClusterView(CoreMap({"n1": 1}), Policy())
    assert view.views(slurm.jobs()) == ()
    assert view.unusable == (1,)


def test_a_job_that_cannot_be_read_is_held_no_more_and_not_forgotten() -> None:
    slurm = FakeSlurm(nodes=2)
    for _ in range(2):
        slurm.submit(request())
    view = ClusterView(CoreMap({"n1": 1, "n2": 1}), Policy())
    first = view.views(slurm.jobs())
    assert [one.opt_out for one in first] == [False, False]
    for unreadable in (2, None):
        snapshot = JobSnapshot(slurm.jobs().jobs[:1], (UnreadableJob(unreadable, "no state"),))
        assert view.views(snapshot) == (first[0], replace(first[1], opt_out=True))
        view.set_policy(Policy())
        assert view.views(snapshot) == (first[0], replace(first[1], opt_out=True))
        assert view.views(slurm.jobs()) == first, "it can be read again"
    assert view.views(JobSnapshot((), (UnreadableJob(3, "no state"),))) == (), "nothing is known of it"


def test_states_that_end_a_job_are_terminating() -> None:
    slurm = FakeSlurm()
    slurm.submit(request())
    view = ClusterView(CoreMap({"n1": 1}), Policy())
    [job] = slurm.jobs().jobs
    for state, expected in (
        (SlurmState.COMPLETING, GangJobState.TERMINATING),
        (SlurmState.STOPPED, GangJobState.RUNNING),
        (SlurmState.CONFIGURING, GangJobState.RUNNING),
    ):
        [seen] = view.views(JobSnapshot((replace(job, state=state),)))
        assert seen.state is expected
        assert seen.opt_out is (state is SlurmState.STOPPED)
