"""A cluster in containers of a real engine: jobs of a real trace, nodes made anew, cut off, and down again.

What holds for the jobs is asked of the embedded cluster, too, so that it holds where there is no engine.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from deploy.compose.cluster import Options
from deploy.compose.containers import FREEZER
from deploy.compose.engine import EngineName
from deploy.local import GangKind, HoldSetting, LocalCluster, Shape
from foundation.records import load_run
from tests.fixtures.container_engine import (
    Contained,
    Daemon,
    check_replay_against_sacct,
    contained_cluster,
    docker_engine,
    make_base,
)
from tests.fixtures.golden import small
from tests.fixtures.looks import until
from tests.integration.conftest import empty_folder
from workloads.swf import iter_swf

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(2400)]

TRACE = small("KTH-SP2-1996-2.1-cln.swf.gz")
JOBS = 50
NODES = 3
SHAPE = Shape(
    nodes=NODES, cores=1, virtual=True, multiplicity=2, gang=GangKind.OSUB, hold=HoldSetting.FREEZE,
    settings=("KillWait=3",),
)  # fmt: skip
Run = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster under test: how a command is run on its controller, and where gangd writes its record."""

    run: Run
    record: str


@dataclass(frozen=True, slots=True)
class Docker(Contained):
    """A cluster in containers of Docker, and its daemon where that is ours."""

    daemon: Daemon | None

    @property
    def stage(self) -> Stage:
        return Stage(self.run, "/var/lib/gangd/record/slices.jsonl")

    def states(self) -> dict[str, str]:
        """Return what Slurm calls each node."""
        output = self.run("sinfo", "-h", "-N", "-o", "%N %T")
        return dict(line.split() for line in output.splitlines())

    def up(self) -> None:
        self.cluster.up(EngineName.DOCKER, SHAPE, Options(monitoring=True))

    def prometheus(self, path: str, **query: str) -> Any:
        """Ask Prometheus at the port of this host that `up` names."""
        watch = self.cluster.state().monitoring
        assert watch is not None
        url = f"http://127.0.0.1:{watch.prometheus_port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as page:
            return json.load(page)["data"]


@pytest.fixture(scope="module")
def contained() -> Iterator[Docker]:
    of_these_sources = Options(build=True, monitoring=True)
    with docker_engine() as (engine, daemon), empty_folder() as folder:
        begun_s = time.monotonic()
        with contained_cluster(engine, folder, SHAPE, of_these_sources) as cluster:
            print(f"up after {time.monotonic() - begun_s:.0f} s, images included")
            yield Docker(cluster.cluster, engine, daemon)


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if request.param == "containers":
        yield request.getfixturevalue("contained").stage
        return
    make_cluster = request.getfixturevalue("make_cluster")
    cluster: LocalCluster = make_cluster(SHAPE)

    def run(*words: str) -> str:
        environment = os.environ | {"SLURM_CONF": str(cluster.conf)}
        return subprocess.run(
            words, capture_output=True, text=True, check=True, env=environment, cwd="/"
        ).stdout

    yield Stage(run, str(cluster.folder / "gang" / "record" / "slices.jsonl"))


def jobs_of_the_trace() -> list[tuple[float, int, float]]:
    """Return the first jobs of a real trace as (due, nodes, run), squeezed to a minute and 3 nodes.

    None is so short that it has ended before a busy host's Slurm has reported it to the gang scheduler.
    """
    found = [job for job in islice(iter_swf(TRACE), 400) if job.run_s and job.allocated_procs][:JOBS]
    first, last = found[0].submit_s, found[-1].submit_s
    squeeze = max(1.0, (last - first) / 60)
    return [
        (
            (job.submit_s - first) / squeeze,
            max(1, min(NODES, round((job.allocated_procs or 1) * NODES / 100))),
            min(9.0, max(3.0, (job.run_s or 0) / 2000)),
        )
        for job in found
    ]


@pytest.mark.parametrize(
    "stage", ["containers", pytest.param("embedded", marks=pytest.mark.slurm)], indirect=True
)
def test_fifty_jobs_of_a_real_trace_take_turns_and_end(stage: Stage) -> None:
    # One command: on a busy host each call of an engine takes seconds, and jobs end before others come.
    lines, before_s = ["set -e"], 0.0
    for due_s, nodes, run_s in jobs_of_the_trace():
        spin = shlex.quote(f"srun timeout {run_s:.2f} sh -c 'while :; do :; done'; true")
        lines.append(f"sleep {due_s - before_s:.2f}")
        lines.append(f"sbatch -N{nodes} --ntasks-per-node=1 -o /dev/null -t 5 --wrap {spin}")
        before_s = due_s
    stage.run("sh", "-c", "\n".join(lines))

    def ended() -> Counter[str]:
        return Counter(stage.run("squeue", "-h", "-t", "all", "-o", "%T").split())

    until(lambda: not set(ended()) & {"PENDING", "RUNNING", "COMPLETING"}, 900.0, "every job ends")
    assert ended()["COMPLETED"] >= JOBS
    assert set(ended()) == {"COMPLETED"}
    until(lambda: '"held"' in stage.run("cat", stage.record), 30.0, "gangd writes its record")


