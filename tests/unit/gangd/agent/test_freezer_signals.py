from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from gangd.freezer.holder import Did, StepKey, StepState
from gangd.freezer.procfs import ProcStat, is_slurmstepd, read_stat, scan
from gangd.freezer.signal_freezer import SignalFreezer
from gangd.freezer.tree import own_group
from tests.fixtures.gang_host import SPIN, cpu_ns, is_suspended, runs
from tests.fixtures.gang_yield import CPU1
from tests.fixtures.looks import until
from tests.fixtures.no_ledger import NoLedger

Children = list[subprocess.Popen[bytes]]
JOB = 1_000_000 + os.getpid()  # other runs of these tests may go on at the same time
KEY = StepKey(JOB, "0")
TASK_ENV = {
    "PATH": os.environ["PATH"],
    "SLURM_JOB_ID": str(JOB),
    "SLURM_STEP_ID": "0",
    "SLURMD_NODENAME": "a",
}

ESCAPE = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
while True:
    pass
"""


def start_step(tmp_path: Path, children: Children, task: list[str], env: dict[str, str] = TASK_ENV) -> int:
    """Start a shell that looks like slurmstepd, with ``task`` below it; returns slurmstepd's pid."""
    stepd = tmp_path / "slurmstepd-wlm"  # as Debian calls it, behind a name of 15 characters at most
    if not stepd.exists():
        shutil.copy(shutil.which("dash") or "/bin/sh", stepd)
    variables = " ".join(f"{name}='{value}'" for name, value in env.items())
    words = " ".join(f"'{word}'" for word in task)
    child = subprocess.Popen(
        [
            f"slurmstepd: [{JOB}.0]",
            "-c",
            f"printf slurmstepd > /proc/$$/comm; env -i {variables} {words} & wait",
        ],
        executable=stepd,
        start_new_session=True,
    )
    children.append(child)
    mark = f"SLURM_JOB_ID={env['SLURM_JOB_ID']}".encode()
    # An environment that names no node is read again a few times, no more.
    until(lambda: any(mark in _environ(stat.pid) for stat in scan()), 60, "the task's environment")
    return child.pid


@pytest.fixture
def freezer() -> SignalFreezer:
    return SignalFreezer("a", NoLedger())


@pytest.fixture(autouse=True)
def _no_task_survives() -> object:
    yield
    tasks = [stat for stat in scan() if f"SLURM_JOB_ID={JOB}".encode() in _environ(stat.pid)]
    for task in tasks:
        with suppress(ProcessLookupError):
            os.kill(task.pid, signal.SIGCONT)
            os.kill(task.pid, signal.SIGKILL)
    # The next test has the same step: on a busy host a killed process would be one of its tasks for a while.
    until(lambda: not any(map(goes_on, tasks)), what="the end of all tasks")


def goes_on(task: ProcStat) -> bool:
    now = read_stat(task.pid)
    return now is not None and now.alive and now.identity == task.identity


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def members(freezer: SignalFreezer) -> tuple[int, ...]:
    freezer.adopt(freezer.look())
    return freezer.pids(KEY)


def hold(freezer: SignalFreezer) -> None:
    """Look, adopt and freeze until nothing new turns up, as the agent does."""
    for _ in range(20):
        freezer.adopt(freezer.look())
        if freezer.hold(KEY).did is Did.NOTHING:
            return
    raise AssertionError("the step never stood still")


@pytest.mark.parametrize("folder", ["slurm_a", "slurm"])
def test_jobs_have_the_account_that_slurm_keeps(tmp_path: Path, children: Children, folder: str) -> None:
    """So what is not found in the tree counts as well, and what slurmstepd does."""
    freezer = SignalFreezer("a", NoLedger(), cpuacct_root=tmp_path / "cpuacct")
    start_step(tmp_path, children, SPIN)
    members(freezer)
    assert freezer.cpu_ns(JOB) is None
    account = tmp_path / "cpuacct" / folder / f"uid_{os.getuid()}" / f"job_{JOB}" / "cpuacct.usage"
    account.parent.mkdir(parents=True)
    account.write_text("17\n")
    members(freezer)
    assert freezer.cpu_ns(JOB) == 17
    assert freezer.account(JOB) is not None
    assert freezer.daemon_ns(JOB) > 0
    assert freezer.cpu_ns(JOB + 1) is None
    freezer.close()
    assert freezer.account(JOB) is None


