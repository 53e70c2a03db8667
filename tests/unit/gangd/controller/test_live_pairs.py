"""Pairs that the controller learns: state that survives, names that users write, what is off by default."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from foundation.slurm import JobSnapshot, SlurmJob, SubmitRequest
from gangd.controller.controller_config import Config
from gangd.controller.job_policy import PairRule, Policy, policy_of
from gangd.controller.live_pairs import LivePairs
from gangd.controller.slurm_view import ClusterView
from gangd.controller.state_directory import PAIRS_NAME, PAIRS_TABLE, StateDirectory
from gangd.core.cores import CoreMap
from gangd.core.scheduler_events import CpuSample, JobView, NodeReport
from simulator.pairing import read_pair_table
from tests.fixtures.fake_slurm import FakeSlurm

RULE = PairRule(word="name", learns=True, threshold=0.1, explore=0.0)


def running(count: int) -> tuple[SlurmJob, ...]:
    slurm = FakeSlurm(nodes=1, cores=count)
    for _ in range(count):
        slurm.submit(SubmitRequest(script="#!/bin/sh\n", name="job"))
    return tuple(sorted(slurm.jobs().jobs, key=lambda job: job.job_id))


LU, CHASE, SLEEP = (
    replace(job, name=name, user=user)
    for job, name, user in zip(running(3), ("lu", "chase", "sleep"), ("ann", "bob", "bob"), strict=True)
)


def run(pairs: LivePairs, job: SlurmJob, cpu_s: float, *others: SlurmJob) -> None:
    """Let a job begin, use CPU time while others run, and end well."""
    pairs.see(JobSnapshot(others), frozenset())
    pairs.see(JobSnapshot((job, *others)), frozenset())
    used = [CpuSample(one.job_id, round(cpu_s * 1e6), 0, round(cpu_s * 1e6), 1) for one in (job, *others)]
    pairs.report(NodeReport(0, job.nodes[0], alone=tuple(used)))
    pairs.see(JobSnapshot(others), frozenset((job.job_id,)))


def teach(pairs: LivePairs) -> None:
    """A lu takes twice the CPU time when a chase runs, and no more when a sleep does."""
    for number in range(12):
        run(pairs, LU, 20.0 + 0.01 * number)
        run(pairs, LU, 40.0, CHASE)
        run(pairs, LU, 20.0, SLEEP)
        run(pairs, SLEEP, 5.0)
        run(pairs, SLEEP, 5.0, LU)
        run(pairs, CHASE, 5.0)


def shares(one: JobView, other: JobView) -> bool:
    return bool(set(one.cores.numbers().tolist()) & set(other.cores.numbers().tolist()))


def test_a_pair_that_was_learnt_holds_a_seat_and_a_restart_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = StateDirectory(tmp_path / "s")
    pairs = LivePairs(keeper)
    view = ClusterView(CoreMap({"n1": 3}), Policy(pairing=RULE))
    view.seats.learner = pairs.follow(RULE)
    before = view.views(JobSnapshot((LU, CHASE, SLEEP)))
    assert not any(shares(before[0], other) for other in before[1:])
    teach(pairs)
    lu, chase, sleep = view.views(JobSnapshot((LU, CHASE, SLEEP)))
    assert shares(lu, chase), "what was learnt counts for jobs that run already"
    assert not shares(lu, sleep)
    assert not shares(chase, sleep)
    with caplog.at_level(logging.INFO, "gangd"):
        pairs.save()
        pairs.save()
    assert [record.getMessage() for record in caplog.records if "alternate" in record.getMessage()] == [
        next(record.getMessage() for record in caplog.records)
    ]
    assert "lu of ann on 1 cores loses 50%" in caplog.text
    assert "to bob:chase" in caplog.text
    keeper.close()
    keeper = StateDirectory(tmp_path / "s")
    again = ClusterView(CoreMap({"n1": 3}), Policy(pairing=RULE))
    again.seats.learner = LivePairs(keeper).follow(RULE)
    lu, chase, sleep = again.views(JobSnapshot((LU, CHASE, SLEEP)))
    assert (shares(lu, chase), shares(lu, sleep)) == (True, False)
    assert keeper.damaged is None
    # The table is one for placements, and for gangd's own option.
    table = read_pair_table(tmp_path / "s" / PAIRS_TABLE)
    losses = dict(zip(table.applications, table.loss[table.applications.index("lu")], strict=True))
    assert losses["chase"] == pytest.approx(0.5, abs=0.02)
    assert losses["sleep"] == pytest.approx(0.0, abs=0.02)
    (tmp_path / "s" / PAIRS_TABLE).chmod(0o600)
    fixed = policy_of(Config(pairing=tmp_path / "s" / PAIRS_TABLE, pairing_threshold=0.1)).pairing
    assert fixed.pairs == {("chase", "lu")}
    # Off again: the table decides, and what was learnt is kept.
    assert pairs.follow(PairRule(word="name")) is None
    keeper.close()
    assert len(json.loads((tmp_path / "s" / PAIRS_NAME).read_bytes())["victims"]) == 3


@pytest.mark.parametrize(
    "content",
    [
        b"{ torn",
        b"",
        b"[]",
        b"\xff",
        b'{"version": 2, "seed": 1}',
        b'{"version": 1}',
        b'{"version": 1, "seed": 1, "victims": [{"user": "a"}]}',
        (
            b'{"version": 1, "seed": 1, "victims": [{"user": "a", "application": "b", "cores": 1, '
            b'"opponents": ["c"], "gram": [1, 0], "response": [1, 1], "square": 1}]}'
        ),
        (
            b'{"version": 1, "seed": 1, "victims": [{"user": "a", "application": "b", "cores": 1, '
            b'"opponents": [], "gram": [1e999], "response": [1], "square": 1}]}'
        ),
    ],
)
def test_damaged_pairs_are_kept_aside_with_an_alarm(tmp_path: Path, content: bytes) -> None:
    StateDirectory(tmp_path).close()
    (tmp_path / PAIRS_NAME).write_bytes(content)
    (tmp_path / PAIRS_NAME).chmod(0o600)
    keeper = StateDirectory(tmp_path)
    pairs = LivePairs(keeper)
    learner = pairs.follow(RULE)
    assert learner is not None
    assert learner.state() == []
    aside = tmp_path / "pairs.damaged-1.json"
    assert aside.read_bytes() == content
    assert "learnt anew" in (keeper.damaged or "")
    teach(pairs)
    pairs.save()
    keeper.close()
    later = StateDirectory(tmp_path)
    assert str(aside) in (later.damaged or ""), "the alarm stays until the file is removed"
    aside.unlink()
    assert later.damaged is None
    later.close()


def test_pairs_that_another_user_could_have_written_are_kept_aside(tmp_path: Path) -> None:
    keeper = StateDirectory(tmp_path)
    keeper.write_pairs(b'{"version": 1, "seed": 7}', "")
    (tmp_path / PAIRS_NAME).chmod(0o666)
    learner = LivePairs(keeper).follow(RULE)
    assert learner is not None
    assert learner.seed != 7
    assert "pairs.damaged-1.json" in (keeper.damaged or "")
    (tmp_path / PAIRS_NAME).symlink_to("/dev/zero")
    assert LivePairs(keeper).follow(RULE) is not None
    keeper.close()


@pytest.mark.parametrize(
    "name", [None, "", "a,b", "a\nb", 'a"b', "a b", "a:b", "../x", "=SUM(A1)", "é", "x" * 65, "\x1b[2J"]
)
def test_names_that_no_table_can_hold_are_not_learnt_and_run_together(name: str | None) -> None:
    assert RULE.paired(replace(LU, name=name)) is None
    assert replace(RULE, word="comment").paired(replace(LU, comment=f"gangd-app={name}", user="a,b")) is None
    view = ClusterView(CoreMap({"n1": 3}), Policy(pairing=RULE))
    one, other = view.views(JobSnapshot((replace(LU, name=name), CHASE)))
    assert not shares(one, other)


def test_a_name_that_users_write_has_its_user_in_it() -> None:
    said = replace(LU, comment="gangd-app=x", admin_comment="gangd-app=y")
    rules = (replace(RULE, word="admin_comment"), replace(RULE, word="comment"), RULE)
    called = [paired.opponent for rule in rules if (paired := rule.paired(said)) is not None]
    assert called == ["y", "ann:x", "ann:lu"]


def test_nothing_is_learnt_unless_the_configuration_says_so(tmp_path: Path) -> None:
    keeper = StateDirectory(tmp_path)
    pairs = LivePairs(keeper)
    assert pairs.follow(policy_of(Config()).pairing) is None
    teach(pairs)
    pairs.save()
    assert not (tmp_path / PAIRS_NAME).exists()
    keeper.close()
    assert Config(pairing_learn=True).may_freeze("all")
    assert policy_of(Config(pairing_learn=True, pairing_explore=0.2)).pairing.explore == 0.2
