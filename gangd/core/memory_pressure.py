"""Which gangs give way where a node is short of memory: pure, from what agents report.

A node is short of memory where less is available than an administrator wants to be, or where tasks wait for
memory for more of their time than he allows. Then gangs are *deferred*, before the kernel kills one: each is
suspended whole, on all of its nodes, and runs for a slice now and then so that what it talks to does not give
it up.

* *Order*: gangs within their requests come before those that use more memory than they asked for, of alike
  ones the one that began first. The last in line gives way first, so allocating much defers no job that keeps
  to its request.
* *One at a time*: the next gang follows where the node is still short ``SETTLE_NS`` later. Where less than
  half of the bound is available all but the first are deferred at once.
* *The first in line on a node is never deferred for that node.* The first in line of all runs on every node,
  so jobs go on to end, and those behind move up: no gang is deferred for ever.
* A gang is *relieved* where a quarter more than the bound is available on the nodes that it was deferred for,
  one gang a node each ``SETTLE_NS``, the first in line first. Each time that it is deferred again soon it
  waits twice as long, up to ``MOST_WAIT_NS``. It is relieved at once where it has become the first in line.
* A node that has not reported its memory for ``STALE_NS`` defers no gang.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gangd.core.gang import Gang
from gangd.core.gang_settings import SECOND, CoreSettings
from gangd.core.scheduler_events import Alarm, JobMemory, NodeMemory
from gangd.core.states import GangState

SETTLE_NS = 2 * SECOND
FIRST_WAIT_NS, MOST_WAIT_NS = 2 * SECOND, 64 * SECOND
CALM_NS = 60 * SECOND
"""A gang that was not deferred for so long waits no longer than at first."""
STALE_NS = 10 * SECOND
_ROOM = 1.25
_CANDIDATES = frozenset({GangState.SOLO, GangState.BUSY, GangState.IDLE, GangState.WAKING})


@dataclass(frozen=True, slots=True)
class Deferral:
    """A gang that is deferred for the memory of a node, or runs again (``node`` is None), and why."""

    gang: Gang
    node: str | None
    text: str

    def alarm(self) -> Alarm:
        """Return the alarm that begins or ends."""
        number, nodes = self.gang.gang, () if self.node is None else (self.node,)
        return Alarm("memory", str(number), self.text, self.node is None, job=number, nodes=nodes)


@dataclass(slots=True)
class _Node:
    """When a node reported its memory, and from when on the next gang may be deferred, and relieved."""

    name: str
    heard_ns: int
    defers_ns: int = 0
    relieves_ns: int = 0


@dataclass(slots=True)
class _Deferred:
    """How a gang is, or was, deferred: for which nodes, until when at least, and how long that was."""

    gang: Gang
    until_ns: int
    wait_ns: int = FIRST_WAIT_NS
    nodes: set[int] = field(default_factory=set)


class MemoryPressure:
    """The gangs that are deferred, and the nodes that tell their memory."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}
        self._gangs: dict[int, _Deferred] = {}
        self._above: set[int] = set()

    @property
    def deferred(self) -> list[Gang]:
        """Return the gangs that are deferred."""
        return [one.gang for one in self._gangs.values() if one.nodes]

    def judge(
        self,
        name: str,
        node: int,
        memory: NodeMemory | None,
        gangs: Sequence[Gang],
        settings: CoreSettings,
        now_ns: int,
    ) -> list[Deferral]:
        """Take in the memory of a node; returns gangs that are deferred from now on, or no more.

        Parameters
        ----------
        name, node
            The node, and its number.
        memory
            What its agent reported; None for nothing.
        gangs
            The gangs that are there.
        """
        if settings.memory_kib is None or (memory is None and node not in self._nodes):
            return []
        here = self._nodes.setdefault(node, _Node(name, now_ns))
        if memory is None:
            if now_ns < here.heard_ns + STALE_NS:
                return []
            del self._nodes[node]
            waiting = [one for one in self._gangs.values() if node in one.nodes]
            return _relieved(waiting, node, f"{name} does not tell its memory any more")
        here.heard_ns = now_ns
        used = {one.job: one for one in memory.jobs}
        for gang in gangs:
            asked = [(used[job], view.memory_kib) for job, view in gang.views.items() if job in used]
            if any(kib is not None and one.used_kib > kib for one, kib in asked):
                self._above.add(gang.gang)  # for good: it has shown what its request is worth
        line = sorted(
            (gang for gang in gangs if gang.state in _CANDIDATES or gang.deferred), key=self._place_in_line
        )
        short_by = _shortage(memory, settings)
        if short_by is None:
            return self._go_on(here, node, line, memory, settings, now_ns)
        found = self._first_in_line(node, line)
        for gang in line[1:]:
            if gang.deferred:
                self._gangs[gang.gang].nodes.add(node)
        behind = [gang for gang in line[1:] if not gang.deferred]
        hurry = 2 * memory.available_kib < settings.memory_kib
        if not behind or (now_ns < here.defers_ns and not hurry):
            return found
        here.defers_ns = here.relieves_ns = now_ns + SETTLE_NS
        for gang in behind if hurry else behind[-1:]:
            found.append(self._defer(gang, here, node, f"{short_by}, and {self._why(gang, used)}", now_ns))
        return found

    def forget(self, gang: Gang) -> list[Deferral]:
        """Forget a gang that is gone; returns what ends with it."""
        self._above.discard(gang.gang)
        known = self._gangs.pop(gang.gang, None)
        if known is None or not known.nodes:
            return []
        return [Deferral(gang, None, f"job {gang.gang} has ended")]

    def relieve_all(self) -> list[Deferral]:
        """Let all gangs run again, and forget what is known."""
        waiting = self.deferred
        for known in (self._nodes, self._gangs, self._above):
            known.clear()
        text = "runs again: memory counts no more"
        return [Deferral(gang, None, f"job {gang.gang} {text}") for gang in waiting]

    def _place_in_line(self, gang: Gang) -> tuple[bool, float, int]:
        start_s = min(view.start_s for view in gang.views.values())
        return gang.gang in self._above, start_s, gang.gang

    def _why(self, gang: Gang, used: dict[int, JobMemory]) -> str:
        kib = sum(used[job].used_kib for job in gang.views if job in used)
        why = "uses more than it asked for" if gang.gang in self._above else "has begun last of the others"
        return f"it {why} ({kib >> 10} MiB): it is suspended until there is memory again"

    def _defer(self, gang: Gang, here: _Node, node: int, text: str, now_ns: int) -> Deferral:
        known = self._gangs.get(gang.gang)
        if known is None or known.gang is not gang or now_ns > known.until_ns + CALM_NS:
            known = self._gangs[gang.gang] = _Deferred(gang, now_ns + FIRST_WAIT_NS)
        else:
            known.wait_ns = min(2 * known.wait_ns, MOST_WAIT_NS)
            known.until_ns = now_ns + known.wait_ns
        known.nodes.add(node)
        return Deferral(gang, here.name, text)

    def _go_on(
        self,
        here: _Node,
        node: int,
        line: Sequence[Gang],
        memory: NodeMemory,
        settings: CoreSettings,
        now_ns: int,
    ) -> list[Deferral]:
        """Relieve the gang that may run again next."""
        found = self._first_in_line(node, line)
        if found or now_ns < here.relieves_ns or memory.available_kib < _ROOM * (settings.memory_kib or 0):
            return found
        for gang in line:
            known = self._gangs.get(gang.gang)
            if known is not None and node in known.nodes and now_ns >= known.until_ns:
                here.relieves_ns = now_ns + SETTLE_NS
                return _relieved([known], node, f"{here.name} has memory again")
        return []

    def _first_in_line(self, node: int, line: Sequence[Gang]) -> list[Deferral]:
        """Relieve the gang that has become the first in line, and those that are on the node no more."""
        first = line[0] if line else None
        free = [
            one
            for one in self._gangs.values()
            if node in one.nodes and (one.gang is first or one.gang not in line)
        ]
        return _relieved(free, node, "it is the first in line")


def _relieved(gangs: Sequence[_Deferred], node: int, why: str) -> list[Deferral]:
    """Take a node from those for which gangs are deferred; returns those that run again."""
    for one in gangs:
        one.nodes.discard(node)
    return [
        Deferral(one.gang, None, f"job {one.gang.gang} runs again: {why}") for one in gangs if not one.nodes
    ]


def _shortage(memory: NodeMemory, settings: CoreSettings) -> str | None:
    """Say how a node is short of memory; None if it is not."""
    bound_kib, most = settings.memory_kib or 0, settings.memory_stall
    if memory.available_kib < bound_kib:
        return f"{memory.available_kib >> 10} MiB are available, less than {bound_kib >> 10}"
    if most is not None and memory.stall is not None and memory.stall > most:
        return f"tasks waited for memory for {100 * memory.stall:.0f}% of the last 10 s"
    return None
