"""Which node a container is: the engine says so, so that nodes can be scaled without a list of names."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

_NAME = re.compile(r"([a-z0-9][a-z0-9_-]{0,50}[_-]node[_-]([1-9][0-9]{0,4}))(?:\..*)?")


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
