"""Reading nodes, partitions and configuration as a real Slurm 22.05 printed them (tests/fixtures/slurm)."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import ClusterError
from foundation.slurm.site_configuration import read_config, read_nodes, read_partitions, scheduling_config

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm"
NODES = (FIXTURES / "nodes.txt").read_text()
PARTITIONS = (FIXTURES / "partitions.txt").read_text()


def test_nodes_have_states_as_flags_and_a_reason() -> None:
    nodes = {node.name: node for node in read_nodes(NODES)}
    assert nodes["aduqw-n1"].is_up
    assert [node.reason for node in nodes.values() if not node.is_up] == ["bad disk, see log"]
    assert "DRAIN" in nodes["aduqw-n2"].states


def test_cores_are_those_of_all_sockets_and_no_threads() -> None:
    one, two = read_nodes(NODES)
    assert (one.cores, one.sockets, one.cores_per_socket, one.threads_per_core) == (4, 1, 4, 2)
    assert (two.cores, two.sockets, two.cores_per_socket, two.threads_per_core) == (6, 2, 3, 2)


def test_a_node_that_counts_each_core_as_one_cpu_has_all_its_cores() -> None:
    [node, _] = read_nodes(NODES.replace("CPUTot=8", "CPUTot=4"))
    assert node.cores == 4


def test_a_node_that_does_not_respond_is_not_up() -> None:
    node = read_nodes(NODES.replace("State=MIXED ", "State=MIXED* "))[0]
    assert "NOT_RESPONDING" in node.states
    assert not node.is_up


def test_what_an_operator_writes_of_a_node_is_not_taken_for_what_slurm_says() -> None:
    said = NODES.replace("bad disk, see log", "x State=IDLE Sockets=9 CPUAlloc=0 CoresPerSocket=9")
    assert [(node.cores, node.is_up) for node in read_nodes(said)] == [(4, True), (6, False)]
    lines = NODES.rstrip() + " Comment=x\nNodeName=evil CPUTot=3\nNodeName=aduqw-n1 Sockets=7\n"
    assert [node.name for node in read_nodes(lines)] == ["aduqw-n1", "aduqw-n2"]


def test_partitions_have_their_nodes_and_multiplicity() -> None:
    [main] = read_partitions(PARTITIONS)
    assert (main.name, main.nodes) == ("main", ("aduqw-n1", "aduqw-n2"))
    assert (main.multiplicity, main.forced, main.is_default, main.is_up) == (2, True, True, True)
    [optional] = read_partitions(PARTITIONS.replace("FORCE:2", "YES:4"))
    assert (optional.multiplicity, optional.forced) == (4, False)
    [alone] = read_partitions(PARTITIONS.replace("FORCE:2", "NO"))
    assert alone.multiplicity == 1


@pytest.mark.parametrize(
    ("printed", "limit_s"),
    [("UNLIMITED", None), ("00:05:00", 300), ("2-01:00:00", 176_400), ("1:2", None), ("", None)],
)
def test_the_longest_time_of_a_partition_is_known(printed: str, limit_s: int | None) -> None:
    [main] = read_partitions(PARTITIONS.replace("MaxTime=UNLIMITED", f"MaxTime={printed}"))
    assert main.most_time_s == limit_s


def test_the_most_nodes_of_a_job_in_a_partition_are_known() -> None:
    assert read_partitions(PARTITIONS)[0].most_nodes is None
    [main] = read_partitions(PARTITIONS.replace("MaxNodes=UNLIMITED", "MaxNodes=4"))
    assert main.most_nodes == 4


def test_a_partition_whose_nodes_are_no_host_list_is_an_error() -> None:
    with pytest.raises(ClusterError, match="host list"):
        read_partitions(PARTITIONS.replace("Nodes=aduqw-n[1-2]", "Nodes=@all"))


def test_configuration_is_a_mapping() -> None:
    config = read_config((FIXTURES / "config.txt").read_text())
    assert (config["SLURM_VERSION"], config["MessageTimeout"]) == ("22.05.8", "10 sec")


def test_what_says_when_jobs_start_is_kept_as_one_line_of_bounded_length() -> None:
    kept = scheduling_config(read_config((FIXTURES / "config.txt").read_text()))
    assert kept["SchedulerType"] == "sched/backfill"
    assert {"SchedulerParameters", "PriorityType", "Epilog", "CompleteWait"} <= kept.keys()
    assert not {"SlurmUser", "StateSaveLocation", "AuthInfo", "AccountingStoragePass"} & kept.keys()
    hostile = {"SchedulerParameters": "x\n\x1b[31m" + "y" * 10_000, "Other": "z"}
    [value] = scheduling_config(hostile).values()
    assert value.isprintable()
    assert len(value) <= 2048
