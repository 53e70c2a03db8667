"""Rows of the slice record: of what nodes report, and of time in which no agent acted on a node.

Jobs share cores there as Linux has it then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gangd.core.cores import CoreMap
from gangd.core.gang import Gang
from gangd.core.gang_registry import Agents, GangRegistry
from gangd.core.gang_settings import SECOND
from gangd.core.scheduler_events import SliceRow, SliceUse
from gangd.core.slice_timing import Timebase
from gangd.core.states import GangState

ROLE = {GangState.BUSY: "run", GangState.IDLE: "idle"}


def slice_rows(
    node: str, number: int, use: SliceUse, time: Timebase, gangs: Iterable[Gang]
) -> tuple[SliceRow, ...]:
    """One row for each job of ``gangs`` on ``node``, which has ``number`` in the core's numbering.

    Components of a heterogeneous job that are elsewhere have no row here.
    ``held`` is what the node says that it froze, ``leftover`` what it let yield: its CPU time is what the
    owners of the slice left. A job that was not held has the role of its gang's state at the time of the
    report: ``run`` for a busy one, ``idle``, or ``free`` for all that the slices do not rule.
    """
    held = dict.fromkeys(use.held, "held") | dict.fromkeys(use.yielding, "leftover")
    cpu_us = {sample.job: sample.cpu_us for sample in use.samples}
    rows = []
    for gang in gangs:
        for job, view in gang.views.items():
            if number not in view.cores.nodes:
                continue
            role = held.get(job) or ROLE.get(gang.state, "free")
            rows.append(
                SliceRow(
                    use.number,
                    time.start_ns(use.number),
                    time.length_ns(use.number),
                    job,
                    node,
                    role,
                    cpu_us.get(job),
                    use.skew_us,
                    use.freeze_us,
                )
            )
    return tuple(rows)


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
