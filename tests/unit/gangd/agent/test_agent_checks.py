"""An agent's checks: shortage, changes from outside, start."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import HostError
from foundation.files import live_folder
from gangd.agent import linux_host
from gangd.agent.agenda import Agenda, AgendaItem
from gangd.agent.assemble import AgentSettings, report_last_end, serve
from gangd.agent.freeze_verifier import (
    COOL_NS,
    DOUBT_NS,
    DYING_NS,
    RENEWED_NS,
    STOP_NS,
    Act,
    Checks,
    ExternalChangeTracker,
    Next,
    Patience,
    Settling,
    Sighting,
)
from gangd.agent.hold_controller import HoldController, Lease
from gangd.agent.linux_host import FolderWatch
from gangd.agent.process_scan import ProcessScan
from gangd.agent.report_buffer import Sender, SliceBook
from gangd.agent.steps import StepTable
from gangd.agent.switch_thread import SwitchThread
from gangd.agent.telemetry import JsonLog
from gangd.curve_keys import make_keys
from gangd.freezer import cgroup_freezer
from gangd.freezer.cgroup_freezer import CgroupFreezer, open_cgroup
from gangd.freezer.freezer_choice import RecordingFreezer
from gangd.freezer.holder import StepKey, StepState, Traits
from gangd.freezer.procfs import is_slurmstepd
from gangd.freezer.tree import CGROUP1
from gangd.guardian.state_folders import ended_path, make_private, state_path
from gangd.guardian.statefile import StateFile, Word
from gangd.wire.messages import Report
from tests.fixtures.gang_host import FakeV1
from tests.fixtures.gang_simulated import SECOND, SimulatedAgent
from tests.fixtures.no_ledger import NoLedger

KEY = StepKey(1, "0")
MS = 1_000_000
PATIENCE = Patience(patience_ns=100, retries=2)


class StickyFreezer(RecordingFreezer):
    """Stays in FREEZING for a number of freezes."""

    traits = Traits(stops_are_strange=True)
    sticks = 0

    def state(self, key: StepKey) -> StepState:
        state = super().state(key)
        freezes = sum(what == "freeze" for what, _ in self.writes)
        return StepState.FREEZING if state is StepState.FROZEN and 0 < freezes <= self.sticks else state


class Bench:
    """Checks over a recording freezer, with a clock in the test's hand."""

    def __init__(self, freezer: StickyFreezer | None = None) -> None:
        self.freezer = freezer or StickyFreezer([KEY])
        self.now_ns = 0
        self.gate = HoldController(self.freezer, Lease(None), lambda: self.now_ns)
        self.gate.lease.set_until(2**62)
        self.table = StepTable(self.gate)
        self.table.refresh(0)
        self.memory = ExternalChangeTracker()
        self.book = SliceBook()
        self.agenda = Agenda()
        patience = Patience(patience_ns=50 * MS, retries=2)
        self.checks = Checks(self.gate, self.table, self.memory, self.book, self.agenda, patience)

    def pass_time(self, ms: int) -> None:
        """Do what the loop does, millisecond by millisecond."""
        for _ in range(ms):
            self.now_ns += MS
            if self.agenda.may(AgendaItem.SETTLE, self.now_ns):
                self.checks.on_states([KEY], self.now_ns)
                if KEY not in self.checks.stuck_at(self.now_ns):
                    self.gate.apply((KEY,), ())

    def report(self) -> Report:
        return self.book.report(Sender("a", bytes(16), None, 0, 0), 0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_freeze_that_takes_effect_needs_no_second_look(bench: Bench) -> None:
    bench.gate.apply((KEY,), ())
    bench.checks.on_states([KEY], 1)
    assert bench.agenda.at(AgendaItem.SETTLE) is None
    assert bench.report().faults == ()


def test_freeze_that_sticks_once_is_thawed_briefly_and_repeated(bench: Bench) -> None:
    bench.freezer.sticks = 1
    bench.gate.apply((KEY,), ())
    bench.checks.on_states([KEY], 0)
    bench.pass_time(200)
    assert bench.freezer.writes == [("freeze", KEY), ("thaw", KEY), ("freeze", KEY)]
    assert bench.agenda.at(AgendaItem.SETTLE) is None
    assert [(fault.kind, fault.job) for fault in bench.report().faults] == [("freeze_retried", 1)]


def test_freeze_that_always_sticks_is_given_up_for_this_slice(bench: Bench) -> None:
    bench.freezer.sticks = 99
    bench.gate.apply((KEY,), ())
    bench.checks.on_states([KEY], 0)
    bench.pass_time(1_000)
    assert sum(what == "freeze" for what, _ in bench.freezer.writes) == 3
    assert bench.checks.stuck_at(bench.now_ns) == {KEY}
    assert {fault.kind for fault in bench.report().faults} == {"freeze_retried", "freeze_failed"}
    bench.checks.begin_slice()
    assert bench.checks.stuck_at(bench.now_ns) == frozenset()


def test_step_frozen_by_another_user_is_reported(bench: Bench) -> None:
    bench.freezer.frozen.add(KEY)
    bench.checks.on_states([KEY], 1)
    (found,) = bench.report().found
    assert (found.job, found.left, found.found) == (1, "thawed", "froze")
    assert bench.freezer.writes == []


@pytest.mark.parametrize("ends", [False, True])
def test_step_thawed_under_us_is_given_back_and_reported_unless_it_ends(bench: Bench, *, ends: bool) -> None:
    bench.gate.apply((KEY,), ())
    bench.checks.on_states([KEY], 1)
    bench.freezer.frozen.discard(KEY)
    bench.checks.on_states([KEY], 2)
    assert bench.gate.held == {}
    assert bench.report().found == ()  # it may be about to end
    if ends:
        bench.freezer.steps.discard(KEY)
    else:
        bench.freezer.members[KEY] = (4_000_000,)
    bench.table.refresh(3)
    bench.checks.on_states([] if ends else [KEY], 2 + DOUBT_NS)
    found = [(one.left, one.found) for one in bench.report().found]
    assert found == ([] if ends else [("frozen", "thawed")])


def test_signal_that_waits_for_a_held_process_latches_the_job(bench: Bench) -> None:
    child = subprocess.Popen(["sleep", "100"])
    try:
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)  # it has stopped: else SIGTERM would come first
        bench.freezer.members[KEY] = (child.pid,)
        bench.table.refresh(1)
        bench.gate.apply((KEY,), ())
        bench.checks.on_signals([KEY], 2)
        assert bench.memory.dying_at(3) == frozenset()
        child.send_signal(signal.SIGTERM)  # waits: the process is stopped
        deadline = time.monotonic() + 5
        while not bench.memory.dying_at(3) and time.monotonic() < deadline:
            bench.checks.on_signals([KEY], 3)
        assert bench.memory.dying_at(3) == {1}
        assert bench.report().dying == (1,)
    finally:
        child.kill()
        child.wait()


