"""A real slurmdbd with a real MariaDB, wholly below a temporary folder, and jobs that Slurm forgot."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deploy.local import LocalCluster, Shape
from foundation.errors import InputError
from foundation.slurm import CommandSlurm, JobSnapshot, SlurmJobState, SubmitRequest
from foundation.slurm.job_sources import TextSource
from foundation.slurm.pyslurm_library import is_installed
from foundation.slurm.slurm_types import SlurmUnreachableError
from foundation.slurm.subprocess_reader import ApartSlurm
from gangd.controller.controller_config import load_config
from gangd.controller.controller_status import read_status
from gangd.controller.job_policy import policy_of
from tests.fixtures.looks import until

PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "sacct", "sacctmgr")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
MISSING = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
START_S = 120.0

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.long,
    pytest.mark.skipif(bool(MISSING), reason=f"needs mariadb-server and slurmdbd: no {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the database and its daemon run as root"),
]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def daemon(log: Path, *words: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon in the foreground; it is ended in the end."""
    with log.open("wb") as to:
        process = subprocess.Popen(words, env={"PATH": PATH} | environment, stdout=to, stderr=to)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def database(folder: Path) -> Iterator[int]:
    """Run MariaDB with a user for slurmdbd; gives its port, which listens on the loopback."""
    for name in ("data", "tmp"):
        (folder / name).mkdir(parents=True)
    places = ("--no-defaults", f"--datadir={folder}/data", f"--tmpdir={folder}/tmp", "--user=root")
    more = ("--auth-root-authentication-method=normal", "--skip-test-db")
    subprocess.run(
        ["mariadb-install-db", *places, *more],
        check=True,
        capture_output=True,
        timeout=300,
        env={"PATH": PATH},
    )
    port, socket_path = free_port(), folder / "my.sock"
    words = ("mariadbd", *places, f"--socket={socket_path}", f"--pid-file={folder}/my.pid", f"--port={port}")
    small = ("--bind-address=127.0.0.1", "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900")
    with daemon(folder / "mariadb.log", *words, *small):
        until(socket_path.exists, START_S, "MariaDB listens")
        grants = "".join(
            f"create user 'slurm'@'{host}' identified by 'pw'; "
            f"grant all on slurm_acct_db.* to 'slurm'@'{host}';"
            for host in ("localhost", "127.0.0.1")
        )
        client = ["mariadb", "--no-defaults", f"--socket={socket_path}", "-uroot", "-e", grants]
        subprocess.run(client, check=True, timeout=60, env={"PATH": PATH})
        yield port


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def accounted(cluster: LocalCluster, folder: Path, *settings: str, ready: str = "") -> Iterator[CommandSlurm]:
    """Give a cluster accounting, which is switched on once munge runs: slurmctld is started anew for it.

    settings: lines of slurm.conf that are added.
    ready: commands for ``sacctmgr`` before, one a line.
    """
    with ExitStack() as stack:
        port = stack.enter_context(database(folder / "db"))
        state = cluster.state()
        conf, munge = state.layout.conf, cluster.folder / "run" / "munge.sock"
        own_port = free_port()
        (dbd := folder / "slurmdbd.conf").write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={munge}\nDbdHost=localhost\nDbdPort={own_port}\n"
            f"SlurmUser=root\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={port}\nStorageUser=slurm\nStoragePass=pw\nPidFile={folder}/slurmdbd.pid\n"
        )
        dbd.chmod(0o600)
        stack.enter_context(daemon(folder / "dbd.log", "slurmdbd", "-D", SLURM_CONF=str(dbd)))
        until(lambda: listens(own_port), START_S, "slurmdbd listens")
        conf.write_text(
            f"{conf.read_text()}AccountingStorageType=accounting_storage/slurmdbd\n"
            f"AccountingStorageHost=localhost\nAccountingStoragePort={own_port}\n"
            f"AccountingStoragePass={munge}\n" + "".join(f"{line}\n" for line in settings)
        )
        for line in (f"add cluster {state.layout.cluster_name}", *ready.splitlines()):
            subprocess.run(
                ["sacctmgr", "-i", *line.split()],
                env={"PATH": PATH, "SLURM_CONF": str(conf)},
                check=True,
                timeout=60,
            )
        former = psutil.Process(next(one.pid for one in state.daemons if one.role == "slurmctld"))
        former.send_signal(signal.SIGTERM)
        former.wait(60)
        words = ("slurmctld", "-D", "-f", str(conf))
        stack.enter_context(daemon(folder / "ctld.log", *words, SLURM_CONF=str(conf)))
        client = CommandSlurm(conf)

        def answers() -> bool:
            try:
                return all(node.is_up for node in client.nodes())
            except SlurmUnreachableError:
                return False

        until(answers, START_S, "slurmctld answers and its node is up")
        yield client