def test_no_job_leaves_its_cgroup_behind(contained: Docker) -> None:
    contained.run("srun", f"-N{NODES}", "true")
    folder = FREEZER / contained.cluster.state().cluster
    if not folder.is_dir():
        pytest.skip("not cgroup v1")
    until(lambda: not list(folder.glob("slurm_*/uid_*/job_*")), 60.0, "every job's folder is gone")
    assert len([path for path in folder.rglob("*") if path.is_dir()]) <= 4 * NODES, "those of nodes and users"


def test_prometheus_sees_gangd_and_each_agent_and_knows_the_alerts(contained: Docker) -> None:
    wanted = {("gangd", "controller"), *(("gang-agent", name) for name in contained.names("node"))}

    def up() -> set[tuple[str, str]]:
        targets = contained.prometheus("targets", state="active")["activeTargets"]
        labels = [one["labels"] for one in targets if one["health"] == "up"]
        assert all(set(one) == {"job", "instance"} for one in labels), "few labels"
        return {(one["job"], one["instance"]) for one in labels}

    until(lambda: up() == wanted, 120.0, "each is scraped")
    rules = [rule for group in contained.prometheus("rules")["groups"] for rule in group["rules"]]
    assert len(rules) > 15
    until(
        lambda: (
            [
                one["value"][1]
                for one in contained.prometheus("query", query='gangd_nodes{agent="joined"}')["result"]
            ]
            == [str(NODES)]
        ),
        120.0,
        "gangd's own count is there",
    )
    joined = contained.prometheus("query", query="count(gang_agent_up_seconds)")["result"]
    assert [one["value"][1] for one in joined] == [str(NODES)]
    [container] = contained.names("prometheus")
    shown = contained.engine.ask("inspect", "-f", "{{.HostConfig.PortBindings}} {{.Config.User}}", container)
    assert "127.0.0.1" in shown
    assert "0.0.0.0" not in shown
    assert "65534" in shown
    without = ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7323/metrics')"]
    asked = contained.engine.run("exec", contained.names("controller")[0], *without)
    assert "401" in asked.stderr, "the token is asked for"


def test_accounting_has_every_job(contained: Docker) -> None:
    contained.run("sbatch", "-W", "-o", "/dev/null", "--wrap", "true")
    until(
        lambda: "COMPLETED" in contained.run("sacct", "-X", "-n", "-o", "state"), 60.0, "slurmdbd hears of it"
    )


def test_a_job_runs_on_every_node_as_a_plain_user(contained: Docker) -> None:
    said = contained.run(
        "setpriv", "--reuid=osub", "--regid=osub", "--init-groups",
        "srun", f"-N{NODES}", "sh", "-c", "echo $SLURMD_NODENAME $(id -un)",
    )  # fmt: skip
    assert sorted(said.splitlines()) == sorted(f"{name} osub" for name in contained.names("node"))


