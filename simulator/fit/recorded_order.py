"""The order of starts and ends of a real run: read from its records, and as a policy.

``--order-of RUN``: jobs start in the order in which a real Slurm started them.

Where a job goes depends on which jobs hold cores at that instant, and milliseconds decide that. Once starts
and ends come in Slurm's order, what is left between a run and its simulation are run times and the placement.

When each job of a real run could have started, and when it did.

A job is *ready* once it has come, the cores that it got are free, and every job before it in the queue is
ready or runs. It has *arrived* if its own coming was last, else it was *released*, by the end of another job.
A job that starts while one before it waits has *overtaken*: that is the backfill scheduler's doing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from analysis.metrics import stretches
from foundation.errors import InputError
from foundation.records import Run, parse_cores
from simulator.policy_interface import Event, JobEnded, SchedulerContext

Slot = tuple[str, int]
SAME_PASS_S = 0.5
"""Starts that are nearer may be of one pass: what a start takes varies."""
_MOST_JOBS = 10_000


@dataclass(slots=True)
class Starts:
    """The starts of a run, as they tell of the scheduler; seconds.

    Parameters
    ----------
    arrived, released
        How long after they were ready jobs started that nothing but the scheduler held up; of several that
        were ready at one instant the first.
    passes
        The instants of these starts.
    overtook
        The instants at which jobs started before others that were before them in the queue.
    deepest
        The deepest place in the queue from which a job overtook, from 1; 0: none did.
    """

    arrived: list[float] = field(default_factory=list)
    released: list[float] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)
    overtook: list[float] = field(default_factory=list)
    deepest: int = 0

    @property
    def count(self) -> int:
        """How many starts tell anything."""
        return len(self.passes) + len(self.overtook)


@dataclass(frozen=True, slots=True)
class Queued:
    """A job of one queue.

    Parameters
    ----------
    submitted_s, left_s
        When it came, and when it left the queue: at its first start, or when it was cancelled.
    start_s
        When it started.
    tells
        Whether its start tells anything; a job that never began, or began more than once, may be in the way.
    rank
        Orders jobs that wait at once, the lowest first.
    slots
        The cores that it got.
    """

    submitted_s: float
    left_s: float
    start_s: float
    tells: bool
    rank: float
    slots: Sequence[Slot]


def read_starts(run: Run, size_weight: float = 0.0, age_weight_a_s: float = 0.0) -> Starts:
    """Return the starts of a run.

    Parameters
    ----------
    run
        The run; of more than 10,000 jobs in a queue the first 10,000.
    size_weight, age_weight_a_s
        What size, and each second of age, add to a job's priority; both 0: first come, first served.
    """
    opened = _openings(run)
    found = Starts()
    for jobs in _queues(run, size_weight, age_weight_a_s):
        _read_queue(jobs[:_MOST_JOBS], opened, found)
    return found


def _openings(run: Run) -> Mapping[Slot, list[float]]:
    """Return when each core began to be free for one more job, in order of time."""
    kinds = run.jobs.select("kind").with_row_index("row")
    held = (
        stretches(run.jobs, run.allocations)
        .drop_nulls(["start_s", "end_s", "placement"])
        .join(kinds, on="row", how="left", maintain_order="left")
    )
    changes: dict[Slot, list[tuple[float, int]]] = defaultdict(list)
    interactive: set[str] = set()
    for kind, start_s, end_s, placement in held.select("kind", "start_s", "end_s", "placement").iter_rows():
        for slot in _slots(placement):
            changes[slot] += [(start_s, 1), (end_s, -1)]
        if kind == "interactive" and run.info.multiplicity_interactive is not None:
            interactive.update(entry["node"] for entry in placement)
    return {
        slot: _opened(
            sorted(those),
            (run.info.multiplicity_interactive or 1) if slot[0] in interactive else run.info.multiplicity,
        )
        for slot, those in changes.items()
    }


def _opened(changes: Sequence[tuple[float, int]], most: int) -> list[float]:
    opened, users = [], 0
    for at_s, change in changes:
        if change < 0 and users >= most:
            opened.append(at_s)
        users += change
    return opened


def _slots(placement: Sequence[Mapping[str, str]]) -> list[Slot]:
    return [(entry["node"], core) for entry in placement for core in parse_cores(entry["cores"])]


def _queues(run: Run, size_weight: float, age_weight_a_s: float) -> list[list[Queued]]:
    """Return the jobs of each queue in order of submission."""
    first_s, again = _lives(run)
    nodes, cores = (int(part) for part in run.info.system[1:].split("C"))
    queues: dict[str, list[Queued]] = defaultdict(list)
    columns = ("job_id", "queue", "nodes", "cores", "submitted_s", "start_s", "end_s", "placement")
    # A job that was refused never waited, and the wait of a lost one is unknown.
    left = pl.col("start_s").is_not_null() | pl.col("end_s").is_not_null()
    queued = pl.col("submitted_s").is_not_null() & left
    known = run.jobs.filter(queued).sort("submitted_s", "trace_job")
    for row in known.select(columns).iter_rows():
        number, queue, wide, many, submitted_s, start_s, end_s, placement = row
        size = (wide / nodes + many / (nodes * cores)) / 2
        tells = start_s is not None and placement is not None and number not in again
        left_s = first_s.get(number, start_s if start_s is not None else end_s)
        queues[queue or ""].append(
            Queued(
                submitted_s=submitted_s,
                left_s=float("inf") if left_s is None else left_s,
                start_s=max(start_s, submitted_s) if tells else float("nan"),
                tells=tells,
                rank=age_weight_a_s * submitted_s - size_weight * size,
                slots=_slots(placement) if tells else (),
            )
        )
    return list(queues.values())


def _lives(run: Run) -> tuple[dict[int, float], set[int]]:
    """Return when jobs that have allocations first began, and which of them began again."""
    if run.allocations is None:
        return {}, set()
    first = run.allocations.group_by("job").agg(pl.col("from_s").min())
    again = run.allocations.filter(pl.col("why") != "start")["job"]
    return dict(first.iter_rows()), set(again.to_list())


def _read_queue(jobs: Sequence[Queued], opened: Mapping[Slot, list[float]], found: Starts) -> None:
    """Add what the starts of a queue tell."""
    submitted = np.array([job.submitted_s for job in jobs])
    left = np.array([job.left_s for job in jobs])
    rank = np.array([job.rank for job in jobs])
    ready = np.full(len(jobs), -np.inf)
    arrived = np.zeros(len(jobs), dtype=bool)
    seen: set[float] = set()
    for place in sorted((place for place, job in enumerate(jobs) if job.tells), key=left.item):
        job = jobs[place]
        before = (rank < rank[place]) | ((rank == rank[place]) & (np.arange(len(jobs)) < place))
        before &= submitted < job.start_s
        waited = before & (left > job.start_s + SAME_PASS_S)
        if waited.any():
            found.overtook.append(job.start_s)
            found.deepest = max(found.deepest, int(waited.sum()) + 1)
            continue
        freed_s = max((_last(opened.get(slot, ()), job.start_s) for slot in job.slots), default=-np.inf)
        first = int(np.argmax(np.where(before, ready, -np.inf)))
        ready[place] = max(job.submitted_s, freed_s)
        arrived[place] = job.submitted_s > freed_s
        if before[first] and ready[first] > ready[place]:
            ready[place], arrived[place] = ready[first], False
        found.passes.append(job.start_s)
        if float(ready[place]) not in seen:
            seen.add(float(ready[place]))
            gap_s = float(job.start_s - ready[place])
            (found.arrived if arrived[place] else found.released).append(gap_s)


def _last(opened: Sequence[float], at_s: float) -> float:
    """Return the last of the instants that is not after ``at_s``."""
    place = bisect_right(opened, at_s)
    return opened[place - 1] if place else float("-inf")


@dataclass(frozen=True, slots=True)
class Decision:
    """A job, by its number in the trace, started or, with ``ends``, gave its cores back."""

    job: int
    ends: bool = False


def order_of(run: Run) -> tuple[Decision, ...]:
    """Return the starts and ends of a real run in the order in which Slurm decided on them.

    A job stamps its start some time after the decision: by how much, the shortest wait of all tells. Starts
    less than half a second apart between which no job ended are of one pass, which goes through the queue in
    order of submission. A job that began more than once counts from its first start to its last end.

    Raises
    ------
    InputError
        It is a simulation, or no job of it has started.
    """
    if run.info.kind != "real":
        raise InputError.naming(
            "{label} is a simulation: {order_of} takes the RUN of a replay", label=run.info.label
        )
    held = stretches(run.jobs, run.allocations).group_by("row").agg(pl.col("start_s").min())
    jobs = run.jobs.select("trace_job", "job_id", "submit_s", "end_s", "state").with_row_index("row")
    known = jobs.join(held, on="row").drop_nulls("start_s")
    if not known.height:
        raise InputError(f"no job of {run.info.label} has started: it has no order")
    starts = read_starts(run)
    dispatch_s = min([*starts.arrived, *starts.released], default=0.0)
    begun = known.select(pl.col("start_s") - dispatch_s, "trace_job", "job_id", "submit_s").rows()
    ended = known.filter(pl.col("state").is_not_null()).select("end_s", "trace_job").drop_nulls().rows()
    instants = sorted([(at_s, 1, job, number, came_s) for at_s, job, number, came_s in begun])
    instants += [(at_s, 0, job, None, None) for at_s, job in ended]
    order: list[Decision] = []
    of_one_pass: list[tuple[int, int]] = []
    since_s = float("-inf")
    for at_s, starts_job, job, number, came_s in sorted(instants, key=lambda one: one[:3]):
        if not starts_job or at_s > since_s + SAME_PASS_S or came_s > since_s:
            order += [Decision(one) for _, one in sorted(of_one_pass)]
            of_one_pass, since_s = [], at_s
        if starts_job:
            of_one_pass.append((number or 0, job))
        else:
            order.append(Decision(job, ends=True))
    return (*order, *(Decision(one) for _, one in sorted(of_one_pass)))


class RecordedOrder:
    """Policy: starts jobs in a given order, each as soon as it fits and what was decided before is done.

    Jobs that the order does not have start after all others, first come, first served.
    """

    def __init__(self, order: Iterable[Decision]) -> None:
        self._order: Sequence[Decision] = tuple(order)
        self._done = 0
        self._ended: set[int] = set()

    def hear(self, context: SchedulerContext, event: Event) -> None:  # noqa: ARG002
        """Note what has ended."""
        if isinstance(event, JobEnded):
            self._ended.add(event.job.number)

    def schedule(self, context: SchedulerContext) -> None:
        """Go on in the order as far as can be."""
        waiting = {job.number: job for job in context.waiting}
        for decision in self._order[self._done :]:
            if decision.ends:
                happened = decision.job in self._ended
            else:
                happened = decision.job in waiting and context.start(waiting[decision.job])
            if not happened:
                return
            self._done += 1
        for job in tuple(context.waiting):
            if not context.start(job):
                return