def test_accounting_has_what_slurmctld_forgot(
    make_cluster: Callable[[Shape], LocalCluster], tmp_path: Path
) -> None:
    shape = Shape(nodes=1, cores=1, virtual=True, multiplicity=2, settings=("MinJobAge=2",))
    with accounted(make_cluster(shape), tmp_path) as client:
        bodies = {"exit 0": (0, None), "exit 3": (3, None), "kill -9 $$": (0, 9)}
        numbers = {
            client.submit(SubmitRequest(script=f"#!/bin/sh\n{body}\n", name="9|RUNNING|0:0\n")): body
            for body in bodies
        }
        submitted = dict.fromkeys(numbers, time.time())
        until(
            lambda: not client.jobs().jobs and len(client.accounted(submitted) or {}) == len(bodies),
            START_S,
            "slurmctld has forgotten the jobs",
        )
        found = client.accounted(submitted)
        assert found is not None
        assert {numbers[key]: (one.exit_code, one.exit_signal) for key, one in found.items()} == bodies
        states = {numbers[key]: one.state for key, one in found.items()}
        assert states == {
            "exit 0": SlurmJobState.COMPLETED,
            "exit 3": SlurmJobState.FAILED,
            "kill -9 $$": SlurmJobState.FAILED,
        }
        assert all(one.end_time is not None and one.state.is_over for one in found.values())
        assert "root" in client.accounting_names().accounts


PEOPLE = """add qos long
add account physics
add user root account=physics
modify user root where account=physics set qos=normal,long"""
RULES = """quantum_ms = 500
[qos.long]
  quantum_ms = 1000
[accounts.physics]
  weight = 2
[accounts.nobodys]
  weight = 3
"""


def test_rules_of_qos_and_account_count_for_jobs_of_a_live_slurmdbd(
    make_cluster: Callable[[Shape], LocalCluster], tmp_path: Path
) -> None:
    """Of whichever source a job is read from; and in a gangd that runs, which knows what names there are."""
    cluster = make_cluster(Shape(nodes=1, cores=1, virtual=True, multiplicity=2))
    with accounted(cluster, tmp_path, "AccountingStorageEnforce=associations,qos", ready=PEOPLE) as client:
        conf = cluster.state().layout.conf
        request = SubmitRequest(script="#!/bin/sh\nsleep 600\n", name="j", time_limit_minutes=20)
        ruled = client.submit(replace(request, account="physics", qos="long"))
        other = client.submit(replace(request, account="root"))
        until(
            lambda: all(one.state is SlurmJobState.RUNNING for one in client.jobs().jobs), START_S, "both run"
        )
        sources: dict[str, Callable[[], JobSnapshot]] = {
            "JSON": client.jobs,
            "plain text": lambda: TextSource(client._ask, 0).read(client.book),
        }
        apart = ApartSlurm(conf, source="pyslurm") if is_installed() else None
        if apart is not None:
            sources["pyslurm"] = apart.jobs
        (file := tmp_path / "gangd.toml").write_text(RULES)
        policy = policy_of(load_config(file))
        for name, read in sources.items():
            jobs = {job.job_id: job for job in read().jobs}
            said = {key: (job.partition, job.qos, job.account) for key, job in jobs.items()}
            assert said == {ruled: ("main", "long", "physics"), other: ("main", "normal", "root")}, name
            assert (policy.weight(jobs[ruled]), policy.quantum_ns(jobs[ruled])) == (2.0, 10**9), name
            assert (policy.weight(jobs[other]), policy.quantum_ns(jobs[other])) == (1.0, None), name
        if apart is not None:
            apart.close()
        weights, warned = seen_by_gangd(conf, tmp_path, file)
        assert weights == {ruled: 2.0, other: 1.0}
        assert "account nobodys has a rule, and Slurm has no account nobodys" in warned
        assert "physics" not in warned
        assert "long" not in warned
        client.cancel([ruled, other])


def seen_by_gangd(conf: Path, folder: Path, rules: Path) -> tuple[dict[int, float], str]:
    """Run a gangd until it tells of two jobs that share; returns their weights, and what ``check`` prints."""
    ports = free_port(), free_port()
    places = f'keys = "{folder}/keys"\nstate = "{folder}/state"\nslurm_conf = "{conf}"\nmove_ends = false\n'
    ends = f'publish = "tcp://127.0.0.1:{ports[0]}"\nreports = "tcp://127.0.0.1:{ports[1]}"\n'
    rules.write_text(places + ends + rules.read_text())
    gangd = [sys.executable, "-P", "-m", "gangd.main"]
    subprocess.run([*gangd, "keys", "--dir", folder / "keys", "--shared"], check=True, timeout=60)
    checked = subprocess.run(
        [*gangd, "check", "--config", rules], capture_output=True, text=True, timeout=60, check=True
    )
    log = (folder / "gangd.log").open("wb")
    running = subprocess.Popen([*gangd, "run", "--config", rules], stdout=log, stderr=log)
    log.close()
    try:

        def weights() -> dict[int, float]:
            with suppress(InputError):
                return {job.job: job.weight for job in read_status(folder / "state").jobs}
            return {}

        until(lambda: len(weights()) == 2, START_S, "gangd tells of both jobs")
        return weights(), checked.stdout
    finally:
        running.terminate()
        running.wait(30)
