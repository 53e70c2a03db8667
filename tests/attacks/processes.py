"""Processes: pretending to be root's, signalling root's, talking to them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress

from deploy.local import LocalCluster, Shape
from deploy.local.daemons import find_process
from tests.attacks.attack import OTHER_USER, Scene, attack, concurrently
from tests.fixtures.looks import until
from tests.integration.waiting import agents_joined


@attack("a process that pretends")
def pretender(scene: Scene) -> None:
    """Starts processes with the mark and command line of a cluster's daemons and tasks."""
    home = scene.precious / "c"
    cluster = LocalCluster(home)
    layout = cluster.up(Shape(nodes=1, cores=1, virtual=True)).layout
    claims = {
        "OSUB_CLUSTER": layout.cluster_name,
        "SLURM_CLUSTER_NAME": layout.cluster_name,
        "SLURMD_NODENAME": layout.nodes[0].name,
    }
    pretenders = [
        subprocess.Popen(
            ["slurmd", "600", *words], executable="/bin/sleep", user=OTHER_USER, group=OTHER_USER,
            extra_groups=[], env=claims, stderr=subprocess.DEVNULL,
        )
        for words in ((), ("0",))
    ]  # fmt: skip
    try:
        cluster.down()
        assert [process.poll() for process in pretenders] == [None, None]
    finally:
        for process in pretenders:
            process.kill()
            process.wait()


@attack("signals")
def signals(scene: Scene) -> None:
    """Sends signals to the daemons of Slurm and of the gang scheduler."""
    daemons = scene.cluster.state().daemons
    assert len(daemons) >= 6
    for daemon in daemons:
        for number in ("0", "STOP", "KILL"):
            assert scene.as_other("kill", f"-{number}", str(daemon.pid)).returncode != 0
    assert all(find_process(daemon) for daemon in daemons)


@attack("connections without a key")
def no_key(scene: Scene) -> None:
    """Connects to gangd's ports without a key, says rubbish, or nothing at all."""
    layout = scene.cluster.state().layout
    ports = layout.gang_ports
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL".ljust(53, b"\0")

    def knock() -> None:
        open_ones = []
        for port in ports:
            for words in (b"", b"rubbish" * 1000, greeting, greeting + b"\x04\x19\x05READY" + bytes(20)):
                line = socket.create_connection(("127.0.0.1", port), timeout=1.0)
                open_ones.append(line)
                with suppress(OSError):
                    line.sendall(words)
        time.sleep(0.01)
        for line in open_ones:
            line.close()

    began = time.time()
    with concurrently(knock):
        time.sleep(3.0)
    status = layout.gang / "state" / "status.json"
    until(lambda: status.stat().st_mtime > began + 3.0, 60, "the controller goes on")
    until(lambda: agents_joined(layout), 60, "every agent is still there")
    assert all(find_process(daemon) for daemon in scene.cluster.state().daemons)


@attack("pid that is given again")
def pid_again(scene: Scene) -> None:
    """Takes the pid of a dead daemon of a cluster that is then taken down.

    The pid cannot be chosen here; the record is made to name the other user's process instead.
    """
    home = scene.precious / "c"
    cluster = LocalCluster(home)
    state = cluster.up(Shape(nodes=1, cores=1, virtual=True))
    bystander = subprocess.Popen(["sleep", "600"], user=OTHER_USER, group=OTHER_USER, extra_groups=[])
    try:
        daemon = state.daemons[0]
        os.kill(daemon.pid, signal.SIGKILL)
        until(lambda: find_process(daemon) is None, 60, "the daemon is dead")
        text = (home / "cluster.json").read_text()
        (home / "cluster.json").write_text(text.replace(str(daemon.pid), str(bystander.pid)))
        cluster.down()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
