"""Meters, watches and strays against real processes and files, and what leaks from a held job."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gangd.agent.job_meters import JobMeters, Samples, UsageMeter
from gangd.agent.linux_host import FileWatch, FolderWatch, TimerFd
from gangd.freezer.holder import StepKey
from tests.fixtures.gang_host import SPIN, RealCgroups, cpu_ns, until
from tests.fixtures.gang_simulated import MS, SECOND, SimulatedAgent

Children = list[subprocess.Popen[bytes]]
KEY = StepKey(1, "0")
THREADS = """
import threading
def spin():
    while True:
        pass
for _ in range(2):
    threading.Thread(target=spin).start()
"""

NOBODY = frozenset[int]()


def test_meter_counts_all_threads_and_processes(children: Children) -> None:
    threaded, single = subprocess.Popen([sys.executable, "-c", THREADS]), subprocess.Popen(SPIN)
    children += [threaded, single]
    until(lambda: len(list(Path(f"/proc/{threaded.pid}/task").iterdir())) == 3)
    meter = UsageMeter()
    meter.watch((threaded.pid, single.pid))
    meter.read({})
    before = cpu_ns(threaded.pid) + cpu_ns(single.pid)
    until(lambda: cpu_ns(threaded.pid) + cpu_ns(single.pid) - before > 100_000_000)
    reading = meter.read({})
    used = cpu_ns(threaded.pid) + cpu_ns(single.pid) - before
    assert reading.tasks == 2
    assert abs(reading.cpu_ns - used) < 50_000_000
    meter.close()


def test_meter_sees_the_delay_of_processes_that_wait_for_a_core(children: Children) -> None:
    children += [subprocess.Popen(["taskset", "-c", "0", *SPIN]) for _ in range(2)]
    pids = tuple(child.pid for child in children)
    until(lambda: all(cpu_ns(pid) > 20_000_000 for pid in pids))
    meter = UsageMeter()
    meter.watch(pids)
    first = meter.read({})
    until(lambda: meter.read({}).delay_ns - first.delay_ns > 20_000_000, what="run-queue delay")
    meter.close()


def test_meter_keeps_what_ended_processes_used(children: Children) -> None:
    child = subprocess.Popen(SPIN)
    children.append(child)
    meter = UsageMeter()
    meter.watch((child.pid,))
    meter.read({})
    until(lambda: meter.read({}).cpu_ns > 20_000_000)
    used = meter.read({}).cpu_ns
    child.kill()
    child.wait()
    meter.watch(())
    assert meter.read({}).cpu_ns >= used


def test_meter_prefers_the_accounting_cgroup() -> None:
    meter = UsageMeter()
    meter.watch((os.getpid(),))
    meter.read({"1.0": 1_000})
    assert meter.read({"1.0": 5_000}).cpu_ns == 4_000
    assert meter.read({"1.0": 5_000, "1.1": 700}).cpu_ns == 4_700  # a step born since: all of it counts
    meter.close()


def test_meter_is_not_due_again_at_once() -> None:
    meter = UsageMeter()
    assert meter.due(0)
    meter.read({})
    assert not meter.due(time.monotonic_ns())
    assert meter.due(time.monotonic_ns() + 10**9)


def test_only_time_in_which_a_job_ran_is_its_span() -> None:
    meters = JobMeters()
    meters.track({1: ()}, 0)
    assert meters.sample(1, {"s": 0}, 100_000) == Samples()
    meters.on_held(frozenset({1}), NOBODY, 300_000, {})
    meters.on_held(frozenset(), NOBODY, 900_000, {})
    found = meters.sample(1, {"s": 350_000}, 1_000_000)
    assert found.own is not None
    assert (found.own.cpu_us, found.own.span_us, found.own.held_us) == (350, 300, 0)
    assert found.leftover is None


def test_what_a_job_that_yields_gets_is_distinguished_from_what_is_its_own() -> None:
    meters = JobMeters()
    meters.track({1: ()}, 0)
    meters.on_held(frozenset(), frozenset({1}), 0, {})
    meters.sample(1, {"a": 0, "b": 50_000}, 0)
    meters.on_held(frozenset({1}), frozenset({1}), 200_000, {1: 250_000})  # 200 of its own
    meters.on_held(frozenset(), frozenset({1}), 700_000, {1: 280_000})  # 30 of others' time
    meters.on_held(frozenset({1}), frozenset({1}), 900_000, {1: 470_000})  # 190 of its own
    found = meters.sample(1, {"a": 400_000, "b": 75_000}, 1_000_000)  # and 5 of others'
    assert found.own is not None
    assert found.leftover is not None
    assert (found.own.cpu_us, found.own.span_us, found.own.held_us) == (390, 400, 0)
    assert (found.leftover.cpu_us, found.leftover.span_us, found.leftover.held_us) == (35, 600, 600)
    meters.on_held(frozenset(), frozenset({1}), 1_100_000, {1: 476_000})
    found = meters.sample(1, {"a": 500_000, "b": 75_000}, 1_200_000)
    assert found.own is not None
    assert found.leftover is not None
    assert (found.own.cpu_us, found.leftover.cpu_us) == (99, 1)


def test_what_belongs_to_the_slice_that_runs_is_reported_with_it() -> None:
    meters = JobMeters()
    meters.track({1: ()}, 0)
    both = frozenset({1})
    meters.on_held(frozenset(), both, 0, {})
    meters.sample(1, {"a": 0}, 0)
    meters.on_held(both, both, 200_000, {1: 190_000})
    found = meters.sample(1, {"a": 191_000}, 208_000, 200_000)
    assert found.leftover is None
    assert found.own is not None
    assert (found.own.cpu_us, found.own.span_us) == (190, 200)
    meters.on_held(frozenset(), both, 400_000, {1: 200_000})
    found = meters.sample(1, {"a": 207_000}, 408_000, 400_000)
    assert found.own is None
    assert found.leftover is not None
    assert (found.leftover.cpu_us, found.leftover.span_us) == (10, 200)
    found = meters.sample(1, {"a": 397_000}, 600_000)
    assert found.own is not None
    assert (found.own.cpu_us, found.own.span_us, found.leftover) == (197, 200, None)


def test_without_an_account_what_is_too_much_for_its_own_time_was_left_over() -> None:
    meters = JobMeters()
    meters.track({1: ()}, 0)
    meters.sample(1, {}, 0)
    meters.on_held(frozenset({1}), frozenset({1}), 200_000, {})
    found = meters.sample(1, {}, 1_000_000)
    assert found.own is not None
    assert found.leftover is not None
    assert (found.own.span_us, found.leftover.span_us) == (200, 800)


@pytest.mark.parametrize(("own", "left", "steady"), [(0.6, 0.0, True), (0.4, 0.0, False), (0.0, 0.9, False)])
def test_job_that_yields_is_steady_by_what_it_does_in_its_own_slices(
    own: float, left: float, steady: bool
) -> None:
    meters, both, used_ns = JobMeters(), frozenset({1}), 0
    meters.track({1: ()}, 0)
    meters.on_held(frozenset(), both, 0, {})
    for turn in range(1, 41):
        at_ns, held = turn * 250 * MS, turn % 2 == 0
        used_ns += int((left if held else own) * 250 * MS)
        meters.on_held(frozenset() if held else both, both, at_ns, {1: used_ns})
        meters.sample(1, {"a": used_ns}, at_ns + 8 * MS, at_ns)
    assert meters.is_steady(1, 41 * 250 * MS) is steady
    assert not meters.is_steady(1, SECOND)


def test_what_a_held_job_uses_is_a_leak() -> None:
    meters = JobMeters()
    meters.track({1: ()}, 0)
    meters.sample(1, {"s": 0}, 0)
    meters.on_held(frozenset({1}), NOBODY, 100, {})
    assert meters.leak(1, {"s": 9_000_000}) is None  # not read since its freeze: nothing to compare with
    meters.sample(1, {"s": 10_000_000}, 200)
    assert meters.leak(1, {"s": 10_000_000}) is None
    assert meters.leak(1, {"s": 15_000_000}) == 5_000_000


def test_watch_reports_of_folders_that_come_and_go(tmp_path: Path) -> None:
    watch = FolderWatch()
    assert watch.set_folders([str(tmp_path)])
    assert not watch.changed()
    (tmp_path / "step_0").mkdir()
    assert watch.changed()
    assert not watch.changed()
    assert not watch.set_folders([str(tmp_path), str(tmp_path / "absent")])
    assert watch.set_folders([str(tmp_path), str(tmp_path / "step_0")])
    assert not watch.set_folders([str(tmp_path)])
    assert not watch.changed()  # the end of a watch is our own doing
    (tmp_path / "step_0").rmdir()
    assert watch.changed()
    watch.close()


def test_watch_without_space_for_a_folder_says_so(tmp_path: Path) -> None:
    watch = FolderWatch()
    watch.set_folders([str(tmp_path), str(tmp_path / "gone")])
    assert watch.complete
    (tmp_path / "file").touch()  # it exists, but can't be watched for entries, as when inotify has no room
    watch.set_folders([str(tmp_path), str(tmp_path / "file")])
    assert not watch.complete
    watch.set_folders([str(tmp_path)])
    assert watch.complete
    watch.close()


def test_watch_reports_whose_control_file_was_written(tmp_path: Path) -> None:
    watch = FileWatch()
    control = tmp_path / "freezer.state"
    control.write_text("THAWED")
    assert not watch.set_files({str(control): KEY, str(tmp_path / "absent"): KEY})
    assert watch.written() == set()
    control.write_text("FROZEN")
    assert watch.written() == {KEY}
    assert watch.written() == set()
    assert watch.set_files({})
    control.write_text("THAWED")
    assert watch.written() == set()
    watch.close()


def test_watch_sees_slurms_own_cgroups_come_and_a_stranger_write(real_v1: RealCgroups) -> None:
    job = real_v1.make("slurm_a/uid_0/job_1")
    folders, files = FolderWatch(), FileWatch()
    folders.set_folders([str(job)])
    step = real_v1.make("slurm_a/uid_0/job_1/step_0")
    assert folders.changed()
    files.set_files({str(step / "freezer.state"): KEY})
    (step / "freezer.state").write_text("FROZEN")
    assert files.written() == {KEY}
    (step / "freezer.state").write_text("THAWED")
    step.rmdir()
    assert folders.changed()
    assert files.written() == {KEY}
    folders.close()
    files.close()


def test_alarm_rings_at_its_instant_and_not_before() -> None:
    import select

    alarm = TimerFd()
    instant_ns = time.monotonic_ns() + 20_000_000
    alarm.set(instant_ns)
    assert not alarm.rang()
    select.select([alarm.fd], [], [], 5)
    assert time.monotonic_ns() >= instant_ns
    assert alarm.rang()
    alarm.set(time.monotonic_ns() + 10**12)
    alarm.clear()
    assert select.select([alarm.fd], [], [], 0)[0] == []
    alarm.close()


def test_what_a_job_uses_while_it_is_held_is_reported() -> None:
    step, held_slices = StepKey(1, "0"), 40
    agent = SimulatedAgent(step)
    agent.freezer.members[step] = (2**22 + 1,)
    agent.freezer.used_ns[step] = 0
    agent.join()
    agent.rotate((), *[(1,)] * held_slices)
    agent.run((held_slices + 3) * agent.quantum_ns)  # it has had its slice, and is held again
    assert agent.held() == {1}
    agent.freezer.used_ns[step] += 30 * MS
    agent.run(3 * SECOND)
    leaks = [(leak.job, leak.cpu_us) for report in agent.reports for leak in report.leaks]
    assert leaks == [(1, 30_000)]
