"""An on-demand job on a real Slurm: a job gives its nodes, saves, and goes on when they come back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local import LocalCluster
from foundation.records import load_run
from foundation.slurm import CommandSlurm, SlurmJob, SlurmJobState
from tests.fixtures.cli import Cli
from tests.fixtures.looks import Deadline

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

TRACE = """\
1 0 -1 8 2 -1 -1 2 60 -1 1 1 1 -1 1 -1 -1 -1
2 4 -1 2 1 -1 -1 1 60 -1 1 1 1 -1 1 -1 -1 -1
"""
KINDS = """\
trace_job,kind,checkpoint_every_s,checkpoint_s
1,rigid,1,0
2,ondemand,,
"""


def test_a_preempted_job_goes_on_from_its_checkpoint(
    shared_cluster: LocalCluster, tmp_path: Path, cli: Cli
) -> None:
    trace, kinds, out = tmp_path / "t.swf", tmp_path / "kinds.csv", tmp_path / "RUN"
    trace.write_text(TRACE)
    kinds.write_text(KINDS)
    words = ["--on-demand", "n-paa", "--set", f"jobs={kinds}", "--gangd", "none"]
    where = ["--cluster", str(shared_cluster.folder), "--out", str(out)]
    assert "simulated" in cli("replay", trace, *where, *words).out
    rows = {row["trace_job"]: row for row in load_run(out).jobs.to_dicts()}
    assert [row["state"] for row in rows.values()] == ["COMPLETED", "COMPLETED"]
    assert rows[2]["kind"] == "ondemand"
    events = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    preempted = [one["trace_job"] for one in events if one["kind"] == "preempted"]
    # On a host that is slow to start it the victim may have ended before the other job comes.
    if rows[1]["preemptions"]:
        assert preempted == [1]
        assert rows[1]["start_s"] >= rows[2]["end_s"] - 1
        assert rows[1]["wasted_s"] <= 1.5
    assert shared_cluster.client().reservations() == []


WHOLE = ("--exclusive", "--mem=0", "--output=/dev/null")
ONCE_LONG = '[ -n "$SLURM_RESTART_COUNT" ] || sleep 600'


@contextmanager
def served(cluster: LocalCluster, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Have the service run, until it is ended as a user would."""
    command = [sys.executable, "-P", "-m", "osub.cli.main", "on-demand", "serve"]
    command += ["--mechanism", "cua-paa", "--user", "root", "--cluster", str(cluster.folder), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            assert "Ctrl-C ends it" in service.stdout.readline()
            yield service
        finally:
            service.kill()


def wait_for(client: CommandSlurm, job: int, is_so: Callable[[SlurmJob], bool], within_s: float) -> SlurmJob:
    until = time.monotonic() + within_s
    while True:
        found = client.job(job)
        assert found is not None
        if is_so(found):
            return found
        assert time.monotonic() < until, found
        time.sleep(0.1)


def test_a_job_that_gave_notice_starts_at_once_among_others_jobs(
    shared_cluster: LocalCluster, cli: Cli
) -> None:
    client, where = shared_cluster.client(), ("--cluster", str(shared_cluster.folder))
    others = [client.submit_by([*WHOLE, "--requeue", "--wrap", ONCE_LONG]) for _ in range(2)]
    for job in others:
        wait_for(client, job, lambda one: one.state is SlurmJobState.RUNNING, 60)
    host = Deadline()
    with served(shared_cluster) as service:
        notice = ("on-demand", "notice", *where, "--at", "now+10minutes")
        assert "--most-nodes" in cli.said(*notice, "--nodes=2", *WHOLE, "--wrap", "true", code=1)
        job = int(cli(*notice, "--nodes=1", *WHOLE, "--wrap", "sleep 3").out)
        assert len(client.reservations()) == 1
        asked_s = time.time()
        cli("on-demand", "now", str(job), *where)
        started = wait_for(client, job, lambda one: one.state is SlurmJobState.RUNNING, 60).start_time
        assert started is not None
        assert started - asked_s < host.within_s(5, busy=30)
        again = ("on-demand", "serve", *where, "--mechanism", "n-paa", "--user", "root")
        assert "another" in cli.said(*again, code=1)
        [victim] = [one for one in others if (found := client.job(one)) is not None and found.restarts]
        wait_for(client, victim, lambda one: one.state is SlurmJobState.COMPLETED, 60)
        began_s = time.monotonic()
        service.send_signal(signal.SIGTERM)
        assert service.wait(30) == 143
        assert time.monotonic() - began_s < host.within_s(2, busy=20)
    assert client.reservations() == []
    client.cancel(others)


def test_a_notice_without_a_service_leaves_no_job(shared_cluster: LocalCluster, cli: Cli) -> None:
    where = ("--cluster", str(shared_cluster.folder))
    notice = ("on-demand", "notice", *where, "--at", "now+10minutes", "--nodes=1", *WHOLE)
    assert "osub on-demand serve" in cli.said(*notice, "--wrap", "true", code=1)
    past = ("on-demand", "notice", *where, "--at", "2026-01-01T00:00", "job.sh")
    assert "past" in cli.said(*past, code=2)
    assert "knows no job" in cli.said("on-demand", "now", "1", *where, code=1)
    waiting = {SlurmJobState.PENDING, SlurmJobState.RUNNING}
    assert not [job for job in shared_cluster.client().jobs().jobs if job.state in waiting]
