"""A real slurmdbd with a real MariaDB, wholly below a temporary folder, and jobs that Slurm forgot."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from deploy.local import LocalCluster, Shape
from foundation.slurm import CommandSlurm, JobState, SubmitRequest
from foundation.slurm.reading.record_faults import SlurmUnreachableError
from tests.integration.waiting import wait_until

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
    port, door = free_port(), folder / "my.sock"
    words = ("mariadbd", *places, f"--socket={door}", f"--pid-file={folder}/my.pid", f"--port={port}")
    small = ("--bind-address=127.0.0.1", "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900")
    with daemon(folder / "mariadb.log", *words, *small):
        wait_until(door.exists, START_S, "MariaDB listens")
        grants = "".join(
            f"create user 'slurm'@'{host}' identified by 'pw'; "
            f"grant all on slurm_acct_db.* to 'slurm'@'{host}';"
            for host in ("localhost", "127.0.0.1")
        )
        client = ["mariadb", "--no-defaults", f"--socket={door}", "-uroot", "-e", grants]
        subprocess.run(client, check=True, timeout=60, env={"PATH": PATH})
        yield port


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_accounting_has_what_slurmctld_forgot(
    make_cluster: Callable[[Shape], LocalCluster], tmp_path: Path
) -> None:
    """Accounting is switched on once munge runs, which slurmdbd needs: slurmctld is started anew for it."""
    with ExitStack() as stack:
        port = stack.enter_context(database(tmp_path / "db"))
        shape = Shape(nodes=1, cores=1, virtual=True, multiplicity=2, settings=("MinJobAge=2",))
        cluster = make_cluster(shape)
        state = cluster.state()
        conf, munge = state.layout.conf, cluster.folder / "run" / "munge.sock"
        own_port = free_port()
        settings = tmp_path / "slurmdbd.conf"
        settings.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={munge}\nDbdHost=localhost\nDbdPort={own_port}\n"
            f"SlurmUser=root\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={port}\nStorageUser=slurm\nStoragePass=pw\nPidFile={tmp_path}/slurmdbd.pid\n"
        )
        settings.chmod(0o600)
        stack.enter_context(daemon(tmp_path / "dbd.log", "slurmdbd", "-D", SLURM_CONF=str(settings)))
        wait_until(lambda: listens(own_port), START_S, "slurmdbd listens")
        assert CommandSlurm(conf).accounted({1: 0.0}) is None
        conf.write_text(
            f"{conf.read_text()}AccountingStorageType=accounting_storage/slurmdbd\n"
            f"AccountingStorageHost=localhost\nAccountingStoragePort={own_port}\n"
            f"AccountingStoragePass={munge}\n"
        )
        added = ["sacctmgr", "-i", "add", "cluster", state.layout.cluster_name]
        subprocess.run(added, env={"PATH": PATH, "SLURM_CONF": str(conf)}, check=True, timeout=60)
        former = psutil.Process(next(one.pid for one in state.daemons if one.role == "slurmctld"))
        former.send_signal(signal.SIGTERM)
        former.wait(60)
        words = ("slurmctld", "-D", "-f", str(conf))
        stack.enter_context(daemon(tmp_path / "ctld.log", *words, SLURM_CONF=str(conf)))
        client = CommandSlurm(conf)

        def answers() -> bool:
            try:
                return all(node.is_up for node in client.nodes())
            except SlurmUnreachableError:
                return False

        wait_until(answers, START_S, "slurmctld answers and its node is up")
        bodies = {"exit 0": (0, None), "exit 3": (3, None), "kill -9 $$": (0, 9)}
        numbers = {
            client.submit(SubmitRequest(script=f"#!/bin/sh\n{body}\n", name="9|RUNNING|0:0\n")): body
            for body in bodies
        }
        wait_until(
            lambda: (
                not client.jobs().jobs
                and len(client.accounted(dict.fromkeys(numbers, 0.0)) or {}) == len(bodies)
            ),
            START_S,
            "slurmctld has forgotten the jobs",
        )
        found = client.accounted(dict.fromkeys(numbers, 0.0))
        assert found is not None
        assert {numbers[key]: (one.exit_code, one.exit_signal) for key, one in found.items()} == bodies
        states = {numbers[key]: one.state for key, one in found.items()}
        assert states == {
            "exit 0": JobState.COMPLETED,
            "exit 3": JobState.FAILED,
            "kill -9 $$": JobState.FAILED,
        }
        assert all(one.end_time is not None and one.state.is_over for one in found.values())
        assert "root" in client.accounting_names().accounts
