"""Real guardian processes beside a small program that freezes as the agent does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from foundation.errors import HostError
from gangd.freezer.procfs import read_stat
from gangd.guardian.guardian_process import exit_status
from gangd.guardian.spawn import Guardian
from gangd.guardian.statefile import StateFile, Word
from tests.fixtures.gang_host import SPIN, TICK, RealCgroups, runs, stands, until

pytestmark = pytest.mark.slow
PROGRAM = """
import os, sys, time
from pathlib import Path
from gangd.freezer.cgroup_freezer import CgroupFreezer
from gangd.freezer.tree import CGROUP1
from gangd.guardian.spawn import Guardian
from gangd.guardian.statefile import StateFile, Word
root, path, lease_s = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
state = StateFile.create(path, "a", str(root), ended=str(path.with_suffix(".ended")))
guardian = Guardian.start(state)
freezer = CgroupFreezer(root, CGROUP1, "a", state)
steps = freezer.adopt(freezer.look())
state.set_word(Word.LEASE_NS, time.monotonic_ns() + int(lease_s * 1e9))
for step in steps:
    freezer.hold(step.key)
print("frozen", flush=True)
for line in sys.stdin:
    if line == "leave\\n":
        for step in steps:
            freezer.release(step.key)
        guardian.farewell()
        break
    if line == "freeze\\n":  # as an agent that woke up between its check and its write
        for step in steps:
            freezer.disown(step.key)
            freezer.hold(step.key)
        print("frozen", flush=True)
