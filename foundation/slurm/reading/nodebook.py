"""The cluster's nodes, looked up by name while jobs are read; asked for again when they may have changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from foundation.slurm.slurm_types import Node

EVERY_S = 60.0
AT_MOST_EVERY_S = 5.0


class NodeBook:
    """Finds nodes by name.

    Attributes
    ----------
    edition
        Another number when a node is not what it was.
    missed
        Whether a name was looked up that is not known.
    """

    def __init__(
        self, load: Callable[[], Sequence[Node]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.edition = 0
        self.missed = False
        self._load = load
        self._clock = clock
        self._nodes: dict[str, Node] = {}
        self._shapes: dict[str, tuple[int, int, int]] = {}
        self._loaded_s = float("-inf")

    def find(self, name: str) -> Node | None:
        """Return a node, None where none of that name is known."""
        node = self._nodes.get(name)
        self.missed |= node is None
        return node

    def renew(self, every_s: float = EVERY_S) -> bool:
        """Ask for the nodes if they are older than ``every_s``; returns whether they are other ones now."""
        if self._clock() - self._loaded_s < every_s:
            return False
        before = self.edition
        self.keep(self._load())
        return self.edition != before

    def keep(self, nodes: Sequence[Node]) -> None:
        """Take nodes that were asked for just now."""
        self.missed = False
        self._loaded_s = self._clock()
        self._nodes = {node.name: node for node in nodes}
        shapes = {node.name: (node.cores, node.sockets, node.threads_per_core) for node in nodes}
        if shapes != self._shapes:
            self._shapes = shapes
            self.edition += 1
