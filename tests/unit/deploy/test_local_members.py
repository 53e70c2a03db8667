"""Which processes are a cluster's, and that no other one is ever met by a signal meant for them."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.down import mapped_segments, remove_ledgers, remove_segments
from deploy.local.layout import Names
from deploy.local.members import (
    Kin,
    Pinned,
    ProcessFacts,
    all_facts,
    end,
    end_all,
    find_members,
    pin,
    read_facts,
)

ME, OTHER = 1000, 1001
KIN = Kin(Names("abcde"), (Path("/home/me/c"), Path("/tmp/osub-1")), (Path("/dev/shm/gangd-1000-x"),), ME)
MARK = "OSUB_CLUSTER=osub-abcde"
TASK = ("SLURM_CLUSTER_NAME=osub-abcde", "SLURMD_NODENAME=abcde-n1")


def facts(
    pid: int,
    *words: str,
    environment: tuple[str, ...] = (),
    user: int | None = ME,
    parent: int = 1,
    name: str = "x",
    start: int = 100,
    cgroup: str = "/",
) -> ProcessFacts:
    return ProcessFacts(
        pid=pid,
        parent=parent,
        start_ticks=start,
        user=user,
        name=name,
        words=words,
        environment=frozenset(environment),
        cgroups=(cgroup,),
    )


def members(*all_facts: ProcessFacts) -> set[int]:
    return set(find_members(all_facts, KIN))


def test_daemons_are_known_by_mark_and_command_line() -> None:
    assert members(
        facts(2, "/usr/sbin/slurmctld", "-D", "-f", "/home/me/c/slurm.conf", environment=(MARK,)),
        facts(3, "munged", "--socket=/tmp/osub-1/run/munge.sock", environment=(MARK,)),
        facts(4, "slurmstepd: [1.batch]", name="slurmstepd", environment=(MARK,)),
        facts(5, "bash", environment=(MARK,)),
        facts(6, "vi", "/home/me/c/slurm.conf"),
        facts(7, "vi", "/home/me/cc/slurm.conf", environment=(MARK,)),
        facts(8, "slurmd", "-f", "/home/me/c/slurm.conf", environment=("OSUB_CLUSTER=osub-other",)),
    ) == {2, 3, 4}


def test_what_another_users_process_claims_counts_for_nothing() -> None:
    liars = (
        facts(2, "slurmctld", "-D", "-f", "/home/me/c/slurm.conf", environment=(MARK,), user=OTHER),
        facts(3, "sleep", environment=TASK, user=OTHER),
        facts(4, "su", "-f", "/home/me/c/slurm.conf", environment=(MARK, *TASK), user=None),
    )
    assert members(*liars) == set()


def test_tasks_are_known_by_their_cgroup_not_their_user() -> None:
    assert members(
        facts(2, "sleep", user=OTHER, cgroup="/slurm_abcde-n2/uid_1001/job_1/step_0/task_0"),
        facts(3, "sleep", user=OTHER, cgroup="/system.slice/abcde-n2_slurmstepd.scope/job_1/step_0/user"),
        facts(4, "sleep", user=OTHER, cgroup="/slurm_abcdf-n2/uid_1001/job_1/step_0/task_0"),
        facts(5, "sleep", user=OTHER, cgroup="/slurm_abcde-n2x/uid_1001"),
    ) == {2, 3}


def test_ones_own_tasks_are_known_by_what_slurmstepd_says() -> None:
    assert members(
        facts(2, "sleep", environment=TASK),
        facts(3, "bash", environment=TASK[:1]),  # a shell of salloc
        facts(4, "sleep", environment=(TASK[0], "SLURMD_NODENAME=other-n1")),
    ) == {2}


def test_children_belong_to_their_parents_and_not_to_their_parents_heirs() -> None:
    stepd = facts(2, "slurmstepd: [1.0]", name="slurmstepd", environment=(MARK,), start=100)
    assert members(stepd, facts(3, "a", parent=2, start=110), facts(4, "b", parent=3, start=120)) == {2, 3, 4}
    assert members(stepd, facts(3, "older", parent=2, start=99)) == {2}


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes():  # the kernel may not have set it yet
        time.sleep(0.001)
    yield process
    process.kill()
    process.wait()


def test_a_process_is_pinned_by_its_start_too(sleeper: subprocess.Popen[bytes]) -> None:
    known = read_facts(sleeper.pid)
    assert known is not None
    assert known.words == ("sleep", "600")
    assert known.user == os.geteuid()
    assert pin(sleeper.pid, known.start_ticks + 1) is None
    pinned = pin(sleeper.pid, known.start_ticks)
    assert pinned is not None
    assert pinned.is_alive()
    sleeper.kill()
    sleeper.wait()
    assert not pinned.is_alive()
    pinned.send(signal.SIGKILL)  # reaches nobody
    os.close(pinned.pidfd)
    assert read_facts(sleeper.pid) is None
    assert pin(sleeper.pid, known.start_ticks) is None


def test_processes_are_found_by_a_variable_of_their_environment(tmp_path: Path) -> None:
    stat = (Path("/proc") / str(os.getpid()) / "stat").read_bytes()
    for pid, environment in ((11, b"A=1\0OSUB_CLUSTER=c\0"), (12, b"XOSUB_CLUSTER=c\0"), (13, b"")):
        folder = tmp_path / str(pid)
        folder.mkdir()
        for name, content in (("stat", stat), ("cmdline", b"x\0"), ("status", b""), ("cgroup", b"0::/\n")):
            (folder / name).write_bytes(content)
        (folder / "environ").write_bytes(environment)
    assert {one.pid for one in all_facts(tmp_path)} == {11, 12, 13}
    assert [one.pid for one in all_facts(tmp_path, "OSUB_CLUSTER=c")] == [11]


def test_stopped_and_stubborn_processes_end(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.send_signal(signal.SIGSTOP)
    stubborn = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; exec sleep 600"], stdout=subprocess.PIPE)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    pinned = [Pinned(process.pid, os.pidfd_open(process.pid)) for process in (sleeper, stubborn)]
    assert end(pinned, 60) == []
    assert read_facts(sleeper.pid) is None
    assert read_facts(stubborn.pid) is None
    stubborn.stdout.close()
    stubborn.wait()


def test_a_descriptor_above_1023_shows_whether_a_process_runs(sleeper: subprocess.Popen[bytes]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("the hard limit of open files is below 2,048")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    try:
        pidfd = os.pidfd_open(sleeper.pid)
        high = Pinned(sleeper.pid, fcntl.fcntl(pidfd, fcntl.F_DUPFD_CLOEXEC, 1500))
        os.close(pidfd)
        assert high.is_alive()
        assert end([high], 60) == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_processes_end_than_are_pinned_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.local.members.MOST_PINNED", 2)
    crowd = [subprocess.Popen(["sleep", "600"]) for _ in range(5)]
    end_all([known for one in crowd if (known := read_facts(one.pid))], 60)
    assert [read_facts(one.pid) for one in crowd] == [None] * 5
    for one in crowd:
        one.wait()


class FakeShm:
    """Shared memory and processes that have it mapped."""

    def __init__(self, folder: Path) -> None:
        self.shm, self.proc = folder / "shm", folder / "proc"
        self.shm.mkdir()
        self.proc.mkdir()

    def segment(self, name: str) -> Path:
        path = self.shm / name
        path.touch()
        return path

    def maps(self, pid: int, *names: str) -> None:
        (self.proc / str(pid)).mkdir()
        lines = [f"7f0-7f1 rw-s 00000000 00:1b 68  {self.shm}/{name}\n" for name in names]
        (self.proc / str(pid) / "maps").write_text("".join(lines) + "7f2-7f3 r-xp 0 00:00 0 \n")

    def left(self) -> list[str]:
        return sorted(path.name for path in self.shm.iterdir())


def test_segments_go_once_no_one_has_them(tmp_path: Path) -> None:
    fake = FakeShm(tmp_path)
    for name in ("mpich_shm_1_0", "mpich_shm_2_0", "mpich_shm_3_0", "812:0:0", "other"):
        fake.segment(name)
    fake.maps(10, "mpich_shm_1_0", "mpich_shm_2_0", "812:0:0")
    fake.maps(11, "mpich_shm_2_0", "other")
    ours = mapped_segments([10, 99], fake.proc, fake.shm)
    assert ours == {"mpich_shm_1_0", "mpich_shm_2_0", "812:0:0"}
    (fake.proc / "10" / "maps").write_text("")  # it has ended
    remove_segments(ours, None, fake.shm, fake.proc)
    assert fake.left() == ["mpich_shm_2_0", "mpich_shm_3_0", "other"]


def test_orphans_go_if_they_are_ours_and_younger_than_the_cluster(tmp_path: Path) -> None:
    fake = FakeShm(tmp_path)
    made_s = fake.segment("mpich_shm_1_0").stat().st_ctime
    fake.segment("ucx_shm_posix_1")
    remove_segments(set(), made_s + 1, fake.shm, fake.proc)
    assert fake.left() == ["mpich_shm_1_0", "ucx_shm_posix_1"]
    if os.geteuid() == 0:
        os.chown(fake.segment("mpich_shm_2_0"), OTHER, -1)
        remove_segments(set(), made_s, fake.shm, fake.proc)
        assert fake.left() == ["mpich_shm_2_0", "ucx_shm_posix_1"]
    else:
        remove_segments(set(), made_s, fake.shm, fake.proc)
        assert fake.left() == ["ucx_shm_posix_1"]


def test_ledgers_in_memory_go_and_nothing_next_to_them(tmp_path: Path) -> None:
    shm = tmp_path / "shm"
    for name in ("one", "two"):
        (shm / name).mkdir(parents=True)
        (shm / name / "agent-n1.state").touch()
    (shm / "two" / "precious").touch()
    on_disk = tmp_path / "agents"
    on_disk.mkdir()
    (on_disk / "agent-n1.state").touch()
    remove_ledgers([shm / "one", shm / "two", shm / "none", on_disk], shm)
    assert not (shm / "one").exists()
    assert [path.name for path in (shm / "two").iterdir()] == ["precious"]
    assert (on_disk / "agent-n1.state").exists()
