"""The guardian, its registry and its state file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from foundation.errors import HostError
from gangd.freezer.procfs import read_stat
from gangd.guardian.guardian_process import exit_status
from gangd.guardian.guardian_watch import thaw_held
from gangd.guardian.spawn import Guardian
from gangd.guardian.state_folders import forget_folder, note_folder, noted_folders, registry_folders
from gangd.guardian.statefile import RECORDS, StateFile, Word
from tests.fixtures.gang_host import SPIN, TICK, FakeV1, RealCgroups, is_suspended, runs
from tests.fixtures.looks import until

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

DEADLINE = 6  # SCHED_DEADLINE; ``os`` has no name for it
BEST_SCHEDULER = """
import contextlib, os
from gangd.guardian.guardian_process import PRIORITY, set_deadline
if not set_deadline():
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
print(os.sched_getscheduler(0))
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


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT])
def test_thaws_when_the_agent_dies(start: Start, number: signal.Signals) -> None:
    program = start(60)
    until(lambda: is_suspended(program.spinner), what="the held job")
    program.child.send_signal(number)
    until(program.thawed, 1.0, "thaw by the guardian")
    assert runs(program.spinner)
    until(lambda: list(program.state.held()) == [], what="emptied state file")
    ended = record_of(program)
    assert (ended["end"], ended["signal"], ended["status"]) == ("agent died", number.name, None)
    assert (ended["node"], ended["pid"]) == ("a", program.child.pid)


@pytest.mark.slow
def test_what_the_job_froze_itself_stays_frozen_when_its_agent_is_killed(
    start: Start, real_v1: RealCgroups
) -> None:
    program = start(60)
    nested = real_v1.spawn(real_v1.make("elsewhere"), TICK)  # in a frozen cgroup it would not begin
    inner = real_v1.make("slurm_a/uid_0/job_12/step_0/inner")
    (inner / "cgroup.procs").write_text(str(nested))
    (inner / "freezer.state").write_text("FROZEN")
    assert not program.thawed()
    program.child.kill()
    until(program.thawed, 1.0, "thaw by the guardian")
    assert runs(program.spinner)
    until(lambda: list(program.state.held()) == [], what="emptied state file")
    assert (inner / "freezer.state").read_text() == "FROZEN\n"
    assert is_suspended(nested)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_guardian_runs_before_all_others(start: Start) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root for a real-time priority")
    # What the kernel grants changes as other processes take and give back time for SCHED_DEADLINE.
    granted = [best_scheduler()]
    its_own = os.sched_getscheduler(start(60).guardian_pid)
    granted.append(best_scheduler())
    order = (os.SCHED_OTHER, os.SCHED_FIFO, DEADLINE)
    assert order.index(its_own) >= min(map(order.index, granted)), granted


