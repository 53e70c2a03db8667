"""How long checkpoints take and what a kill loses (CoSim, section III-B)."""

from __future__ import annotations

from dataclasses import dataclass

_S_PER_H, _S_PER_MIN = 3600.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The file system: bandwidths in GB/s of all of it, and of one node (None: no limit of its own)."""

    all_gb_s: float
    node_gb_s: float | None

    def write_s(self, nodes: int, gb_a_node: float) -> float:
        """Return the seconds in which ``nodes`` nodes write so much each (equation 1)."""
        together_s = nodes * gb_a_node / self.all_gb_s
        return together_s if self.node_gb_s is None else max(together_s, gb_a_node / self.node_gb_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """A job's checkpoints: sizes in GB a node, and seconds between those that it takes by itself."""

    system_gb: float
    app_gb: float
    every_s: float = _S_PER_H

    def loss(self, nodes: int, elapsed_s: float) -> float:
        """Return the node-hours since the last checkpoint, the first being the start."""
        return nodes * (elapsed_s % self.every_s) / _S_PER_H

    def wait_min(self, elapsed_s: float) -> float:
        """Return the minutes until the next checkpoint."""
        return (self.every_s - elapsed_s % self.every_s) / _S_PER_MIN

    def ts_min(self, nodes: int, storage: Storage) -> float:
        """Return the minutes of a system-level checkpoint."""
        return storage.write_s(nodes, self.system_gb) / _S_PER_MIN

    def ta_min(self, nodes: int, elapsed_s: float, storage: Storage) -> float:
        """Return the minutes of an application-level checkpoint, the wait for it included."""
        return self.wait_min(elapsed_s) + storage.write_s(nodes, self.app_gb) / _S_PER_MIN
