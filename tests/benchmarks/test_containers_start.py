"""A cluster in containers comes up: ``pytest -m benchmark -s tests/benchmarks/test_containers_start.py``.

A Docker of the benchmark's own, or the one that runs here. Images are built first, on a base that is there or
is made (not timed). Then twelve nodes, slurmdbd and MariaDB from nothing until every node is idle and every
agent has joined, and the first job. ``OSUB_NODES`` sets how many nodes, ``OSUB_TIMES`` how often. CPU time is
that of the containers' cgroups (v1); it says what a busy host hides. Five to ten minutes, most of it images.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.compose.cluster import ComposeCluster, Options
from deploy.compose.containers import list_containers, of_role
from deploy.compose.engine import Engine, EngineName
from deploy.compose.image import ensure_images
from deploy.compose.plan import ComposeState, images_to_build
from deploy.shape import GangKind, HoldSetting, Shape
from tests.fixtures.container_engine import docker_engine
from tests.integration.conftest import empty_folder

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

NODES = int(os.environ.get("OSUB_NODES", "12"))
TIMES = int(os.environ.get("OSUB_TIMES", "3"))
SHAPE = Shape(nodes=NODES, cores=1, virtual=True, multiplicity=2, gang=GangKind.OSUB, hold=HoldSetting.FREEZE)
_ACCOUNTS = Path("/sys/fs/cgroup/cpuacct/docker")


def test_images_and_a_cluster_of_twelve_nodes() -> None:
    with docker_engine() as (engine, _):
        begun_s = time.monotonic()

        def say(what: str) -> None:
            print(f"{time.monotonic() - begun_s:.0f} s: {what}")

        ensure_images(engine, 13, accounting=True, anew=True, say=say)
        print(f"\nimages built in {time.monotonic() - begun_s:.0f} s, load {load()}")
        for name in images_to_build(13, accounting=True, monitoring=None):
            size = int(engine.ask("image", "inspect", "-f", "{{.Size}}", name))
            print(f"{name}: {size / 1e6:.0f} MB")
        for _ in range(TIMES):
            print(one_start(engine))


def one_start(engine: Engine) -> str:
    """Return the figures of one start from nothing, as a line."""
    with empty_folder() as folder:
        cluster = ComposeCluster(folder / "c")
        begun_s = time.monotonic()
        said: dict[str, float] = {}
        try:
            state = cluster.up(
                EngineName.DOCKER, SHAPE, Options(), lambda what: note(said, what, time.monotonic() - begun_s)
            )
            up_s = time.monotonic() - begun_s
            cpu = cpu_seconds(engine, state)
            [controller] = of_role(list_containers(engine, state.home, state.cluster), "controller")
            engine.ask("exec", "-w", "/shared", controller.id, "srun", f"-N{NODES}", "true", within_s=120.0)
            job_s = time.monotonic() - begun_s
            steps = ", ".join(f"{what} {at_s:.0f} s" for what, at_s in list(said.items())[:12])
            spent = ", ".join(f"{role} {seconds:.1f}" for role, seconds in cpu.items())
            return (
                f"1 + {NODES} nodes up {up_s:.1f} s, first job on all of them done {job_s:.1f} s, "
                f"load {load()}; CPU s by then: {sum(cpu.values()):.1f} ({spent}); {steps}"
            )
        finally:
            cluster.down()


def note(said: dict[str, float], what: str, at_s: float) -> None:
    """Keep when something was said first."""
    said.setdefault(what, at_s)


def cpu_seconds(engine: Engine, state: ComposeState) -> Mapping[str, float]:
    """Return the CPU time of each role's containers so far; nothing where cgroup v1 does not count it."""
    found: dict[str, float] = {}
    for one in list_containers(engine, state.home, state.cluster):
        usage = _ACCOUNTS / one.id / "cpuacct.usage"
        if usage.exists():
            found[one.role] = found.get(one.role, 0.0) + int(usage.read_text()) / 1e9
    return found


def load() -> str:
    """Return the host's load of the last minute."""
    return f"{os.getloadavg()[0]:.1f}"
