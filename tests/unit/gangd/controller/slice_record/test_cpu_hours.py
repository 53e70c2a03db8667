"""CPU-hours that jobs ran and were held for, from the slice record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from foundation.slurm import JobSnapshot, NodeCores, SlurmJob, SlurmJobState
from gangd.controller.slicefiles import Retention
from gangd.controller.slicelog import SliceLog, hours_by_job, read_rows, summed
from gangd.core import SliceRow
from osub.cli.main import root

SECOND_NS = 1_000_000_000


def job(number: int, user: str = "ann", account: str | None = "physics", start_s: int = 10) -> SlurmJob:
    return SlurmJob(
        job_id=number,
        name="x Nodes=n1\n",
        user=user,
        uid=1,
        partition="shared",
        state=SlurmJobState.RUNNING,
        reason="None",
        num_nodes=2,
        cores=(NodeCores("n1", (0, 1)), NodeCores("n2", (0, 1, 2, 3))),
        start_time=start_s,
        account=account,
    )


def row(number: int, job_id: int, role: str, node: str = "n1", cpu_us: int | None = None) -> SliceRow:
    return SliceRow(number, number * SECOND_NS, SECOND_NS, job_id, node, role, cpu_us, 0, 0)


def log(folder: Path, **more: object) -> SliceLog:
    return SliceLog(folder, 1_000_000.0, 0, **more)  # type: ignore[arg-type]


def test_slices_are_weighed_by_the_cores_of_the_job_on_the_node(tmp_path: Path) -> None:
    with_jobs = log(tmp_path)
    with_jobs.know(JobSnapshot((job(1), job(2, "bob"))))
    with_jobs.append([row(0, 1, "run", cpu_us=1_900_000), row(0, 2, "held"), row(0, 1, "run", "n2")])
    with_jobs.append([row(1, 1, "held"), row(1, 2, "run"), row(2, 1, "idle"), row(2, 2, "free")])
    with_jobs.close()
    found, unknown = hours_by_job(read_rows(tmp_path, 0.0))
    assert unknown == frozenset()
    assert {one.name: (one.user, one.ran_s, one.held_s) for one in found.values()} == {
        1: ("ann", 2.0 + 4.0 + 2.0, 2.0),
        2: ("bob", 2.0 + 2.0, 2.0),
    }
    assert found[2].held_share == pytest.approx(1 / 3)


def test_what_a_job_that_yields_got_is_not_held(tmp_path: Path) -> None:
    one = log(tmp_path)
    one.know(JobSnapshot((job(1),)))
    one.append(
        [
            row(0, 1, "leftover", cpu_us=500_000),
            row(1, 1, "leftover"),
            row(2, 1, "leftover", cpu_us=9_000_000),
        ]
    )
    one.close()
    found, _ = hours_by_job(read_rows(tmp_path, 0.0))
    assert (found[1].ran_s, found[1].held_s) == (0.5 + 0.0 + 2.0, 1.5 + 2.0 + 0.0)


def test_jobs_of_which_the_record_says_nothing_are_named_and_not_guessed(tmp_path: Path) -> None:
    one = log(tmp_path)
    one.know(JobSnapshot((job(1),)))
    one.append([row(0, 1, "run"), row(0, 5, "held"), row(0, 1, "run", "n9")])
    one.close()
    found, unknown = hours_by_job(read_rows(tmp_path, 0.0))
    assert set(found) == {1}
    assert unknown == frozenset({5})


def test_each_file_of_the_record_says_whose_the_jobs_are_and_a_new_run_is_reported_anew(
    tmp_path: Path,
) -> None:
    one = log(tmp_path, retention=Retention(bytes=1))
    one.know(JobSnapshot((job(1),)))
    for number in range(3):
        one.append([row(number, 1, "run")])
    one.know(JobSnapshot((job(1, "bob", start_s=99),)))
    one.append([row(9, 1, "run")])
    one.close()
    assert [whose.user for _, whose in read_rows(tmp_path, 0.0) if whose is not None] == ["ann"] * 3 + ["bob"]


def test_sums_are_by_user_and_account(tmp_path: Path) -> None:
    one = log(tmp_path)
    one.know(JobSnapshot((job(1), job(2, "bob"), job(3, "ann", None))))
    one.append([row(0, 1, "held"), row(0, 2, "run"), row(0, 3, "held")])
    one.close()
    found, _ = hours_by_job(read_rows(tmp_path, 0.0))
    users = {
        sum_.name: (len(sum_.jobs), sum_.held_s) for sum_ in summed(found.values(), lambda each: each.user)
    }
    assert users == {"ann": (2, 4.0), "bob": (1, 0.0)}
    accounts = {sum_.name: sum_.held_s for sum_ in summed(found.values(), lambda each: each.account)}
    assert accounts == {"physics": 2.0, None: 2.0}


def test_the_command_reports_them(tmp_path: Path) -> None:
    one = log(tmp_path)
    one.know(JobSnapshot((job(1, account="x\x1b[2J"), job(2, "bob"))))
    one.append([row(0, 1, "held"), row(0, 2, "run")])
    one.close()
    for by in ("job", "user", "account"):
        words = ["gang", "accounts", "--record", str(tmp_path), "--by", by]
        shown = CliRunner().invoke(root, words)
        assert shown.exit_code == 0, shown.output
        assert "\x1b[2J" not in shown.output
    told = json.loads(
        CliRunner().invoke(root, ["gang", "accounts", "--record", str(tmp_path), "--json"]).stdout
    )
    assert [(each["name"], each["held_cpu_h"] * 3600) for each in told["sums"]] == [(1, 2.0), (2, 0.0)]
    none = CliRunner().invoke(root, [*words, "--json", "--hours", "1"])
    assert none.exit_code == 0, none.output
    assert json.loads(none.stdout)["sums"] == []