def best_scheduler() -> int:
    """The first of SCHED_DEADLINE, SCHED_FIFO and SCHED_OTHER that a new process is granted here."""
    done = subprocess.run([sys.executable, "-c", BEST_SCHEDULER], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
def test_kill_of_the_agents_process_group_spares_it(start: Start) -> None:
    program = start(60)
    assert os.getpgid(program.guardian_pid) != os.getpgid(program.child.pid)
    assert os.getsid(program.guardian_pid) != os.getsid(program.child.pid)
    stat = read_stat(program.guardian_pid)
    assert stat is not None
    assert stat.parent != program.child.pid


@pytest.mark.slow
def test_thaws_when_the_lease_ends_while_the_agent_is_stopped(start: Start) -> None:
    program = start(0.4)
    program.child.send_signal(signal.SIGSTOP)
    assert not program.thawed()
    until(program.thawed, 2.0, "thaw at the end of the lease")
    assert runs(program.spinner)


@pytest.mark.slow
def test_lease_that_is_renewed_does_not_trip(start: Start) -> None:
    program = start(0.3)
    until_ns = time.monotonic_ns() + 1_000_000_000
    while time.monotonic_ns() < until_ns:
        program.state.set_word(Word.LEASE_NS, time.monotonic_ns() + 300_000_000)
        time.sleep(0.05)
    assert not program.thawed()
    assert program.state.word(Word.GUARDIAN_TRIPS) == 0


@pytest.mark.slow
def test_thaws_again_what_a_late_agent_freezes_after_the_lease(start: Start) -> None:
    program = start(0.2)
    until(program.thawed, 2.0, "thaw at the end of the lease")
    program.say("freeze")
    until(lambda: program.state.word(Word.GUARDIAN_TRIPS) >= 2, 2.0, "second trip")
    until(program.thawed, 2.0, "second thaw")


@pytest.mark.slow
def test_leaves_quietly_after_a_farewell(start: Start) -> None:
    program = start(60)
    pid = program.guardian_pid
    program.say("leave")
    until(lambda: not _alive(pid), 2.0, "end of the guardian")
    assert (program.child.wait(5), program.state.word(Word.GUARDIAN_TRIPS)) == (0, 0)


@pytest.mark.slow
def test_is_small(start: Start) -> None:
    status = Path(f"/proc/{start(60).guardian_pid}/status").read_text()
    resident_kib = int(status.split("VmRSS:")[1].split()[0])
    print(f"guardian resident: {resident_kib} KiB")
    assert resident_kib < 32 * 1024


@pytest.mark.slow
def test_agent_notices_a_guardian_that_is_dead_or_asleep(tmp_path: Path) -> None:
    state = StateFile.create(tmp_path / "agent-a.state", "a", "/nowhere")
    guardian = Guardian.start(state)
    assert guardian.well()
    os.kill(guardian.pid, signal.SIGSTOP)
    until(lambda: not guardian.well(), 8.0, "notice of a stopped guardian")
    guardian.replace()
    until(lambda: not _alive(state.word(Word.GUARDIAN_PID)), what="end of the stopped guardian")
    guardian = Guardian.start(state)
    assert guardian.well()
    os.kill(guardian.pid, signal.SIGKILL)
    until(lambda: not guardian.well(), 2.0, "notice of a dead guardian")
    guardian.replace()
    state.close()


@pytest.mark.slow
def test_guardian_that_cannot_start_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateFile.create(tmp_path / "agent-a.state", "a", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(HostError, match="guardian"):
        Guardian.start(state)
    state.close()


@pytest.mark.slow
def test_recorded_process_is_continued_and_a_reused_pid_is_not(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
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
        until(lambda child=child: is_suspended(child.pid), what="stopped spinner")  # type: ignore[misc]
    users.send_signal(signal.SIGSTOP)  # its user's own stop, while it is held
    revived = thaw_held(state)
    assert (revived.jobs, revived.gone, revived.failures) == (frozenset({12}), 1, ())
    assert runs(ours.pid)
    assert is_suspended(other.pid)
    until(lambda: is_suspended(users.pid), what="its user's own stop")
    state.close()


def as_user(user: int, call: Callable[[], str]) -> str:
    """Return what a call returns in a process of another user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            os.write(writing, call().encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def found_by_user(shm: Path, own: Path) -> str:
    note_folder(own, registry_folders(shm))
    return " ".join(map(str, noted_folders(registry_folders(shm))))


def test_folders_that_were_noted_are_found_until_they_are_gone(tmp_path: Path) -> None:
    registry = tmp_path / "run" / "known"
    one, other = tmp_path / "one", tmp_path / "with a\nline"
    for folder in (one, other, one):
        folder.mkdir(exist_ok=True)
        note_folder(folder, [registry])
    assert set(noted_folders([registry])) == {one, other}
    other.rmdir()
    assert noted_folders([registry]) == (one,)
    assert len(list(registry.iterdir())) == 1
    forget_folder(one, [registry])
    assert noted_folders([registry]) == ()


def test_without_notes_there_are_none(tmp_path: Path) -> None:
    assert noted_folders([tmp_path / "nowhere"]) == ()
    forget_folder(tmp_path, [tmp_path / "nowhere"])


def test_notes_in_a_folder_that_others_can_write_are_not_believed_and_another_one_is_made(
    tmp_path: Path,
) -> None:
    registry = tmp_path / "known"
    note_folder(tmp_path, [registry])
    registry.chmod(0o777)
    assert noted_folders([registry]) == ()
    note_folder(tmp_path, [registry])
    (other,) = tmp_path.glob("known-*")
    assert noted_folders([registry, other]) == (tmp_path,)
    assert other.stat().st_mode & 0o777 == 0o700


def test_where_nothing_can_be_noted_an_agent_is_informed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match="cannot note"):
        note_folder(tmp_path, [tmp_path / "file" / "known"])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two other users")
def test_a_taken_name_of_a_users_registry_hinders_no_user() -> None:
    """A second user makes the folder, a link and files of that name first; the agent notes and finds."""
    user, other_user = 61_235, 61_236
    with tempfile.TemporaryDirectory(prefix="osub-registry-") as folder:
        shm, own = Path(folder, "shm"), Path(folder, "own")
        for path, mode, owner in ((Path(folder), 0o755, 0), (shm, 0o1777, 0), (own, 0o700, user)):
            path.mkdir(exist_ok=True)
            path.chmod(mode)
            os.chown(path, owner, owner)
        (taken := shm / f"gangd-{user}-known").mkdir(mode=0o777)
        os.chown(taken, other_user, other_user)
        (shm / f"gangd-{user}-known-0").symlink_to(own)
        os.chown(shm / f"gangd-{user}-known-0", other_user, other_user, follow_symlinks=False)
        assert as_user(user, lambda: found_by_user(shm, own)) == str(own)
        assert list(taken.iterdir()) == []
        assert list(own.iterdir()) == []


def test_a_note_that_is_a_link_or_too_long_is_none(tmp_path: Path) -> None:
    registry = tmp_path / "known"
    note_folder(tmp_path, [registry])
    (tmp_path / "elsewhere").write_text(str(tmp_path))
    (registry / "link").symlink_to(tmp_path / "elsewhere")
    (registry / "long").write_text("/" + "x" * 5000)
    assert noted_folders([registry]) == (tmp_path,)


def make(tmp_path: Path, root: str = "/nowhere") -> StateFile:
    return StateFile.create(tmp_path / "agent-a.state", "a", root)


def test_another_process_reads_what_was_written(tmp_path: Path) -> None:
    state = make(tmp_path, "/sys/fs/cgroup/freezer")
    slot = state.claim_cgroup(1, "slurm_a/uid_7/job_12/step_0", 12)
    assert slot is not None
    state.hold(slot)
    state.set_word(Word.LEASE_NS, 2**62)
    other = StateFile.open(tmp_path / "agent-a.state")
    (held,) = other.held()
    assert (held.kind, held.job, held.path) == (1, 12, "slurm_a/uid_7/job_12/step_0")
    assert (other.node(), str(other.root())) == ("a", "/sys/fs/cgroup/freezer")
    assert other.word(Word.LEASE_NS) == 2**62
    assert other.this_boot()
    assert other.agent_alive()
    assert other.lease_left_ns() > 0
    state.release(slot)
    assert list(other.held()) == []
    other.close()
    state.close()


def test_lease_reads_the_same_from_another_time_namespace(tmp_path: Path) -> None:
    """A health check in the host's namespace must understand an agent whose clock is shifted."""
    if os.geteuid() != 0 or not Path("/proc/self/timens_offsets").exists():
        pytest.skip("needs root and time namespaces")
    program = (
        "import sys, time; from pathlib import Path; from gangd.guardian.statefile import StateFile, Word; "
        "s = StateFile.create(Path(sys.argv[1]), 'a', '/'); "
        "s.set_word(Word.LEASE_NS, time.monotonic_ns() + 100 * 10**9); print(time.monotonic())"
    )
    path = tmp_path / "agent-a.state"
    words = ["unshare", "--time", "--monotonic", "50000", "--fork", sys.executable, "-c", program, str(path)]
    shifted_s = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert shifted_s - time.monotonic() > 40_000
    state = StateFile.open(path)
    assert 60e9 < state.lease_left_ns() <= 100e9
    state.close()


def test_full_ledger_refuses_and_a_dropped_slot_is_used_again(tmp_path: Path) -> None:
    state = make(tmp_path)
    slots = [state.claim_process(pid, 1, 12) for pid in range(1, RECORDS + 1)]
    assert None not in slots
    assert len(set(slots)) == RECORDS
    assert state.claim_process(5, 1, 12) is None
    assert slots[7] is not None
    state.drop(slots[7])
    assert state.claim_process(5, 1, 12) == slots[7]
    state.close()


def test_path_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    state = make(tmp_path)
    assert state.claim_cgroup(2, "x" * 300, 12) is None
    state.close()


def test_new_file_leaves_the_old_mapping_alone(tmp_path: Path) -> None:
    old = make(tmp_path)
    slot = old.claim_process(1, 1, 12)
    assert slot is not None
    old.hold(slot)
    new = make(tmp_path)
    assert list(new.held()) == []
    assert len(list(old.held())) == 1
    old.close()
    new.close()


def test_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"something else")
    with pytest.raises(HostError, match="no agent state file"):
        StateFile.open(tmp_path / "x")
    with pytest.raises(HostError, match="cannot write"):
        StateFile.create(Path("/proc/absent/agent.state"), "a", "/")


def test_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    make(tmp_path).close()
    (tmp_path / "agent-a.state").chmod(0o622)
    with pytest.raises(HostError, match="others may write"):
        StateFile.open(tmp_path / "agent-a.state")


def test_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    state = make(tmp_path)
    assert state.path is not None
    assert state.path.stat().st_mode & 0o777 == 0o600
    assert state.path.stat().st_uid == os.geteuid()
    state.close()


def test_revives_nothing_outside_slurms_cgroups(fake_v1: FakeV1, tmp_path: Path) -> None:
    state = make(tmp_path, str(fake_v1.root))
    inside = fake_v1.step(12, "0")
    (outside := fake_v1.root / "user.slice").mkdir()
    for folder, path in ((inside, "slurm_a/uid_7/job_12/step_0"), (outside, "user.slice")):
        (folder / "freezer.state").write_text("FROZEN")
        slot = state.claim_cgroup(1, path, 12)
        assert slot is not None
        state.hold(slot)
    revived = thaw_held(state)
    assert (revived.jobs, revived.gone) == (frozenset({12}), 1)
    assert (inside / "freezer.state").read_text() == "THAWED"
    assert (outside / "freezer.state").read_text() == "FROZEN"
    state.close()
