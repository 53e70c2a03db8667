"""Pairs that must not run beside each other: seats on a node that both hold, from a table to be believed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import InputError, TrustError
from foundation.slurm import JobSnapshot, SubmitRequest
from gangd.controller.job_policy import PairRule, Policy, read_pairs
from gangd.controller.slurm_view import ClusterView
from gangd.core import CoreMap, HoldMode, JobView
from tests.fixtures.fake_slurm import FakeSlurm
from tests.fixtures.tier import examples


def request(**more: Any) -> SubmitRequest:
    return SubmitRequest(script="#!/bin/sh\n", name="job", **more)


def labelled(slurm: FakeSlurm, **names: str) -> JobSnapshot:
    """Return the jobs with what operators say that each runs."""
    return JobSnapshot(
        tuple(
            replace(job, admin_comment=f"gangd-app={names[f'j{job.job_id}']}")
            if f"j{job.job_id}" in names
            else job
            for job in slurm.jobs().jobs
        )
    )


def shares(one: JobView, other: JobView) -> bool:
    return bool(set(one.cores.numbers().tolist()) & set(other.cores.numbers().tolist()))


def test_a_dangerous_pair_on_a_node_holds_a_seat_together_and_no_one_else_does() -> None:
    slurm = FakeSlurm(nodes=1, cores=4)
    for _ in range(4):
        slurm.submit(request())
    cores = CoreMap()
    rule = PairRule(frozenset({("a", "b")}))
    view = ClusterView(cores, Policy(hold=HoldMode.YIELD, pairing=rule))
    view.know_nodes(slurm.nodes())
    first, second, third, fourth = view.views(labelled(slurm, j1="a", j2="b", j3="a"))
    assert shares(first, second)
    assert shares(second, third)
    assert not shares(first, third)
    assert not any(shares(fourth, one) for one in (first, second, third))
    assert [one.hold for one in (first, second, third, fourth)] == [*[HoldMode.FREEZE] * 3, HoldMode.YIELD]
    assert cores.unpack(second.cores) == {"n1": [1]}
    again = view.views(labelled(slurm, j1="a", j2="b", j3="a"))
    assert again == (first, second, third, fourth)
    # One is gone: the rest keep their seats, and who is in no danger any more yields again.
    slurm.cancel([3])
    after = {one.job: one for one in view.views(labelled(slurm, j1="a", j2="b", j4="b"))}
    assert shares(after[1], after[2])
    assert shares(after[1], after[4])
    assert not shares(after[2], after[4])
    slurm.cancel([1])
    last = view.views(labelled(slurm, j2="b", j4="b"))
    assert [one.hold for one in last] == [HoldMode.YIELD] * 2
    view.set_policy(Policy(hold=HoldMode.YIELD))
    assert not shares(*view.views(labelled(slurm, j2="b", j4="a")))


@examples(100)
@given(data=st.data())
def test_seats_part_just_the_dangerous_however_jobs_come_and_go(data: st.DataObject) -> None:
    names = "abc"
    pairs = data.draw(st.sets(st.tuples(st.sampled_from(names), st.sampled_from(names))))
    rule = PairRule(frozenset((min(pair), max(pair)) for pair in pairs))
    slurm = FakeSlurm(nodes=2, cores=4)
    cores = CoreMap()
    view = ClusterView(cores, Policy(pairing=rule))
    view.know_nodes(slurm.nodes())
    said: dict[str, str] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        running = [job.job_id for job in slurm.jobs().jobs if job.cores]
        if data.draw(st.booleans()) and running:
            slurm.cancel([data.draw(st.sampled_from(running))])
        else:
            number = slurm.submit(request(nodes=data.draw(st.integers(1, 2))))
            if data.draw(st.booleans()):
                said[f"j{number}"] = data.draw(st.sampled_from(names))
        snapshot = labelled(slurm, **said)
        nodes = {job.job_id: set(job.nodes) for job in snapshot.jobs}
        views = view.views(snapshot)
        for place, one in enumerate(views):
            for other in views[place + 1 :]:
                name, beside = said.get(f"j{one.job}"), said.get(f"j{other.job}")
                harm = name is not None and beside is not None and rule.is_harmful(name, beside)
                assert shares(one, other) == (harm and bool(nodes[one.job] & nodes[other.job]))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ":1: no column victim, opponent, e_v"),
        ("victim,opponent\n", ":1: no column e_v"),
        ("victim,opponent,e_v\na,b,x\n", ":2: e_v"),
        ("victim,opponent,e_v\na,b,nan\n", ":2: e_v"),
        ("victim,opponent,e_v\na\n", ":2: 1 cell"),
        ("victim,opponent,e_v\n" + "a" * 200_000 + ",b,0.1\n", ":2: no CSV"),
        (b"\xff\xfe", "no text in UTF-8"),
    ],
)
def test_a_table_of_pairs_that_is_none_is_one_line(tmp_path: Path, text: str | bytes, told: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=told) as found:
        read_pairs(path, 0.05, by_user=False)
    assert "\n" not in str(found.value)


def test_a_table_of_pairs_is_read_with_its_threshold_and_from_no_one_else(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("victim,opponent,e_v\nb,a,0.2\na,b,0.0\na,a,0.05\n")
    assert read_pairs(path, 0.05, by_user=True) == PairRule(frozenset({("a", "b")}), by_user=True)
    path.chmod(0o666)
    with pytest.raises(TrustError):
        read_pairs(path, 0.05, by_user=True)
    with pytest.raises(InputError, match="cannot read"):
        read_pairs(tmp_path / "none.csv", 0.05, by_user=True)


def test_what_a_job_runs_is_said_once_and_by_operators_unless_users_may() -> None:
    slurm = FakeSlurm()
    slurm.submit(request(comment="gangd-app=a"))
    job = slurm.jobs().jobs[0]
    pairs = frozenset({("a", "b")})
    assert PairRule(pairs).application(job) is None
    assert PairRule(pairs, by_user=True).application(job) == "a"
    assert PairRule(pairs).application(replace(job, admin_comment="x, gangd-app=b")) == "b"
    assert PairRule(pairs).application(replace(job, admin_comment="gangd-app=a gangd-app=b")) is None
    assert PairRule(frozenset(), by_user=True).application(job) is None
