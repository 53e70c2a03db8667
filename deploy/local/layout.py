"""Where an embedded cluster keeps its files, what its nodes are called, and which ports it uses."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import tempfile
from pathlib import Path

import msgspec

from deploy.local.shape import Shape
from osub.errors import HostError

# A Unix socket's path has at most 107 bytes, and slurmstepd appends a node, a job and a step to the spool.
_LONGEST_STATE_PATH = 44
# Below Linux's ephemeral range (32768 on), so that no outgoing connection holds one of them.
_PORTS = range(20_000, 32_000)


class NodePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A node's name, slurmd port, and the host CPUs it is pinned to (none: not pinned)."""

    name: str
    port: int
    cpus: tuple[int, ...]


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Files, names and ports of one embedded cluster, kept in its ``cluster.json``.

    ``state`` is the folder that the user named; ``short`` holds what needs a short path.
    """

    state: str
    short: str
    cluster_name: str
    controller_port: int
    gang_ports: tuple[int, int]
    nodes: tuple[NodePlace, ...]

    @property
    def conf(self) -> Path:
        """Slurm's configuration."""
        return Path(self.state, "slurm.conf")

    @property
    def run(self) -> Path:
        """Pid files and the munge socket."""
        return Path(self.short, "run")

    @property
    def munge_socket(self) -> Path:
        """Munged's socket."""
        return self.run / "munge.sock"

    @property
    def munge_key(self) -> Path:
        """Munged's key, 0600."""
        return Path(self.state, "munge.key")

    @property
    def spool(self) -> Path:
        """Folder of slurmd spools."""
        return Path(self.short, "spool")

    @property
    def logs(self) -> Path:
        """Folder of logs."""
        return Path(self.state, "log")

    @property
    def controller_state(self) -> Path:
        """Slurmctld's StateSaveLocation."""
        return Path(self.state, "slurmctld")

    @property
    def job_completions(self) -> Path:
        """Slurm's job completion log."""
        return Path(self.state, "job-completions.log")

    @property
    def gang(self) -> Path:
        """Keys, configuration, state and records of gangd and its agents."""
        return Path(self.state, "gang")

    def own_paths(self) -> list[Path]:
        """Return every file and folder that `down` removes."""
        names = ("slurm.conf", "cgroup.conf", "munge.key", "log", "slurmctld", "job-completions.log", "gang")
        own = [Path(self.state, name) for name in names] + [self.run, self.spool]
        return own + ([Path(self.short)] if self.short != self.state else [])


def make_layout(state: Path, shape: Shape, pins: tuple[tuple[int, ...], ...]) -> Layout:
    """Choose names and free ports for a new cluster in the folder ``state``.

    Raises
    ------
    HostError
        No free ports.
    """
    folder = state.resolve()
    digest = hashlib.sha256(os.fsencode(folder)).digest()
    letters = "".join(chr(ord("a") + byte % 26) for byte in digest[:5])
    short = folder
    if len(os.fsencode(folder)) > _LONGEST_STATE_PATH:
        short = Path(tempfile.gettempdir(), f"osub-{os.geteuid()}-{letters}")
    ports = free_ports(shape.nodes + 3)
    return Layout(
        state=str(folder),
        short=str(short),
        cluster_name=f"osub-{letters}",
        controller_port=ports[0],
        gang_ports=(ports[1], ports[2]),
        nodes=tuple(
            NodePlace(name=f"{letters}-n{index + 1}", port=ports[index + 3], cpus=pins[index])
            for index in range(shape.nodes)
        ),
    )


def free_ports(count: int) -> list[int]:
    """Return ``count`` TCP ports that nothing listens on now.

    Raises
    ------
    HostError
        There are not that many.
    """
    free: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise HostError(f"{count} free TCP ports are needed between {_PORTS.start} and {_PORTS.stop}")
