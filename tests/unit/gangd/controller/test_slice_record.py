"""The record of slices, and CPU hours from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from foundation.errors import InputError, OutputError
from foundation.slurm import JobSnapshot, NodeCores, SlurmJob, SlurmJobState
from gangd.controller.slicefiles import HOUR_NS, NAME, Retention, part_name
from gangd.controller.slicelog import SliceLog, hours_by_job, read_peaks, read_rows, read_slices, summed
from gangd.core.scheduler_events import JobMemory, NodeMemory, NodeReport, SliceRow
from tests.fixtures.cli import Cli
from tests.fixtures.tier import choose

SMALL = Retention(bytes=2_000, age_ns=HOUR_NS, parts=3)
MANY = Retention(bytes=2_000, age_ns=HOUR_NS, parts=10_000)


class Clock:
    def __init__(self) -> None:
        self.now_ns = 5_000_000_000

    def monotonic(self) -> int:
        return self.now_ns

    def wall(self) -> int:
        return self.now_ns + 1_000_000_000_000


def row(number: int) -> SliceRow:
    return SliceRow(number, number * 1_000_000, 250_000_000, 7, "n1", "run", 1500, -3, 40)


def log(folder: Path, retention: Retention, clock: Clock | None = None) -> SliceLog:
    clock = clock or Clock()
    return SliceLog(
        folder, clock.wall() / 1e6, clock.monotonic(), 0o640, retention, clock.monotonic, clock.wall
    )


def numbers(folder: Path) -> list[int]:
    return [record.slice for record in read_slices(folder, 0.0)]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_record_goes_on_in_new_files_and_is_read_as_one(tmp_path: Path) -> None:
    written = log(tmp_path, MANY)
    for number in range(300):
        written.append([row(number)])
    written.flush()
    assert len(files(tmp_path)) > 5
    assert numbers(tmp_path) == list(range(300))
    starts = [record.start_s for record in read_slices(tmp_path, 1000.0)]
    assert starts == pytest.approx([number / 1000 for number in range(300)])
    assert all(path.stat().st_mode & 0o777 == 0o640 for path in tmp_path.iterdir())
    assert written.size_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    written.close()


def test_the_oldest_files_go_and_size_is_bounded(tmp_path: Path) -> None:
    written = log(tmp_path, SMALL)
    for number in range(500):
        written.append([row(number)])
    written.flush()
    assert len(files(tmp_path)) == 4
    kept = numbers(tmp_path)
    assert kept == list(range(kept[0], 500))
    assert written.size_bytes < 4 * 2_200
    written.close()
    again = log(tmp_path, Retention(bytes=2_000, age_ns=HOUR_NS, parts=1))  # fewer are wanted now
    assert len(files(tmp_path)) == 2
    again.close()


def test_age_begins_a_new_file_too_with_the_clock_of_that_time(tmp_path: Path) -> None:
    clock = Clock()
    written = log(tmp_path, Retention(age_ns=HOUR_NS), clock)
    written.append([row(1)])
    clock.now_ns += HOUR_NS
    written.append([row(2)])
    written.close()
    assert files(tmp_path) == [part_name(1), NAME]
    assert numbers(tmp_path) == [1, 2]


def test_a_restart_between_rename_and_new_file_goes_on(tmp_path: Path) -> None:
    written = log(tmp_path, MANY)
    written.append([row(1)])
    written.close()
    (tmp_path / NAME).rename(tmp_path / part_name(7))
    assert numbers(tmp_path) == [1]
    written = log(tmp_path, MANY)
    written.append([row(2)])
    for number in range(3, 100):
        written.append([row(number)])
    written.close()
    assert part_name(8) in files(tmp_path)
    assert numbers(tmp_path) == list(range(1, 100))


def test_what_is_no_part_of_the_record_is_not_read(tmp_path: Path) -> None:
    written = log(tmp_path, MANY)
    written.append([row(1)])
    written.close()
    for name in ("slices.1.jsonl", "slices.00000000011.jsonl", "slices.jsonl.old", "slices.000000000x.jsonl"):
        (tmp_path / name).write_text("{")
    assert numbers(tmp_path) == [1]
    (tmp_path / part_name(3)).symlink_to(tmp_path / NAME)
    with pytest.raises(InputError, match="cannot read"):
        numbers(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no slices"):
        numbers(tmp_path / "empty")


def test_a_full_folder_is_an_error_and_the_record_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = log(tmp_path, MANY)
    real = os.rename

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)

    def fill() -> None:
        for number in range(100):
            written.append([row(number)])

    with pytest.raises(OutputError, match="No space left"):
        fill()
    monkeypatch.setattr(os, "rename", real)
    fill()
    written.close()
    found = numbers(tmp_path)
    assert (found[:10], found[-100:]) == (list(range(10)), list(range(100)))


_WRITER = """
import sys
from pathlib import Path
from gangd.controller.slicefiles import Retention
from gangd.controller.slicelog import SliceLog
from gangd.core.scheduler_events import SliceRow
log = SliceLog(Path(sys.argv[1]), 0.0, 0, 0o600, Retention(bytes=1_000, parts=10_000))
number = int(sys.argv[2])
while True:
    log.append([SliceRow(number, number, 1, 7, "n1", "run", 1, 0, 0)])
    log.flush()
    number += 1
    if number % 50 == 0:
        print(number, flush=True)
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_record_that_reads_and_goes_on(tmp_path: Path) -> None:
    expected, first = 0, 0
    for _ in range(choose(3, 6, 40)):
        child = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path), str(first)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        output = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        found = numbers(tmp_path)
        assert found == list(range(len(found)))
        assert len(found) >= output > expected
        expected = first = len(found)


