"""A cluster in containers of podman, by Debian's podman-compose: up, jobs that take turns, and down again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from deploy.compose.cluster import ComposeCluster, Options
from deploy.compose.containers import FREEZER, list_containers, list_others, of_role
from deploy.compose.engine import Engine, EngineName
from deploy.shape import GangKind, HoldSetting, Shape
from tests.fixtures.container_engine import podman_engine
from tests.fixtures.looks import until
from tests.integration.conftest import empty_folder

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(2400)]

NODES = 2
SHAPE = Shape(nodes=NODES, cores=1, virtual=True, multiplicity=2, gang=GangKind.OSUB, hold=HoldSetting.FREEZE)


@dataclass(frozen=True, slots=True)
class Contained:
    """A cluster in containers, and its engine."""

    cluster: ComposeCluster
    engine: Engine

    def run(self, *words: str) -> str:
        """Run a command in the controller's container."""
        return self.engine.ask("exec", "-w", "/shared", self.names("controller")[0], *words, within_s=90.0)

    def names(self, role: str) -> list[str]:
        state = self.cluster.state()
        return [one.name for one in of_role(list_containers(self.engine, state.home, state.cluster), role)]


@pytest.fixture(scope="module")
def contained() -> Iterator[Contained]:
    with podman_engine() as engine, empty_folder() as folder:
        cluster = ComposeCluster(folder / "c")
        try:
            cluster.up(EngineName.PODMAN, SHAPE, Options())
        except BaseException:
            cluster.down()
            raise
        state = cluster.state()
        try:
            yield Contained(cluster, engine)
        finally:
            cluster.down()
            assert list_containers(engine, state.home, state.cluster) == []
            assert list_others(engine, "volume", state.home, state.cluster) == []
            assert list_others(engine, "network", state.home, state.cluster) == []
            assert not (FREEZER / state.cluster).exists()
            assert not cluster.folder.exists()


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


def test_a_second_up_starts_what_has_died(contained: Contained) -> None:
    contained.engine.ask("rm", "-f", contained.names("node")[-1])
    assert not contained.cluster.status().is_whole
    contained.cluster.up(EngineName.PODMAN, SHAPE, Options())
    assert contained.cluster.status().is_whole
    said = contained.run("srun", f"-N{NODES}", "sh", "-c", "echo $SLURMD_NODENAME")
    assert sorted(said.split()) == sorted(contained.names("node"))