def test_freeze_of_ours_during_a_look_is_not_taken_for_a_strangers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = bench.freezer.state

    def late(key: StepKey) -> StepState:
        monkeypatch.setattr(bench.freezer, "state", plain)
        bench.gate.apply((key,), ())  # the switch thread's, just now
        return plain(key)

    monkeypatch.setattr(bench.freezer, "state", late)
    bench.checks.on_states([KEY], 1)
    assert (bench.memory.external(), bench.report().found) == ({}, ())
    assert KEY in bench.gate.held


class SwitchInBetween(StickyFreezer):
    """The switch thread acts while the loop asks for a state."""

    switch: Callable[[], object] | None = None

    def state(self, key: StepKey) -> StepState:
        state = super().state(key)
        switch, self.switch = self.switch, None
        if switch is not None:
            switch()
        return state


def test_switch_between_looking_and_judging_is_no_external_change() -> None:
    freezer = SwitchInBetween([KEY])
    bench = Bench(freezer)
    bench.gate.apply((KEY,), ())
    freezer.switch = lambda: bench.gate.apply((), (KEY,))
    bench.checks.on_states([KEY], 1)
    freezer.switch = lambda: bench.gate.apply((KEY,), ())
    bench.checks.on_states([KEY], 2)
    assert bench.report().found == ()
    assert not bench.memory.external()


