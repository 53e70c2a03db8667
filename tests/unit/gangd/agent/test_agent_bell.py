"""The bell that slurmd's prolog and epilog ring: who may, what is understood; ringing never hangs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangd.agent.linux_host import MOST_AT_ONCE, Bell, Rings, bell_name

SCRIPT = Path(__file__).parents[4] / "deploy" / "slurm" / "gang-bell"
LONG_S = 30.0  # a tenth of a second is what the script allows itself; the host may be busy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    deep = tmp_path / ("a long name " * 10) / "state"  # longer than a socket's path may be
    deep.mkdir(parents=True)
    return deep


@pytest.fixture
def bell(folder: Path) -> Iterator[Bell]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    one = Bell.hang(fd, bell_name("n1"))
    os.close(fd)
    yield one
    one.close()


def send(folder: Path, *messages: bytes) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as one:
        one.connect(f"/proc/self/fd/{fd}/{bell_name('n1')}")
        for message in messages:
            one.send(message)
    os.close(fd)


def test_jobs_that_begin_and_end_are_reported(bell: Bell, folder: Path) -> None:
    assert bell.take() == Rings()
    send(folder, b"begin 7", b"begin 8\n", b"end 9", b"begin 7")
    assert bell.take() == Rings(frozenset({7, 8}), frozenset({9}))
    assert bell.take() == Rings()


@pytest.mark.parametrize(
    "message",
    [
        *(
            b"",
            b"begin",
            b"begin 0",
            b"begin -1",
            b"begin 1 2",
            b"thaw 1",
            b"begin 1\n\n",
            b"begin 12345678901",
        ),
        *(b"begin \xd9\xa1", b"begin 1" + b"\0" * 100, b" begin 1", b"BEGIN 1"),
    ],
)
def test_what_is_no_ring_is_refused_and_harms_nothing(bell: Bell, folder: Path, message: bytes) -> None:
    send(folder, message, b"end 3")
    assert bell.take() == Rings(ended=frozenset({3}), refused=1)


def test_a_number_that_no_job_has_is_left_out(bell: Bell, folder: Path) -> None:
    send(folder, b"begin 9999999999")
    assert bell.take() == Rings()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: becomes another user")
def test_only_root_and_the_agents_own_user_are_believed(bell: Bell, folder: Path) -> None:
    for path in (folder, *folder.parents):  # as if every guard of the folder had failed
        found = path.stat()
        if found.st_uid == 0 and path.is_relative_to("/tmp") and not found.st_mode & 0o001:
            path.chmod(0o755)  # never /tmp itself, which is everybody's already
    (folder / bell_name("n1")).chmod(0o666)
    other = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); "
        "os.chdir(sys.argv[1]); s.sendto(b'begin 5', sys.argv[2])"
    )
    subprocess.run([sys.executable, "-c", other, folder, bell_name("n1")], check=True, timeout=60)
    send(folder, b"begin 6")
    assert bell.take() == Rings(frozenset({6}), refused=1)


def test_a_plain_user_cannot_even_knock(bell: Bell, folder: Path) -> None:
    assert (folder / bell_name("n1")).stat().st_mode & 0o777 == 0o600


def test_a_flood_is_taken_in_turns(bell: Bell, folder: Path) -> None:
    sent = 0
    try:
        for number in range(1, 10_000):
            send(folder, b"begin %d" % number)
            sent += 1
    except BlockingIOError:
        pass
    taken = bell.take()
    assert len(taken.begun) == min(sent, MOST_AT_ONCE)


def test_the_bell_of_an_agent_that_was_killed_is_replaced_and_its_own_is_taken_down(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    killed = Bell.hang(fd, bell_name("n1"))
    killed._socket.close()
    second = Bell.hang(fd, bell_name("n1"))
    os.close(fd)
    send(folder, b"end 4")
    assert second.take().ended == {4}
    second.close()
    os.close(killed._folder_fd)
    assert list(folder.iterdir()) == []


# The script


def ring(folder: Path, *words: str, script: Path = SCRIPT, **environment: str) -> float:
    """Run the script as slurmd does; returns how long it took. It must end with 0 and print nothing."""
    given = {"SLURM_JOB_ID": "77", "SLURMD_NODENAME": "n1", "GANGD_STATE": str(folder)} | environment
    began = time.monotonic()
    done = subprocess.run([script, *words], env=given, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    return time.monotonic() - began


@pytest.fixture
def near() -> Iterator[Path]:
    """Give a folder whose path a socket may have, as /run/gangd has it."""
    path = Path("/tmp") / f"bell-{os.getpid()}"
    path.mkdir(mode=0o700)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def hung(near: Path) -> Iterator[Bell]:
    fd = os.open(near, os.O_RDONLY | os.O_DIRECTORY)
    one = Bell.hang(fd, bell_name("n1"))
    os.close(fd)
    yield one
    one.close()


def patient(tmp_path: Path) -> Path:
    """Return the script with half a minute in place of a tenth of a second: the host may be busy."""
    script = tmp_path / "gang-bell"
    text = SCRIPT.read_text()
    assert text.count("KILL 0.1") == 2
    script.write_text(text.replace("KILL 0.1", "KILL 30"))
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("words", "environment", "rings"),
    [
        ((), {"SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}, Rings(begun=frozenset({77}))),
        ((), {"SLURM_SCRIPT_CONTEXT": "epilog_slurmd"}, Rings(ended=frozenset({77}))),
        (("begin",), {}, Rings(begun=frozenset({77}))),
        (("end",), {"SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}, Rings(ended=frozenset({77}))),
        ((), {}, Rings()),
        (("begin",), {"SLURM_JOB_ID": "7; reboot"}, Rings()),
        (("begin",), {"SLURM_JOB_ID": ""}, Rings()),
        (("begin",), {"SLURMD_NODENAME": "../n1"}, Rings()),
    ],
)
def test_slurms_prolog_and_epilog_ring(
    hung: Bell,
    near: Path,
    tmp_path: Path,
    words: tuple[str, ...],
    environment: dict[str, str],
    rings: Rings,
) -> None:
    ring(near, *words, script=patient(tmp_path), **environment)
    assert hung.take() == rings


def test_with_no_agent_the_prolog_returns_and_nothing_happens(near: Path) -> None:
    ring(near, "begin")
    (near / bell_name("n1")).mkdir()
    ring(near, "begin")


def test_the_bell_of_a_dead_agent_does_not_hold_the_prolog_up(near: Path) -> None:
    fd = os.open(near, os.O_RDONLY | os.O_DIRECTORY)
    one = Bell.hang(fd, bell_name("n1"))
    os.close(fd)
    one._socket.close()  # as the kernel does for a process that is killed
    os.close(one._folder_fd)
    assert (near / bell_name("n1")).is_socket()
    assert ring(near, "begin") < LONG_S


def test_an_agent_that_sleeps_does_not_hold_the_prolog_up(hung: Bell, near: Path) -> None:
    with pytest.raises(BlockingIOError):
        send(near, *[b"begin 1"] * 100_000)
    assert ring(near, "begin") < LONG_S


def test_a_host_without_perl_rings_by_python(hung: Bell, near: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("timeout", "python3", "sh"):
        found = shutil.which(name, path="/usr/bin:/bin")
        if found is None:
            pytest.skip(f"no {name} in /usr/bin")
        (tools / name).symlink_to(found)
    script = patient(tmp_path)
    script.write_text(script.read_text().replace("PATH=/usr/sbin:/usr/bin:/sbin:/bin\n", f"PATH={tools}\n"))
    given = {"SLURM_JOB_ID": "77", "SLURMD_NODENAME": "n1", "GANGD_STATE": str(near)}
    subprocess.run(["/bin/sh", script, "end"], env=given, timeout=60, check=True)
    assert hung.take() == Rings(ended=frozenset({77}))


def test_what_hangs_is_killed_and_the_prolog_succeeds(hung: Bell, near: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "timeout").symlink_to("/usr/bin/timeout")
    (tools / "perl").write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    (tools / "perl").chmod(0o755)
    script = tmp_path / "gang-bell"
    script.write_text(SCRIPT.read_text().replace("PATH=/usr/sbin:/usr/bin:/sbin:/bin\n", f"PATH={tools}\n"))
    given = {"SLURM_JOB_ID": "77", "SLURMD_NODENAME": "n1", "GANGD_STATE": str(near)}
    began = time.monotonic()
    done = subprocess.run(["/bin/sh", script, "end"], env=given, timeout=60, check=False)
    assert done.returncode == 0
    assert time.monotonic() - began < LONG_S
