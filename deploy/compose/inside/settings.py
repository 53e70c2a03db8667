"""What a container is: its settings, and its name.

Settings of a container, from environment variables ``OSUB_...`` of compose.yaml.

Which node a container is: the engine says so, so that nodes can be scaled without a list of names.
"""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from deploy.shape import GangKind, HoldSetting, QueueKind, Scheduler, Shape
from foundation.errors import UsageError

_NAME = re.compile(r"([a-z0-9][a-z0-9_-]{0,50}[_-]node[_-]([1-9][0-9]{0,4}))(?:\..*)?")


_RESOLVER = Path("/etc/resolv.conf")
_OPTIONS = "options timeout:1 attempts:3"


def wait_less_for_names(path: Path = _RESOLVER) -> None:
    """Have names that the engine does not know fail within seconds.

    The network is internal, so no server answers for them, and Slurm asks for the names of addresses:
    slurmctld would do nothing else for ten seconds each time. Of the servers, the engine's own is the first.
    """
    with suppress(OSError):
        text = path.read_text()
        if _OPTIONS not in text:
            path.write_text(quick_resolver(text))


def quick_resolver(text: str) -> str:
    """Return resolv.conf(5) with its first server only, and little patience."""
    lines = text.splitlines()
    servers = [line for line in lines if line.split()[:1] == ["nameserver"]]
    return "\n".join([*(line for line in lines if line not in servers), *servers[:1], _OPTIONS, ""])


@dataclass(frozen=True, slots=True)
class NodeName:
    """A node's name, by which other containers reach it, and its number from 1 on."""

    name: str
    number: int


def find_name(words: Iterable[str]) -> NodeName | None:
    """Return the name among what DNS calls an address; None where there is none (yet)."""
    for word in words:
        match = _NAME.fullmatch(word)
        if match:
            return NodeName(match[1], int(match[2]))
    return None


def own_address() -> str | None:
    """Return this container's address; None while it is in no network."""
    with suppress(OSError):
        address = socket.gethostbyname(socket.gethostname())
        if not address.startswith("127."):
            return address
    return None


def own_name() -> NodeName | None:
    """Ask DNS who this container is, then ``/etc/hosts``.

    Of Docker, the latter knows a container's number only; of podman, older servers of names are not asked
    for an address, and the file has the name.
    """
    address = own_address()
    if address is None:
        return None
    for source in ("dns", "files"):
        words = ["getent", "-s", f"hosts:{source}", "hosts", address]
        asked = subprocess.run(words, capture_output=True, text=True, check=False)
        if (name := find_name(asked.stdout.split()[1:])) is not None:
            return name
    return None


T = TypeVar("T", bound=StrEnum)

MOST_NODES = 512
GANGD_METRICS_PORT = 7323
AGENT_METRICS_PORT = 7324
_NOTHING = "none"
"""Said where there are no lines: podman-compose 1.0 leaves a variable as it is whose default is empty."""
_CLUSTER = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """A cluster as its containers see it.

    Attributes
    ----------
    cluster
        Slurm's ClusterName.
    shape
        What it looks like; ``nodes`` is how many it may grow to, for they come and go.
    pinned
        Whether each node keeps to CPUs of its own.
    memory_mib
        Memory that one node declares, MiB.
    accounting
        Whether there is a slurmdbd.
    monitoring
        Whether gangd and its agents hand out metrics.
    drain_s
        How long a node that gets SIGTERM waits for its jobs to end, seconds.
    """

    cluster: str
    shape: Shape
    pinned: bool
    memory_mib: int
    accounting: bool
    drain_s: int
    monitoring: bool = False


