"""``osub evict --execute`` on a real Slurm, with jobs that save themselves at a signal and others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from deploy.local import LocalCluster, Shape
from foundation.slurm import CommandSlurm, SlurmJob, SlurmJobState
from foundation.slurm.run_command import CommandOutput, run_command
from submitter.eviction import Eviction, EvictionMeans, EvictionOrder, Fate, OrderEnd
from tests.fixtures import saver
from tests.fixtures.looks import until
from tests.integration.conftest import empty_folder, end_cluster, quick_to_kill

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

START_S = 90.0
NOBODY_ID = 65534
SLEEPER = "#!/bin/sh\nexec sleep 100000\n"


class Site:
    """A cluster, and jobs on it."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.conf = cluster.state().layout.conf
        self.client = cluster.client()
        self.environment = {"PATH": os.environ["PATH"], "SLURM_CONF": str(self.conf)}

    def submit(self, script: str, *options: str) -> int:
        words = ["sbatch", "--parsable", "-o", "/dev/null", *options]
        done = subprocess.run(
            words, input=script, env=self.environment, capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    def saver(self, name: str, seconds: str, *options: str) -> int:
        """Start a job whose step saves itself, and wait until it would."""
        file = self.folder / name
        job = self.submit(
            f"#!/bin/sh\nexec srun {sys.executable} {saver.__file__} {file} {seconds}\n",
            "-N1",
            "-n2",
            *options,
        )
        self.wait_for(job, name, 0, 1)
        return job

    def wait_for(self, job: int, name: str, *ranks: int) -> None:
        """Wait until each of these processes of a step would hear the signal."""
        ready = [self.folder / f"{name}.ready{rank}" for rank in ranks]
        until(lambda: all(file.exists() for file in ready), START_S, f"job {job} is ready")

    def sleeper(self, *options: str) -> int:
        job = self.submit(SLEEPER, *options)
        until(lambda: self.state(job) is SlurmJobState.RUNNING, START_S, f"job {job} runs")
        return job

    def job(self, job_id: int) -> SlurmJob | None:
        return self.client.job(job_id)

    def state(self, job_id: int) -> SlurmJobState | None:
        job = self.job(job_id)
        return None if job is None else job.state

    def order(self, job_id: int, fate: Fate) -> EvictionOrder:
        job = self.job(job_id)
        assert job is not None
        assert job.start_time is not None
        return EvictionOrder(spec=job.spec, job_id=job_id, start_time=job.start_time, fate=fate, planned_s=6)

    def evict(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable, "-m", "osub.cli.main", "evict", "--cluster", str(self.cluster.folder),
            *words,
        ]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def table(self, text: str) -> str:
        (path := self.folder / "times.csv").write_text(text)
        return str(path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Four nodes of two cores, which everybody can reach."""
    with empty_folder() as folder:
        folder.chmod(0o755)
        made = LocalCluster(folder / "c")
        made.up(quick_to_kill(Shape(nodes=4, cores=2, virtual=True)))
        try:
            yield made
        finally:
            end_cluster(made)


@pytest.fixture
def site(cluster: LocalCluster, tmp_path: Path) -> Iterator[Site]:
    found = Site(cluster, tmp_path)
    yield found
    client = found.client
    client.cancel([job.job_id for job in client.jobs().jobs if not job.state.is_over])
    until(lambda: not any(job.state.holds_cores for job in client.jobs().jobs), 40, "the nodes are empty")


def test_savers_save_themselves_and_the_rest_is_killed(site: Site) -> None:
    first, second = site.saver("first", "0.5"), site.saver("second", "0.5")
    killed = site.sleeper("-N1", "-n2")
    spared = site.sleeper("-N1", "-n2")
    table = site.table(f"job,ta_min,loss\n{first},0.1,\n{second},0.1,\n{spared},,1000\n")
    words = ("--free-nodes", "3", "--deadline", "0.5", "--granularity", "0.1", "--times", table)
    shown = site.evict(*words)
    assert shown.returncode == 0, shown.stderr
    assert f"  scancel {killed}\n" in shown.stdout
    assert f"  scancel --signal=USR1 {first}   #" in shown.stdout
    done = site.evict(*words, "--execute", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["deadlines"][-1]["choices"] == {str(first): "app", str(second): "app", str(killed): "kill"}
    assert [one["end"] for one in found["outcomes"]] == [OrderEnd.CANCELLED, OrderEnd.SAVED, OrderEnd.SAVED]
    assert [one["note"] for one in found["outcomes"][1:]] == ["COMPLETED", "COMPLETED"]
    assert found["freed_s"] < 30
    assert [(site.folder / name).read_text() for name in ("first", "second")] == ["saved", "saved"]
    assert site.state(spared) is SlurmJobState.RUNNING
    assert site.state(killed) is SlurmJobState.CANCELLED


def test_who_ignores_the_signal_is_put_back_to_the_queue_when_the_time_is_up(site: Site) -> None:
    deaf = site.saver("deaf", "ignore", "--requeue")
    words = ("--free-nodes", "1", "--deadline", "0.05", "--granularity", "0.05", "--app-min", "0.05")
    done = site.evict(*words, "--execute", "--yes", "--json", "--requeue", "held")
    (outcome,) = json.loads(done.stdout)["outcomes"]
    assert outcome["end"] == OrderEnd.REQUEUED
    assert "did not end by itself in time" in outcome["note"]
    assert outcome["after_s"] >= 3
    until(lambda: is_held(site.job(deaf)), 60, "it is held in the queue")


def is_held(job: SlurmJob | None) -> bool:
    return job is not None and job.state is SlurmJobState.PENDING and "held" in job.reason.lower()


def test_jobs_that_share_a_node_go_together_and_one_task_is_not_its_array(site: Site) -> None:
    node = site.client.nodes()[0].name
    array = site.submit(SLEEPER, "--array=0-1", "-N1", "-n1", "-w", node)
    until(lambda: len(running(site)) == 2, START_S, "both tasks run")
    spared = site.submit(SLEEPER, "--array=0-1", "-N1", "-n2", "-w", site.client.nodes()[1].name)
    until(lambda: len(running(site)) == 3, START_S, "one task of the other array runs")
    table = site.table(f"job,loss\n{spared}_0,1000\n")
    done = site.evict(
        "--free-nodes", "1", "--deadline", "0", "--times", table, "--execute", "--yes", "--json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["deadlines"][-1]["choices"] == {f"{array}_0": "kill", f"{array}_1": "kill"}
    assert [job.spec for job in running(site)] == [f"{spared}_0"]
    alone = site.evict("--free-nodes", "1", "--deadline", "0", "--execute", "--yes", "--json")
    assert [one["job"] for one in json.loads(alone.stdout)["outcomes"]] == [f"{spared}_0"]
    until(lambda: [job.spec for job in running(site)] == [f"{spared}_1"], START_S, "the next task runs")


def running(site: Site) -> list[SlurmJob]:
    return [job for job in site.client.jobs().jobs if job.state is SlurmJobState.RUNNING]


@pytest.mark.parametrize(
    ("receiver", "saved"), [("steps", {"step"}), ("batch", {"script"}), ("full", {"script", "step"})]
)
def test_a_signal_reaches_the_steps_the_script_or_both(site: Site, receiver: str, saved: set[str]) -> None:
    """The script and its step each save themselves; the job ends when the script does."""
    ends = "kill %1" if receiver == "batch" else "wait"
    script = (
        f"#!/bin/bash\ncd {site.folder}\n"
        f"trap 'echo -n saved >script; touch ends' USR1\n"
        f"srun -n1 {sys.executable} {saver.__file__} step 0.5 &\n"
        f"touch script.ready0\nwait; [ -e ends ] && {ends}; exit 0\n"
    )
    job = site.submit(script, "-N1", "-n2")
    site.wait_for(job, "script", 0)
    site.wait_for(job, "step", 0)
    words = ("--free-nodes", "1", "--deadline", "0.5", "--granularity", "0.1", "--app-min", "0.3")
    done = site.evict(*words, "--signal-to", receiver, "--execute", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(one["end"], one["note"]) for one in found["outcomes"]] == [(OrderEnd.SAVED, "COMPLETED")]
    assert {name for name in ("script", "step") if (site.folder / name).exists()} == saved
    assert found["freed_s"] < 30


def test_a_command_checkpoints_jobs_from_outside_or_does_not(site: Site) -> None:
    """It stops the job and keeps what Slurm knows of it; one cannot be written, another takes too long."""
    good, bad, endless = (site.sleeper("-N1", "-n2") for _ in range(3))
    command = site.folder / "checkpoint"
    left = site.folder / "started"
    command.write_text(
        f"""#!/bin/sh
case $1 in
{bad}) echo starting; echo 'no room on the file system' >&2; exit 3 ;;
{endless}) sleep 1000 & echo $! >"{left}"; wait ;;
esac
scontrol suspend "$1" && scontrol --oneliner show job "$1" >"{site.folder}/image.$1" && scontrol resume "$1"
"""
    )
    command.chmod(0o755)
    rows = "".join(f"{job},{ts}\n" for job, ts in ((good, 0.05), (bad, 0.05), (endless, 0.05)))
    table = site.table(f"job,ts_min\n{rows}")
    words = ["--free-nodes", "3", "--deadline", "0.15", "--granularity", "0.05", "--times", table]
    words += ["--system-command", f"{command} {{job}}"]
    shown = site.evict(*words)
    assert f"  {command} {good} ; scancel {good}\n" in shown.stdout
    done = site.evict(*words, "--execute", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["end"] for one in found["outcomes"]] == [OrderEnd.CANCELLED] * 3
    notes = {one["job"]: one["note"] for one in found["outcomes"]}
    assert notes[str(good)] == "checkpointed"
    assert notes[str(bad)] == "not checkpointed: no room on the file system"
    assert notes[str(endless)].startswith("not checkpointed: no answer within ")
    assert "JobState=SUSPENDED" in (site.folder / f"image.{good}").read_text()
    assert {site.state(job) for job in (good, bad, endless)} == {SlurmJobState.CANCELLED}
    started = int(left.read_text())
    until(lambda: is_gone(started), 60, "what the command had started is gone with it")


def is_gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_command_that_is_not_there_is_reported_before_anything_is_done(site: Site) -> None:
    job = site.sleeper("-N1", "-n2")
    words = ("--free-nodes", "1", "--deadline", "1", "--system-min", "0.5")
    done = site.evict(*words, "--system-command", "/no/such/program {job}", "--execute", "--yes")
    assert done.returncode == 2
    assert done.stderr.startswith("osub: --system-command: there is no program /no/such/program")
    assert site.state(job) is SlurmJobState.RUNNING


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_slurm_refuses_who_may_not_and_each_refusal_is_reported(site: Site) -> None:
    jobs = [site.sleeper("-N1", "-n2") for _ in range(2)]
    gone = site.sleeper("-N1", "-n2")
    orders = [site.order(jobs[0], Fate.KILL), site.order(jobs[1], Fate.APP), site.order(gone, Fate.KILL)]
    site.client.cancel([gone])
    until(lambda: site.state(gone) is SlurmJobState.CANCELLED, 60, "a job is gone")

    def as_nobody(
        words: Sequence[str], stdin: str | None, environment: Mapping[str, str], timeout_s: float
    ) -> CommandOutput:
        if words[0] == "squeue":
            return run_command(words, stdin, environment, timeout_s)
        changed = ("setpriv", f"--reuid={NOBODY_ID}", f"--regid={NOBODY_ID}", "--clear-groups", *words)
        return run_command(changed, stdin, environment, timeout_s)

    eviction = Eviction(
        client=CommandSlurm(site.conf, runner=as_nobody), orders=orders,
        ways=EvictionMeans(deadline_s=5), run_command=lambda words, _: CommandOutput(0, "", ""),
        clock=time.monotonic, pause=time.sleep, tell=lambda _: None,
    )  # fmt: skip
    eviction.run()
    assert [one.end for one in eviction.outcomes] == [OrderEnd.REFUSED, OrderEnd.REFUSED, OrderEnd.GONE]
    for one in eviction.outcomes[:2]:
        assert "Access/permission denied" in one.note
    assert [site.state(job) for job in jobs] == [SlurmJobState.RUNNING, SlurmJobState.RUNNING]


def test_an_interruption_reports_what_was_done(site: Site) -> None:
    deaf = site.saver("deaf", "ignore")
    killed = site.sleeper("-N1", "-n2")
    table = site.table(f"job,ta_min\n{deaf},0.1\n")
    command = [sys.executable, "-m", "osub.cli.main", "evict", "--cluster", str(site.cluster.folder)]
    words = ["--free-nodes", "2", "--deadline", "2", "--granularity", "0.1", "--times", table]
    process = subprocess.Popen(
        [*command, *words, "--execute", "--yes"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(lambda: site.state(killed) is SlurmJobState.CANCELLED, 60, "the first job is killed")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=40)
    assert process.returncode == 130, err
    assert "interrupted meanwhile: signalled" in " ".join(out.split())
    assert f"job {killed} (kill): cancelled" in err
    assert err.splitlines()[-1] == "osub: interrupted"
    assert site.state(deaf) is SlurmJobState.RUNNING
