"""Where an embedded cluster keeps its files, what its nodes are called, and which ports it uses."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shlex
import socket
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deploy.shape import Shape
from foundation.errors import HostError, UsageError

# Below Linux's ephemeral range (32768 on), so that no outgoing connection holds one of them.
_PORTS = range(20_000, 32_000)
_WRITABLE_PATH = re.compile(r"/[\w./:@~+ -]*")


@dataclass(frozen=True, slots=True)
class Names:
    """Names of a cluster and its nodes, by which its processes and cgroups are known.

    Made from the path of its home alone, so that nothing that is written anywhere has to be believed.
    """

    letters: str

    @property
    def cluster(self) -> str:
        """Slurm's ClusterName."""
        return f"osub-{self.letters}"

    def node(self, index: int) -> str:
        """Name of the node with an index from 0 on."""
        return f"{self.letters}-n{index + 1}"


def names_of(home: Path) -> Names:
    """Return the names of the cluster in a folder, whose path must be without links."""
    digest = hashlib.sha256(os.fsencode(home)).digest()
    return Names("".join(chr(ord("a") + byte % 26) for byte in digest[:5]))


class NodePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A node's name, slurmd port, and the host CPUs it is pinned to (none: not pinned)."""

    name: str
    port: int
    cpus: tuple[int, ...]


class ClusterLayout(msgspec.Struct, frozen=True, kw_only=True):
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

    @property
    def health_check(self) -> Path:
        """What slurmd runs now and then: it thaws what agents left that are dead."""
        return self.gang / "health-check"


def make_layout(home: Path, short: Path, shape: Shape, pins: tuple[tuple[int, ...], ...]) -> ClusterLayout:
    """Choose names and free ports for a new cluster.

    Parameters
    ----------
    home
        The cluster's folder, without links.
    short
        The folder for what needs a short path.
    shape
        What the cluster is to look like.
    pins
        The host CPUs of each node.

    Raises
    ------
    HostError
        No free ports.
    UsageError
        The path has letters that Slurm's configuration gives a meaning to.
    """
    names = names_of(home)
    ports = free_ports(shape.nodes + 3)
    return ClusterLayout(
        state=checked_path(home),
        short=checked_path(short),
        cluster_name=names.cluster,
        controller_port=ports[0],
        gang_ports=(ports[1], ports[2]),
        nodes=tuple(
            NodePlace(name=names.node(index), port=ports[index + 3], cpus=pins[index])
            for index in range(shape.nodes)
        ),
    )


def checked_path(path: Path) -> str:
    """Return a path as text that means itself in slurm.conf, in quotes where it has a blank.

    A line's end begins another setting there, a comma another option, ``#`` a comment, ``%`` is replaced, and
    a backslash joins lines: such a path is a UsageError.
    """
    text = str(path)
    if not _WRITABLE_PATH.fullmatch(text):
        raise UsageError(
            f"{text!r} cannot be written into slurm.conf: choose a --state whose path has letters, "
            "digits, blanks and - . / : @ _ ~ + only"
        )
    return text


def state_option(home: Path | str) -> str:
    """Return the option that names a cluster's folder, as a shell takes it."""
    return f"--state {shlex.quote(str(home))}"


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
                probe.bind(("", port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise HostError(f"{count} free TCP ports are needed between {_PORTS.start} and {_PORTS.stop}")