def read_settings(environment: Mapping[str, str]) -> ContainerSettings:
    """Read the settings.

    Raises
    ------
    UsageError
        A variable has no value that can be used; the message names it.
    """
    cluster = environment.get("OSUB_CLUSTER", "osub")
    if not _CLUSTER.fullmatch(cluster):
        raise UsageError(f"OSUB_CLUSTER must be lower-case letters, digits and '-', not {cluster!r}")
    most = _number(environment, "OSUB_MOST_NODES", 64, MOST_NODES)
    interactive = _number(environment, "OSUB_INTERACTIVE_NODES", 0, MOST_NODES, least=0)
    shape = Shape(
        nodes=most,
        cores=_number(environment, "OSUB_CORES", 1, 256),
        virtual=not _flag(environment, "OSUB_PINNED"),
        threads=_number(environment, "OSUB_THREADS", 1, 8),
        multiplicity=_number(environment, "OSUB_MULTIPLICITY", 2, 8),
        gang=_one_of(environment, "OSUB_GANG", GangKind, GangKind.OSUB),
        hold=_one_of(environment, "OSUB_HOLD", HoldSetting, HoldSetting.YIELD),
        quantum_ms=_quantum(environment),
        queues=_one_of(environment, "OSUB_QUEUES", QueueKind, QueueKind.SQ),
        interactive_nodes=interactive or None,
        multiplicity_interactive=_number(environment, "OSUB_MULTIPLICITY_INTERACTIVE", 4, 8),
        scheduler=_one_of(environment, "OSUB_SCHEDULER", Scheduler, Scheduler.BACKFILL),
        settings=_lines(environment.get("OSUB_SETTINGS") or _NOTHING),
    )
    return ContainerSettings(
        cluster=cluster,
        shape=shape,
        pinned=_flag(environment, "OSUB_PINNED"),
        memory_mib=_number(environment, "OSUB_MEMORY_MIB", 65_536, 1 << 24),
        accounting=_flag(environment, "OSUB_ACCOUNTING", default="1"),
        monitoring=_flag(environment, "OSUB_MONITORING"),
        drain_s=_number(environment, "OSUB_DRAIN_S", 10, 3600, least=0),
    )


def to_environment(settings: ContainerSettings) -> dict[str, str]:
    """Return the variables from which ``read_settings`` makes these settings."""
    shape = settings.shape
    return {
        "OSUB_CLUSTER": settings.cluster,
        "OSUB_MOST_NODES": str(shape.nodes),
        "OSUB_CORES": str(shape.cores),
        "OSUB_PINNED": str(int(settings.pinned)),
        "OSUB_THREADS": str(shape.threads),
        "OSUB_MULTIPLICITY": str(shape.multiplicity),
        "OSUB_GANG": str(shape.gang),
        "OSUB_HOLD": str(shape.hold),
        "OSUB_QUANTUM_MS": f"{shape.quantum_ms:g}",
        "OSUB_QUEUES": str(shape.queues),
        "OSUB_INTERACTIVE_NODES": str(shape.interactive_nodes or 0),
        "OSUB_MULTIPLICITY_INTERACTIVE": str(shape.multiplicity_interactive),
        "OSUB_SCHEDULER": str(shape.scheduler),
        "OSUB_SETTINGS": "\n".join(shape.settings) or _NOTHING,
        "OSUB_MEMORY_MIB": str(settings.memory_mib),
        "OSUB_ACCOUNTING": str(int(settings.accounting)),
        "OSUB_MONITORING": str(int(settings.monitoring)),
        "OSUB_DRAIN_S": str(settings.drain_s),
    }


def _lines(text: str) -> tuple[str, ...]:
    return () if text == _NOTHING else tuple(line for line in text.split("\n") if line)


def _number(environment: Mapping[str, str], name: str, default: int, most: int, least: int = 1) -> int:
    text = environment.get(name) or str(default)
    if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise UsageError(f"{name} must be {least} to {most}, not {text!r}")
    return int(text)


def _quantum(environment: Mapping[str, str]) -> float:
    text = environment.get("OSUB_QUANTUM_MS") or "250"
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,6})?", text):
        raise UsageError(f"OSUB_QUANTUM_MS must be a number of milliseconds, not {text!r}")
    return float(text)


def _flag(environment: Mapping[str, str], name: str, default: str = "0") -> bool:
    text = environment.get(name) or default
    if text not in ("0", "1"):
        raise UsageError(f"{name} must be 0 or 1, not {text!r}")
    return text == "1"


def _one_of(environment: Mapping[str, str], name: str, kind: type[T], default: T) -> T:
    text = environment.get(name) or default.value
    try:
        return kind(text)
    except ValueError as error:
        known = ", ".join(one.value for one in kind)
        raise UsageError(f"{name} is {text!r}; it can be {known}") from error
