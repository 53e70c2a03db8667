"""Which images watch a cluster, and at which ports of this host's loopback."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from deploy.compose.engine import Engine
from deploy.compose.image import has_image, own_base
from deploy.compose.plan import (
    GRAFANA_IMAGE,
    GRAFANA_PORT,
    PROMETHEUS_IMAGE,
    PROMETHEUS_PORT,
    prometheus_image_of,
)
from deploy.compose.state import Monitoring
from foundation.errors import HostError
from foundation.one_line import one_line

_PULL_S = 900.0
_PORTS = 100
_LOOPBACK = "127.0.0.1"


def choose_watchers(engine: Engine, debian: int, say: Callable[[str], None]) -> Monitoring:
    """Choose images of a registry, or, on a base that was made without one, Debian's Prometheus alone.

    Raises
    ------
    HostError
        No image can be had, or no port is free.
    """
    alone = has_image(engine, own_base(debian))
    grafana: str | None = GRAFANA_IMAGE
    if not alone:
        for image in (PROMETHEUS_IMAGE, GRAFANA_IMAGE):
            _pull(engine, image, say)
    elif not has_image(engine, GRAFANA_IMAGE):
        grafana = None
        say(f"no Grafana: it is not in Debian, and {engine.name} has no image {GRAFANA_IMAGE}")
    prometheus_port = free_port(range(PROMETHEUS_PORT, PROMETHEUS_PORT + _PORTS))
    return Monitoring(
        prometheus_image=prometheus_image_of(debian) if alone else PROMETHEUS_IMAGE,
        prometheus_port=prometheus_port,
        grafana_image=grafana,
        grafana_port=free_port(range(GRAFANA_PORT, GRAFANA_PORT + _PORTS)),
    )


def free_port(ports: Iterable[int]) -> int:
    """Return the first of the ports that is free on the loopback; raises HostError."""
    tried = []
    for port in ports:
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((_LOOPBACK, port))
            except OSError:
                tried.append(port)
                continue
            return port
    raise HostError(f"no port of {_LOOPBACK} is free from {tried[0]} to {tried[-1]}")


def _pull(engine: Engine, image: str, say: Callable[[str], None]) -> None:
    if has_image(engine, image):
        return
    say(f"fetching the image {image}")
    answer = engine.run("pull", "-q", image, within_s=_PULL_S)
    if answer.returncode != 0:
        said = one_line((answer.stderr or answer.stdout).strip() or f"exit code {answer.returncode}", 300)
        raise HostError(
            f"{engine.name} cannot fetch {image}: {said}; where no registry can be reached, "
            "deploy/compose/bootstrap-base makes a base with which Debian's Prometheus is used"
        )
