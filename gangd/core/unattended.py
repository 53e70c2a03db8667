"""Time in which no agent acted on a node, for the slice record: its jobs share cores as Linux has it then."""

from __future__ import annotations

from collections.abc import Iterator

from gangd.core.agents import Agents
from gangd.core.gang_registry import GangRegistry
from gangd.core.terms.cores import CoreMap
from gangd.core.terms.gang_settings import SECOND
from gangd.core.terms.scheduler_commands import SliceRow
from gangd.core.terms.timebase import Timebase


class Unattended:
    """Notes gaps between agents of a node, and makes rows of them: once a second while a gap lasts.

    Before Slurm has first answered no job is known: what is noted until then has its rows later.

    Attributes
    ----------
    epoch_ns
        The epoch on the clock of events, for the starts of jobs are wall-clock times; None before Slurm has
        answered.
    """

    def __init__(self, agents: Agents, cores: CoreMap, people: GangRegistry, time: Timebase) -> None:
        self.epoch_ns: int | None = None
        self._agents, self._cores, self._people, self._time = agents, cores, people, time
        self._gaps: list[tuple[int, int, int]] = []
        self._due_ns = 0

    def note(self, node: int, now_ns: int) -> None:
        """Note that no agent has acted on a node since it was last heard of, until now."""
        since_ns = self._agents.unattended_since(node, now_ns)
        if since_ns < now_ns:
            self._gaps.append((node, since_ns, now_ns))

    def rows(self, now_ns: int) -> Iterator[tuple[SliceRow, ...]]:
        """Yield the rows of a gap each, of those too that last."""
        if self.epoch_ns is None or (now_ns < self._due_ns and not self._gaps):
            return
        self._due_ns = now_ns + SECOND
        for node in self._agents.missing():
            self.note(node, now_ns)
        gaps, self._gaps = self._gaps, []
        for node, since_ns, until_ns in gaps:
            rows = tuple(self._rows(node, since_ns, until_ns, self.epoch_ns))
            if rows:
                yield rows

    def _rows(self, node: int, since_ns: int, until_ns: int, epoch_ns: int) -> Iterator[SliceRow]:
        name = self._cores.name(node)
        for gang in filter(self._people.shares, self._people.on_node(node)):
            for job, view in gang.views.items():
                begin_ns = max(since_ns, epoch_ns + round(view.start_s * SECOND))
                if node in view.cores.nodes and begin_ns < until_ns:
                    number, length_ns = max(0, self._time.slice_at(begin_ns)), until_ns - begin_ns
                    yield SliceRow(number, begin_ns, length_ns, job, name, "unattended", None, None, None)
