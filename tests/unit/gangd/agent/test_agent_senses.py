"""What an agent observes between its looks and in silence."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.agent.conversation import PROBE_SPREAD_NS, PROBE_STEADY_NS
from gangd.agent.job_meters import JobMeters, Samples, UsageMeter
from gangd.agent.linux_host import FileWatch, FolderWatch, Inotify, TimerFd
from gangd.agent.report_buffer import SAME_SAMPLES, Sender, SliceBook, added_up
from gangd.freezer.holder import StepKey
from gangd.wire.messages import Bounds, Hello, JobSample, Ping, SliceReport
from tests.fixtures.gang_host import SPIN, RealCgroups, cpu_ns
from tests.fixtures.gang_simulated import MS, SECOND, SimulatedAgent, compute, computing_agent
from tests.fixtures.looks import until
from tests.fixtures.tier import examples

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

NO_JOBS = frozenset[int]()


def test_meter_counts_all_threads_and_processes(children: Children) -> None:
    threaded, single = subprocess.Popen([sys.executable, "-c", THREADS]), subprocess.Popen(SPIN)
    children += [threaded, single]
    until(lambda: len(list(Path(f"/proc/{threaded.pid}/task").iterdir())) == 3)
    meter = UsageMeter()
    meter.watch((threaded.pid, single.pid))
    meter.read(None)
    before = cpu_ns(threaded.pid) + cpu_ns(single.pid)
    until(lambda: cpu_ns(threaded.pid) + cpu_ns(single.pid) - before > 100_000_000)
    reading = meter.read(None)
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
    first = meter.read(None)
    until(lambda: meter.read(None).delay_ns - first.delay_ns > 20_000_000, what="run-queue delay")
    meter.close()


def test_meter_keeps_what_ended_processes_used(children: Children) -> None:
    child = subprocess.Popen(SPIN)
    children.append(child)
    meter = UsageMeter()
    meter.watch((child.pid,))
    meter.read(None)
    until(lambda: meter.read(None).cpu_ns > 20_000_000)
    used = meter.read(None).cpu_ns
    child.kill()
    child.wait()
    meter.watch(())
    assert meter.read(None).cpu_ns >= used


def test_meter_prefers_the_accounting_cgroup() -> None:
    meter = UsageMeter()
    meter.watch((os.getpid(),))
    meter.read(0)
    assert (meter.read(4_000).cpu_ns, meter.read(4_700).cpu_ns) == (4_000, 4_700)
    assert meter.read(300).cpu_ns == 4_700  # the job began anew
    assert meter.read(500).cpu_ns == 4_900
    meter.close()


def test_meter_is_not_due_again_at_once() -> None:
    meter = UsageMeter()
    assert meter.due(0)
    meter.read(None)
    assert not meter.due(time.monotonic_ns())
    assert meter.due(time.monotonic_ns() + 10**9)


def test_only_time_in_which_a_job_ran_is_its_span() -> None:
    meters = JobMeters()
    meters.track({1: ()}, 0)
    assert meters.sample(1, 0, 100_000) == Samples()
    meters.on_held(frozenset({1}), NO_JOBS, 300_000, {})
    meters.on_held(frozenset(), NO_JOBS, 900_000, {})
    found = meters.sample(1, 350_000, 1_000_000)
    assert found.own is not None
    assert (found.own.cpu_us, found.own.span_us, found.own.held_us) == (350, 300, 0)
    assert found.leftover is None


def test_what_a_job_that_yields_gets_is_distinguished_from_what_is_its_own() -> None:
    meters = JobMeters()
    meters.track({1: ()}, 0)
    meters.on_held(frozenset(), frozenset({1}), 0, {})
    meters.sample(1, 50_000, 0)
    meters.on_held(frozenset({1}), frozenset({1}), 200_000, {1: 250_000})  # 200 of its own
    meters.on_held(frozenset(), frozenset({1}), 700_000, {1: 280_000})  # 30 of others' time
    meters.on_held(frozenset({1}), frozenset({1}), 900_000, {1: 470_000})  # 190 of its own
    found = meters.sample(1, 475_000, 1_000_000)  # and 5 of others'
    assert found.own is not None
    assert found.leftover is not None
    assert (found.own.cpu_us, found.own.span_us, found.own.held_us) == (390, 400, 0)
    assert (found.leftover.cpu_us, found.leftover.span_us, found.leftover.held_us) == (35, 600, 600)
    meters.on_held(frozenset(), frozenset({1}), 1_100_000, {1: 476_000})
    found = meters.sample(1, 575_000, 1_200_000)
    assert found.own is not None
    assert found.leftover is not None
    assert (found.own.cpu_us, found.leftover.cpu_us) == (99, 1)


def test_what_belongs_to_the_slice_that_runs_is_reported_with_it() -> None:
    meters = JobMeters()
    meters.track({1: ()}, 0)
    both = frozenset({1})
    meters.on_held(frozenset(), both, 0, {})
    meters.sample(1, 0, 0)
    meters.on_held(both, both, 200_000, {1: 190_000})
    found = meters.sample(1, 191_000, 208_000, 200_000)
    assert found.leftover is None
    assert found.own is not None
    assert (found.own.cpu_us, found.own.span_us) == (190, 200)
    meters.on_held(frozenset(), both, 400_000, {1: 200_000})
    found = meters.sample(1, 207_000, 408_000, 400_000)
    assert found.own is None
    assert found.leftover is not None
    assert (found.leftover.cpu_us, found.leftover.span_us) == (10, 200)
    found = meters.sample(1, 397_000, 600_000)
    assert found.own is not None
    assert (found.own.cpu_us, found.own.span_us, found.leftover) == (197, 200, None)


def test_without_an_account_what_is_too_much_for_its_own_time_was_left_over() -> None:
    meters = JobMeters()
    meters.track({1: ()}, 0)
    meters.sample(1, None, 0)
    meters.on_held(frozenset({1}), frozenset({1}), 200_000, {})
    found = meters.sample(1, None, 1_000_000)
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
        meters.sample(1, used_ns, at_ns + 8 * MS, at_ns)
    assert meters.is_steady(1, 41 * 250 * MS) is steady
    assert not meters.is_steady(1, SECOND)


def test_what_a_held_job_uses_is_a_leak() -> None:
    meters = JobMeters()
    meters.track({1: ()}, 0)
    meters.sample(1, 0, 0)
    meters.on_held(frozenset({1}), NO_JOBS, 100, {})
    assert meters.leak(1, 9_000_000) is None  # not read since its freeze: nothing to compare with
    meters.sample(1, 10_000_000, 200)
    assert meters.leak(1, 10_000_000) is None
    assert meters.leak(1, 15_000_000) == 5_000_000


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
    # A file exists, but can't be watched for entries, as when inotify has no free watch.
    (tmp_path / "file").touch()
    watch.set_folders([str(tmp_path), str(tmp_path / "file")])
    assert not watch.complete
    watch.set_folders([str(tmp_path)])
    assert watch.complete
    watch.close()


def test_watch_reports_whose_control_file_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = FileWatch()
    (control := tmp_path / "freezer.state").write_text("THAWED")
    assert watch.set_files({str(control): KEY, str(tmp_path / "absent"): KEY}), "a step may end meanwhile"
    with monkeypatch.context() as patch:
        patch.setattr(Inotify, "add_file", lambda *_: None)  # no free watch
        (tmp_path / "other").touch()
        assert not watch.set_files({str(control): KEY, str(tmp_path / "other"): KEY})
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
    alarm = TimerFd()
    poller = select.poll()  # select.select refuses descriptors above 1023
    poller.register(alarm.fd, select.POLLIN)
    instant_ns = time.monotonic_ns() + 20_000_000
    alarm.set(instant_ns)
    assert not alarm.rang()
    poller.poll(5000)
    assert time.monotonic_ns() >= instant_ns
    assert alarm.rang()
    alarm.set(time.monotonic_ns() + 10**12)
    alarm.clear()
    assert poller.poll(0) == []
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


ONE, TWO = StepKey(1, "0"), StepKey(2, "0")


@pytest.fixture
def hurried() -> SimulatedAgent:
    """An agent whose slices are 50 ms long, five to a look."""
    agent = SimulatedAgent(ONE, TWO)
    # Meters go by the real clock, which is slower than the simulated one: it must not be ahead at first.
    agent.now_ns = (time.monotonic_ns() // SECOND + 2) * SECOND
    agent.zero_ns = agent.controller_ns()
    agent.quantum_ns = 50 * MS
    agent.join()
    return agent


def test_short_slices_are_switched_without_a_look_at_each(hurried: SimulatedAgent) -> None:
    hurried.rotate((1,), (2,), run_ns=4 * SECOND)
    numbers = sorted(hurried.held_in)[1:-1]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert all(hurried.held_in[number] == ({1} if number % 2 == 0 else {2}) for number in numbers)
    reports = [report for report in hurried.reports if report.slices]
    assert 14 <= len(reports) <= 20
    reported = [each for report in reports for each in report.slices]
    assert [each.number for each in reported] == list(range(reported[0].number, reported[-1].number + 1))
    assert all(set(each.held) == hurried.held_in[each.number] for each in reported)


def test_of_short_slices_every_job_is_sampled_in_a_slice_that_it_ran_in(hurried: SimulatedAgent) -> None:
    hurried.freezer.used_ns = {ONE: 0, TWO: 0}
    hurried.rotate((1,), (2,))
    for _ in range(4000):
        number = hurried.node.talk.timeline.slice_at(hurried.controller_ns())
        if number is not None:
            for key in (ONE, TWO):
                hurried.freezer.used_ns[key] += 0 if key in hurried.freezer.frozen else MS
        hurried.run(MS)
    slices = [each for report in hurried.reports for each in report.slices]
    samples = [(each, sample) for each in slices for sample in each.samples]
    assert {sample.job for _, sample in samples} == {1, 2}
    assert all(sample.job not in each.held for each, sample in samples)
    for job in (1, 2):
        mine = [sample for _, sample in samples if sample.job == job][1:]
        assert len(mine) >= 12
        assert all(abs(sample.cpu_us - sample.span_us) <= 2000 for sample in mine)
        # Half of the slices were its own.
        assert 0.4 <= sum(sample.span_us for sample in mine) / (len(mine) * 250_000) <= 0.6


def test_plan_that_comes_between_looks_holds_from_its_first_slice(hurried: SimulatedAgent) -> None:
    hurried.rotate((1,), (2,), run_ns=SECOND)
    hurried.rotate((1,))
    first = hurried.tracks[0].first_slice
    hurried.run(SECOND)
    later = [held for number, held in hurried.held_in.items() if number > first + 1]
    assert later == [] or all(held == {1} for held in later)
    assert hurried.held() == {1}


def test_freeze_cap_holds_between_looks_too() -> None:
    agent = SimulatedAgent(ONE, TWO, bounds=Bounds(120 * MS, 0))
    agent.quantum_ns = 50 * MS
    agent.join()
    agent.rotate((1,))
    longest_ns, since_ns = 0, None
    for _ in range(3000):
        agent.run(MS)
        if agent.held() and since_ns is None:
            since_ns = agent.now_ns
        elif not agent.held():
            since_ns = None
        if since_ns is not None:
            longest_ns = max(longest_ns, agent.now_ns - since_ns)
    assert 0 < longest_ns <= 170 * MS


@pytest.fixture(params=[(), (1, 2)], ids=["freeze", "yield"])
def calm(request: pytest.FixtureRequest) -> SimulatedAgent:
    """An agent of two jobs that compute all the time, on a node where steps don't come or go unnoticed."""
    agent = computing_agent(ONE, TWO, yielding=request.param)
    agent.rotate((1,), (2,))
    compute(agent, 9 * SECOND)
    return agent


