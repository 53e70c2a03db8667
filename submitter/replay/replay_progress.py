"""State and input of a replay: progress, the user's stop request, slices, the time left.

The time left is guessed from the work that is left and the pace of what was done. Of the time slices it is
added up how long a gang scheduler held each job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from analysis.metrics import unattended_by_node
from foundation.records import SLICES, HostRecord, JobEntry, SliceRecord
from foundation.records.table_files import frame_of
from foundation.units import counted, duration
from submitter.plan import PlannedJob

_ENOUGH = 0.05
"""From this share of the work on, what was done says how fast work is done; before, the cores do."""


class Wish(Enum):
    """What the user wants of a replay that is under way."""

    GO_ON = "go on"
    DETACH = "detach"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgress:
    """Progress of a replay: numbers of jobs, and seconds since the run's second 0.

    ``unsubmitted`` jobs are not due yet; ``blocked`` of the waiting ones may never start, for a reason such
    as ``blocked_by``; ``left_s`` is a guess at the time left, from the work to come and the pace so far.
    """

    unsubmitted: int
    waiting: int
    running: int
    done: int
    now_s: float
    left_s: float
    slurm_away: bool
    blocked: int = 0
    blocked_by: str | None = None

    @property
    def total(self) -> int:
        """Jobs in the plan."""
        return self.unsubmitted + self.waiting + self.running + self.done


Watch = Callable[[ReplayProgress], Wish]
# Tells what others recorded (time slices) of some of Slurm's jobs since an epoch second.
Collect = Callable[[Collection[int], float], Iterable[SliceRecord]]


class Look(Protocol):
    """Says who used the host's CPUs lately."""

    def __call__(self, at_s: float, *, last: bool = False) -> HostRecord | None:
        """Return a sample that ends at an instant in seconds of the run; None for nothing new.

        After the ``last`` one of a run no other is asked for.
        """
        ...


class HeldTime:
    """Sums of held time by job and node, and of time in which no agent acted on a node."""

    def __init__(self) -> None:
        self._gaps: list[SliceRecord] = []
        self._held_s: dict[int, dict[str, float]] = {}

    def through(self, rows: Iterable[SliceRecord]) -> Iterator[SliceRecord]:
        """Yield the rows, and count what they tell."""
        for row in rows:
            if row.role == "held":
                nodes = self._held_s.setdefault(row.job, {})
                nodes[row.node] = nodes.get(row.node, 0.0) + row.length_s
            elif row.role == "unattended":
                self._gaps.append(row)
            yield row

    def by_job(self) -> dict[int, float]:
        """Return the seconds that each job was held, on the node that held it longest."""
        return {job: max(nodes.values()) for job, nodes in self._held_s.items()}

    def unattended(self) -> str | None:
        """Return for how long no agent acted on which nodes, in a sentence; None where agents always did."""
        if not self._gaps:
            return None
        by_node = unattended_by_node(frame_of(self._gaps, SLICES)).sort("unattended_s")
        worst, others = by_node.row(-1, named=True), by_node.height - 1
        more = f" and on {counted(others, 'other node')} for less" if others else ""
        return (
            f"no agent of gangd acted on {worst['node']} for {duration(worst['unattended_s'])}{more}: all "
            "jobs ran there, and none was held"
        )


def time_left_s(
    jobs: Sequence[PlannedJob], entries: Mapping[int, JobEntry], now_s: float, cores: int
) -> float:
    """Return a guess at the seconds until the last job ends.

    Parameters
    ----------
    jobs
        All jobs of the plan, by ``due_s``.
    entries
        What is known of those that were submitted, by the trace's number.
    now_s
        Seconds since the run's second 0.
    cores
        Of the cluster.
    """
    work = done = 0.0
    longest_s = 0.0
    for job in jobs:
        entry = entries.get(job.trace_job)
        work += job.cores * job.dedicated_s
        if entry is None:
            longest_s = max(longest_s, max(0.0, job.due_s - now_s) + job.dedicated_s)
        elif entry.job.state is not None:
            done += job.cores * job.dedicated_s
        else:
            start_s = entry.job.start_s
            ran_s = 0.0 if start_s is None else min(max(0.0, now_s - start_s), job.dedicated_s)
            done += job.cores * ran_s
            longest_s = max(longest_s, job.dedicated_s - ran_s)
    rate = float(cores)
    if now_s > 0 and done > _ENOUGH * work:
        rate = min(rate, done / now_s)
    return max(longest_s, (work - done) / rate)
