"""The call of compose, and what `up` leaves for `status`.

The call of compose: files, arguments, environment. Pure.

What `up` leaves for `status`: which engine, which images, what the cluster looks like.

`down` needs none of it but the engine's name; what is removed is found by labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from deploy.compose.engine import EngineFacts, EngineName
from deploy.compose.inside.settings import ContainerSettings, to_environment
from deploy.local.belongings import FileName
from deploy.local.home import Home
from deploy.local.layout import names_of
from deploy.local.state import decode_kept, read_kept
from deploy.shape import Shape
from foundation.units import counted
from foundation.version import VERSION

FILE: FileName = "compose.json"


class Monitoring(msgspec.Struct, frozen=True, kw_only=True):
    """Who watches gangd, and at which ports of this host's loopback; no Grafana where it cannot be had."""

    prometheus_image: str
    prometheus_port: int
    grafana_image: str | None
    grafana_port: int


class ComposeState(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster in containers.

    ``most_nodes`` is how many nodes it has keys for; ``memory_mib`` what each node declares.
    """

    version: int = 1
    home: str
    engine: EngineName
    debian: int
    shape: Shape
    most_nodes: int
    memory_mib: int
    accounting: bool
    monitoring: Monitoring | None = None

    @property
    def cluster(self) -> str:
        """Slurm's name of the cluster, and compose's of the project."""
        return names_of(Path(self.home)).cluster


def read_compose_state(folder: Path) -> ComposeState | None:
    """Return the state kept in ``folder``; None where there is no cluster in containers.

    Raises
    ------
    InputError
        The file is there and cannot be used.
    TrustError
        Another user could have written it.
    """
    return read_kept(folder, FILE, decode_state)


def cores_there(folder: Path) -> int | None:
    """Return the cores a node of the cluster in containers in ``folder``; None where there is none."""
    state = read_compose_state(folder)
    return None if state is None else state.shape.cores


def write_compose_state(home: Home, state: ComposeState) -> None:
    """Write the state, whole or not at all; raises OutputError."""
    home.write(FILE, msgspec.json.format(msgspec.json.encode(state), indent=1))


def decode_state(content: bytes, home: Path) -> ComposeState:
    """Return a state that speaks of this home; raises InputError."""
    return decode_kept(content, home / FILE, ComposeState, lambda state: state.home)


FOLDER = Path(__file__).parent
DEBIANS = (13, 12)
"""Releases of Debian of which there are images, the one that is taken by default first."""
FEWEST_KEYS = 64
"""Nodes for which keys are made at least: up to so many may be added by `--scale` alone."""
_DRAIN_S = 10
PROMETHEUS_IMAGE = "docker.io/prom/prometheus:v3.5.0"
GRAFANA_IMAGE = "docker.io/grafana/grafana:12.0.0"
PROMETHEUS_PORT = 9090
GRAFANA_PORT = 3000


def image_of(debian: int) -> str:
    """Return the name of the image with Slurm."""
    return f"osub:{VERSION}-debian{debian}"


def database_image_of(debian: int) -> str:
    """Return the name of the image with MariaDB."""
    return f"osub-database:{VERSION}-debian{debian}"


def prometheus_image_of(debian: int) -> str:
    """Return the name of the image with Debian's Prometheus, for where no registry can be reached."""
    return f"osub-prometheus:{VERSION}-debian{debian}"


def images_to_build(debian: int, *, accounting: bool, monitoring: Monitoring | None) -> dict[str, str]:
    """Return the images that a cluster needs and that are made here, with the target that makes each."""
    images = {image_of(debian): "cluster"}
    if accounting:
        images[database_image_of(debian)] = "database"
    if monitoring is not None and monitoring.prometheus_image == prometheus_image_of(debian):
        images[monitoring.prometheus_image] = "prometheus"
    return images


def compose_files(state: ComposeState, facts: EngineFacts) -> list[Path]:
    """Return the files that fit the engine's host."""
    names = ["compose.yaml", "compose.cgroup1.yaml" if facts.hierarchy == "v1" else "compose.cgroup2.yaml"]
    if facts.knows_start_interval:
        names.append("compose.start-interval.yaml")
    if state.monitoring is not None:
        names.append("compose.monitoring.yaml")
    return [FOLDER / name for name in names]


def compose_environment(state: ComposeState) -> dict[str, str]:
    """Return the variables that compose.yaml asks for."""
    settings = ContainerSettings(
        cluster=state.cluster,
        # How many nodes there are now is compose's business: in here, adding one would make all others anew.
        shape=_with_nodes(state.shape, state.most_nodes),
        pinned=not state.shape.virtual,
        memory_mib=state.memory_mib,
        accounting=state.accounting,
        drain_s=_DRAIN_S,
        monitoring=state.monitoring is not None,
    )
    watchers: dict[str, str] = {}
    if state.monitoring is not None:
        watchers = {
            "OSUB_PROMETHEUS_IMAGE": state.monitoring.prometheus_image,
            "OSUB_PROMETHEUS_PORT": str(state.monitoring.prometheus_port),
            "OSUB_GRAFANA_IMAGE": state.monitoring.grafana_image or GRAFANA_IMAGE,
            "OSUB_GRAFANA_PORT": str(state.monitoring.grafana_port),
        }
    return (
        to_environment(settings)
        | watchers
        | {
            "OSUB_NODES": str(state.shape.nodes),
            "OSUB_HOME": state.home,
            "OSUB_IMAGE": image_of(state.debian),
            "OSUB_DATABASE_IMAGE": database_image_of(state.debian),
            "COMPOSE_PROJECT_NAME": state.cluster,
        }
    )


def up_words(compose: Sequence[str], state: ComposeState, facts: EngineFacts) -> list[str]:
    """Return the command that starts what is missing, and ends what is too much."""
    files = [word for path in compose_files(state, facts) for word in ("-f", str(path))]
    words = [*compose, "-p", state.cluster, *files, "up", "-d"]
    if compose[-1] != "podman-compose":
        words += ["--scale", f"node={state.shape.nodes}"]
    services = ["keys", "controller", "node"]
    if state.accounting:
        services += ["database", "accounting"]
    if state.monitoring is not None:
        services += ["monitoring", "prometheus"]
        services += [] if state.monitoring.grafana_image is None else ["grafana"]
    return [*words, *services]


def missing_roles(roles: Sequence[str], state: ComposeState) -> list[str]:
    """Return what a cluster should have been given and was not, going by the roles of its containers."""
    wanted = {"keys": 1, "controller": 1, "node": state.shape.nodes}
    if state.accounting:
        wanted |= {"database": 1, "accounting": 1}
    if state.monitoring is not None:
        wanted |= {"monitoring": 1, "prometheus": 1}
        wanted |= {} if state.monitoring.grafana_image is None else {"grafana": 1}
    return [role for role, number in wanted.items() if roles.count(role) < number]


def _with_nodes(shape: Shape, nodes: int, *, virtual: bool | None = None) -> Shape:
    return replace(shape, nodes=nodes, virtual=shape.virtual if virtual is None else virtual)


def differs(old: ComposeState, new: ComposeState) -> str | None:
    """Return why a cluster cannot become another one while it runs; None where only nodes come or go.

    With more cores than the host has, nodes are pinned no longer: compose makes their containers anew.
    """
    same_shape = _with_nodes(old.shape, new.shape.nodes, virtual=new.shape.virtual) == new.shape
    if not same_shape or (old.engine, old.debian) != (new.engine, new.debian):
        return (
            f"a cluster of another shape ({old.shape.system}, M={old.shape.multiplicity}, "
            f"gang {old.shape.gang}, {old.engine}, Debian {old.debian})"
        )
    if old.accounting != new.accounting or (old.monitoring is None) != (new.monitoring is None):
        return "a cluster with other services"
    if new.shape.nodes > old.most_nodes:
        return f"a cluster with keys for {counted(old.most_nodes, 'node')}"
    return None
