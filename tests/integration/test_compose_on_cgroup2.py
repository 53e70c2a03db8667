"""A whole cluster in containers on cgroup v2, without privilege: Docker in a machine with systemd.

Linux as a process, one CPU, many times slower than here: nothing is timed but what must end.
"""

from __future__ import annotations

import json
import os
import site
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.compose.image import ensure_images
from deploy.compose.plan import image_of
from foundation.errors import HostError
from tests.fixtures.container_engine import docker_engine
from tests.fixtures.machine.boot import Machine
from tests.fixtures.machine.engine import MEMORY_MIB, MachineEngine, binds, make_disk
from tests.fixtures.machine.root import ENGINE_PACKAGES, cached_root, why_not
from tests.fixtures.swf_jobs import swf_job

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(3600)]

STATE = "/srv/state/c"
SHAPE = "--nodes 2 --cores 1 --virtual --multiplicity 2 --gang osub --hold freeze --no-accounting"
SPIN = "renice -n 19 $$ >/dev/null; while :; do :; done"
HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster in containers of a machine's Docker."""

    engine: MachineEngine
    controller: str
    nodes: tuple[str, ...]

    @property
    def machine(self) -> Machine:
        return self.engine.machine

    def run(self, words: str, within_s: float = 120.0) -> str:
        """Run a command in the controller's container."""
        return self.machine.must(f"docker exec -w /shared {self.controller} {words}", within_s)

    def submit(self, node: str, script: str, options: str = "") -> int:
        """Submit a job to one node; returns its number."""
        words = f"sbatch --parsable -w {node} -o /dev/null {options} --wrap '{script}'"
        return int(self.run(words).strip())

    def state_of(self, job: int) -> str:
        return self.run(f"squeue -h -t all -j {job} -o %T").strip()

    def task(self, node: str, job: int) -> str:
        """Return the cgroup of a job's task, in the node's container; empty if there is none."""
        find = f"find /sys/fs/cgroup -path '*job_{job}/step_batch/user/task_0' -type d"
        return self.machine.must(f"docker exec {node} {find}").strip()

    def folders(self, node: str) -> set[str]:
        """Return the folders of jobs that a node has."""
        find = "find /sys/fs/cgroup -type d -name 'job_*'"
        return set(self.machine.must(f"docker exec {node} {find}").split())

    def cpu_s(self, node: str, job: int) -> float:
        words = self.machine.must(f"docker exec {node} cat {self.task(node, job)}/cpu.stat").split()
        return int(words[words.index("usage_usec") + 1]) / 1e6


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if (why := why_not(ENGINE_PACKAGES)) is not None:
        pytest.skip(f"the machine {why}")
    with tempfile.TemporaryDirectory(prefix="ot-disk-", dir="/tmp") as name:
        disk = Path(name) / "disk"
        try:
            root = cached_root(ENGINE_PACKAGES)
            with docker_engine() as (engine, _):
                ensure_images(engine, 13, accounting=False, anew=True, say=print)
                make_disk([image_of(13)], disk)
        except HostError as error:
            pytest.skip(f"the machine's disks cannot be made: {error}")
        seen = binds(Path(__file__).parents[2], Path(site.getsitepackages()[0]))
        (work := Path(name) / "work").mkdir()
        with Machine(root, work, seen, MEMORY_MIB, disk) as machine:
            engine_inside = MachineEngine(machine)
            machine.must("mkdir -p /srv/state")
            begun_s = time.monotonic()
            engine_inside.osub(f"cluster up --engine docker {SHAPE} --state {STATE}", 600.0)
            print(f"up after {time.monotonic() - begun_s:.0f} s, the host's load {os.getloadavg()[0]:.0f}")
            document = json.loads(engine_inside.osub(f"cluster status --state {STATE} --json", 120.0))
            named = {
                role: [one["name"] for one in document["containers"] if one["role"] == role]
                for role in ("controller", "node")
            }
            assert document["whole"]
            yield Cluster(engine_inside, named["controller"][0], tuple(named["node"]))
            engine_inside.osub(f"cluster down --state {STATE}", 300.0)
            assert machine.must("docker ps -a -q; docker volume ls -q").strip() == ""


