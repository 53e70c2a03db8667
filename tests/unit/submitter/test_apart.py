"""Keeping dangerous applications apart: no two of them meet, whatever the work, the nodes and the danger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import InputError, UsageError
from osub.cli.replay import check_pairing, danger_of
from submitter.plan import PlannedJob, ReplayPlan
from submitter.plan.apart_applications import (
    PAIRING_NAME,
    ConflictPairs,
    applications_of,
    apply,
    checked_threshold,
    keep_apart,
    read_apart,
    write_apart,
)
from submitter.plan.replay_options import ReplayOptions
from submitter.plan.replay_plan import AppChoice, read_apps
from submitter.plan.target_cluster import PartitionPool, TargetCluster
from submitter.replay.begin_run import submit_request
from tests.fixtures.replay_world import planned
from tests.fixtures.tier import examples

NAMES = ("a", "b", "c", "d", "e")


def target(nodes: int = 4, *, forced: bool = True) -> TargetCluster:
    names = tuple(f"n{number}" for number in range(nodes))
    pool = PartitionPool(
        partition="main", names=names, cores=2, threads=1, memory_mib=8000, multiplicity=2,
        shares_on_request=not forced,
    )  # fmt: skip
    return TargetCluster(node_names=names, cores=2, batch=pool, interactive=pool)


def job(
    number: int, application: str | None, nodes: int = 1, seconds: float = 10.0, **more: object
) -> PlannedJob:
    more = {
        "app": "sleep", "args": ("1",), "memory_per_core_mib": 100, "limit_minutes": 1,
        "nodes": nodes, "application": application,
    } | more  # fmt: skip
    return planned(number, seconds, **more)


def danger(*pairs: str, known: str = "abcde") -> ConflictPairs:
    return ConflictPairs(frozenset(known), frozenset((min(pair), max(pair)) for pair in pairs))


def decided(
    plan: ReplayPlan, where: TargetCluster, what: ConflictPairs, *, memory_counts: bool = True
) -> ReplayPlan:
    names = applications_of(plan, what)
    return apply(plan, where, keep_apart(plan, where, what, memory_counts=memory_counts), names)


@examples(200)
@given(
    jobs=st.lists(
        st.tuples(st.sampled_from(NAMES), st.integers(1, 4), st.floats(1, 1000)), min_size=1, max_size=12
    ),
    pairs=st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES))),
    nodes=st.integers(4, 7),
    forced=st.booleans(),
    memory=st.booleans(),
)
def test_two_that_are_dangerous_never_may_share_a_node_unless_that_is_reported(
    jobs: list[tuple[str, int, float]], pairs: set[tuple[str, str]], nodes: int, forced: bool, memory: bool
) -> None:
    plan = ReplayPlan(jobs=tuple(job(number, *fields) for number, fields in enumerate(jobs)))
    where = target(nodes, forced=forced)
    what = ConflictPairs(frozenset(NAMES), frozenset((min(pair), max(pair)) for pair in pairs))
    apart = keep_apart(plan, where, what, memory_counts=memory)["main"]
    made = apply(plan, where, {"main": apart}, applications_of(plan, what)).jobs
    for one in made:
        assert nodes - len(one.away_from) >= one.nodes, "it could never start"
        for other in made:
            name, rival = str(one.application), str(other.application)
            meet = len({*one.away_from, *other.away_from}) < nodes and not one.is_alone and not other.is_alone
            if what(name, rival) and meet:
                assert (min(name, rival), max(name, rival)) in apart.together
    if not forced or memory:
        assert apart.together == ()
    used = {str(one.application) for one in made}
    harmless = {name for name in used if not any(what(name, other) for other in used)}
    for one in made:
        if one.application in harmless:
            assert not one.is_alone
            assert one.away_from == ()


def test_groups_have_nodes_by_their_work_and_who_is_harmless_goes_anywhere() -> None:
    plan = ReplayPlan(jobs=(job(1, "a", seconds=300), job(2, "b", seconds=100), job(3, "c", seconds=900)))
    made = {one.application: one for one in decided(plan, target(), danger("ab")).jobs}
    assert (made["a"].away_from, made["b"].away_from) == (("n3",), ("n0", "n1", "n2"))
    assert made["c"].away_from == ()


def test_one_that_is_dangerous_next_to_itself_asks_to_be_alone() -> None:
    plan = ReplayPlan(jobs=(job(1, "a"), job(2, "b")))
    for forced in (True, False):
        where = target(forced=forced)
        alone, other = decided(plan, where, danger("aa")).jobs
        request = submit_request(alone, where, ReplayOptions(), Path("/run"))
        others_request = submit_request(other, where, ReplayOptions(), Path("/run"))
        assert request.memory_per_node_mib == (8000 if forced else None)
        assert request.memory_per_cpu_mib == (None if forced else 100)
        assert request.oversubscribe is False
        assert others_request.oversubscribe is not forced
        assert others_request.memory_per_cpu_mib == 100


def test_nodes_to_keep_away_from_are_passed_to_slurm_with_those_left_out() -> None:
    where = replace(target(2), left_out=("n9",))
    made = decided(ReplayPlan(jobs=(job(1, "a"), job(2, "b"))), where, danger("ab")).jobs
    assert submit_request(made[0], where, ReplayOptions(), Path("/run")).options == ("exclude=n9,n1",)


def test_what_cannot_be_kept_apart_is_reported() -> None:
    plan = ReplayPlan(jobs=(job(1, "a", nodes=2), job(2, "b")))
    apart = keep_apart(plan, target(2), danger("ab", "bb"), memory_counts=False)["main"]
    assert apart.sentence() == "not kept apart here: a and b, b and b"
    apart = keep_apart(plan, target(2), danger("ab"), memory_counts=True)["main"]
    assert apart.sentence() == "b shares with no other"
    apart = keep_apart(plan, target(3), danger("ab"), memory_counts=True)["main"]
    assert apart.sentence() == "a on 2 nodes; b on 1 node"
    assert keep_apart(plan, target(3), danger(), memory_counts=True)["main"].sentence() == (
        "all may share with all"
    )


def test_applications_are_named_by_the_table_or_by_what_rrba_is_asked_for() -> None:
    rrba: dict[str, Any] = {"app": "rrba", "args": ("--app", "lu", "--class", "W", "--steps", "9")}
    plan = ReplayPlan(jobs=(job(1, "a"), job(2, None, **rrba), job(3, None, nodes=2, **rrba)))
    known = ConflictPairs(frozenset({"a", "lu.W", "lu.W.2"}), frozenset())
    assert applications_of(plan, known) == {1: "a", 2: "lu.W", 3: "lu.W.2"}
    for bad, reported in (
        (job(4, "tea"), "job 4 runs, tea"),
        (job(4, None), "a command \\(sleep\\)"),
        (job(4, None, app="rrba", args=("--app", "mg", "--class", "S")), "mg.S"),
        (job(4, None, app="rrba", args=("--app",)), "a command \\(rrba\\)"),
    ):
        with pytest.raises(UsageError, match=reported):
            applications_of(ReplayPlan(jobs=(bad,)), known)


def test_what_was_decided_is_kept_in_the_run_and_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    plan, where = ReplayPlan(jobs=(job(1, "a"), job(2, "b"))), target()
    names = applications_of(plan, danger("ab"))
    apart = keep_apart(plan, where, danger("ab"), memory_counts=True)
    assert read_apart(tmp_path) is None
    write_apart(tmp_path, apart, names)
    read = read_apart(tmp_path)
    assert read == (apart, names)
    assert apply(plan, where, *read) == apply(plan, where, apart, names)
    for text in ("", "{}", '{"apart": 3, "jobs": {}}', "{" * 100_000):
        (tmp_path / PAIRING_NAME).write_text(text)
        with pytest.raises(InputError, match=r"cannot read .*pairing\.json") as found:
            read_apart(tmp_path)
        assert "\n" not in str(found.value)


def test_danger_is_a_loss_above_the_threshold_to_either_of_the_two(tmp_path: Path) -> None:
    table = tmp_path / "pairs.csv"
    table.write_text("victim,opponent,e_v\na,a,0.5\na,b,0.7\nb,a,0.5\nb,b,0.56\n")
    assert danger_of(table, None, 2).pairs == {("a", "b"), ("b", "b")}
    assert danger_of(table, 0.6, 2).pairs == {("a", "b")}
    assert danger_of(table, None, 4).pairs == frozenset()
    assert checked_threshold(None, 4) == pytest.approx(0.8)
    for bad in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="--pairing-threshold"):
            danger_of(table, bad, 2)
    with pytest.raises(UsageError, match="nothing to do"):
        danger_of(table, None, 1)


def test_what_does_not_go_with_pairing_is_one_line() -> None:
    check_pairing((), Path("apps.csv"), None)
    for options, apps, fit, reported in (
        ((), None, None, "--apps"),
        ((), Path("a"), 30.0, "--fit"),
        (("exclude=n1",), Path("a"), None, "exclude"),
        (("nodelist=n1",), Path("a"), None, "nodelist"),
    ):
        with pytest.raises(UsageError, match=reported):
            check_pairing(options, apps, fit)


def test_a_table_of_applications_may_name_them(tmp_path: Path) -> None:
    path = tmp_path / "apps.csv"
    path.write_text("trace_job,app,args,application\n1,sleep,1,lu.W\n2,sleep,2,\n")
    assert read_apps(path) == {1: AppChoice("sleep", ("1",), "lu.W"), 2: AppChoice("sleep", ("2",))}
    path.write_text("trace_job,app,args\n1,sleep,1\n")
    assert read_apps(path) == {1: AppChoice("sleep", ("1",))}
    for text in ("trace_job,app,args,application\n1,sleep,1\n", "trace_job,app,args\n1,sleep,1,x\n"):
        path.write_text(text)
        with pytest.raises(UsageError, match="line 2: not trace_job"):
            read_apps(path)
    path.write_text("trace_job,app,args,name\n")
    with pytest.raises(UsageError, match="must begin with"):
        read_apps(path)