def test_frozen_or_gone_is_done() -> None:
    start = Settling(0)
    assert start.on_state(StepState.FROZEN, 1, PATIENCE) == (start, Next.DONE)
    assert start.on_state(StepState.GONE, 500, PATIENCE) == (start, Next.DONE)


def test_stuck_freeze_is_retried_then_given_up() -> None:
    settling, said = Settling(0), []
    for now in range(0, 500, 50):
        settling, what = settling.on_state(StepState.FREEZING, now, PATIENCE)
        said.append(what)
    wait, retry = Next.WAIT, Next.RETRY
    assert said == [wait, wait, retry, wait, retry, wait, Next.GIVE_UP, *[Next.GIVE_UP] * 3]


def test_looks_soon_at_first_and_then_rarely() -> None:
    settling = Settling(0)
    assert (settling.look_ns(0), settling.look_ns(20_000_000)) == (16_000_000, 40_000_000)
    assert settling.look_ns(80_000_000) == 130_000_000


NO_FILES = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def fail(*_: object, **__: object) -> Any:
    raise NO_FILES


def faults(agent: SimulatedAgent) -> dict[str, set[int | None]]:
    found: dict[str, set[int | None]] = {}
    for report in agent.reports:
        for fault in report.faults:
            found.setdefault(fault.kind, set()).add(fault.job)
    return found