def test_a_replay_from_this_host_runs_mpi_across_nodes_and_agrees_with_sacct(
    contained: Docker, tmp_path: Path
) -> None:
    start = json.loads(contained.osub(tmp_path, "doctor", "--json").stdout)
    found = {one["what"]: one["found"] for one in start}["MPI start"]
    assert found.startswith("2 ranks on 2 nodes"), "from one container's network to another's"
    stored = ("--calibration", "steps.json")
    done = contained.osub(
        tmp_path, "workloads", "calibrate", "--app", "lu", "--ranks", "2", "--nodes", "2",
        "--least-share", "0", *stored, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [kind] = json.loads(done.stdout)
    assert kind["step_ms"] > 0
    check_replay_against_sacct(contained, tmp_path, (2, 3, 1, 2), *stored)


def test_an_on_demand_job_takes_nodes_of_another_which_goes_on_later(
    contained: Docker, tmp_path: Path
) -> None:
    (tmp_path / "t.swf").write_text(
        "1 0 -1 30 3 -1 -1 3 300 -1 1 1 1 -1 1 -1 -1 -1\n2 10 -1 2 1 -1 -1 1 300 -1 1 1 1 -1 1 -1 -1 -1\n"
    )
    (tmp_path / "kinds.csv").write_text(
        "trace_job,kind,checkpoint_every_s,checkpoint_s\n1,rigid,1,0\n2,ondemand,,\n"
    )
    kinds = ("--on-demand", "n-paa", "--set", f"jobs={tmp_path}/kinds.csv")
    done = contained.osub(tmp_path, "replay", "t.swf", "--out", "run", *kinds)
    assert done.returncode == 0, done.stderr
    assert "simulated" in done.stdout
    rows = {row["trace_job"]: row for row in load_run(tmp_path / "run").jobs.to_dicts()}
    assert [row["state"] for row in rows.values()] == ["COMPLETED", "COMPLETED"]
    assert (rows[2]["kind"], rows[1]["preemptions"]) == ("ondemand", 1)
    assert rows[1]["end_s"] > rows[2]["end_s"]
    assert contained.run("scontrol", "show", "reservation", "-o").startswith("No reservations")


def test_jobs_reach_nodes_that_were_made_anew(contained: Docker) -> None:
    contained.engine.ask("rm", "-f", contained.names("node")[0])
    contained.up()
    assert contained.cluster.status().is_whole
    assert set(contained.states()) == set(contained.names("node"))
    said = contained.run("srun", f"-N{NODES}", "sh", "-c", "echo $SLURMD_NODENAME $(hostname)")
    ids = {name: contained.engine.ask("inspect", "-f", "{{.Config.Hostname}}", name).strip() for name in
           contained.names("node")}  # fmt: skip
    assert dict(line.split() for line in said.splitlines()) == ids
    cluster = contained.cluster.state().cluster
    if (FREEZER / cluster).is_dir():
        until(
            lambda: len(list((FREEZER / cluster).glob("slurm_*"))) <= NODES,
            120.0,
            "what the killed one left in the freezer is gone",
        )


def test_a_cut_network_takes_a_node_away_and_brings_it_back(contained: Docker) -> None:
    name = contained.names("node")[-1]
    network = f"{contained.cluster.state().cluster}_cluster"
    contained.engine.ask("network", "disconnect", network, name)
    until(lambda: "down" in contained.states()[name], 120.0, "Slurm misses it")
    assert not contained.cluster.status().is_whole
    contained.engine.ask("network", "connect", network, name)
    until(lambda: contained.states()[name] == "idle", 120.0, "it is back")
    assert contained.run("srun", "-w", name, "sh", "-c", "echo $SLURMD_NODENAME").strip() == name


def test_nodes_that_are_started_anew_at_once_are_idle_again(contained: Docker) -> None:
    contained.engine.ask("restart", *contained.names("node"), within_s=120.0)
    # A node that stops has itself forgotten: while it is away, all that are known are idle.
    wanted = dict.fromkeys(contained.names("node"), "idle")
    until(lambda: contained.states() == wanted, 120.0, "every node is idle")
    assert contained.run("sinfo", "-R", "-h") == ""
    assert len(contained.run("srun", f"-N{NODES}", "hostname").split()) == NODES


def test_jobs_are_in_sacct_although_slurmdbd_was_killed(contained: Docker) -> None:
    (accounting,) = contained.names("accounting")
    contained.engine.ask("kill", accounting)
    job = contained.run("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 1").strip()
    until(lambda: not contained.run("squeue", "-h", "-j", job).strip(), 120.0, "the job has ended")
    assert not contained.cluster.status().is_whole
    contained.up()
    words = ("exec", contained.names("controller")[0], "sacct", "-X", "-n", "-j", job, "-o", "state")
    # It fails until slurmdbd answers again.
    until(lambda: contained.engine.run(*words).stdout.split() == ["COMPLETED"], 60.0, "sacct has the job")


def test_accounting_outlives_containers_whose_volumes_are_kept(contained: Docker) -> None:
    before = set(contained.run("sacct", "-X", "-n", "-o", "jobid").split())
    assert before
    roles = ("controller", "accounting", "database", "node")
    contained.engine.ask("rm", "-f", *(name for role in roles for name in contained.names(role)))
    contained.up()
    until(lambda: contained.cluster.status().is_whole, 120.0, "the cluster is whole")
    assert before <= set(contained.run("sacct", "-X", "-n", "-o", "jobid").split())


def test_the_engine_is_started_anew(contained: Docker) -> None:
    if contained.daemon is None:
        pytest.skip("the engine is not the tests' own")
    contained.daemon.end()
    contained.daemon.start()
    until(lambda: contained.cluster.status().is_whole, 240.0, "every node is back")
    assert len(contained.run("srun", f"-N{NODES}", "hostname").split()) == NODES


def test_debian_12_has_a_cluster_too(contained: Docker, tmp_path: Path) -> None:
    make_base(contained.engine, 12)
    shape = Shape(nodes=2, cores=1, virtual=True, multiplicity=2, gang=GangKind.OSUB, hold=HoldSetting.FREEZE)
    of_these_sources = Options(debian=12, build=True)
    with (
        empty_folder() as folder,
        contained_cluster(contained.engine, folder, shape, of_these_sources) as other,
    ):
        assert " 22.05." in other.run("sinfo", "--version")
        for _ in range(5):
            spin = "srun timeout 2 sh -c 'while :; do :; done'; true"
            other.run("sbatch", "-N2", "-o", "/dev/null", "--wrap", spin)
        until(
            lambda: other.run("squeue", "-h", "-t", "all", "-o", "%T").split() == ["COMPLETED"] * 5,
            180.0,
            "five jobs are done",
        )
        until(lambda: other.run("sacct", "-X", "-n").count("COMPLETED") == 5, 120.0, "slurmdbd has them")
        record = contained.stage.record
        until(lambda: '"held"' in other.run("cat", record), 30.0, "they were held")
        check_replay_against_sacct(other, tmp_path, (2, 1, 2))
