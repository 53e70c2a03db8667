"""``osub doctor --cluster``: a good configuration, and broken ones with the lines that mend them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.checks import Advice, Configuration, Grade, judge, threads_here
from foundation.slurm import Partition, SlurmNode
from foundation.slurm.site_configuration import read_config, read_nodes, read_partitions

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
    name="shared",
    nodes=("n1", "n2"),
    multiplicity=2,
    forced=True,
    is_default=True,
    is_up=True,
    preempt_mode="OFF",
    default_memory=True,
)
NODE = SlurmNode(
    name="n1",
    states=frozenset({"IDLE"}),
    cores=8,
    threads_per_core=2,
    memory_mib=64_000,
    cpus_allocated=0,
    features=frozenset(),
    version="24.11.5",
)


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
    found = faults(configuration(freeze_cap_s=20.0))
    assert found["MessageTimeout"].write == "MessageTimeout=40"
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
    advice = judge(configuration(values))
    assert any(one.grade is Grade.BAD for one in advice)


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
