"""Places the jobs of a core side by side: the bars of a Gantt chart.

A job that is alone on a core all its life fills the core's band. The others have a lane of it each: the first
one that is free on all of the job's cores of the node, or, where these have none in common, each core's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import polars as pl


@dataclass(frozen=True, slots=True)
class Bar:
    """One job on neighbouring cores of one node.

    Parameters
    ----------
    row
        Row of the job in the ``jobs`` table.
    node
        Name of the node.
    core
        Core id, the least one if the bar spans several.
    cores
        How many cores it spans; more than one only where the job is alone on them.
    lane
        Its lane, from 0; None if it is alone on the core and fills the band.
    start_s, end_s
        Its time.
    """

    row: int
    node: str
    core: int
    cores: int
    lane: int | None
    start_s: float
    end_s: float


def bars(entries: pl.DataFrame) -> tuple[list[Bar], int]:
    """Return the bars and the number of lanes in a band.

    Parameters
    ----------
    entries
        ``row``, ``start_s``, ``end_s``, ``node`` and ``core`` (a list of ids): each job on each of its nodes.
    """
    found: list[Bar] = []
    lanes = 1
    columns = ("node", "start_s", "end_s", "row", "core")
    ordered = entries.sort("node", "start_s", "end_s", "row").select(columns)
    for node, group in groupby(ordered.iter_rows(), key=lambda entry: str(entry[0])):
        on_node: list[Bar] = []
        free_from_s: dict[int, list[float]] = {}
        for _, start_s, end_s, row, cores in group:
            for core, lane in zip(cores, _take(free_from_s, cores, start_s, end_s), strict=True):
                lanes = max(lanes, lane + 1)
                on_node.append(Bar(row, node, core, 1, lane, start_s, end_s))
        shared = _shared(on_node)
        found.extend(
            _joined(bar if (bar.row, bar.core) in shared else replace(bar, lane=None) for bar in on_node)
        )
    return found, lanes


def _shared(on_node: Iterable[Bar]) -> set[tuple[int, int]]:
    """Return (row, core) of the bars of a node, ordered by start, that overlap another one."""
    shared: set[tuple[int, int]] = set()
    active: dict[int, list[Bar]] = {}
    for bar in on_node:
        others = [other for other in active.get(bar.core, ()) if other.end_s > bar.start_s]
        if others:
            shared.update((other.row, other.core) for other in (*others, bar))
        active[bar.core] = [*others, bar]
    return shared


def _take(
    free_from_s: dict[int, list[float]], cores: Sequence[int], start_s: float, end_s: float
) -> list[int]:
    """Return the lane of each core that a job takes, and note until when it has it."""
    for core in cores:
        free_from_s.setdefault(core, [])
    most = max(len(free_from_s[core]) for core in cores)
    free = [
        {lane for lane in range(most + 1) if lane >= len(ends) or ends[lane] <= start_s}
        for ends in (free_from_s[core] for core in cores)
    ]
    firsts = [min(lanes) for lanes in free]
    common = min(set.intersection(*free))
    # A common lane beyond those in use would make every band higher for nothing.
    taken = [common] * len(cores) if common < most or common == max(firsts) else firsts
    for core, lane in zip(cores, taken, strict=True):
        ends = free_from_s[core]
        ends.extend([start_s] * (lane + 1 - len(ends)))
        ends[lane] = end_s
    return taken


def _joined(parts: Iterable[Bar]) -> Iterator[Bar]:
    """Join the bars of a job on neighbouring cores that it has to itself."""
    last: Bar | None = None
    for part in parts:
        alone = last is not None and last.lane is None and part.lane is None
        if last and alone and (last.row, last.core + last.cores) == (part.row, part.core):
            last = replace(last, cores=last.cores + 1)
            continue
        if last:
            yield last
        last = part
    if last:
        yield last
