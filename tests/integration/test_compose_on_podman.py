"""A cluster in containers of podman, by Debian's podman-compose: up, jobs that take turns, and down again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.compose.cluster import Options
from deploy.compose.engine import EngineName
from deploy.shape import GangKind, HoldSetting, Shape
from tests.fixtures.container_engine import (
    Contained,
    check_replay_against_sacct,
    contained_cluster,
    podman_engine,
)
from tests.fixtures.looks import until
from tests.integration.conftest import empty_folder

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(2400)]

NODES = 2
SHAPE = Shape(nodes=NODES, cores=1, virtual=True, multiplicity=2, gang=GangKind.OSUB, hold=HoldSetting.FREEZE)


@pytest.fixture(scope="module")
def contained() -> Iterator[Contained]:
    with (
        podman_engine() as engine,
        empty_folder() as folder,
        contained_cluster(engine, folder, SHAPE, Options()) as contained,
    ):
        yield contained


def test_it_is_whole_and_no_container_is_privileged(contained: Contained) -> None:
    assert contained.cluster.status().is_whole
    for name in contained.names("node"):
        assert contained.engine.ask("inspect", "-f", "{{.HostConfig.Privileged}}", name).strip() == "false"


def test_jobs_take_turns_and_end_and_slurmdbd_has_them(contained: Contained) -> None:
    for _ in range(6):
        spin = "srun timeout 2 sh -c 'while :; do :; done'; true"
        contained.run("sbatch", f"-N{NODES}", "-o", "/dev/null", "--wrap", spin)
    until(
        lambda: contained.run("squeue", "-h", "-t", "all", "-o", "%T").split() == ["COMPLETED"] * 6,
        240.0,
        "six jobs are done",
    )
    record = "/var/lib/gangd/record/slices.jsonl"
    until(lambda: '"held"' in contained.run("cat", record), 30.0, "they were held")
    until(lambda: contained.run("sacct", "-X", "-n").count("COMPLETED") == 6, 120.0, "slurmdbd has them")


def test_a_replay_from_this_host_runs_mpi_across_nodes_and_agrees_with_sacct(
    contained: Contained, tmp_path: Path
) -> None:
    check_replay_against_sacct(contained, tmp_path, (2, 1, 2))


def test_a_second_up_starts_what_has_died(contained: Contained) -> None:
    contained.engine.ask("rm", "-f", contained.names("node")[-1])
    assert not contained.cluster.status().is_whole
    contained.cluster.up(EngineName.PODMAN, SHAPE, Options())
    assert contained.cluster.status().is_whole
    said = contained.run("srun", f"-N{NODES}", "sh", "-c", "echo $SLURMD_NODENAME")
    assert sorted(said.split()) == sorted(contained.names("node"))
