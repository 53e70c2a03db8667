"""Shapes, pins, names and configuration of embedded clusters."""

from __future__ import annotations

import os
import pwd
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.local.cluster import cgroup_conf, slurm_conf
from deploy.local.down import cluster_cgroups, remove_all
from deploy.local.home import take_home
from deploy.local.host import CgroupVersion, LocalHost, _host_name, _is_loopback, _user_name, usable_cgroup
from deploy.local.layout import free_ports, make_layout
from deploy.local.state import require_state
from deploy.shape import GangKind, QueueKind, Shape, natural_shape, pin_cpus
from foundation.errors import ClusterError, HostError, UsageError

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
    assert lines["killwait"] == "5"
    assert lines["minjobage"] == "10"
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
    assert max(one, two) < 0x03FF0000 - 200_000, "Slurm's MaxJobId, and room for jobs"


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
