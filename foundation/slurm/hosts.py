"""Slurm's host lists and id lists, and the cluster's nodes by name.

Slurm's host lists (``n[1-3,7]``) and id lists (``0-3,7``), by a strict grammar with bounds.

What is read here came out of another program, and users may have had a hand in it. So a text is never
handed to a library that knows more than lists (ClusterShell runs a shell to look up ``@group``), and the
number of its names is known before any of them is made: a few characters can mean millions of names.

The cluster's nodes, looked up by name while jobs are read; asked for again when they may have changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from math import prod

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from foundation.errors import ClusterError
from foundation.id_list import LONGEST_TEXT, RANGES_PATTERN, read_ids, spans_of
from foundation.slurm.slurm_types import JobSnapshot, NodeCores, SlurmJob, SlurmNode, UnreadableJob

FindNode = Callable[[str], SlurmNode | None]
"""Returns the cluster's node of a name, None where it has none."""


class BadRecordError(Exception):
    """A job's record says what cannot be; the message can be printed. It never leaves this package."""


def place(name: str, cores: Iterable[int], memory_mib: int, find: FindNode) -> NodeCores:
    """Return cores of a node, ascending.

    Raises
    ------
    BadRecordError
        The cluster has no such node, or not so many cores on it, or there are none.
    """
    node = find(name)
    if node is None:
        raise BadRecordError("it is on a node that the cluster does not have")
    ids = tuple(sorted(cores))
    if not ids or ids[0] < 0 or ids[-1] >= node.cores or len(set(ids)) < len(ids):
        raise BadRecordError(f"its cores on {node.name} are not among the {node.cores} that there are")
    return NodeCores(node.name, ids, memory_mib or None)


def each_once(places: Iterable[NodeCores]) -> tuple[NodeCores, ...]:
    """Return the places of a job; raises BadRecordError where a node is among them twice."""
    found = tuple(places)
    if len({held.node for held in found}) < len(found):
        raise BadRecordError("it is twice on one node")
    return found


def snapshot_of(jobs: Iterable[SlurmJob], unreadable: Iterable[UnreadableJob]) -> JobSnapshot:
    """Return a snapshot in which each id is unique: where two jobs have the same id, both are dropped."""
    byid: dict[int, SlurmJob] = {}
    bad = {one.job_id: one for one in unreadable}
    for job in jobs:
        if job.job_id in byid or job.job_id in bad:
            bad.setdefault(job.job_id, UnreadableJob(job.job_id, "Slurm tells of it twice"))
        byid[job.job_id] = job
    good = (job for key, job in byid.items() if key not in bad) if bad else byid.values()
    return JobSnapshot(tuple(good), tuple(bad.values()))


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
        self, load: Callable[[], Sequence[SlurmNode]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.edition = 0
        self.missed = False
        self._load = load
        self._clock = clock
        self._nodes: dict[str, SlurmNode] = {}
        self._shapes: dict[str, tuple[int, int, int]] = {}
        self._loaded_s = float("-inf")

    def find(self, name: str) -> SlurmNode | None:
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

    def keep(self, nodes: Sequence[SlurmNode]) -> None:
        """Take nodes that were asked for just now."""
        self.missed = False
        self._loaded_s = self._clock()
        self._nodes = {node.name: node for node in nodes}
        shapes = {node.name: (node.cores, node.sockets, node.threads_per_core) for node in nodes}
        if shapes != self._shapes:
            self._shapes = shapes
            self.edition += 1


MOST_HOSTS = 65_536
"""Names that a list may stand for. Slurm's own bound of one bracket is as large (hostlist.c, MAX_RANGE)."""

MOST_IDS = 65_536
"""Every id in a list is below this: Slurm counts the CPUs of a node in 16 bits."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_ITEM = re.compile(rf"(?:[A-Za-z0-9_.-]++|\[{RANGES_PATTERN}\])++(?:,(?!\Z)|\Z)")
_PIECE = re.compile(rf"([A-Za-z0-9_.-]++)|\[({RANGES_PATTERN})\]")


def expand_hosts(text: str, most: int = MOST_HOSTS) -> tuple[str, ...]:
    """Return the host names in a Slurm host list, in its order, each once; none for ``(null)`` and no text.

    A name has letters, digits, ``_``, ``.`` and ``-``, begins with none of the last two, and may hold several
    brackets of numbers and ranges, padded with zeros or not.

    Raises
    ------
    ClusterError
        The text is no such list, or denotes more than ``most`` names.
    """
    if text in {"", "(null)"}:
        return ()
    if len(text) > LONGEST_TEXT:
        raise _unreadable("a host list", text, f"it has {len(text)} characters")
    names: dict[str, None] = {}
    named = position = 0
    while position < len(text):
        item = _ITEM.match(text, position)
        if item is None:
            raise _unreadable("a host list", text, f"it is none from character {position + 1} on")
        position = item.end()
        pieces = [(literal, _spans(ranges, text)) for literal, ranges in _PIECE.findall(item.group())]
        named += prod(sum(len(numbers) for numbers, _ in spans) for literal, spans in pieces if not literal)
        if named > most:
            raise _unreadable("a host list", text, f"it denotes more than {most} names")
        spelled = [(literal,) if literal else _spell(spans) for literal, spans in pieces]
        names.update(dict.fromkeys("".join(parts) for parts in product(*spelled)))
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise _unreadable("a host list", text, f"{name[:80]!r} is no host name")
    return tuple(names)


def fold_hosts(names: Iterable[str]) -> str:
    """Return host names folded into one host list.

    Raises
    ------
    ClusterError
        One of them is no host name.
    """
    checked = list(names)
    for name in checked:
        if _NAME.fullmatch(name) is None:
            raise _unreadable("a host name", name, "it has other characters than letters, digits, _ . and -")
    return str(NodeSet.fromlist(checked, resolver=RESOLVER_NOGROUP))


def expand_ids(text: str, below: int = MOST_IDS) -> tuple[int, ...]:
    """Return the numbers in a list such as ``0-3,7``, ascending.

    Raises
    ------
    ClusterError
        The text is no such list, or a number is not less than ``below``.
    """
    try:
        return read_ids(text, below)
    except ValueError as error:
        raise _unreadable("an id list", text, str(error)) from error


def _spans(ranges: str, text: str) -> list[tuple[range, int]]:
    """Return the numbers of each range, and how many digits they are padded to."""
    if not ranges:
        return []
    try:
        spans = spans_of(ranges)
    except ValueError as error:
        raise _unreadable("a list", text, str(error)) from error
    return [(span, len(part.partition("-")[0])) for span, part in zip(spans, ranges.split(","), strict=True)]


def _spell(spans: list[tuple[range, int]]) -> list[str]:
    return [f"{number:0{digits}}" for numbers, digits in spans for number in numbers]


def _unreadable(what: str, text: str, why: str) -> ClusterError:
    shown = text if len(text) <= 80 else text[:80] + "..."
    return ClusterError(f"{shown!r} cannot be read as {what}: {why}")
