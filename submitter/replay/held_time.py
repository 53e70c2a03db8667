"""Adding up how long a gang scheduler held each job, as its time slices go by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from foundation.records import SliceRecord


class HeldTime:
    """Sums of held time by job and node."""

    def __init__(self) -> None:
        self._held_s: dict[int, dict[str, float]] = {}

    def through(self, rows: Iterable[SliceRecord]) -> Iterator[SliceRecord]:
        """Yield the rows, and count what they tell."""
        for row in rows:
            if row.role == "held":
                nodes = self._held_s.setdefault(row.job, {})
                nodes[row.node] = nodes.get(row.node, 0.0) + row.length_s
            yield row

    def by_job(self) -> dict[int, float]:
        """Return the seconds that each job was held, on the node that held it longest."""
        return {job: max(nodes.values()) for job, nodes in self._held_s.items()}
