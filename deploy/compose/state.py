"""What `up` leaves for `status`: which engine, which images, what the cluster looks like.

`down` needs none of it but the engine's name; what is removed is found by labels.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from deploy.compose.engine import EngineName
from deploy.local.belongings import FileName
from deploy.local.home import Home
from deploy.local.layout import names_of
from deploy.local.state import decode_kept, read_kept
from deploy.shape import Shape

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
