"""What an ordinary user's job tries so as not to be held, or to harm its node: it is held like any other."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from foundation.slurm import SlurmJobState
from tests.attacks.attack import ACCOUNT
from tests.fixtures.gang_host import cpu_ns
from tests.fixtures.leftovers import node_cgroups
from tests.fixtures.looks import looks, until
from tests.integration.gang.frozen import is_frozen, processes_of
from tests.integration.gang.stage import GENTLY, SPIN, Stage

PYTHON = shutil.which("python3", path="/usr/bin:/bin")
"""One that every user may run: the tests' own may lie in root's home."""

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.parallel,
    pytest.mark.skipif(PYTHON is None, reason="no python3 for all users in /usr/bin"),
]

TRICKS = r"""
import ctypes, os, signal, threading, time

libc = ctypes.CDLL(None, use_errno=True)

def spin():
    while True:
        pass

def called(name):
    libc.prctl(15, name, 0, 0, 0)  # PR_SET_NAME
    spin()

def vfork():
    libc.syscall(56, 0x4000 | signal.SIGCHLD, 0, 0, 0, 0)  # clone(CLONE_VFORK): the parent sleeps
    spin()

def headless():
    threading.Thread(target=spin).start()
    libc.syscall(60, 0)  # exit, of the first thread alone

def orphan():
    if os.fork() == 0:
        os.setsid()
        spin()

def zombies():
    for _ in range(20):
        if os.fork() == 0:
            os._exit(0)
    spin()

def titled():
    words = ["-c", "while :; do :; done"]
    os.execv("/bin/sh", ["slurmstepd: [1.0]", *words])

def namespaces():
    os.execv("/usr/bin/unshare", ["unshare", "-Urpf", "--kill-child", "sh", "-c", "while :; do :; done"])

def traced():
    child = os.fork()
    if child == 0:
        libc.ptrace(0, 0, 0, 0)  # PTRACE_TRACEME
        os.kill(os.getpid(), signal.SIGTRAP)
        spin()
    os.waitpid(child, 0x40000000)
    while libc.ptrace(9, child, 0, 0) == 0:  # PTRACE_SINGLESTEP
        os.waitpid(child, 0x40000000)

tricks = [lambda name=name: called(name) for name in (
    b"slurmstepd", b"munged", b") R 1 (", b"a\nSigPnd:\tffff", b"\xff\xfe")]
tricks += [vfork, headless, orphan, zombies, titled, namespaces, traced]
for trick in tricks:
    if os.fork() == 0:
        trick()
        os._exit(0)
while True:
    time.sleep(1)
"""
CROWD = r"""
import os
for _ in range(49):
    if os.fork() == 0:
        break
while True:
    pass
"""
TRACER = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
request, *pids = map(int, sys.argv[1:])
print(*(libc.ptrace(request, pid, 0, 0) and ctypes.get_errno() for pid in pids), flush=True)
while True:
    pid, status = os.waitpid(-1, 0x40000000)
    if os.WIFSTOPPED(status):
        libc.ptrace(7, pid, 0, 0)  # PTRACE_CONT, without the signal
"""
LINKS = r"""
import os, sys
folder, *files = sys.argv[1:]
for number, file in enumerate(files):
    try:
        os.link(file, f"{folder}/{number}")
    except OSError as error:
        print(error.errno)
"""
JOBS = {"tricks": (TRICKS, 16), "50 processes": (CROWD, 50)}
"""Programs of a job, and how many processes they have."""
USER = (f"--uid={ACCOUNT}", f"--gid={ACCOUNT}", "--chdir=/")
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
HELD_MS = 1000
LEAST_NS = 20_000_000
NOTHING = 0.2  # of what a rival uses meanwhile: processes may run some microseconds more until they stop