def test_own_group_of_a_job_is_its_account_while_it_is_there(tmp_path: Path, children: Children) -> None:
    freezer = SignalFreezer("a", NoLedger(), own_root=tmp_path / "unified")
    start_step(tmp_path, children, SPIN)
    members(freezer)
    assert freezer.cpu_ns(JOB) is None
    for used_us in (17, 4):  # the second is of another group of the same name
        stat = tmp_path / "unified" / own_group("a", JOB) / "cpu.stat"
        stat.parent.mkdir(parents=True)
        stat.write_text(f"usage_usec {used_us}\nuser_usec 1\n")
        members(freezer)
        assert freezer.cpu_ns(JOB) == 1000 * used_us
        file = freezer.account(JOB)
        assert file is not None
        assert file.in_lines
        assert freezer.daemon_ns(JOB) > 0
        os.truncate(stat, 0)  # read as one that is gone
        shutil.rmtree(stat.parent)
        assert freezer.cpu_ns(JOB) is None
    freezer.close()


def test_what_a_task_used_before_it_came_into_its_jobs_group_counts_for_the_job(
    tmp_path: Path, children: Children
) -> None:
    early, late = (SignalFreezer("a", NoLedger(), own_root=tmp_path / "unified") for _ in range(2))
    members(early)
    start_step(tmp_path, children, SPIN)
    [pid] = members(SignalFreezer("a", NoLedger()))
    until(lambda: cpu_ns(pid) > 300_000_000, what="0.3 s of CPU time")
    for _ in range(2):  # it counts once
        members(early)
        assert 300_000_000 < early.daemon_ns(JOB) < 300_000_000 + cpu_ns(pid)
    members(late)  # it may have begun long ago, under another agent
    assert late.daemon_ns(JOB) < 100_000_000
    early.close()
    late.close()


def test_stops_the_tree_but_not_slurmstepd(
    tmp_path: Path, children: Children, freezer: SignalFreezer
) -> None:
    stepd = start_step(tmp_path, children, ["sh", "-c", "while :; do :; done & while :; do :; done"])
    until(lambda: len(members(freezer)) == 2, what="two tasks")
    parent, child = freezer.pids(KEY)
    assert is_slurmstepd(stepd)
    hold(freezer)
    until(lambda: freezer.state(KEY) is StepState.FROZEN)
    assert is_suspended(parent)
    assert is_suspended(child)
    stat = read_stat(stepd)
    assert stat is not None
    assert stat.state != "T"
    assert freezer.release(KEY).did is Did.WROTE
    assert runs(parent)
    assert runs(child)
    freezer.close()


def test_double_fork_into_a_session_of_its_own_is_stopped(
    tmp_path: Path, children: Children, freezer: SignalFreezer
) -> None:
    (script := tmp_path / "escape.py").write_text(ESCAPE)
    start_step(tmp_path, children, [sys.executable, str(script)])

    def escaped() -> list[int]:
        stats = [read_stat(pid) for pid in members(freezer)]
        return [stat.pid for stat in stats if stat is not None and stat.parent == 1]

    until(lambda: len(escaped()) == 1, what="the orphan among the members")
    (orphan,) = escaped()
    hold(freezer)
    until(lambda: freezer.state(KEY) is StepState.FROZEN)
    assert is_suspended(orphan)
    freezer.release(KEY)
    assert runs(orphan)
    freezer.close()


