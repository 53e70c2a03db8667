"""An embedded cluster's shape, members and configuration."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.checks import Advice, Configuration, Grade, judge, threads_here
from deploy.local.cluster import cgroup_conf, slurm_conf
from deploy.local.down import cluster_cgroups, mapped_segments, remove_all, remove_ledgers, remove_segments
from deploy.local.home import take_home
from deploy.local.host import CgroupVersion, LocalHost, _host_name, _is_loopback, _user_name, usable_cgroup
from deploy.local.layout import Names, free_ports, make_layout
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
from deploy.local.state import require_state
from deploy.shape import GangKind, QueueKind, Shape, natural_shape, pin_cpus
from foundation.errors import ClusterError, HostError, UsageError
from foundation.slurm import Partition, SlurmNode
from foundation.slurm.site_configuration import read_config, read_nodes, read_partitions

HOST = LocalHost("host1", True, "alice", False, (0, 1, 2, 3), 16_000, CgroupVersion.NONE, {})
ROOT = LocalHost("host1", True, "root", True, (0, 1, 2, 3), 16_000, CgroupVersion.V1, {})


def conf(shape: Shape, host: LocalHost = HOST, state: Path = Path("/var/lib/c")) -> dict[str, str]:
    text = slurm_conf(shape, host, make_layout(state, state, shape, ((),) * shape.nodes))
    return dict(
        line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("Node")
    )


@pytest.mark.parametrize(
    ("cpus", "shape"), [(1, (1, 1)), (2, (2, 1)), (3, (2, 1)), (8, (2, 4)), (64, (4, 16))]
)
def test_the_natural_shape_splits_the_host(cpus: int, shape: tuple[int, int]) -> None:
    assert natural_shape(cpus) == shape


def test_nodes_are_pinned_to_disjoint_cpus() -> None:
    assert pin_cpus(Shape(nodes=2, cores=2), (0, 1, 4, 5)) == ((0, 1), (4, 5))


def test_too_many_cores_are_refused_and_virtual_nodes_are_not() -> None:
    with pytest.raises(UsageError, match="--virtual"):
        pin_cpus(Shape(nodes=12, cores=12), (0, 1))
    assert pin_cpus(Shape(nodes=2, cores=12, virtual=True), (0, 1)) == ((), ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 0},
        {"cores": 0},
        {"multiplicity": 9},
        {"queues": QueueKind.MQ, "nodes": 1},
        {"queues": QueueKind.MQ, "interactive_nodes": 2},
        {"interactive_nodes": 1},
        {"settings": ("KillWait",)},
        {"settings": ("KillWait=5\nSlurmUser=root",)},
    ],
)
def test_contradictions_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Shape(**({"nodes": 2, "cores": 1} | wrong))  # type: ignore[arg-type]


def test_memory_is_a_resource_and_lets_m_jobs_share_a_core() -> None:
    lines = conf(Shape(nodes=2, cores=2, multiplicity=4))
    assert lines["SelectTypeParameters"] == "CR_Core_Memory,CR_LLN"
    part = lines["PartitionName"]
    assert "OverSubscribe=FORCE:4" in part
    assert "DefMemPerCPU=900 " in part


def test_a_plain_user_runs_without_cgroups_and_root_with() -> None:
    shape = Shape(nodes=1, cores=1)
    assert conf(shape)["ProctrackType"] == "proctrack/linuxproc"
    assert conf(shape)["SlurmdUser"] == "alice"
    assert conf(shape, ROOT)["ProctrackType"] == "proctrack/cgroup"
    assert "CgroupPlugin=cgroup/v1" in cgroup_conf(ROOT)


def test_only_slurms_gang_scheduler_switches_preemption_on() -> None:
    modes = {
        gang: conf(Shape(nodes=1, cores=1, multiplicity=2, gang=gang))["PreemptMode"] for gang in GangKind
    }
    assert modes == {GangKind.NONE: "OFF", GangKind.SLURM: "GANG", GangKind.OSUB: "OFF"}


def test_two_queues_split_the_nodes() -> None:
    shape = Shape(nodes=3, cores=1, queues=QueueKind.MQ, interactive_nodes=1, multiplicity_interactive=4)
    text = slurm_conf(shape, HOST, make_layout(Path("/var/lib/c"), Path("/var/lib/c"), shape, ((),) * 3))
    batch, interactive = [line for line in text.splitlines() if line.startswith("PartitionName")]
    assert "Default=YES" in batch
    assert "OverSubscribe=NO" in batch
    assert batch.count("-n") == 2
    assert "OverSubscribe=FORCE:4" in interactive


def test_virtual_nodes_may_declare_several_threads_a_core() -> None:
    shape = Shape(nodes=1, cores=4, threads=2, virtual=True)
    text = slurm_conf(shape, HOST, make_layout(Path("/var/lib/c"), Path("/var/lib/c"), shape, ((),)))
    assert "CoresPerSocket=4 ThreadsPerCore=2 " in text
    with pytest.raises(UsageError, match="--virtual"):
        Shape(nodes=1, cores=1, threads=2)


def test_settings_win_over_ours_whatever_their_case() -> None:
    lines = conf(Shape(nodes=1, cores=1, settings=("killwait=5", "minjobage=10")))
    assert (lines["killwait"], lines["minjobage"]) == ("5", "10")
    assert "MinJobAge" not in lines


@pytest.mark.parametrize(
    "setting",
    [
        "A=b\nSlurmUser=root",
        "A=b\rSlurmUser=root",
        "A=b\\",
        "A=b # x",
        "A=b\x00",
        "A=",
        "A= ",
        "=b",
        "A",
        "A b=c",
        "é=c",
        "Include /etc/passwd",
    ],
)
def test_a_setting_is_one_line_and_nothing_else(setting: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        Shape(nodes=1, cores=1, settings=(setting,))


def test_settings_may_hold_blanks_and_equals_signs() -> None:
    partition = "PartitionName=night Nodes=ALL OverSubscribe=FORCE:2 State=UP"
    shape = Shape(nodes=1, cores=1, settings=(partition,))
    assert partition in slurm_conf(shape, HOST, make_layout(Path("/c"), Path("/c"), shape, ((),)))


def test_the_user_is_who_the_kernel_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER"):
        monkeypatch.setenv(name, "x\nSlurmUser=root")
    assert _user_name() == pwd.getpwuid(os.geteuid()).pw_name


@pytest.mark.parametrize("name", ["a b", "a\nb", "a#b", "a=b", "-a", "", "a;b"])
def test_a_host_name_that_slurm_conf_would_read_otherwise_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: name)
    with pytest.raises(HostError, match="name"):
        _host_name()


def test_slurm_binds_to_the_host_names_address_only_where_that_is_the_loopback() -> None:
    shape = Shape(nodes=1, cores=1)
    assert conf(shape)["CommunicationParameters"] == "NoCtldInAddrAny,NoInAddrAny"
    assert "CommunicationParameters" not in conf(shape, replace(HOST, name_is_loopback=False))


@pytest.mark.parametrize(
    ("hosts", "loopback"), [("127.0.0.1", True), ("127.0.1.1", False), ("10.0.0.7", False), (None, False)]
)
def test_the_address_of_the_host_name_is_resolved(
    monkeypatch: pytest.MonkeyPatch, hosts: str | None, loopback: bool
) -> None:
    def resolve(name: str) -> str:
        if hosts is None:
            raise socket.gaierror(-2, "Name or service not known")
        return hosts

    entries = [SimpleNamespace(family=socket.AF_INET, address=each) for each in ("127.0.0.1", "10.0.0.7")]
    monkeypatch.setattr("psutil.net_if_addrs", lambda: {"lo": entries[:1], "eth0": entries[1:]})
    monkeypatch.setattr("socket.gethostbyname", resolve)
    assert _is_loopback("host1") is loopback
    monkeypatch.setattr("psutil.net_if_addrs", lambda: {"lo": entries[:1]})
    with pytest.raises(HostError, match="ip address add"):
        _is_loopback("host1")


def test_names_differ_from_folder_to_folder() -> None:
    shape = Shape(nodes=1, cores=1)
    one, two = (make_layout(Path("/c", name), Path("/c", name), shape, ((),)) for name in ("a", "b"))
    assert one.nodes[0].name != two.nodes[0].name
    assert one.cluster_name != two.cluster_name


@pytest.mark.parametrize(
    "path", ["/a\nSlurmUser=root", "/a#b", "/a,b", "/a%h", "/a=b", '/a"b', "/a\\", "/a\tb", "/a;b"]
)
def test_a_path_that_slurm_conf_would_read_otherwise_is_refused(path: str) -> None:
    shape = Shape(nodes=1, cores=1)
    with pytest.raises(UsageError, match=r"choose a --state whose path"):
        make_layout(Path(path), Path("/short"), shape, ((),))
    with pytest.raises(UsageError, match=r"choose a --state whose path"):
        make_layout(Path("/home"), Path(path), shape, ((),))


def test_two_clusters_of_a_host_number_their_jobs_apart(tmp_path: Path) -> None:
    """MPICH names the memory that ranks share after job and step alone."""
    shape = Shape(nodes=1, cores=1)
    one, two = (int(conf(shape, state=tmp_path / name)["FirstJobId"]) for name in ("a", "b"))
    assert abs(one - two) >= 1000
    assert one == int(conf(shape, state=tmp_path / "a")["FirstJobId"])
    assert min(one, two) > 0
    assert max(one, two) < 0x03FF0000 - 200_000, "Slurm's MaxJobId, and numbers for jobs"


def test_free_ports_are_distinct() -> None:
    assert len(set(free_ports(50))) == 50


def test_a_host_without_cgroups_is_known(tmp_path: Path) -> None:
    assert usable_cgroup(tmp_path) is CgroupVersion.NONE
    (tmp_path / "cgroup.controllers").touch()
    assert usable_cgroup(tmp_path) is CgroupVersion.V2
    (tmp_path / "freezer").mkdir()
    (tmp_path / "freezer" / "cgroup.procs").touch()
    assert usable_cgroup(tmp_path) is CgroupVersion.V1


def test_what_a_killed_agent_left_in_a_cpu_hierarchy_is_removed_with_the_nodes(tmp_path: Path) -> None:
    for path in (
        "cpu/gangd_c-n1_job_7",
        "cpu/gangd_other_job_8",
        "freezer/slurm_c-n1/uid_0",
        "cpu/slurm_cc-n1",
    ):
        (tmp_path / path).mkdir(parents=True)
    found = cluster_cgroups("c", tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in found) == [
        "cpu/gangd_c-n1_job_7",
        "freezer/slurm_c-n1",
    ]
    assert remove_all(found, 5.0) == []
    assert (tmp_path / "cpu/gangd_other_job_8").exists()


def test_a_path_with_a_blank_is_in_quotes(tmp_path: Path) -> None:
    """slurm.conf takes a value in quotes; what cannot have any, such as the socket, is in a plain folder."""
    shape = Shape(nodes=1, cores=1, gang=GangKind.OSUB, settings=("PrologFlags=Contain",))
    with take_home(tmp_path / "my cluster", create=True) as home:
        assert home is not None
        home.furnish(("log", "run", "spool"), 0o700)
        assert " " not in str(home.short)
        text = slurm_conf(shape, HOST, make_layout(home.path, home.short, shape, ((),)))
        home.empty()
    assert f'SlurmctldLogFile="{tmp_path}/my cluster/log/slurmctld.log"' in text
    assert f'HealthCheckProgram="{tmp_path}/my cluster/gang/health-check"' in text
    assert "my cluster" not in "".join(line for line in text.splitlines() if '"' not in line)
    assert "PrologFlags=Contain" in text.splitlines()


def test_a_folder_is_suggested_as_a_shell_takes_it() -> None:
    with pytest.raises(ClusterError, match="osub cluster up --state '/no where'"):
        require_state(Path("/no where"))


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
        pid=pid, parent=parent, start_ticks=start, user=user, name=name, words=words,
        environment=frozenset(environment), cgroups=(cgroup,),
    )  # fmt: skip


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
    assert (known.words, known.user) == (("sleep", "600"), os.geteuid())
    assert pin(sleeper.pid, known.start_ticks + 1) is None
    pinned = pin(sleeper.pid, known.start_ticks)
    assert pinned is not None
    assert pinned.is_alive()
    sleeper.kill()
    sleeper.wait()
    assert not pinned.is_alive()
    pinned.send(signal.SIGKILL)  # reaches no process
    os.close(pinned.pidfd)
    assert read_facts(sleeper.pid) is None
    assert pin(sleeper.pid, known.start_ticks) is None


def test_processes_are_found_by_a_variable_of_their_environment(tmp_path: Path) -> None:
    stat = (Path("/proc") / str(os.getpid()) / "stat").read_bytes()
    for pid, environment in ((11, b"A=1\0OSUB_CLUSTER=c\0"), (12, b"XOSUB_CLUSTER=c\0"), (13, b"")):
        (folder := tmp_path / str(pid)).mkdir()
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
    (on_disk := tmp_path / "agents").mkdir()
    (on_disk / "agent-n1.state").touch()
    remove_ledgers([shm / "one", shm / "two", shm / "none", on_disk], shm)
    assert not (shm / "one").exists()
    assert [path.name for path in (shm / "two").iterdir()] == ["precious"]
    assert (on_disk / "agent-n1.state").exists()


FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm"

GOOD = {
    "SLURM_VERSION": "24.11.5",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CORE_MEMORY,CR_LLN",
    "PreemptMode": "OFF",
    "MessageTimeout": "10 sec",
    "KillWait": "30 sec",
    "UnkillableStepTimeout": "60 sec",
    "HealthCheckProgram": "/etc/slurm/gang-agent-health",
    "HealthCheckInterval": "30 sec",
    "Prolog": "/etc/slurm/gang-bell",
    "PrologFlags": "Alloc",
    "ProctrackType": "proctrack/cgroup",
    "TaskPlugin": "task/cgroup,task/affinity",
    "ConstrainCores": "yes",
    "CgroupPlugin": "cgroup/v2",
    "JobAcctGatherType": "jobacct_gather/cgroup",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "MinJobAge": "300 sec",
}

PARTITION = Partition(
    name="shared", nodes=("n1", "n2"), multiplicity=2, forced=True, is_default=True, is_up=True,
    preempt_mode="OFF", default_memory=True,
)  # fmt: skip

NODE = SlurmNode(
    name="n1", states=frozenset({"IDLE"}), cores=8, threads_per_core=2, memory_mib=64_000,
    cpus_allocated=0, features=frozenset(), version="24.11.5",
)  # fmt: skip


def configuration(
    values: Mapping[str, str | None] | None = None,
    partition: Partition = PARTITION,
    nodes: tuple[SlurmNode, ...] = (NODE, replace(NODE, name="n2")),
    freeze_cap_s: float = 5.0,
) -> Configuration:
    merged = {key: value for key, value in (GOOD | (values or {})).items() if value is not None}  # type: ignore[operator]
    return Configuration(merged, (partition,), nodes, freeze_cap_s)


def faults(found: Configuration) -> dict[str, Advice]:
    return {one.what: one for one in judge(found) if one.grade is not Grade.GOOD}


def test_a_good_configuration_has_nothing_to_mend() -> None:
    advice = judge(configuration())
    assert {one.grade for one in advice} == {Grade.GOOD}
    assert not any(one.write for one in advice)
    assert len({one.what for one in advice}) == len(advice) == 20


@pytest.mark.parametrize(
    ("values", "what", "grade", "write"),
    [
        ({"SelectType": "select/linear"}, "select plugin", "bad", "SelectType=select/cons_tres"),
        (
            {"SelectTypeParameters": "CR_CORE"},
            "memory as a resource",
            "bad",
            "SelectTypeParameters=CR_Core_Memory",
        ),
        ({"PreemptMode": "SUSPEND,GANG"}, "PreemptMode", "bad", "PreemptMode=OFF"),
        ({"MessageTimeout": "5 sec"}, "MessageTimeout", "bad", "MessageTimeout=10"),
        ({"KillWait": "2 sec"}, "KillWait", "warning", "KillWait=30"),
        ({"UnkillableStepTimeout": "10 sec"}, "UnkillableStepTimeout", "bad", "UnkillableStepTimeout=60"),
        (
            {"UnkillableStepTimeout": "60 sec", "MessageTimeout": "60 sec"},
            "UnkillableStepTimeout",
            "warning",
            "UnkillableStepTimeout=300",
        ),
        (
            {"HealthCheckProgram": "(null)", "HealthCheckInterval": "0 sec"},
            "health check",
            "warning",
            "HealthCheckProgram=/etc/slurm/gang-agent-health\nHealthCheckInterval=30\nHealthCheckNodeState=ANY",
        ),
        ({"HealthCheckInterval": "3600 sec"}, "health check", "warning", None),
        ({"PrologFlags": "(null)"}, "prolog", "warning", "PrologFlags=Alloc"),
        ({"PrologFlags": "Alloc,Serial"}, "prolog", "warning", "PrologFlags=Alloc"),
        ({"ProctrackType": "proctrack/linuxproc"}, "process tracking", "warning", None),
        ({"CgroupPlugin": "disabled"}, "cgroup", "bad", "CgroupPlugin=autodetect    # cgroup.conf"),
        ({"IgnoreSystemd": "yes"}, "cgroup", "warning", None),
        ({"TaskPlugin": "task/none"}, "binding", "warning", None),
        ({"ConstrainCores": "no", "TaskPlugin": "task/cgroup"}, "binding", "warning", None),
        (
            {"CgroupPlugin": "cgroup/v1", "JobAcctGatherType": "jobacct_gather/linux"},
            "CPU time",
            "warning",
            "JobAcctGatherType=jobacct_gather/cgroup",
        ),
        ({"AccountingStorageType": "accounting_storage/none"}, "accounting", "warning", None),
        ({"SLURM_VERSION": "20.11.9"}, "versions", "bad", None),
        ({"SLURM_VERSION": None}, "versions", "bad", None),
    ],
)
def test_what_is_wrong_is_named_with_the_line_that_mends_it(
    values: dict[str, str | None], what: str, grade: str, write: str | None
) -> None:
    found = faults(configuration(values))
    assert what in found
    assert found[what].grade == grade
    assert found[what].why
    if write is not None:
        assert found[what].write == write
    if "SLURM_VERSION" not in values:
        assert [one for one in found if one != what] == []


def test_a_longer_freeze_asks_for_a_longer_timeout() -> None:
    assert faults(configuration(freeze_cap_s=20.0))["MessageTimeout"].write == "MessageTimeout=40"
    assert {"KillWait"} <= faults(configuration({"KillWait": "21 sec"}, freeze_cap_s=20.0)).keys()


def test_a_sharing_partition_without_default_memory_is_informed_what_fits() -> None:
    found = faults(configuration(partition=replace(PARTITION, default_memory=False)))
    assert list(found) == ["DefMemPerCPU"]
    # 64,000 MiB for 8 cores of 2 threads, each of which two jobs may have
    assert found["DefMemPerCPU"].write == "PartitionName=shared ... DefMemPerCPU=2000"
    assert not faults(configuration({"DefMemPerCPU": "1000"}, replace(PARTITION, default_memory=False)))


def test_where_no_cores_are_shared_or_only_on_demand_that_is_said() -> None:
    none = faults(configuration(partition=replace(PARTITION, multiplicity=1, forced=False)))
    assert none["OverSubscribe"].grade is Grade.BAD
    some = faults(configuration(partition=replace(PARTITION, forced=False)))
    assert some["OverSubscribe"].grade is Grade.WARNING
    assert some["OverSubscribe"].write == "PartitionName=shared ... OverSubscribe=FORCE:2"


def test_a_partition_that_preempts_by_suspending_is_found() -> None:
    found = faults(configuration(partition=replace(PARTITION, preempt_mode="SUSPEND")))
    assert found["PreemptMode"].found == "GANG or SUSPEND: of shared"


def test_nodes_of_another_release_and_job_folders_by_sluid_are_reported() -> None:
    old = replace(NODE, name="n2", version="24.05.1")
    assert faults(configuration(nodes=(NODE, old)))["versions"].found == (
        "slurmctld 24.11.5, slurmd 24.05.1 on 1 node"
    )
    new = replace(NODE, version="26.05.0")
    found = faults(configuration({"SLURM_VERSION": "26.05.0"}, nodes=(new,)))
    assert found["names of job folders"].write == "CgroupJobIdPaths=yes    # cgroup.conf"
    assert not faults(configuration({"SLURM_VERSION": "26.05.0", "CgroupJobIdPaths": "yes"}, nodes=(new,)))


def test_a_short_memory_of_finished_jobs_is_reported_where_nothing_else_keeps_them() -> None:
    forgetful = {"MinJobAge": "2 sec", "AccountingStorageType": "accounting_storage/none"}
    assert "finished jobs" in faults(configuration(forgetful))
    assert "finished jobs" not in faults(configuration(forgetful | {"JobCompType": "jobcomp/filetxt"}))
    assert "finished jobs" not in faults(configuration({"MinJobAge": "2 sec"}))


def test_what_a_real_slurm_printed_can_be_judged() -> None:
    found = Configuration(
        read_config((FIXTURES / "config.txt").read_text()),
        read_partitions((FIXTURES / "partitions.txt").read_text()),
        read_nodes((FIXTURES / "nodes.txt").read_text()),
    )
    advice = judge(found)
    assert {one.what for one in advice} == {one.what for one in judge(configuration())}
    assert json.dumps([one.why for one in advice])


def test_nonsense_in_place_of_numbers_is_reported_and_not_believed() -> None:
    values: dict[str, str | None] = dict.fromkeys(GOOD, "\x1b[2J%n" * 1000)
    assert any(one.grade is Grade.BAD for one in judge(configuration(values)))


@pytest.mark.parametrize(
    ("select", "threads", "grade", "why"),
    [
        ("CR_CPU_MEMORY", 2, "warning", "M counts jobs of a thread"),
        ("CR_CPU", 1, "warning", "a CPU counts as a core"),
        ("CR_SOCKET_MEMORY", 1, "warning", "jobs of a socket"),
        ("CR_CORE_MEMORY", 2, "good", "2 threads, handed out together"),
        ("CR_CORE_MEMORY,CR_LLN", 1, "good", "one CPU"),
    ],
)
def test_what_a_core_is_here_is_said(select: str, threads: int, grade: str, why: str) -> None:
    node = replace(NODE, threads_per_core=threads)
    advice = judge(configuration({"SelectTypeParameters": select}, nodes=(node,)))
    core = next(one for one in advice if one.what == "a core")
    assert (str(core.grade), why in core.why) == (grade, True)
    assert core.write == ("" if grade == "good" else "SelectTypeParameters=CR_Core_Memory")


@pytest.mark.parametrize(
    ("node", "grade", "found"),
    [
        (replace(NODE, reason="Low socket*core*thread count, Low CPUs"), "bad", "n1: Low socket*core*thread"),
        (replace(NODE, states=frozenset({"IDLE", "INVAL"})), "bad", "n1: refused"),
        (replace(NODE, reason="disk"), "good", "as slurm.conf says"),
        (replace(NODE, threads_per_core=1), "warning", "n1: 1 thread a core, this host has 2"),
        (replace(NODE, name="elsewhere", threads_per_core=1), "good", "as slurm.conf says"),
    ],
)
def test_a_node_that_is_not_as_slurm_conf_says_is_named(node: SlurmNode, grade: str, found: str) -> None:
    here = replace(configuration(nodes=(node,)), host="n1", host_threads=2)
    advice = next(one for one in judge(here) if one.what == "CPUs of nodes")
    assert (str(advice.grade), advice.found.startswith(found)) == (grade, True)
    assert ("slurmd -C" in advice.write) == (grade != "good")


@pytest.mark.parametrize(
    ("text", "threads"), [("0\n", 1), ("0,4\n", 2), ("0-1", 2), ("0-3,8", 5), ("x", None)]
)
def test_threads_of_this_hosts_cores_are_counted(tmp_path: Path, text: str, threads: int | None) -> None:
    file = tmp_path / "thread_siblings_list"
    assert threads_here(file) is None
    file.write_text(text)
    assert threads_here(file) == threads
