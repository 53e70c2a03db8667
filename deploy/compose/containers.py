"""A cluster's containers, and a Slurm client whose commands run in the controller's.

A cluster's containers, as the engine tells of them, and how they are taken down.

They are found by two labels, and by nothing else: ``osub.home`` is the path of the state folder and
``osub.cluster`` the name that follows from it. A container, volume or network without both is not ours,
whatever it is called, and is not removed.

On the way down jobs are cancelled first, so that nodes needn't wait for them, and agents let go of what they
hold: what is frozen with cgroup v1 cannot be killed, and its container would stay for ever.

A client of a cluster's Slurm whose commands run in the controller's container.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deploy.compose.engine import Engine
from deploy.compose.plan import image_of
from deploy.local.down import remove_all, thaw_all
from foundation.errors import ClusterError
from foundation.slurm import CommandSlurm
from foundation.slurm.run_command import CommandOutput
from foundation.slurm.slurm_types import SlurmUnreachableError

HOME = "osub.home"
CLUSTER = "osub.cluster"
ROLE = "osub.role"
Kind = Literal["volume", "network"]
_ORDER = ("controller", "accounting", "database", "node", "prometheus", "grafana", "monitoring", "keys")
_ENDED = {"stopped": "exited"}
"""What podman calls differently."""
_MAKERS = ("keys", "monitoring")

FREEZER = Path("/sys/fs/cgroup/freezer")
_CANCEL = "for state in PENDING RUNNING SUSPENDED; do timeout 5 scancel --state=$state; done"
_STOP_S = 15
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container.

    Attributes
    ----------
    id, name
        The engine's.
    role
        What it is for: ``controller``, ``node``, ...
    number
        Of several with one role, from 1 on.
    state
        ``running``, ``exited``, ``created``, ``restarting``, ...
    health
        ``healthy``, ``unhealthy``, ``starting``; None without a health check.
    exit_code
        Of one that has ended.
    restarts
        How often the engine started it anew.
    """

    id: str
    name: str
    role: str
    number: int
    state: str
    health: str | None
    exit_code: int
    restarts: int

    @property
    def is_done(self) -> bool:
        """Whether it is one that ends when its work is done, and did it."""
        return self.role in _MAKERS and self.state == "exited" and self.exit_code == 0

    @property
    def is_alive(self) -> bool:
        """Whether it runs, and is not known to be ill."""
        return self.is_done or (self.state == "running" and self.health != "unhealthy")


def own_filters(home: str, cluster: str) -> list[str]:
    """Return the options that make an engine list what is one cluster's, and nothing else."""
    return ["--filter", f"label={HOME}={home}", "--filter", f"label={CLUSTER}={cluster}"]


def list_containers(engine: Engine, home: str, cluster: str) -> list[Container]:
    """Return a cluster's containers, the controller first; raises ClusterError where the engine fails."""
    ids = engine.ask("ps", "-a", "-q", "--no-trunc", *own_filters(home, cluster)).split()
    if not ids:
        return []
    answer = engine.run("inspect", "--type", "container", *ids)
    # One that is removed meanwhile makes the command fail, and is left out.
    found = read_containers(answer.stdout)
    return [one for one, labels in found if labels.get(HOME) == home and labels.get(CLUSTER) == cluster]


def list_others(engine: Engine, kind: Kind, home: str, cluster: str) -> list[str]:
    """Return the names of a cluster's volumes or networks."""
    words = [kind, "ls", "--format", "{{.Name}}", *own_filters(home, cluster)]
    return engine.ask(*words).split()


def read_containers(text: str) -> list[tuple[Container, dict[str, str]]]:
    """Return what ``inspect`` tells, with the labels; raises ClusterError for what is no such answer."""
    try:
        described: list[dict[str, Any]] = json.loads(text or "[]")
        found = [_read(one) for one in described]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterError(f"the engine's answer about its containers cannot be read ({error!r})") from error
    return sorted(found, key=lambda pair: (_place(pair[0].role), pair[0].number, pair[0].name))


def _read(described: dict[str, Any]) -> tuple[Container, dict[str, str]]:
    labels = {str(key): str(value) for key, value in (described["Config"]["Labels"] or {}).items()}
    state = described["State"]
    health = state.get("Health") or state.get("Healthcheck") or {}
    number = labels.get("com.docker.compose.container-number", "1")
    container = Container(
        id=str(described["Id"]),
        name=str(described["Name"]).lstrip("/"),
        role=labels.get(ROLE, "?"),
        number=int(number) if number.isdigit() and len(number) < 6 else 1,
        state=_ENDED.get(str(state["Status"]), str(state["Status"])),
        health=str(health["Status"]) if health.get("Status") else None,
        exit_code=int(state.get("ExitCode", 0)),
        restarts=int(described.get("RestartCount", 0)),
    )
    return container, labels


def _place(role: str) -> int:
    return _ORDER.index(role) if role in _ORDER else len(_ORDER)


def last_words(engine: Engine, container: Container, lines: int = 5) -> list[str]:
    """Return the last lines that a container logged; none where the engine does not say."""
    answer = engine.run("logs", "--tail", str(lines), container.id, within_s=10.0)
    return [line for line in (answer.stdout + answer.stderr).splitlines() if line.strip()][-lines:]


def of_role(containers: Iterable[Container], role: str) -> list[Container]:
    """Return those of one role."""
    return [one for one in containers if one.role == role]


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


_SLURM_NEEDS = ("LC_ALL", "TZ", "SLURM_TIME_FORMAT")
_WITHIN_S = 30.0
"""An engine of a slow host takes some seconds to begin a command, and Slurm's ends by itself after ten."""


def slurm_client(engine: Engine, containers: Sequence[Container]) -> CommandSlurm:
    """Return a client; raises SlurmUnreachableError where the controller's container does not run."""
    controllers = of_role(containers, "controller")
    if not controllers or controllers[0].state != "running":
        raise SlurmUnreachableError("the controller's container does not run")
    return CommandSlurm(tries=1, timeout_s=_WITHIN_S, runner=_Inside(engine, controllers[0].id).run)


class _Inside:
    def __init__(self, engine: Engine, container: str) -> None:
        self._engine = engine
        self._container = container

    def run(
        self, words: Sequence[str], stdin: str | None, environment: Mapping[str, str], timeout_s: float
    ) -> CommandOutput:
        """Run one; of the environment it gets what decides how an answer looks."""
        variables = [
            word for key in _SLURM_NEEDS if key in environment for word in ("-e", f"{key}={environment[key]}")
        ]
        options = ["-i", *variables] if stdin is not None else variables
        return self._engine.run("exec", *options, self._container, *words, within_s=timeout_s, stdin=stdin)
