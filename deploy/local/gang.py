"""Gangd on an embedded cluster: one controller, one agent a node, and the supervisor that starts them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from deploy.local.daemons import Daemon, find_process, last_words, wait_for
from deploy.local.host import LocalHost
from deploy.local.layout import ClusterLayout
from deploy.local.state import read_supervised
from deploy.shape import Shape
from foundation.errors import ClusterError
from foundation.slurm.hosts import fold_hosts

_CONTROLLER = [sys.executable, "-P", "-m", "gangd.main"]
_AGENT = [sys.executable, "-P", "-m", "gangd.agent.main"]
_JOINED = "joined"
SUPERVISOR = "supervisor"
SUPERVISOR_SIGNALS = (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Those for which the supervisor waits: it begins with them blocked."""


def prepare_gang(shape: Shape, layout: ClusterLayout) -> None:
    """Make keys and configuration of the controller and the agents; what is there is kept.

    Raises
    ------
    ClusterError
        The keys cannot be made.
    """
    for name in ("state", "record", "agents"):
        (layout.gang / name).mkdir(mode=0o700, exist_ok=True)
    nodes = fold_hosts(node.name for node in layout.nodes)
    made = subprocess.run(
        [*_CONTROLLER, "keys", "--dir", str(keys_folder(layout)), "--agents", nodes],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise ClusterError(f"keys of the gang scheduler cannot be made: {made.stderr.strip()}")
    publish, reports = layout.gang_ports
    (layout.gang / "gangd.toml").write_text(
        f'publish = "tcp://127.0.0.1:{publish}"\n'
        f'reports = "tcp://127.0.0.1:{reports}"\n'
        f"keys = {json.dumps(str(keys_folder(layout)))}\n"
        f"state = {json.dumps(str(layout.gang / 'state'))}\n"
        f"slurm_conf = {json.dumps(str(layout.conf))}\n"
        f"record = {json.dumps(str(record_folder(layout)))}\n"
        f'hold = "{shape.hold}"\n'
        f"quantum_ms = {shape.quantum_ms:g}\n"
    )
    _write_health_check(layout)


def _write_health_check(layout: ClusterLayout) -> None:
    """Write the script that slurmd runs: quick, with no daemon and no network.

    slurmd starts it in ``/`` and with next to no environment.
    """
    words = [*_AGENT, "thaw", "--expired", "--state", str(layout.gang / "agents")]
    sources = os.environ.get("PYTHONPATH")
    setting = f"export PYTHONPATH={shlex.quote(sources)}\n" if sources else ""
    log = shlex.quote(f"{layout.health_check}.log")
    layout.health_check.write_text(f"#!/bin/sh\n{setting}exec {shlex.join(words)} >/dev/null 2>>{log}\n")
    layout.health_check.chmod(0o700)


def keys_folder(layout: ClusterLayout) -> Path:
    """Return the folder of keys."""
    return layout.gang / "keys"


def record_folder(layout: ClusterLayout) -> Path:
    """Return the folder into which the controller writes its slices."""
    return layout.gang / "record"


def status_folder(layout: ClusterLayout) -> Path:
    """Return the folder in which the controller keeps its state and its status."""
    return layout.gang / "state"


def gang_daemons(layout: ClusterLayout, host: LocalHost) -> dict[str, list[str]]:
    """Return the command of each daemon by role."""
    promptly = [host.programs["nice"], "-n", "-10"] if host.is_root else []
    controller = [*promptly, *_CONTROLLER, "run", "--config", str(layout.gang / "gangd.toml")]
    publish, reports = layout.gang_ports
    agents = {
        f"gang-agent {node.name}": [
            *host.pinned(node.cpus),
            *_AGENT,
            "run",
            *("--node", node.name),
            *("--state", str(layout.gang / "agents")),
            *("--keys", str(keys_folder(layout))),
            *("--slurm-conf", str(layout.conf)),
            *("--controller", f"tcp://127.0.0.1:{publish},tcp://127.0.0.1:{reports}"),
        ]
        for node in layout.nodes
    }
    return {"gangd": controller} | agents


def gang_joined(layout: ClusterLayout, pids: Mapping[str, int], since_s: float) -> bool:
    """Whether these very processes (pids by role) are the controller and its agents, by a newer status.

    An agent that has died counts as joined for a lease.
    """
    with suppress(OSError, ValueError, KeyError):
        status = json.loads((status_folder(layout) / "status.json").read_bytes())
        if status["pid"] == pids["gangd"] and status["time_ms"] > 1000 * since_s:
            joined = {
                node["node"]: node.get("agent_pid")
                for node in status["nodes"]
                if node["agent"].lower() == _JOINED
            }
            return all(joined.get(node.name) == pids[f"gang-agent {node.name}"] for node in layout.nodes)
    return False


def supervisor_command(layout: ClusterLayout) -> dict[str, list[str]]:
    """Return the command of the supervisor by its role."""
    return {SUPERVISOR: [sys.executable, "-P", "-m", "deploy.local.supervisor", layout.state]}


def wake_supervisor(alive: Mapping[str, Daemon]) -> None:
    """Have a supervisor that runs start at once what is not running, also what was stopped by an operator."""
    process = find_process(alive[SUPERVISOR]) if SUPERVISOR in alive else None
    if process is not None:
        process.send_signal(signal.SIGHUP)


def wait_for_gang(layout: ClusterLayout, supervisor: Daemon, since_s: float) -> tuple[Daemon, ...]:
    """Wait until the controller has heard from every agent that the supervisor keeps alive; returns them all.

    Raises
    ------
    ClusterError
        A daemon ended after ``since_s`` (epoch seconds), or it takes too long.
    """
    found: tuple[Daemon, ...] = ()

    def all_joined() -> bool:
        nonlocal found
        found = read_supervised(Path(layout.state))
        for daemon in found:
            if daemon.ended_s is not None and daemon.ended_s > since_s:
                raise ClusterError(f"{daemon.role} ended at once: {last_words(layout, daemon.role)}")
        pids = {daemon.role: daemon.pid for daemon in found if find_process(daemon) is not None}
        return len(pids) == len(layout.nodes) + 1 and gang_joined(layout, pids, since_s)

    wait_for(layout, [supervisor], all_joined, "not every gang agent joined its controller")
    return found