"""

Start = Callable[[float], "Program"]


class Program:
    """A running ``PROGRAM`` with one held spinner."""

    def __init__(self, cgroups: RealCgroups, folder: Path, lease_s: float) -> None:
        step = cgroups.make("slurm_a/uid_0/job_12/step_0")
        self.spinner = cgroups.spawn(step, TICK)
        self.step = step
        self.path = folder / "agent-a.state"
        words = [str(cgroups.root), str(self.path), str(lease_s)]
        self.child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == "frozen\n"
        self.state = StateFile.open(self.path)

    def say(self, word: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(word + "\n")
        self.child.stdin.flush()

    @property
    def guardian_pid(self) -> int:
        return self.state.word(Word.GUARDIAN_PID)

    def thawed(self) -> bool:
        return (self.step / "freezer.state").read_text() == "THAWED\n"

    def end(self) -> None:
        self.child.send_signal(signal.SIGCONT)
        self.child.kill()
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout):
            assert stream is not None
            stream.close()
        until(lambda: not _alive(self.guardian_pid), what="end of the guardian")
        self.state.close()


def _alive(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.alive and stat.comm == "gang-guardian"


@pytest.fixture
def start(real_v1: RealCgroups, tmp_path: Path) -> Iterator[Start]:
    started: list[Program] = []

    def make(lease_s: float) -> Program:
        started.append(Program(real_v1, tmp_path, lease_s))
        return started[-1]

    yield make
    for program in started:
        program.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT])
def test_thaws_when_the_agent_dies(start: Start, number: signal.Signals) -> None:
    program = start(60)
    until(lambda: stands(program.spinner), what="the held job")
    program.child.send_signal(number)
    until(program.thawed, 1.0, what="thaw by the guardian")
    assert runs(program.spinner)
    until(lambda: list(program.state.held()) == [], what="emptied state file")
    ended = record_of(program)
    assert (ended["end"], ended["signal"], ended["status"]) == ("agent died", number.name, None)
    assert (ended["node"], ended["pid"]) == ("a", program.child.pid)


def test_records_the_status_of_an_agent_that_took_leave(start: Start) -> None:
    program = start(60)
    program.say("leave")
    ended = record_of(program)
    assert (ended["end"], ended["signal"], ended["status"]) == ("farewell", None, 0)


def record_of(program: Program) -> dict[str, object]:
    """How the agent ended, as its guardian has recorded it."""
    path = program.path.with_suffix(".ended")
    until(path.exists, 60, "record of the end")
    return cast("dict[str, object]", json.loads(path.read_text()))


@pytest.mark.parametrize("waited", [False, True], ids=["not waited for", "waited for"])
def test_wait_status_of_a_process_that_is_no_child_of_the_guardian(waited: bool) -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(3)"])
    pidfd = os.pidfd_open(child.pid)
    if waited:
        child.wait()
    status = exit_status(child.pid, pidfd, 60.0)
    child.wait()
    os.close(pidfd)
    assert status == 3 << 8 or (waited and status is None)  # Linux before 6.15 forgets it


def test_guardian_runs_before_all_others(start: Start) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root for a real-time priority")
    deadline = 6
    assert os.sched_getscheduler(start(60).guardian_pid) in (deadline, os.SCHED_FIFO, os.SCHED_OTHER)


def test_kill_of_the_agents_process_group_spares_it(start: Start) -> None:
    program = start(60)
    assert os.getpgid(program.guardian_pid) != os.getpgid(program.child.pid)
    assert os.getsid(program.guardian_pid) != os.getsid(program.child.pid)
    stat = read_stat(program.guardian_pid)
    assert stat is not None
    assert stat.parent != program.child.pid


def test_thaws_when_the_lease_ends_while_the_agent_is_stopped(start: Start) -> None:
    program = start(0.4)
    program.child.send_signal(signal.SIGSTOP)
    assert not program.thawed()
    until(program.thawed, 2.0, what="thaw at the end of the lease")
    assert runs(program.spinner)


def test_lease_that_is_renewed_does_not_trip(start: Start) -> None:
    program = start(0.3)
    until_ns = time.monotonic_ns() + 1_000_000_000
    while time.monotonic_ns() < until_ns:
        program.state.set_word(Word.LEASE_NS, time.monotonic_ns() + 300_000_000)
        time.sleep(0.05)
    assert not program.thawed()
    assert program.state.word(Word.GUARDIAN_TRIPS) == 0


def test_thaws_again_what_a_late_agent_freezes_after_the_lease(start: Start) -> None:
    program = start(0.2)
    until(program.thawed, 2.0, what="thaw at the end of the lease")
    program.say("freeze")
    until(lambda: program.state.word(Word.GUARDIAN_TRIPS) >= 2, 2.0, what="second trip")
    until(program.thawed, 2.0, what="second thaw")


def test_leaves_quietly_after_a_farewell(start: Start) -> None:
    program = start(60)
    pid = program.guardian_pid
    program.say("leave")
    until(lambda: not _alive(pid), 2.0, what="end of the guardian")
    assert program.child.wait(5) == 0
    assert program.state.word(Word.GUARDIAN_TRIPS) == 0


def test_is_small(start: Start) -> None:
    program = start(60)
    status = Path(f"/proc/{program.guardian_pid}/status").read_text()
    resident_kib = int(status.split("VmRSS:")[1].split()[0])
    print(f"guardian resident: {resident_kib} KiB")
    assert resident_kib < 32 * 1024


def test_agent_notices_a_guardian_that_is_dead_or_asleep(tmp_path: Path) -> None:
    state = StateFile.create(tmp_path / "agent-a.state", "a", "/nowhere")
    guardian = Guardian.start(state)
    assert guardian.well()
    os.kill(guardian.pid, signal.SIGSTOP)
    until(lambda: not guardian.well(), 8.0, what="notice of a stopped guardian")
    guardian.replace()
    until(lambda: not _alive(state.word(Word.GUARDIAN_PID)), what="end of the stopped guardian")
    guardian = Guardian.start(state)
    assert guardian.well()
    os.kill(guardian.pid, signal.SIGKILL)
    until(lambda: not guardian.well(), 2.0, what="notice of a dead guardian")
    guardian.replace()
    state.close()


def test_guardian_that_cannot_start_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateFile.create(tmp_path / "agent-a.state", "a", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(HostError, match="guardian"):
        Guardian.start(state)
    state.close()


def test_recorded_process_is_continued_and_a_reused_pid_is_not(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    from gangd.guardian.guardian_watch import thaw_held

    ours, other, users = (subprocess.Popen(SPIN) for _ in range(3))
    children += [ours, other, users]
    state = StateFile.create(tmp_path / "agent-a.state", "a", "/nowhere")
    for child, shift in ((ours, 0), (other, 1), (users, 0)):
        stat = read_stat(child.pid)
        assert stat is not None
        slot = state.claim_process(child.pid, stat.start_ticks + shift, 12)
        assert slot is not None
        state.hold(slot)
        child.send_signal(signal.SIGSTOP)
        until(lambda child=child: stands(child.pid), what="stopped spinner")  # type: ignore[misc]
    users.send_signal(signal.SIGSTOP)  # its user's own stop, while it is held
    revived = thaw_held(state)
    assert (revived.jobs, revived.gone, revived.failures) == (frozenset({12}), 1, ())
    assert runs(ours.pid)
    assert stands(other.pid)
    assert stands(users.pid)
    state.close()
