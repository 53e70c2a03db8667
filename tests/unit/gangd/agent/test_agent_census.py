from __future__ import annotations

import os
from pathlib import Path

import pytest

from gangd.agent.agenda import Agenda, AgendaItem
from gangd.agent.process_scan import PIECE_NS, REST_SHARE, ROUND_NS, ProcessScan, UnseenSteps
from gangd.freezer.holder import StepKey

USER = 1500
KEY = StepKey(12, "0")


def process(proc: Path, pid: int, cgroup: str, *, uid: int = 0, comm: str = "app", line: str = "app") -> None:
    """Make a process in a folder of the shape of /proc."""
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(f"{pid} ({comm}) S 1 1 1 " + "0 " * 15 + "77 0 0")
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "cmdline").write_text(line.replace(" ", "\0"))
    (folder / "cgroup").write_text(cgroup)
    if comm == "slurmstepd":
        (proc / "slurmstepd").touch()
        (folder / "exe").symlink_to(proc / "slurmstepd")
    if uid:
        os.chown(folder, uid, uid)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make folders of another user")
@pytest.mark.parametrize(
    "job",
    [
        "1:freezer:/slurm_a/uid_1500/job_5/step_0\n",
        "0::/system.slice/a_slurmstepd.scope/job_5/step_0/user/task_0\n",
        "0::/system.slice/a_slurmstepd.scope/sEKNK5D2BV4300/step_0/user/task_0\n",
    ],
)
def test_stray_is_a_process_of_a_job_user_outside_every_job(tmp_path: Path, job: str) -> None:
    process(tmp_path, 10, job, uid=USER)
    process(tmp_path, 11, "0::/user.slice\n", uid=USER)
    process(tmp_path, 12, "0::/user.slice\n", uid=USER + 1)
    found = ProcessScan("a", Agenda(), tmp_path).walk(frozenset({USER, 0}), 0, stepds=False)
    assert found is not None
    assert found.strays == {USER: [11]}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make folders of another user")
def test_process_whose_first_thread_has_ended_is_where_its_other_threads_are(tmp_path: Path) -> None:
    """The kernel shows a thread that has ended in no cgroup."""
    for pid, job in ((10, "1:freezer:/slurm_a/uid_1500/job_5/step_0\n"), (20, "1:freezer:/user\n")):
        process(tmp_path, pid, "1:freezer:/\n", uid=USER)
        stat = f"{pid} (munged) Z 1 1 1 " + "0 " * 13 + "2 0 77 0 0"
        (tmp_path / str(pid) / "stat").write_text(stat)
        for tid, cgroup in ((pid, "1:freezer:/\n"), (pid + 1, job)):
            (tmp_path / f"{pid}/task/{tid}").mkdir(parents=True)
            (tmp_path / f"{pid}/task/{tid}/cgroup").write_text(cgroup)
    found = ProcessScan("a", Agenda(), tmp_path).walk(frozenset({USER}), 0, stepds=False)
    assert found is not None
    assert found.strays == {USER: [20]}


def test_walk_takes_little_time_at_once_and_rests_in_between(tmp_path: Path) -> None:
    for pid in range(100):
        process(tmp_path, pid, "0::/\n")
    now_ns = cpu_ns = pieces = 0

    def clock() -> int:
        nonlocal cpu_ns
        cpu_ns += 200_000  # a look at eight processes
        return cpu_ns

    agenda = Agenda()
    census = ProcessScan("a", agenda, tmp_path, clock)
    while True:
        before_ns = cpu_ns
        found = census.walk(frozenset({USER}), now_ns, stepds=True)
        pieces += 1
        assert cpu_ns - before_ns <= PIECE_NS + 800_000
        next_ns = agenda.at(AgendaItem.CENSUS)
        assert next_ns is not None
        assert next_ns - now_ns >= REST_SHARE * 200_000
        if found is not None:
            break
        now_ns = next_ns
    assert pieces > 1
    assert next_ns >= ROUND_NS


def test_finds_the_slurmstepds_of_its_own_node(tmp_path: Path) -> None:
    for pid, cgroup, step in (
        (10, "0::/system.slice/a_slurmstepd.scope/sEKNK5D2BV4300/step_0/slurm\n", "12.0"),
        (11, "4:freezer:/slurm_a/uid_1/job_13\n0::/\n", "13.batch"),
        (12, "0::/system.slice/b_slurmstepd.scope/job_14/step_0/slurm\n", "14.0"),
        (13, "0::/system.slice/slurmstepd.scope/job_15/step_0/slurm\n", "15.0"),
    ):
        process(tmp_path, pid, cgroup, comm="slurmstepd", line=f"slurmstepd: [{step}]")
    process(tmp_path, 14, "0::/\n", line="slurmstepd: [16.0]")  # who only says so
    found = ProcessScan("a", Agenda(), tmp_path).walk(frozenset(), 0, stepds=True)
    assert found is not None
    assert found.stepds == {KEY: 10, StepKey(13, "batch"): 11, StepKey(15, "0"): 13}


