"""Which way of yielding is taken, from what a host and Slurm offer."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import UsageError
from gangd.hold.cpu_group import cpu_group, cpu_path
from gangd.hold.deprioritizer_choice import SlurmLimits, choose_way

PLAIN = SlurmLimits("proctrack/linuxproc", "jobacct_gather/none", "task/none")


def unified(mount: Path, *, enabled: str = "", top: bool = True) -> Path:
    """Make what is seen of a unified hierarchy, and of processes by one who may give any priority."""
    (mount / "proc" / "self").mkdir(parents=True)
    (mount / "proc" / "self" / "status").write_text("Name:\tx\nCapEff:\tffffffffffffffff\n")
    for name, text in (
        ("cgroup.controllers", "cpuset cpu io memory\n"),
        ("cgroup.procs", ""),
        ("cgroup.subtree_control", enabled),
    ):
        (mount / name).write_text(text)
    if not top:
        (mount / "cgroup.type").write_text("domain\n")
    return mount


def auto(mount: Path, slurm: SlurmLimits) -> str:
    return choose_way("auto", None, slurm, mount, mount / "proc").kind


def test_own_groups_where_slurm_keeps_jobs_in_no_cgroups(tmp_path: Path) -> None:
    way = choose_way("auto", None, PLAIN, unified(tmp_path))
    assert (way.kind, way.root) == ("cgroup2-own", tmp_path)
    assert way.kind != "freeze"


@pytest.mark.parametrize(
    ("slurm", "kind"),
    [
        (SlurmLimits(), "cgroup2"),
        (SlurmLimits("proctrack/cgroup", "jobacct_gather/none", "task/none"), "cgroup2"),
        (SlurmLimits("proctrack/pgid", "jobacct_gather/linux", "task/affinity"), "cgroup2-own"),
        (SlurmLimits("proctrack/linuxproc", "jobacct_gather/cgroup", "task/none"), "sched-idle"),
        (SlurmLimits("proctrack/pgid", "jobacct_gather/none", "task/affinity,task/cgroup"), "sched-idle"),
    ],
)
def test_what_slurm_has_in_cgroups_is_moved_out_of_none(
    tmp_path: Path, slurm: SlurmLimits, kind: str
) -> None:
    assert auto(unified(tmp_path), slurm) == kind


@pytest.mark.parametrize(("enabled", "kind"), [("memory", "sched-idle"), ("cpu memory", "cgroup2-own")])
def test_below_the_top_the_controller_must_be_enabled_already(
    tmp_path: Path, enabled: str, kind: str
) -> None:  # the kernel enables none where processes are
    assert auto(unified(tmp_path, enabled=enabled, top=False), PLAIN) == kind


def test_without_a_controller_to_give_there_are_no_own_groups(tmp_path: Path) -> None:
    unified(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    assert auto(tmp_path, PLAIN) == "sched-idle"


def test_what_is_asked_for_is_obeyed_where_there_is_such_a_hierarchy(tmp_path: Path) -> None:
    for kind in ("cgroup2", "cgroup2-own"):
        assert choose_way(kind, None, SlurmLimits(), tmp_path).root == tmp_path
        with pytest.raises(UsageError):
            choose_way(kind, tmp_path / "absent", SlurmLimits(), tmp_path)
    with pytest.raises(UsageError):
        choose_way("cgroup1", None, SlurmLimits(), tmp_path)


def test_cgroup_of_a_process_is_that_of_the_hierarchy_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    lines = tmp_path / "7" / "cgroup"
    lines.write_text("3:cpu,cpuacct:/one\n1:name=systemd:/two\n0::/three/inner\n")
    assert cpu_path(7, tmp_path) == "/one"
    assert cpu_path(7, tmp_path, unified=True) == "/three/inner"
    assert cpu_group(7, tmp_path, tmp_path) == "one"
    lines.write_text("0::/three/inner\n")
    assert cpu_path(7, tmp_path) is None
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / "cpu.weight").write_text("100")
    assert cpu_group(7, tmp_path, tmp_path) == "three"
    assert cpu_path(8, tmp_path, unified=True) is cpu_group(8, tmp_path, tmp_path) is None