DAEMON = """
import os, sys
if os.fork() == 0:
    if os.fork():
        os._exit(0)
    os.setsid()
    os.execve("/bin/sh", ["osub-daemon", "-c", "while :; do :; done"], {})
os.wait()
open(sys.argv[1], "w").close()
while True:
    pass
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a cgroup")
@pytest.mark.parametrize("folder", ["gangd_a_job_{}", "slurm_a/uid_0/job_{}/step_0", "slurm_b/uid_0/job_{}"])
def test_daemon_without_environment_is_stopped_where_a_cgroup_tells_its_job(
    tmp_path: Path, children: Children, freezer: SignalFreezer, folder: str
) -> None:
    if not (CPU1 / "cgroup.procs").exists():
        pytest.skip("needs a cgroup v1 cpu hierarchy")
    (script := tmp_path / "daemon.py").write_text(DAEMON)
    begun = tmp_path / "begun"
    group = CPU1 / folder.format(JOB)
    daemon = 0
    try:
        group.mkdir(parents=True)
        words = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
        start_step(tmp_path, children, [*words, sys.executable, str(script), str(begun)])
        until(begun.exists, what="the end of the first fork")
        until(lambda: bool(called("osub-daemon")), what="the daemon")
        (daemon,) = called("osub-daemon")
        hold(freezer)
        until(lambda: freezer.state(KEY) is StepState.FROZEN)
        if "slurm_b" in folder:
            assert runs(daemon), "it is another node's"  # late, maybe: a busy host may let it wait for 0.1 s
        else:
            assert is_suspended(daemon)
        freezer.release(KEY)
        assert runs(daemon)
    finally:
        freezer.close()
        if daemon:
            os.kill(daemon, signal.SIGKILL)
        empty(group)


def called(name: str) -> list[int]:
    """Processes of this test's cgroup with a name of their own."""
    found = []
    for stat in scan():
        with suppress(OSError):
            folder = Path(f"/proc/{stat.pid}")
            if folder.joinpath("cmdline").read_bytes().startswith(name.encode() + b"\0"):
                found += [stat.pid] if f"job_{JOB}" in folder.joinpath("cgroup").read_text() else []
    return found


def empty(group: Path) -> None:
    """Move what is in a cgroup to the top, and remove it with those above it that are empty."""

    def is_gone() -> bool:
        with suppress(OSError):  # a process that is ending cannot be moved any more
            for pid in group.joinpath("cgroup.procs").read_text().split():
                (CPU1 / "cgroup.procs").write_text(pid)
            group.rmdir()
        return not group.exists()

    until(is_gone, what=f"removal of {group}")
    with suppress(OSError):  # other runs have one above it in common
        while (group := group.parent) != CPU1:
            group.rmdir()


def test_continues_only_what_it_stopped(tmp_path: Path, children: Children, freezer: SignalFreezer) -> None:
    start_step(tmp_path, children, ["sh", "-c", "while :; do :; done & while :; do :; done"])
    until(lambda: len(members(freezer)) == 2, what="two tasks")
    stopped, other = freezer.pids(KEY)
    os.kill(stopped, signal.SIGSTOP)
    # A process that waits for a core makes no progress, too, and takes the signal only when it gets one.
    until(lambda: (stat := read_stat(stopped)) is not None and stat.state == "T", what="the user's own stop")
    hold(freezer)
    until(lambda: freezer.state(KEY) is StepState.FROZEN)
    freezer.release(KEY)
    assert runs(other)
    assert is_suspended(stopped)
    freezer.close()


def test_a_stop_that_is_taken_between_two_reads_is_seen(
    tmp_path: Path, children: Children, freezer: SignalFreezer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user's stop is neither a state yet at the first read nor a waiting signal at the second."""
    start_step(tmp_path, children, ["sh", "-c", "while :; do :; done"])
    until(lambda: len(members(freezer)) == 1, what="one task")
    (task,) = freezer.pids(KEY)

    def stop(pid: int) -> int:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: (stat := read_stat(pid)) is not None and stat.state == "T", what="the stop")
        return 0

    monkeypatch.setattr("gangd.freezer.signal_freezer.pending_signals", stop)
    assert freezer.hold(KEY).did is Did.NOTHING
    monkeypatch.undo()
    freezer.release(KEY)
    assert is_suspended(task)
    os.kill(task, signal.SIGCONT)
    hold(freezer)
    os.kill(task, signal.SIGCONT)

    monkeypatch.setattr("gangd.freezer.signal_freezer.pending_signals", stop)
    assert freezer.state(KEY) is StepState.FREEZING
    monkeypatch.undo()
    freezer.close()


