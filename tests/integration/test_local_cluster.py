"""The embedded cluster on this host's real Slurm: up, faults, down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local import LocalCluster, QueueKind, Shape
from deploy.local.daemons import find_process
from foundation.errors import ClusterError
from foundation.slurm import CommandSlurm, JobSnapshot, SlurmJobState, SubmitRequest
from tests.fixtures.leftovers import node_cgroups
from tests.fixtures.looks import until
from tests.fixtures.marked import marked_processes

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

Make = Callable[[Shape], LocalCluster]
SLEEPER = SubmitRequest(
    script="#!/bin/sh\nsleep 300\n", name="sleeper", environment={"PATH": "/bin:/usr/bin"}
)
# A task that leaves its session and its process tree: parentage does not find it.
ESCAPER = SubmitRequest(
    script="#!/bin/sh\n(setsid sleep 301 &) \nsleep 300\n",
    name="escaper",
    environment={"PATH": "/bin:/usr/bin"},
)


def state_of(client: CommandSlurm, job_id: int) -> SlurmJobState | None:
    job = client.job(job_id)
    return job.state if job else None


def test_jobs_share_cores_and_their_cores_are_reported(make_cluster: Make) -> None:
    client = make_cluster(Shape(nodes=2, cores=2, virtual=True, multiplicity=2)).client()
    wide = SubmitRequest(
        script=SLEEPER.script, name="wide", nodes=2, tasks_per_node=2, environment=SLEEPER.environment
    )
    ids = [client.submit(wide) for _ in range(3)]
    until(lambda: state_of(client, ids[1]) is SlurmJobState.RUNNING, 60, "second job shares the cores")
    jobs = {job.job_id: job for job in client.jobs().jobs}
    assert jobs[ids[0]].cores == jobs[ids[1]].cores
    assert [held.cores for held in jobs[ids[0]].cores] == [(0, 1), (0, 1)]
    assert jobs[ids[2]].state is SlurmJobState.PENDING
    client.cancel(ids)
    until(lambda: all(job.state.is_over for job in client.jobs().jobs), 60, "cancelled jobs end")


def test_jobs_that_do_not_fit_in_memory_do_not_share(make_cluster: Make) -> None:
    client = make_cluster(Shape(nodes=1, cores=1, virtual=True, multiplicity=2)).client()
    hungry = SubmitRequest(
        script=SLEEPER.script,
        name="hungry",
        memory_per_cpu_mib=client.nodes()[0].memory_mib * 6 // 10,
        environment=SLEEPER.environment,
    )
    first, second = client.submit(hungry), client.submit(hungry)
    until(lambda: state_of(client, first) is SlurmJobState.RUNNING, 60, "first job runs")
    until(
        lambda: (job := client.job(second)) is not None and job.reason == "Resources", 20, "second job waits"
    )


def test_ends_of_jobs_are_moved_by_one_command_and_each_refusal_is_reported(make_cluster: Make) -> None:
    client = make_cluster(Shape(nodes=1, cores=2, virtual=True)).client()
    request = SubmitRequest(
        script=SLEEPER.script, name="s", time_limit_minutes=5, environment=SLEEPER.environment
    )
    one, two, waits = (client.submit(request) for _ in range(3))
    for number in (one, two):
        until(lambda number=number: state_of(client, number) is SlurmJobState.RUNNING, 60, "job runs")  # type: ignore[misc]

    def ends() -> dict[int, int | None]:
        return {job.job_id: job.end_time for job in client.jobs().jobs}

    before = ends()[one]
    assert before is not None
    refused = client.move_ends({4711: before, one: before + 30, waits: before + 60, two: before + 90})
    assert set(refused) == {4711, waits}
    assert "Invalid job id" in refused[4711]
    assert "not running" in refused[waits]
    after = ends()
    assert (after[one], after[two]) == (before + 30, before + 90)


def test_two_clusters_do_not_collide(make_cluster: Make) -> None:
    shape = Shape(nodes=2, cores=1, virtual=True)
    one, two = make_cluster(shape), make_cluster(shape)
    job = one.client().submit(SLEEPER)
    until(lambda: state_of(one.client(), job) is SlurmJobState.RUNNING, 60, "job runs")
    assert two.client().jobs() == JobSnapshot(())
    two.down()
    assert state_of(one.client(), job) is SlurmJobState.RUNNING


@pytest.mark.parametrize("role", ["munged", "slurmctld", "slurmd"])
def test_up_starts_what_was_killed_and_jobs_go_on(make_cluster: Make, role: str) -> None:
    cluster = make_cluster(Shape(nodes=2, cores=1, virtual=True))
    job = cluster.client().submit(SLEEPER)
    until(lambda: state_of(cluster.client(), job) is SlurmJobState.RUNNING, 60, "job runs")
    victim = role if role != "slurmd" else f"slurmd {cluster.state().layout.nodes[0].name}"
    # Slurmctld saves its state some seconds after a change; what it had not saved is Slurm's to lose.
    saved, changed = cluster.state().layout.controller_state / "job_state", time.time()
    cluster.client().submit(SLEEPER)
    until(lambda: saved.exists() and saved.stat().st_mtime > changed, 60, "slurmctld saves its state")
    daemon = next(daemon for daemon in cluster.state().daemons if daemon.role == victim)
    os.kill(daemon.pid, signal.SIGKILL)
    until(lambda: find_process(daemon) is None, 60, "victim is dead")
    assert not cluster.status().daemons[victim]
    cluster.up(cluster.state().shape)
    assert cluster.status().is_whole
    assert state_of(cluster.client(), job) is SlurmJobState.RUNNING


def test_down_leaves_nothing_after_every_daemon_was_killed(make_cluster: Make) -> None:
    cluster = make_cluster(Shape(nodes=2, cores=1, virtual=True, multiplicity=2))
    client = cluster.client()
    jobs = [client.submit(SLEEPER), client.submit(ESCAPER)]
    until(lambda: all(state_of(client, job) is SlurmJobState.RUNNING for job in jobs), 60, "jobs run")
    layout = cluster.state().layout
    until(lambda: len(marked_processes(layout.cluster_name)) >= 8, 60, "jobs have processes")
    for daemon in cluster.state().daemons:
        os.kill(daemon.pid, signal.SIGKILL)
    assert cluster.down().existed
    assert marked_processes(layout.cluster_name) == []
    assert node_cgroups(node.name for node in layout.nodes) == []
    assert not cluster.folder.exists()
    assert not cluster.down().existed


def test_down_ends_frozen_and_stopped_jobs(make_cluster: Make) -> None:
    cluster = make_cluster(Shape(nodes=1, cores=1, virtual=True))
    client = cluster.client()
    job = client.submit(SLEEPER)
    name = cluster.state().layout.cluster_name
    until(lambda: state_of(client, job) is SlurmJobState.RUNNING, 60, "job runs")
    until(lambda: any(p.name() == "sleep" for p in marked_processes(name)), 60, "the job sleeps")
    steps = [
        path for top in node_cgroups([cluster.state().layout.nodes[0].name]) for path in top.rglob("step_*")
    ]
    frozen = [step / "freezer.state" for step in steps if (step / "freezer.state").exists()]
    for control in frozen:
        control.write_text("FROZEN")
    for process in marked_processes(name):
        if process.name() == "sleep" and not frozen:
            process.send_signal(signal.SIGSTOP)
    cluster.down()
    assert marked_processes(name) == []


def test_another_shape_in_the_same_folder_is_refused(make_cluster: Make) -> None:
    cluster = make_cluster(Shape(nodes=1, cores=1, virtual=True))
    with pytest.raises(ClusterError, match="another shape"):
        cluster.up(Shape(nodes=2, cores=1, virtual=True))


def test_a_folder_with_another_users_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=production\n")
    with pytest.raises(ClusterError, match="not ours"):
        LocalCluster(tmp_path).up(Shape(nodes=1, cores=1, virtual=True))
    assert (tmp_path / "slurm.conf").read_text() == "ClusterName=production\n"


def test_a_daemon_that_does_not_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c")
    # Controller and node both refuse the setting: whichever ends first is named.
    with pytest.raises(ClusterError, match=r"slurm(ctld|d \S+) ended at once: .*select/nonsense"):
        cluster.up(Shape(nodes=1, cores=1, virtual=True, settings=("SelectType=select/nonsense",)))
    assert not (tmp_path / "c" / "cluster.json").exists()


def test_two_queues_are_two_partitions(make_cluster: Make) -> None:
    shape = Shape(nodes=3, cores=2, virtual=True, queues=QueueKind.MQ, multiplicity_interactive=3)
    parts = {part.name: part for part in make_cluster(shape).client().partitions()}
    assert (len(parts["batch"].nodes), parts["batch"].multiplicity) == (2, 1)
    assert (len(parts["interactive"].nodes), parts["interactive"].multiplicity) == (1, 3)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_plain_user_has_a_cluster_too(tmp_path: Path) -> None:
    """Everything as user `nobody`: own munged, no cgroups; the job runs and nothing is left."""
    folder = Path("/tmp") / f"osub-nobody-{os.getpid()}"
    script = (
        "import os, time, encodings.idna; from pathlib import Path\n"
        "from deploy.local import *; from foundation.slurm import *\n"
        # The interpreter may lie in root's home: everything is loaded before the change of user.
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"c = LocalCluster(Path({str(folder)!r}))\n"
        "s = c.up(Shape(nodes=2, cores=1, virtual=True, multiplicity=2)); assert s.cgroup == 'none'\n"
        "j = c.client().submit(SubmitRequest(script='#!/bin/sh\\nsrun -n2 id -u\\n', name='j', nodes=2,"
        " environment={'PATH': '/usr/bin:/bin'}))\n"
        "deadline = time.time() + 30\n"
        "while not c.client().job(j).state.is_over and time.time() < deadline: time.sleep(0.1)\n"
        "print(c.client().job(j).state, s.layout.cluster_name); c.down()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": os.environ["PATH"], "HOME": "/tmp", "LOGNAME": "nobody", "USER": "nobody"},
        capture_output=True, text=True, timeout=90, check=False, cwd="/tmp",
    )  # fmt: skip
    state, _, name = done.stdout.strip().partition(" ")
    assert state == "COMPLETED", done.stderr
    assert not folder.exists()
    assert name
    assert marked_processes(name) == []  # others may have a cluster as `nobody` at the same time


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace")
def test_a_fresh_debians_host_name_is_no_hindrance(tmp_path: Path) -> None:
    """The host name's address is 127.0.1.1, as Debian's installer writes it, and Slurm starts a job."""
    state, hosts, osub = tmp_path / "c", tmp_path / "hosts", Path(sys.executable).with_name("osub")
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 fresh\n")
    script = (
        f"hostname fresh; mount --bind {hosts} /etc/hosts; ip link set lo up; "
        "ip address add 10.231.0.1/24 dev lo; "
        f"trap '{osub} cluster down --state {state}' EXIT; "
        f"{osub} cluster up --state {state} --nodes 2 --cores 1 --virtual && "
        f"SLURM_CONF={state}/slurm.conf srun -N2 hostname"
    )
    done = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert "fresh\nfresh\n" in done.stdout, done.stdout + done.stderr