SECOND_NS = 1_000_000_000


def job(number: int, user: str = "ann", account: str | None = "physics", start_s: int = 10) -> SlurmJob:
    return SlurmJob(
        job_id=number, name="x Nodes=n1\n", user=user, uid=1, partition="shared",
        state=SlurmJobState.RUNNING, reason="None", num_nodes=2,
        cores=(NodeCores("n1", (0, 1)), NodeCores("n2", (0, 1, 2, 3))), start_time=start_s,
        account=account,
    )  # fmt: skip


def cpu_hours_row(
    number: int, job_id: int, role: str, node: str = "n1", cpu_us: int | None = None
) -> SliceRow:
    return SliceRow(number, number * SECOND_NS, SECOND_NS, job_id, node, role, cpu_us, 0, 0)


def cpu_hours_log(folder: Path, **more: object) -> SliceLog:
    return SliceLog(folder, 1_000_000.0, 0, **more)  # type: ignore[arg-type]


def test_slices_are_weighed_by_the_cores_of_the_job_on_the_node(tmp_path: Path) -> None:
    with_jobs = cpu_hours_log(tmp_path)
    with_jobs.know(JobSnapshot((job(1), job(2, "bob"))))
    with_jobs.append(
        [
            cpu_hours_row(0, 1, "run", cpu_us=1_900_000),
            cpu_hours_row(0, 2, "held"),
            cpu_hours_row(0, 1, "run", "n2"),
        ]
    )
    with_jobs.append(
        [
            cpu_hours_row(1, 1, "held"),
            cpu_hours_row(1, 2, "run"),
            cpu_hours_row(2, 1, "idle"),
            cpu_hours_row(2, 2, "free"),
        ]
    )
    with_jobs.close()
    found, unknown = hours_by_job(read_rows(tmp_path, 0.0))
    assert unknown == frozenset()
    assert {one.name: (one.user, one.ran_s, one.held_s) for one in found.values()} == {
        1: ("ann", 2.0 + 4.0 + 2.0, 2.0),
        2: ("bob", 2.0 + 2.0, 2.0),
    }
    assert found[2].held_share == pytest.approx(1 / 3)


def test_what_a_job_that_yields_got_is_not_held(tmp_path: Path) -> None:
    one = cpu_hours_log(tmp_path)
    one.know(JobSnapshot((job(1),)))
    one.append(
        [
            cpu_hours_row(0, 1, "leftover", cpu_us=500_000),
            cpu_hours_row(1, 1, "leftover"),
            cpu_hours_row(2, 1, "leftover", cpu_us=9_000_000),
        ]
    )
    one.close()
    found, _ = hours_by_job(read_rows(tmp_path, 0.0))
    assert (found[1].ran_s, found[1].held_s) == (0.5 + 0.0 + 2.0, 1.5 + 2.0 + 0.0)