def tasks_of(job: int, node: str) -> list[int]:
    """Processes of a job as Slurm's cgroups have them, whatever they call themselves; skips without any."""
    folders = [path for top in node_cgroups([node]) for path in top.rglob(f"job_{job}/step_batch")]
    if not folders:
        pytest.skip("this host has no cgroups in which Slurm keeps jobs")
    files = [
        file for folder in folders for file in folder.rglob("cgroup.procs") if file.parent.name != "slurm"
    ]
    return sorted({int(word) for file in files for word in file.read_text().split()})


def used_ns(pids: list[int]) -> int:
    """CPU time that processes have used; those that have ended count nothing."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            total += cpu_ns(pid)
    return total


def used_while_held(pids: list[int], rival: list[int]) -> float:
    """CPU time of processes within 0.2 s of one hold of the first of them, by what their rival used.

    A process that runs on has as much as the rival, for they weigh the same, or more on a core of its own.
    """
    for _ in looks(60):
        held, began, before, rivals = is_frozen(pids[0]), time.monotonic(), used_ns(pids), used_ns(rival)
        time.sleep(0.2)
        used, rivals = used_ns(pids) - before, used_ns(rival) - rivals
        within_one = held and is_frozen(pids[0]) and time.monotonic() - began < HELD_MS / 2000
        if within_one and rivals > LEAST_NS:
            return used / rivals
    raise AssertionError("never seen within one hold in which the rival ran")


@pytest.mark.parametrize("jobs", JOBS)
@pytest.mark.parametrize("freezer", [None, pytest.param("signals", marks=pytest.mark.long)])
def test_no_trick_of_a_process_keeps_it_from_being_held(stage: Stage, freezer: str | None, jobs: str) -> None:
    program, count = JOBS[jobs]
    stage.set_quantum(HELD_MS)
    node = stage.nodes[0]
    with nullcontext() if freezer is None else stage.another_agent(node, freezer):
        agent = stage.node_status(node).agent_pid
        job = stage.start(f"{GENTLY}\nexec {PYTHON} -SE - <<'EOF'\n{program}\nEOF", node, options=USER)
        until(lambda: len(tasks_of(job, node)) >= count, 60, "every trick is under way")
        rival = stage.start(SPIN, node)
        stage.wait_state(job, "busy")
        assert used_while_held(tasks_of(job, node), processes_of(rival, node)) <= NOTHING
        assert stage.node_status(node).agent_pid == agent


@pytest.mark.skipif(
    YAMA.exists() and YAMA.read_text() != "0\n", reason="Yama keeps users from tracing their processes"
)
@pytest.mark.parametrize("request_", [0x10, 0x4206], ids=["PTRACE_ATTACH", "PTRACE_SEIZE"])
@pytest.mark.parametrize("freezer", [None, pytest.param("signals", marks=pytest.mark.long)])
def test_a_tracer_in_another_job_of_his_user(stage: Stage, freezer: str | None, request_: int) -> None:
    """It cannot trace what is another user's. Of its own user's job it takes away the signals that stop."""
    stage.set_quantum(HELD_MS)
    node, elsewhere = stage.nodes
    with nullcontext() if freezer is None else stage.another_agent(node, freezer):
        agent = stage.node_status(node).agent_pid
        assert agent is not None
        job, rival = stage.start(SPIN, node, options=USER), stage.start(SPIN, node)
        stage.wait_state(job, "busy")
        traced, rivals = processes_of(job, node), processes_of(rival, node)
        pids = [str(pid) for pid in (agent, *rivals, *traced)]
        step = ("srun", "-n1", "-w", elsewhere, str(PYTHON), "-SEc", TRACER, str(request_), *pids)
        tracer = as_user(stage, *step)
        try:
            assert tracer.stdout is not None
            refused = [errno.EPERM] * (1 + len(rivals)) + [0] * len(traced)
            assert tracer.stdout.readline().split() == [str(number) for number in refused]
            if freezer is None:
                assert used_while_held(traced, rivals) <= NOTHING
            else:
                until(
                    lambda: any(
                        one.job == job and "does not freeze" in one.text for one in stage.status().alarms
                    ),
                    60,
                    "an alarm names the job that runs on",
                )
            assert stage.node_status(node).agent_pid == agent
        finally:
            tracer.kill()
            tracer.communicate()


@pytest.mark.skipif(
    Path("/proc/sys/fs/protected_hardlinks").read_text() != "1\n", reason="fs.protected_hardlinks is off"
)
def test_a_user_makes_no_hard_links_to_programs_of_roots(stage: Stage) -> None:
    files = [Path(file).resolve() for file in ("/usr/sbin/slurmstepd", "/bin/su")]
    with tempfile.TemporaryDirectory(prefix="osub-test-", dir="/var/tmp") as name:
        folder = Path(name)
        os.chown(folder, ACCOUNT, ACCOUNT)
        if any(file.stat().st_dev != folder.stat().st_dev for file in files):
            pytest.skip("/var/tmp is a file system of its own")
        status, wrote = ended(as_user(stage, str(PYTHON), "-SEc", LINKS, name, *map(str, files)))
        assert (status, wrote.split()) == (0, [str(errno.EPERM)] * 2)
        assert list(folder.iterdir()) == []


def as_user(stage: Stage, *words: str) -> subprocess.Popen[str]:
    """Start a command of Slurm's as an ordinary user."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/bin", "SLURM_CONF": str(stage.layout.conf)}
    return subprocess.Popen(
        words, user=ACCOUNT, group=ACCOUNT, extra_groups=[], cwd="/", env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def ended(command: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a command and return its status and what it wrote."""
    try:
        wrote, _ = command.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        command.kill()
        wrote, _ = command.communicate()
    return command.returncode, wrote


HELLO = "trap 'echo caught' USR1; echo begun; " + SPIN
COMMANDS = {
    "srun": (("srun", "--jobid={job}", "--overlap", "-n1", "echo", "done"), 0, "done"),
    "srun --pty": (("script", "-qec", "srun --jobid={job} --overlap --pty tty", "/dev/null"), 0, "/dev/"),
    "sattach": (("timeout", "2", "sattach", "{job}.0"), 124, "begun"),
    "sbcast": (("env", "SLURM_JOB_ID={job}", "sbcast", "-f", "/etc/passwd", "/dev/null"), 0, ""),
    "suspend": (("scontrol", "suspend", "{job}"), 1, "denied"),
    "signal": (("scancel", "--signal=USR1", "{job}"), 0, ""),
    "end of a step": (("scancel", "{job}.0"), 0, ""),
}  # what a user asks of Slurm about a job of his that is held: status and words of the answer


@pytest.mark.long
def test_slurm_does_what_its_user_asks_while_an_allocation_is_held(stage: Stage) -> None:
    stage.set_quantum(250)
    node = stage.nodes[0]
    rival = stage.start(SPIN, node)
    status, wrote = ended(as_user(stage, "salloc", "--no-shell", "-n1", "-w", node))
    assert status == 0, wrote
    job = int(wrote.split("job allocation ")[1].split()[0])
    step = as_user(stage, "srun", f"--jobid={job}", "-n1", "sh", "-c", HELLO)
    try:
        until(lambda: bool(processes_of(job, node)), 30, "the step runs")
        stage.wait_state(job, "busy")
        pids = processes_of(job, node)
        for name, (words, expected, answer) in COMMANDS.items():
            stage.wait_frozen(*pids)
            status, wrote = ended(as_user(stage, *(word.format(job=job) for word in words)))
            assert (name, status) == (name, expected), wrote
            assert answer in wrote
        assert "caught" in ended(step)[1]
    finally:
        step.kill()
        step.communicate()
    assert stage.state(job) is SlurmJobState.RUNNING, "it outlives its step"
    assert stage.job_status(rival) is not None