def test_no_container_is_privileged_and_a_node_has_cgroup_v2_of_its_own(cluster: Cluster) -> None:
    for node in cluster.nodes:
        shown = "{{.HostConfig.Privileged}} {{.HostConfig.CgroupnsMode}} {{.HostConfig.CapDrop}}"
        output = cluster.machine.must(f"docker inspect -f '{shown}' {node}").split()
        assert output == ["false", "private", "[ALL]"]
        cluster.machine.must(f"docker exec {node} grep -qw memory /sys/fs/cgroup/cgroup.subtree_control")
        cluster.machine.must(f'docker logs {node} 2>&1 | grep -q \'"freezer": "cgroup2"\'')


def test_two_jobs_of_a_node_take_turns_by_its_freezer(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    jobs = [cluster.submit(node, SPIN), cluster.submit(node, SPIN)]
    try:
        for job in jobs:
            wait(cluster, lambda job=job: bool(cluster.task(node, job)), "both compute")
        freezes = [f"{cluster.task(node, job)}/cgroup.freeze" for job in jobs]
        for freeze in [*freezes, *freezes]:
            cluster.machine.until(
                f"docker exec {node} grep -qx 1 {freeze}", 120, "now one is held, now the other"
            )
        before = [cluster.cpu_s(node, job) for job in jobs]
        for job, was in zip(jobs, before, strict=True):
            wait(cluster, lambda job=job, was=was: cluster.cpu_s(node, job) > was + 0.2, "both get on")
    finally:
        end(cluster, jobs)


def test_a_jobs_memory_is_bounded(cluster: Cluster) -> None:
    fits = cluster.submit(cluster.nodes[0], 'python -c "bytearray(16 << 20)"', "--mem=96")
    greedy = cluster.submit(cluster.nodes[0], 'python -c "bytearray(300 << 20)"', "--mem=96")
    wait(cluster, lambda: cluster.state_of(greedy) == "OUT_OF_MEMORY", "the greedy one is killed", 300.0)
    wait(cluster, lambda: cluster.state_of(fits) == "COMPLETED", "the other one ends")


def test_jobs_leave_no_folder_behind(cluster: Cluster) -> None:
    job = cluster.submit(cluster.nodes[1], "true", "--array=1-20")
    wait(cluster, lambda: set(cluster.state_of(job).split()) == {"COMPLETED"}, "twenty jobs end", 600.0)
    wait(cluster, lambda: not cluster.folders(cluster.nodes[1]), "their folders are gone")


def test_a_replay_runs_mpi_across_nodes(cluster: Cluster) -> None:
    lines = [swf_job(job, job, 2, nodes, 3600) for job, nodes in enumerate((2, 1, 2), 1)]
    trace = "".join(["; MaxNodes: 2\n; MaxProcs: 2\n", *lines])
    cluster.machine.must(f"echo '{trace}' > /srv/t.swf")
    words = f"replay /srv/t.swf --cluster {STATE} --out /srv/run --export OSUB_MPI_START_S=900 --json"
    said = cluster.engine.osub(words, 1800.0).splitlines()  # with what it said on standard error
    outcome = json.loads(next(line for line in said if line.startswith("{")))
    assert (outcome["finished"], outcome["states"]) == (True, {"COMPLETED": 3}), outcome


def wait(cluster: Cluster, done: object, what: str, within_s: float = 180.0) -> None:
    assert callable(done)
    deadline_s = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline_s:
            logs = [cluster.machine.run(f"docker logs --tail 20 {node} 2>&1").text for node in cluster.nodes]
            pytest.fail(f"not within {within_s:g} s: {what}\n" + "\n".join(logs))
        cluster.machine.must("sleep 1")


def end(cluster: Cluster, jobs: list[int]) -> None:
    cluster.run(f"scancel {' '.join(map(str, jobs))}")
    wait(cluster, lambda: not any(cluster.folders(node) for node in cluster.nodes), "nothing is left of jobs")