def test_process_that_its_user_stops_while_it_is_held_stays_stopped(
    tmp_path: Path, children: Children, freezer: SignalFreezer
) -> None:
    start_step(tmp_path, children, ["sh", "-c", "while :; do :; done & while :; do :; done"])
    until(lambda: len(members(freezer)) == 2, what="two tasks")
    stopped, other = freezer.pids(KEY)
    hold(freezer)
    until(lambda: freezer.state(KEY) is StepState.FROZEN)
    os.kill(stopped, signal.SIGSTOP)
    for _ in range(3):
        freezer.release(KEY)
        assert runs(other)
        assert is_suspended(stopped)
        hold(freezer)
        until(lambda: freezer.state(KEY) is StepState.FROZEN)
    freezer.release(KEY)
    os.kill(stopped, signal.SIGCONT)
    assert runs(stopped)
    freezer.close()


def test_stop_of_a_terminal_that_comes_while_a_process_is_held_is_not_lost(
    tmp_path: Path, children: Children, freezer: SignalFreezer
) -> None:
    seen = tmp_path / "seen"
    start_step(tmp_path, children, ["sh", "-c", f'trap ": >{seen}; exit" TSTP; while :; do :; done'])
    until(lambda: len(members(freezer)) == 1, what="one task")
    (task,) = freezer.pids(KEY)
    assert runs(task)
    hold(freezer)
    until(lambda: freezer.state(KEY) is StepState.FROZEN)
    os.kill(task, signal.SIGTSTP)
    assert not seen.exists()
    freezer.release(KEY)
    until(seen.exists, what="the task takes the signal")
    freezer.close()


def test_stop_under_way_is_the_users(tmp_path: Path, children: Children, freezer: SignalFreezer) -> None:
    start_step(tmp_path, children, SPIN)
    until(lambda: len(members(freezer)) == 1, what="one task")
    (task,) = freezer.pids(KEY)
    hold(freezer)
    freezer.release(KEY)
    for _ in range(20):  # it may or may not have taken the signal when it is held
        os.kill(task, signal.SIGSTOP)
        freezer.hold(KEY)
        freezer.release(KEY)
        until(lambda: (stat := read_stat(task)) is not None and stat.state == "T", what="the user's stop")
        os.kill(task, signal.SIGCONT)
    freezer.close()


def test_steps_of_another_node_are_left_alone(
    tmp_path: Path, children: Children, freezer: SignalFreezer
) -> None:
    start_step(tmp_path, children, SPIN, TASK_ENV | {"SLURMD_NODENAME": "b"})
    other = SignalFreezer("b", NoLedger())
    until(lambda: len(members(other)) == 1, what="the task on its own node")
    assert members(freezer) == ()
    other.close()


def test_name_alone_makes_no_process_slurmstepd(tmp_path: Path, children: Children) -> None:
    impostor = tmp_path / "impostor"
    shutil.copy(shutil.which("dash") or "/bin/sh", impostor)
    child = subprocess.Popen(
        ["x", "-c", "printf slurmstepd > /proc/$$/comm; while :; do :; done"], executable=impostor
    )
    children.append(child)
    until(lambda: (stat := read_stat(child.pid)) is not None and stat.comm == "slurmstepd")
    assert not is_slurmstepd(child.pid)


