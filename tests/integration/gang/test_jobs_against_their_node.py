"""What an ordinary user's job tries so as not to be held, or to harm its node: it is held like any other."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import nullcontext

import pytest

from foundation.slurm import SlurmJobState
from tests.attacks.attack import ACCOUNT
from tests.fixtures.leftovers import node_cgroups
from tests.fixtures.looks import looks, until
from tests.integration.gang.frozen import cpu_s, is_frozen, processes_of
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
COUNT = 16
USER = (f"--uid={ACCOUNT}", "--chdir=/")
HELD_MS = 1000


def tasks_of(job: int, node: str) -> list[int]:
    """Processes of a job as Slurm's cgroups have them, whatever they call themselves; skips without any."""
    folders = [path for top in node_cgroups([node]) for path in top.rglob(f"job_{job}/step_batch")]
    if not folders:
        pytest.skip("this host has no cgroups in which Slurm keeps jobs")
    files = [
        file for folder in folders for file in folder.rglob("cgroup.procs") if file.parent.name != "slurm"
    ]
    return sorted({int(word) for file in files for word in file.read_text().split()})


def used_while_held(pids: list[int]) -> float:
    """CPU time of processes (s) within 0.2 s of one hold of the first of them."""
    for _ in looks(60):
        held, began, before = is_frozen(pids[0]), time.monotonic(), cpu_s(pids)
        time.sleep(0.2)
        used = cpu_s(pids) - before
        if held and is_frozen(pids[0]) and time.monotonic() - began < HELD_MS / 2000:
            return used
    raise AssertionError("never seen within one hold")


@pytest.mark.parametrize("freezer", [None, pytest.param("signals", marks=pytest.mark.long)])
def test_no_trick_of_a_process_keeps_it_from_being_held(stage: Stage, freezer: str | None) -> None:
    stage.set_quantum(HELD_MS)
    node = stage.nodes[0]
    with nullcontext() if freezer is None else stage.another_agent(node, freezer):
        agent = stage.node_status(node).agent_pid
        job = stage.start(f"{GENTLY}\nexec {PYTHON} -SE - <<'EOF'\n{TRICKS}\nEOF", node, options=USER)
        until(lambda: len(tasks_of(job, node)) >= COUNT, 60, "every trick is under way")
        stage.start(SPIN, node)
        stage.wait_state(job, "busy")
        assert used_while_held(tasks_of(job, node)) <= 0.1
        assert stage.node_status(node).agent_pid == agent


def as_user(stage: Stage, *words: str) -> subprocess.Popen[str]:
    """Start a command of Slurm's as an ordinary user."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/bin", "SLURM_CONF": str(stage.layout.conf)}
    return subprocess.Popen(
        words,
        user=ACCOUNT,
        group=ACCOUNT,
        extra_groups=[],
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


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
}
"""What a user asks of Slurm about a job of his that is held: status and words of the answer."""


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
