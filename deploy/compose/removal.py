"""Taking a cluster in containers down: what carries both of its labels, and nothing else.

Jobs are cancelled first, so that nodes needn't wait for them, and agents let go of what they hold: what is
frozen with cgroup v1 cannot be killed, and its container would stay for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from deploy.compose.containers import Container, list_containers, list_others, of_role
from deploy.compose.engine import Engine
from deploy.compose.plan import image_of
from deploy.local.cgroups import remove_all, thaw_all
from foundation.errors import ClusterError

FREEZER = Path("/sys/fs/cgroup/freezer")
_CANCEL = "for state in PENDING RUNNING SUSPENDED; do timeout 5 scancel --state=$state; done"
_STOP_S = 15
_TRIES = 3


def take_down(engine: Engine, home: str, cluster: str, debian: int, say: Callable[[str], None]) -> bool:
    """End and remove a cluster; returns whether there was anything. Safe to repeat.

    Raises
    ------
    ClusterError
        Something of it could not be removed; the message names it.
    """
    containers = list_containers(engine, home, cluster)
    controllers = [one for one in of_role(containers, "controller") if one.state == "running"]
    if controllers:
        say("cancelling jobs")
        engine.run("exec", controllers[0].id, "sh", "-c", _CANCEL, within_s=30.0)
    nodes = of_role(containers, "node")
    _stop(engine, nodes, say)
    _thaw_from_here(cluster)
    _stop(engine, [one for one in containers if one not in nodes], say)
    existed = bool(containers)
    for _ in range(_TRIES):
        containers = list_containers(engine, home, cluster)
        if not containers:
            break
        engine.run("rm", "-f", "-v", *(one.id for one in containers))
    networks = list_others(engine, "network", home, cluster)
    volumes = list_others(engine, "volume", home, cluster)
    existed = existed or bool(networks or volumes)
    if networks:
        engine.run("network", "rm", *networks)
    if volumes:
        engine.run("volume", "rm", "-f", *volumes)
    left = [f"container {one.name}" for one in list_containers(engine, home, cluster)]
    left += [f"network {name}" for name in list_others(engine, "network", home, cluster)]
    left += [f"volume {name}" for name in list_others(engine, "volume", home, cluster)]
    left += [str(path) for path in _remove_freezer(engine, cluster, debian)]
    if left:
        raise ClusterError(f"left after the cluster's end: {', '.join(left[:5])}; try `down` again")
    return existed


def _stop(engine: Engine, containers: list[Container], say: Callable[[str], None]) -> None:
    running = [one for one in containers if one.state in ("running", "restarting", "paused")]
    if not running:
        return
    say(f"stopping {running[0].role if len(running) == 1 else f'{len(running)} containers'}")
    paused = [one.id for one in running if one.state == "paused"]
    if paused:
        engine.run("unpause", *paused)
    engine.run("stop", "-t", str(_STOP_S), *(one.id for one in running), within_s=_STOP_S + 60.0)


def _thaw_from_here(cluster: str) -> None:
    """Thaw what a node could not, as root on the engine's host, so that it can die."""
    folder = FREEZER / cluster
    with suppress(OSError):
        if folder.is_dir():
            thaw_all([folder])


def _remove_freezer(engine: Engine, cluster: str, debian: int) -> list[Path]:
    """Remove the cluster's folder of the host's freezer (v1); the engine does where this user cannot."""
    folder = FREEZER / cluster
    if not folder.is_dir():
        return []
    left = remove_all([folder], within_s=3.0)
    if left:
        words = ["run", "--rm", "--network", "none", "-v", f"{FREEZER}:/freezer", "--entrypoint", "find"]
        engine.run(
            *words,
            image_of(debian),
            f"/freezer/{cluster}",
            "-depth",
            "-type",
            "d",
            "-exec",
            "rmdir",
            "{}",
            ";",
        )
    return [folder] if folder.is_dir() else []