def test_jobs_of_which_the_record_says_nothing_are_named_and_not_guessed(tmp_path: Path) -> None:
    one = cpu_hours_log(tmp_path)
    one.know(JobSnapshot((job(1),)))
    one.append([cpu_hours_row(0, 1, "run"), cpu_hours_row(0, 5, "held"), cpu_hours_row(0, 1, "run", "n9")])
    one.close()
    found, unknown = hours_by_job(read_rows(tmp_path, 0.0))
    assert set(found) == {1}
    assert unknown == frozenset({5})


def test_each_file_of_the_record_says_whose_the_jobs_are_and_a_new_run_is_reported_anew(
    tmp_path: Path,
) -> None:
    one = cpu_hours_log(tmp_path, retention=Retention(bytes=1))
    one.know(JobSnapshot((job(1),)))
    for number in range(3):
        one.append([cpu_hours_row(number, 1, "run")])
    one.know(JobSnapshot((job(1, "bob", start_s=99),)))
    one.append([cpu_hours_row(9, 1, "run")])
    one.close()
    assert [whose.user for _, whose in read_rows(tmp_path, 0.0) if whose is not None] == ["ann"] * 3 + ["bob"]


def test_sums_are_by_user_and_account(tmp_path: Path) -> None:
    one = cpu_hours_log(tmp_path)
    one.know(JobSnapshot((job(1), job(2, "bob"), job(3, "ann", None))))
    one.append([cpu_hours_row(0, 1, "held"), cpu_hours_row(0, 2, "run"), cpu_hours_row(0, 3, "held")])
    one.close()
    found, _ = hours_by_job(read_rows(tmp_path, 0.0))
    users = {
        sum_.name: (len(sum_.jobs), sum_.held_s) for sum_ in summed(found.values(), lambda each: each.user)
    }
    assert users == {"ann": (2, 4.0), "bob": (1, 0.0)}
    accounts = {sum_.name: sum_.held_s for sum_ in summed(found.values(), lambda each: each.account)}
    assert accounts == {"physics": 2.0, None: 2.0}


def test_the_command_reports_them(tmp_path: Path, cli: Cli) -> None:
    one = cpu_hours_log(tmp_path)
    one.know(JobSnapshot((job(1, account="x\x1b[2J"), job(2, "bob"))))
    one.append([cpu_hours_row(0, 1, "held"), cpu_hours_row(0, 2, "run")])
    one.close()
    for by in ("job", "user", "account"):
        assert "\x1b[2J" not in "".join(cli("gang", "accounts", "--record", tmp_path, "--by", by))
    result = cli.json("gang", "accounts", "--record", tmp_path, "--json")
    assert [(each["name"], each["held_cpu_h"] * 3600) for each in result["sums"]] == [(1, 2.0), (2, 0.0)]
    words = ("--record", tmp_path, "--by", "account", "--json", "--hours", "1")
    assert cli.json("gang", "accounts", *words)["sums"] == []


def test_peaks_of_ended_jobs_are_recorded_for_predictions(tmp_path: Path) -> None:
    def job(number: int, start_s: int) -> SlurmJob:
        return SlurmJob(
            job_id=number, state=SlurmJobState.RUNNING, partition="p", name="x", user="ann",
            uid=1000, reason="None", num_nodes=2,
            cores=(NodeCores("n1", (0,)), NodeCores("n2", (0,))), start_time=start_s,
        )  # fmt: skip

    def report(node: str, **kib: int) -> NodeReport:
        jobs = tuple(JobMemory(int(name[1:]), 1, peak) for name, peak in kib.items())
        return NodeReport(0, node, memory=NodeMemory(9, jobs=jobs))

    written = log(tmp_path, MANY)
    written.on_report(report("n1", j7=1))  # before Slurm was asked
    written.know(JobSnapshot((job(7, 100), job(8, 100))))
    written.on_report(report("n1", j7=50, j8=5))
    written.on_report(report("n2", j7=30))
    written.on_report(NodeReport(0, "n2"))
    over = replace(job(7, 100), state=SlurmJobState.COMPLETED)  # Slurm lists it with its cores for a while
    written.know(JobSnapshot((over, job(8, 200))))
    written.on_report(report("n1", j7=60))
    written.know(JobSnapshot(()))
    written.append([row(1)])
    written.close()
    assert read_peaks(tmp_path) == {(7, 100): 80, (8, 100): 5}
    assert numbers(tmp_path) == [1], "who reads slices reads on"
