"""Gangd on an embedded cluster: one controller, one agent a node, started by their commands."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from deploy.local.host import Host
from deploy.local.layout import Layout
from deploy.shape import Shape
from foundation.errors import ClusterError
from foundation.slurm.hosts import fold_hosts

_CONTROLLER = [sys.executable, "-P", "-m", "gangd.main"]
_AGENT = [sys.executable, "-P", "-m", "gangd.agent.main"]
_JOINED = "joined"


def prepare_gang(shape: Shape, layout: Layout) -> None:
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


def _write_health_check(layout: Layout) -> None:
    """Write the script that slurmd runs: quick, with no daemon and no network.

    slurmd starts it in ``/`` and with next to no environment.
    """
    words = [*_AGENT, "thaw", "--expired", "--state", str(layout.gang / "agents")]
    sources = os.environ.get("PYTHONPATH")
    setting = f"export PYTHONPATH={shlex.quote(sources)}\n" if sources else ""
    log = shlex.quote(f"{layout.health_check}.log")
    layout.health_check.write_text(f"#!/bin/sh\n{setting}exec {shlex.join(words)} >/dev/null 2>>{log}\n")
    layout.health_check.chmod(0o700)


def keys_folder(layout: Layout) -> Path:
    """Return the folder of keys."""
    return layout.gang / "keys"


def record_folder(layout: Layout) -> Path:
    """Return the folder into which the controller writes its slices."""
    return layout.gang / "record"


def status_folder(layout: Layout) -> Path:
    """Return the folder in which the controller keeps its state and its status."""
    return layout.gang / "state"


def gang_daemons(layout: Layout, host: Host) -> dict[str, list[str]]:
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


def agents_joined(layout: Layout) -> bool:
    """Whether the controller has heard from the agent of every node."""
    with suppress(OSError, ValueError, KeyError):
        status = json.loads((status_folder(layout) / "status.json").read_bytes())
        joined = {node["node"] for node in status["nodes"] if node["agent"].lower() == _JOINED}
        return {node.name for node in layout.nodes} <= joined
    return False
