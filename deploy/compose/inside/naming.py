"""Which node a container is: the engine says so, so that nodes can be scaled without a list of names."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