def test_slurmstepd_whose_tasks_have_yet_to_begin_or_have_ended_is_not_counted(tmp_path: Path) -> None:
    process(tmp_path, 9, "0::/\n", comm="slurmstepd", line="slurmstepd")  # a task to be
    process(tmp_path, 8, "0::/\n", comm="sh", line="sh")
    for pid, job, children in ((10, 12, "9 "), (11, 13, ""), (13, 14, "9 8 ")):
        process(tmp_path, pid, "0::/\n", comm="slurmstepd", line=f"slurmstepd: [{job}.0]")
        listed = tmp_path / str(pid) / "task" / str(pid) / "children"
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text(children)
    found = ProcessScan("a", Agenda(), tmp_path).walk(frozenset(), 0, stepds=True)
    assert found is not None
    assert found.stepds == {StepKey(14, "0"): 13}


def test_nothing_is_looked_at_if_no_one_asks(tmp_path: Path) -> None:
    agenda = Agenda()
    census = ProcessScan("a", agenda, tmp_path / "absent")
    assert census.walk(frozenset({0}), 0, stepds=False) is not None
    assert agenda.at(AgendaItem.CENSUS) == ROUND_NS


def told(unseen: UnseenSteps, stepds: dict[StepKey, int], named: set[int], found: set[int]) -> set[StepKey]:
    return set(unseen.judge(unseen.jobs(named, found), stepds))


def test_job_that_runs_and_has_no_step_anywhere_is_reported() -> None:
    unseen = UnseenSteps()
    assert told(unseen, {KEY: 10}, {12}, set()) == set()  # it may just begin
    assert told(unseen, {KEY: 10}, {12}, set()) == {KEY}
    assert told(unseen, {KEY: 10}, {12}, set()) == {KEY}
    assert told(unseen, {KEY: 11}, {12}, set()) == set()  # another


def test_job_whose_step_was_found_once_or_that_is_no_ones_concern_is_not_reported() -> None:
    unseen = UnseenSteps()
    told(unseen, {KEY: 10}, {12}, {12})
    for _ in range(3):  # its step ends, slurmstepd cleans up
        assert told(unseen, {KEY: 10}, {12}, set()) == set()
    for _ in range(3):  # not in the schedule
        assert told(unseen, {KEY: 10}, set(), set()) == set()
    for _ in range(3):  # no slurmstepd: an allocation in which nothing runs
        assert told(unseen, {}, {12}, set()) == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make folders of another user")
@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/user.slice/user-1500.slice/user@1500.service/slurmstepd.scope/job_5/step_0/user/task_0\n",
        "0::/user.slice/user-1500.slice/user@1500.service/job_5/step_0\n",
        "1:name=systemd:/user.slice/job_5\n0::/\n",
    ],
)
def test_a_cgroup_that_a_user_made_hides_no_stray(tmp_path: Path, cgroup: str) -> None:
    process(tmp_path, 10, cgroup, uid=USER)
    found = ProcessScan("a", Agenda(), tmp_path).walk(frozenset({USER}), 0, stepds=False)
    assert found is not None
    assert found.strays == {USER: [10]}


def test_a_slurmstepd_whose_title_reports_no_step_is_reported(tmp_path: Path) -> None:
    cgroup = "0::/system.slice/slurmstepd.scope/job_15/step_0/slurm\n"
    for pid, line in (
        (10, "slurmstepd: [sEKNK5D2BV4300.0]"),
        (11, "/usr/sbin/slurmstepd infinity"),
        (12, "/usr/sbin/slurmstepd-wlm"),
        (13, "slurmstepd: [12.0:namespace]"),
        (14, "slurmstepd: [12.0]"),
    ):
        process(tmp_path, pid, cgroup, comm="slurmstepd", line=line)
    found = ProcessScan("a", Agenda(), tmp_path).walk(frozenset(), 0, stepds=True)
    assert found is not None
    assert found.unread == {10: "slurmstepd: [sEKNK5D2BV4300.0]"}
    assert found.stepds == {KEY: 14}


def test_what_cannot_be_recognised_is_reported_when_it_lasts() -> None:
    unseen = UnseenSteps()
    assert unseen.lasting({"x": "x is odd"}) == {}
    assert unseen.lasting({"x": "x is odd", "y": "y is odd"}) == {"x": "x is odd"}
    assert unseen.lasting({}) == {}
    assert unseen.lasting({"x": "x is odd"}) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make folders of another user")
def test_where_users_log_in_what_they_run_is_no_stray(tmp_path: Path) -> None:
    process(tmp_path, 10, "0::/user.slice\n", uid=USER)
    found = ProcessScan("a", Agenda(), tmp_path, finds_strays=False).walk(frozenset({USER}), 0, stepds=False)
    assert found is not None
    assert not found.strays