def test_node_where_all_goes_on_as_it_has_looks_seldom_and_misses_no_slice(calm: SimulatedAgent) -> None:
    calm.held_in.clear()
    calm.sent.clear()
    assert 11 <= len(compute(calm, 9 * SECOND)) <= 14
    slices = [each for report in calm.reports for each in report.slices]
    numbers = [each.number for each in slices]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(numbers) >= 32
    assert all(held == ({1} if number % 2 == 0 else {2}) for number, held in calm.held_in.items())
    assert {sample.job for each in slices for sample in each.samples} == {1, 2}


@pytest.mark.parametrize("what", ["idle", "new step", "no notices"])
def test_node_where_something_changes_looks_after_each_slice(calm: SimulatedAgent, what: str) -> None:
    idle: tuple[StepKey, ...] = ()
    if what == "idle":
        idle = (ONE,)
    elif what == "new step":
        calm.freezer.steps.add(StepKey(1, "1"))
        calm.node.look(calm.now_ns)
    else:
        calm.node.looks.is_notified = False
    compute(calm, SECOND, *idle)
    assert len(compute(calm, 2 * SECOND, *idle)) in (7, 8, 9)


def test_plan_that_comes_on_a_calm_node_holds_from_its_first_slice(calm: SimulatedAgent) -> None:
    calm.rotate((1,))
    first = calm.tracks[0].first_slice
    calm.held_in.clear()
    compute(calm, 2 * SECOND)
    assert all(held == {1} for number, held in calm.held_in.items() if number >= first)
    assert len(calm.held_in) >= 1