VFORK = """
import ctypes, signal
ctypes.CDLL(None).syscall(56, 0x4000 | signal.SIGCHLD, 0, 0, 0, 0)  # clone(CLONE_VFORK)
while True:
    pass
"""
HEADLESS = """
import ctypes, os, sys, threading, time
def spin():
    while True:
        pass
threading.Thread(target=spin).start()
while os.path.exists(sys.argv[1]):  # its environment can be read no longer than its first thread runs
    time.sleep(0.01)
ctypes.CDLL(None).syscall(60, 0)  # exit: of this thread alone
"""
TRACED = """
import ctypes, os, threading, time
ptrace = ctypes.CDLL(None).ptrace
child = os.fork()
if child == 0:
    threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()
    ctypes.CDLL(None).pause()
while child and not open(f"/proc/{child}/syscall").read().startswith("34 "):  # or its lock stops the other
    time.sleep(0.01)
while child:
    ptrace(0x4206, child, 0, 0)  # PTRACE_SEIZE
    ptrace(0x4207, child, 0, 0)  # PTRACE_INTERRUPT: its first thread alone
    time.sleep(0.01)
"""


@pytest.mark.parametrize("name", ["munged", "slurmstepd", "a) R 1 (b", "a\\nSigPnd:\\tf", "\\377\\376"])
def test_process_is_stopped_whatever_it_is_called(
    tmp_path: Path, children: Children, freezer: SignalFreezer, name: str
) -> None:
    script = f"printf '{name}' > /proc/$$/comm; while :; do :; done".replace("'", '"')
    start_step(tmp_path, children, ["sh", "-c", script])
    until(lambda: len(members(freezer)) == 1, what="the task")
    (task,) = freezer.pids(KEY)
    until(lambda: Path(f"/proc/{task}/comm").read_bytes() not in (b"sh\n", b"dash\n", b"env\n"), what="name")
    hold(freezer)
    until(lambda: freezer.state(KEY) is StepState.FROZEN, what="the task is suspended")
    assert is_suspended(task)
    freezer.release(KEY)
    assert runs(task)
    freezer.close()


def parent_of(pid: int) -> int | None:
    stat = read_stat(pid)
    return None if stat is None else stat.parent


@pytest.mark.parametrize(
    ("script", "count"),
    [(VFORK, 2), (HEADLESS, 1), (TRACED, 2)],
    ids=["vfork", "first-thread-ended", "first-thread-traced"],
)
def test_step_is_frozen_although_a_first_thread_does_not_stop(
    tmp_path: Path, children: Children, freezer: SignalFreezer, script: str, count: int
) -> None:
    """The parent of a vfork sleeps in the kernel; others run on where the first has ended or is traced."""
    gate = tmp_path / "gate"
    gate.touch()
    start_step(tmp_path, children, [sys.executable, "-c", script, str(gate)])
    until(lambda: len(members(freezer)) == count, 60, f"{count} processes")
    running = max(freezer.pids(KEY), key=lambda pid: (parent_of(pid) in freezer.pids(KEY), pid))
    try:
        gate.unlink()
        until(lambda: any((stat := read_stat(pid)) and stat.state in "DZt" for pid in members(freezer)), 60)
        hold(freezer)
        until(lambda: freezer.state(KEY) is StepState.FROZEN, 60, "all of it is suspended")
        assert is_suspended(running)
        assert freezer.release(KEY).did is Did.WROTE
        assert runs(running), Path(f"/proc/{running}/status").read_text()
    finally:  # without a first thread it has no environment by which it is ended
        os.kill(running, signal.SIGKILL)
    freezer.close()


def test_killed_while_stopped_dies_and_is_a_value(
    tmp_path: Path, children: Children, freezer: SignalFreezer
) -> None:
    start_step(tmp_path, children, SPIN)
    until(lambda: len(members(freezer)) == 1, what="one task")
    (task,) = freezer.pids(KEY)
    hold(freezer)
    os.kill(task, signal.SIGKILL)
    until(lambda: freezer.state(KEY) is StepState.GONE)
    assert freezer.release(KEY).did is Did.WROTE  # nothing left to continue; the record is released
    freezer.close()