def test_step_that_cannot_be_opened_is_unseen_and_others_are_held(
    fake_v1: FakeV1, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in (1, 2, 3):
        fake_v1.step(job, "0", pids=(5_000_000 + job,))
    freezer = CgroupFreezer(fake_v1.root, CGROUP1, "a", NoLedger())
    monkeypatch.setattr(
        cgroup_freezer, "open_cgroup", lambda *words: fail() if "job_2" in words[2] else open_cgroup(*words)
    )
    assert [step.key.job for step in freezer.adopt(freezer.look())] == [1, 3]
    assert freezer.unseen == {2}
    monkeypatch.undo()
    assert sorted(step.key.job for step in freezer.adopt(freezer.look())) == [1, 2, 3]
    assert freezer.unseen == frozenset()
    freezer.close()


def test_a_few_descriptors_are_left_for_looks(fake_v1: FakeV1, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_v1.step(1, "0")
    freezer = CgroupFreezer(fake_v1.root, CGROUP1, "a", NoLedger())
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    assert freezer.adopt(freezer.look()) == ()
    assert freezer.unseen == {1}
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    freezer.close()


@pytest.fixture
def turning() -> SimulatedAgent:
    """An agent whose two jobs take turns."""
    agent = SimulatedAgent(StepKey(1, "0"), StepKey(2, "0"))
    for key in tuple(agent.freezer.steps):
        agent.freezer.members[key] = (5_000_000 + key.job,)
    agent.join()
    agent.rotate((1,), (2,), run_ns=2 * SECOND)
    return agent


def test_unseen_job_is_reported_and_neither_sampled_nor_ended(turning: SimulatedAgent) -> None:
    agent = turning
    agent.freezer.unseen = frozenset({1})
    agent.sent.clear()
    agent.freezer.steps.discard(StepKey(1, "0"))
    agent.run(3 * SECOND)
    assert faults(agent)["unseen"] == {1}
    assert not {job for report in agent.reports for job in report.ended}
    assert not {one.job for each in agent.reports for part in each.slices for one in part.samples} & {1}


def test_failed_look_is_reported_and_slices_go_on(
    turning: SimulatedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = turning
    monkeypatch.setattr(agent.both, "look", fail)
    agent.run(2 * SECOND)
    agent.sent.clear()  # with what was seen before
    agent.run(3 * SECOND)
    assert faults(agent)["unseen"] == {None}
    assert not {job for report in agent.reports for job in report.ended}
    assert not [one for each in agent.reports for part in each.slices for one in part.samples]
    assert {job for report in agent.reports for part in report.slices for job in part.held} == {1, 2}
    monkeypatch.undo()
    agent.run(2 * SECOND)
    agent.sent.clear()
    agent.run(3 * SECOND)
    assert "unseen" not in faults(agent)
    assert agent.node.looks._meters.unseen == frozenset()


def test_other_errors_of_a_look_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = SimulatedAgent(StepKey(1, "0"))
    error = OSError(errno.EIO, "broken")
    monkeypatch.setattr(agent.both, "look", lambda: (_ for _ in ()).throw(error))
    with pytest.raises(OSError, match="broken"):
        agent.node.look(agent.now_ns)


def test_process_is_not_taken_for_a_task_where_that_cannot_be_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_slurmstepd(1, tmp_path)  # it has ended
    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        is_slurmstepd(1, tmp_path)


def test_census_begins_anew_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agenda = Agenda()
    census = ProcessScan("a", agenda, tmp_path, cpu_clock=lambda: 0)
    monkeypatch.setattr(os, "scandir", fail)
    assert census.walk(frozenset({1000}), 0, stepds=True) is None
    assert agenda.at(AgendaItem.CENSUS) is not None
    monkeypatch.undo()
    assert census.walk(frozenset({1000}), 0, stepds=True) is not None


def test_start_without_inotify_or_threads_says_what_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux_host, "_check", fail)
    with pytest.raises(HostError, match="max_user_instances"):
        FolderWatch()
    monkeypatch.undo()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(HostError, match="limit of processes"):
        SwitchThread(HoldController(RecordingFreezer(), Lease(None)), lambda: None)


NOBODY_ID = 65_534

WATCH = """
import sys
from foundation.errors import HostError
from gangd.agent.linux_host import FolderWatch
try:
    watch = FolderWatch()
except HostError as error:
    print(error)
else:
    watch.set_folders(["/proc/self"])
    print(watch.complete)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_a_user_who_takes_all_of_inotify_takes_nothing_of_roots_agent() -> None:
    taken_read, taken_write = os.pipe()
    over_read, over_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(over_write)
            os.setgroups([])
            os.setgid(NOBODY_ID)
            os.setuid(NOBODY_ID)
            while linux_host._libc.inotify_init1(0) >= 0:
                pass
            os.write(taken_write, str(ctypes.get_errno()).encode())
            os.read(over_read, 1)
        finally:
            os._exit(0)
    try:
        assert int(os.read(taken_read, 8)) == errno.EMFILE
        watch = FolderWatch()
        watch.set_folders(["/proc/self"])
        assert watch.complete
        watch.close()
    finally:
        for fd in (over_write, over_read, taken_read, taken_write):
            os.close(fd)
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("limit", "message"),
    [("max_inotify_instances", "fs.inotify.max_user_instances"), ("max_inotify_watches", "False")],
)
def test_an_agent_whose_own_inotify_budget_is_taken_says_so(limit: str, message: str) -> None:
    script = f'echo 0 > /proc/sys/user/{limit} && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", sys.executable, "-c", WATCH]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        pytest.skip(f"no user namespace with a limit of its own: {done.stderr.strip()}")
    assert message in done.stdout


OUTSIDE_KEY, OTHER = StepKey(1, "batch"), StepKey(1, "0")
FROZEN, FREEZING, THAWED = StepState.FROZEN, StepState.FREEZING, StepState.THAWED


def bit(number: signal.Signals) -> int:
    return 1 << (number - 1)


@pytest.fixture
def memory() -> ExternalChangeTracker:
    return ExternalChangeTracker()


def test_what_is_as_it_was_left_is_nothing_new(memory: ExternalChangeTracker) -> None:
    assert memory.on_state(OUTSIDE_KEY, THAWED, 0, ours=False, settled=False) is None
    assert memory.on_state(OUTSIDE_KEY, FREEZING, 0, ours=True, settled=False) is None
    assert memory.on_state(OUTSIDE_KEY, FROZEN, 0, ours=True, settled=True) is None
    assert memory.external() == {}


def test_frozen_by_another_user_is_theirs_until_they_thaw_it(memory: ExternalChangeTracker) -> None:
    sighting = memory.on_state(OUTSIDE_KEY, FROZEN, 10, ours=False, settled=False)
    assert sighting == Sighting(OUTSIDE_KEY, Act.FROZE, held=False)
    assert memory.on_state(OUTSIDE_KEY, FROZEN, 10**15, ours=False, settled=False) is None
    assert memory.external() == {OUTSIDE_KEY: 10}
    memory.on_state(OUTSIDE_KEY, THAWED, 10**15, ours=False, settled=False)
    assert memory.external() == {}


def test_thawed_under_us_is_noticed_only_once_our_freeze_had_taken_effect(
    memory: ExternalChangeTracker,
) -> None:
    assert memory.on_state(OUTSIDE_KEY, THAWED, 10, ours=True, settled=False) is None
    sighting = memory.on_state(OUTSIDE_KEY, THAWED, 10, ours=True, settled=True)
    assert sighting == Sighting(OUTSIDE_KEY, Act.THAWED, held=True)
    memory.on_state(OUTSIDE_KEY, THAWED, 10 + COOL_NS - 1, ours=False, settled=False)
    assert memory.external() == {OUTSIDE_KEY: 10}
    memory.on_state(OUTSIDE_KEY, THAWED, 10 + COOL_NS, ours=False, settled=False)
    assert memory.external() == {}


def test_second_freeze_on_top_of_ours_makes_it_theirs(memory: ExternalChangeTracker) -> None:
    sighting = memory.on_state(OUTSIDE_KEY, FROZEN, 10, ours=True, settled=True, written=True)
    assert sighting == Sighting(OUTSIDE_KEY, Act.FROZE, held=True)


def test_suspension_is_foreseen_by_its_first_signal(memory: ExternalChangeTracker) -> None:
    sighting = memory.on_signals(OUTSIDE_KEY, bit(signal.SIGTSTP), stopped=False, now_ns=10, ours=True)
    assert sighting == Sighting(OUTSIDE_KEY, Act.STOPPING, held=True)
    memory.on_state(OUTSIDE_KEY, FROZEN, 20, ours=False, settled=False)  # Slurm's freeze, two seconds later
    assert memory.act_of(OUTSIDE_KEY) is Act.FROZE
    memory.on_state(OUTSIDE_KEY, THAWED, 30, ours=False, settled=False)
    assert memory.external() == {}


def test_stop_that_leads_to_nothing_is_forgotten(memory: ExternalChangeTracker) -> None:
    memory.on_signals(OUTSIDE_KEY, 0, stopped=True, now_ns=10, ours=False)
    memory.on_state(OUTSIDE_KEY, THAWED, 10 + STOP_NS, ours=False, settled=False)
    assert memory.external() == {}


def test_what_befell_a_step_ends_with_it(memory: ExternalChangeTracker) -> None:
    memory.on_state(OUTSIDE_KEY, THAWED, 10, ours=True, settled=True)
    memory.on_state(OTHER, FROZEN, 10, ours=False, settled=False)
    memory.forget(frozenset({OUTSIDE_KEY}))
    assert memory.external() == {OTHER: 10}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_deadly_signals_latch_the_job_for_a_while_or_until_the_step_is_gone(
    memory: ExternalChangeTracker, number: signal.Signals
) -> None:
    memory.on_signals(OUTSIDE_KEY, bit(number), stopped=False, now_ns=10, ours=True)
    memory.on_signals(OUTSIDE_KEY, 0, stopped=False, now_ns=11, ours=False)
    assert memory.dying_at(10 + DYING_NS - 1) == {1}
    assert memory.dying_at(10 + DYING_NS) == frozenset()
    memory.on_signals(OUTSIDE_KEY, bit(number), stopped=False, now_ns=20, ours=True)
    assert memory.dying_at(20 + DYING_NS - 1) == {1}
    memory.forget(frozenset({OTHER}))
    assert memory.dying_at(20) == {1}
    memory.forget(frozenset({OUTSIDE_KEY}))
    assert memory.dying_at(20) == frozenset()


def test_other_signals_mean_nothing(memory: ExternalChangeTracker) -> None:
    pending = bit(signal.SIGCHLD) | bit(signal.SIGCONT) | bit(signal.SIGUSR1)
    assert memory.on_signals(OUTSIDE_KEY, pending, stopped=False, now_ns=1, ours=True) is None
    assert memory.dying_at(1) == frozenset()


def test_a_job_is_dying_for_as_long_as_slurm_waits_before_it_kills_and_no_longer() -> None:
    memory = ExternalChangeTracker(kill_wait_ns=2 * DYING_NS)
    for now_ns in range(0, 10 * DYING_NS, DYING_NS // 2):
        key = OTHER if now_ns > DYING_NS else OUTSIDE_KEY
        memory.on_signals(key, bit(signal.SIGTERM), stopped=False, now_ns=now_ns, ours=True)
        assert memory.dying_at(now_ns) == ({1} if now_ns < 2 * DYING_NS else frozenset())
    memory.on_signals(OUTSIDE_KEY, bit(signal.SIGTERM), stopped=False, now_ns=RENEWED_NS, ours=True)
    assert memory.dying_at(RENEWED_NS) == {1}


@pytest.fixture
def left(fake_v1: FakeV1, tmp_path: Path) -> Iterator[Path]:
    """A step that an agent, dead by now, has frozen; its control file."""
    make_private(live_folder(tmp_path / "state"))
    state = StateFile.create(state_path(tmp_path / "state", "a"), "a", str(fake_v1.root))
    step = fake_v1.step(12, "0")
    (step / "freezer.state").write_text("FROZEN")
    slot = state.claim_cgroup(1, "slurm_a/uid_7/job_12/step_0", 12)
    assert slot is not None
    state.hold(slot)
    state.set_word(Word.LEASE_NS, time.monotonic_ns() + 10**12)
    state.set_word(Word.AGENT_START, state.word(Word.AGENT_START) + 1)
    state.close()
    yield step / "freezer.state"
    shutil.rmtree(live_folder(tmp_path / "state"))


def settings(tmp_path: Path, *, dry_run: bool = False) -> AgentSettings:
    make_keys(tmp_path / "keys", ["a"])
    return AgentSettings(
        node="a",
        state_dir=tmp_path / "state",
        keys_dir=tmp_path / "keys",
        controllers=("tcp://127.0.0.1:1,tcp://127.0.0.1:2",),
        freezer="cgroup1",
        root=tmp_path / "absent",  # it gets no further than that
        dry_run=dry_run,
    )


def recorded(tmp_path: Path) -> list[int]:
    state = StateFile.open(state_path(tmp_path / "state", "a"))
    jobs = [held.job for held in state.held()]
    state.close()
    return jobs


def test_record_of_what_cannot_be_thawed_is_kept(left: Path, tmp_path: Path) -> None:
    left.unlink()
    left.mkdir()  # cannot be written
    with pytest.raises(HostError, match="12 were left held"):
        serve(settings(tmp_path))
    assert recorded(tmp_path) == [12]


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_is_left_is_thawed_before_its_record_is_replaced(
    left: Path, tmp_path: Path, *, dry_run: bool
) -> None:
    with pytest.raises(Exception, match="absent"):
        serve(settings(tmp_path, dry_run=dry_run))
    assert left.read_text() == "THAWED"
    assert recorded(tmp_path) == []


@pytest.mark.parametrize(
    ("record", "kinds"),
    [
        (b'{"end": "agent died", "signal": "SIGKILL", "status": null}', ["agent_died"]),
        (b'{"end": "agent died", "signal": null, "status": 1}', ["agent_died"]),
        (b'{"end": "farewell", "signal": null, "status": 0}', []),
        (b'{"end": "agent died"', []),
        (b"[1]", []),
        (b"x" * 5000, []),
        (None, []),
    ],
)
def test_reports_how_the_last_agent_ended(tmp_path: Path, record: bytes | None, kinds: list[str]) -> None:
    path, book = ended_path(tmp_path, "a"), SliceBook()
    if record is not None:
        path.write_bytes(record)
        path.chmod(0o600)
    report_last_end(path, JsonLog(2, "a"), book)
    faults = book.report(Sender("a", bytes(16), None, 0, 0), 0).faults
    assert [fault.kind for fault in faults] == kinds
    assert all(("SIGKILL" in fault.text) == (b"SIGKILL" in (record or b"")) for fault in faults)


def test_record_that_others_could_have_written_is_not_believed(tmp_path: Path) -> None:
    path, book = ended_path(tmp_path, "a"), SliceBook()
    path.write_bytes(b'{"end": "agent died", "signal": "SIGKILL", "status": null}')
    path.chmod(0o666)
    report_last_end(path, JsonLog(2, "a"), book)
    assert not book.has_news