def test_calm_node_that_no_one_looks_for_finds_a_step_all_the_same(calm: SimulatedAgent) -> None:
    late = StepKey(2, "7")
    calm.freezer.steps.add(late)  # and its notice was lost
    compute(calm, 3 * SECOND)
    calm.rotate((2,))
    compute(calm, SECOND)
    assert late in calm.gate.held


def probed_ns(agent: SimulatedAgent, span_ns: int) -> list[int]:
    """When the clock is probed."""
    probed = []
    for _ in range(span_ns // (5 * MS)):
        before = sum(isinstance(message, Ping) for message in agent.sent)
        compute(agent, 5 * MS)
        if sum(isinstance(message, Ping) for message in agent.sent) > before:
            probed.append(agent.now_ns)
    return probed


def test_a_clock_that_keeps_step_is_probed_seldom_and_at_times_of_its_own(calm: SimulatedAgent) -> None:
    calm.sent.clear()
    probed = probed_ns(calm, 30 * SECOND)
    apart = {later - earlier for earlier, later in pairwise(probed)}
    assert len(apart) <= 2, "to a step of the simulation"
    assert PROBE_STEADY_NS <= min(apart) <= max(apart) <= PROBE_STEADY_NS + PROBE_SPREAD_NS + 5 * MS
    assert min(apart) % calm.quantum_ns, "nor at the same place in a slice again and again"
    assert calm.node.talk.offset(calm.now_ns) is not None


def test_a_clock_that_drifts_is_probed_along_with_reports(calm: SimulatedAgent) -> None:
    calm.drift_ppm = 100
    compute(calm, 5 * SECOND)
    calm.sent.clear()
    compute(calm, 9 * SECOND)
    kinds = [type(message).__name__ for message in calm.sent]
    probes = [place for place, kind in enumerate(kinds) if kind == "Ping"]
    assert 5 <= len(probes) <= 9
    assert all(kinds[place + 1] == "Report" for place in probes[:-1])


def test_a_probe_that_is_not_answered_is_repeated_after_a_second(calm: SimulatedAgent) -> None:
    probed_ns(calm, 4 * SECOND)
    calm.answering = False
    probed = probed_ns(calm, 6 * SECOND)
    assert len(probed) >= 3
    assert all(later - earlier <= SECOND + 5 * MS for earlier, later in pairwise(probed))


SENDER = Sender("a", bytes(16), None, 0, 0)


@pytest.fixture(params=[(250, ()), (250, (ONE,)), (1000, ())], ids=["busy", "one idle", "long slices"])
def steady(request: pytest.FixtureRequest) -> tuple[SimulatedAgent, tuple[StepKey, ...]]:
    """Two jobs that have done the same for long, under a lease of 12 s."""
    quantum_ms, idle = request.param
    agent = computing_agent(ONE, TWO, lease_ns=12 * SECOND, quantum_ns=quantum_ms * MS)
    agent.rotate((1,), (2,))
    compute(agent, 30 * SECOND, *idle)
    return agent, idle


def test_without_news_an_agent_reports_twice_in_a_lease_and_leaves_no_slice_out(
    steady: tuple[SimulatedAgent, tuple[StepKey, ...]],
) -> None:
    agent, idle = steady
    agent.sent.clear()
    reported = compute(agent, 60 * SECOND, *idle)
    assert 9 <= len(reported) <= 13
    assert max(later - earlier for earlier, later in pairwise(reported)) < 7 * SECOND
    slices = [each for report in agent.reports for each in report.slices]
    numbers = [each.number for each in slices]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(numbers) * agent.quantum_ns >= 50 * SECOND
    used_us = {job: sum(s.cpu_us for each in slices for s in each.samples if s.job == job) for job in (1, 2)}
    spans_us = {
        job: sum(s.span_us for each in slices for s in each.samples if s.job == job) for job in (1, 2)
    }
    for job in (1, 2):
        assert 22 <= spans_us[job] / 1e6 <= 32
        wanted = 0 if idle and job == 1 else spans_us[job]
        assert abs(used_us[job] - wanted) <= 0.02 * spans_us[job]
    assert all(sum(len(each.samples) for each in report.slices) <= 2 for report in agent.reports)
    assert not [message for message in agent.sent if isinstance(message, Hello)]


def test_job_that_falls_idle_is_reported_at_the_next_look_and_at_those_after_it(
    steady: tuple[SimulatedAgent, tuple[StepKey, ...]],
) -> None:
    agent, idle = steady
    other = () if idle else (ONE,)
    looks_ns = max(agent.quantum_ns, 900 * MS) + agent.quantum_ns
    began_ns = agent.now_ns
    reported = compute(agent, 16 * SECOND, *other)
    assert reported[0] - began_ns <= 2 * looks_ns
    assert len([at_ns for at_ns in reported if at_ns - began_ns <= 10 * SECOND]) >= 6
    received = [sample for report in agent.reports for each in report.slices for sample in each.samples]
    assert any(sample.job == 1 and (sample.cpu_us > 0) is bool(idle) for sample in received[-8:])


def test_job_that_ends_is_reported_at_once(steady: tuple[SimulatedAgent, tuple[StepKey, ...]]) -> None:
    agent, idle = steady
    agent.freezer.steps.discard(ONE)
    agent.sent.clear()
    agent.node.look(agent.now_ns)
    compute(agent, 50 * MS, *idle)
    assert [report.ended for report in agent.reports] == [(1,)]


def test_fault_is_reported_within_a_second(steady: tuple[SimulatedAgent, tuple[StepKey, ...]]) -> None:
    agent, idle = steady
    agent.sent.clear()
    agent.book.on_fault("leak", "a task ran")
    compute(agent, 2 * SECOND, *idle)
    assert any(report.faults for report in agent.reports)


def test_node_without_shared_jobs_is_silent_too() -> None:
    agent = computing_agent(ONE, TWO, lease_ns=12 * SECOND)
    agent.rotate()
    agent.run(5 * SECOND, step_ns=5 * MS)
    agent.sent.clear()
    agent.run(60 * SECOND, step_ns=5 * MS)
    assert 10 <= len(agent.reports) <= 14
    assert not [message for message in agent.sent if isinstance(message, Hello)]


def test_agent_that_hears_nothing_for_a_lease_says_hello() -> None:
    agent = computing_agent(ONE, TWO, lease_ns=6 * SECOND)
    agent.rotate((1,), (2,))
    compute(agent, 3 * SECOND)
    agent.talking, agent.answering = False, False
    agent.sent.clear()
    compute(agent, 4 * SECOND)
    assert not [message for message in agent.sent if isinstance(message, Hello)]
    compute(agent, 6 * SECOND)
    assert [message for message in agent.sent if isinstance(message, Hello)]


def test_what_is_the_same_is_news_no_more_and_what_differs_is() -> None:
    book = SliceBook()
    for place in range(SAME_SAMPLES + 1):
        book.on_sample(JobSample(7, 500_000 + 100 * place, 0, 1_000_000, 1))
        assert book.has_news is (place < SAME_SAMPLES)
    book.on_sample(JobSample(7, 540_000, 0, 1_000_000, 1))
    assert not book.has_news
    book.on_sample(JobSample(7, 0, 0, 0, 1))  # too short to tell
    assert not book.has_news
    book.on_sample(JobSample(7, 320_000, 0, 1_000_000, 1))
    assert book.has_news
    book.on_ended(frozenset({7}))
    assert book.has_urgent()
    book.report(SENDER, 0)
    assert not book.has_news


def test_demand_that_creeps_away_is_news() -> None:
    book = SliceBook()
    for _ in range(SAME_SAMPLES + 1):
        book.on_alone(JobSample(7, 0, 0, 1_000_000, 1))
    crept = []
    for step in range(9):
        book.on_alone(JobSample(7, 10_000 * step, 0, 1_000_000, 1))
        crept.append(book.has_news)
    assert crept.index(True) == 7


SAMPLES = st.lists(st.sets(st.integers(1, 5)), max_size=24)


@examples(100)
@given(SAMPLES, st.integers(0, 2))
def test_what_is_added_up_is_what_was_used(jobs: list[set[int]], apart: int) -> None:
    slices = [
        SliceReport(
            number, 1, 0, 0, 0, (),
            tuple([JobSample(job, 2**number, job, 10, number) for job in sorted(here)]),
        )
        for number, here in enumerate(jobs)
    ]  # fmt: skip
    reported = added_up(slices, apart)
    assert [one.number for one in reported] == [one.number for one in slices]
    for job in range(1, 6):
        before = [sample for one in slices for sample in one.samples if sample.job == job]
        after = [(one.number, sample) for one in reported for sample in one.samples if sample.job == job]
        assert sum(sample.cpu_us for _, sample in after) == sum(sample.cpu_us for sample in before)
        assert sum(sample.span_us for _, sample in after) == sum(sample.span_us for sample in before)
        assert len(after) == min(len(before), 1 + apart)
        assert [sample for _, sample in after][1:] == before[len(before) - len(after) + 1 :]
        assert [number for number, _ in after] == [sample.tasks for sample in before][
            len(before) - len(after) :
        ]
