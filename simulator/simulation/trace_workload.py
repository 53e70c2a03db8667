"""The workload of a simulation from a trace, and the busy and idle periods of its jobs.

Idle and busy periods of all jobs of a trace, as arrays.

Each job has idle, busy, idle, ... periods, idle first; the first may be zero, no other is. A batch job has a
zero and its run time. Source: thesis section 6.3.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from foundation.errors import InputError
from foundation.units import US_PER_S, checked_speedup
from simulator.jit.field_records import Ints
from simulator.model.jobs import JobDependencies, JobLifecycles, PoolJobs
from simulator.model.system import PoolQueues
from simulator.simulation.job_memory import reserved_kib
from simulator.simulation.simulation_options import (
    Cleaning,
    Shapes,
    TimeLimitRule,
    ZeroLength,
    job_shapes,
    whole_node_shapes,
)
from workloads.swf import InteractivePattern, SwfColumns, dependencies_of, procs_column

NOT_SIMULATED = "after a preceding job that is not simulated"
IN_OTHER_QUEUE = "after a preceding job in the other queue"

TOLERANCE_S = 1.0
"""By how much the periods of a job and its run time may differ: SWF has whole seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class JobPeriods:
    """The periods of job ``j`` are ``us[at[j]]`` to ``us[at[j + 1]]``.

    ``patterned`` says whether any job has periods other than one busy one.
    """

    at: Ints
    us: Ints
    patterned: bool

    @classmethod
    def busy(cls, run_us: Ints) -> JobPeriods:
        """Return the periods of jobs that are busy all along."""
        count = len(run_us)
        us = np.zeros(2 * count, dtype=np.int64)
        us[1::2] = run_us
        at = np.arange(0, 2 * count + 1, 2, dtype=np.int64)
        if count and int(run_us.min()) == 0:
            keep = np.ones(2 * count, dtype=bool)
            keep[1::2] = run_us > 0
            at = np.concatenate(([0], np.cumsum(np.where(run_us > 0, 2, 1))))
            us = us[keep]
        return cls(at, us, patterned=False)

    @property
    def totals_us(self) -> Ints:
        """Sum of the periods of each job."""
        return _sums(self.us, self.at)

    @property
    def busy_us(self) -> Ints:
        """Sum of the busy periods of each job."""
        places = np.arange(len(self.us)) - np.repeat(self.at[:-1], np.diff(self.at))
        return _sums(np.where(places & 1, self.us, 0), self.at)

    def of(self, jobs: Ints) -> tuple[Ints, Ints]:
        """Return offsets and periods of some jobs."""
        chosen = self.select(jobs)
        return chosen.at, chosen.us

    def select(self, jobs: Ints) -> JobPeriods:
        """Return the periods of some jobs."""
        counts = np.diff(self.at)[jobs]
        at = np.concatenate(([0], np.cumsum(counts)))
        source = np.repeat(self.at[:-1][jobs] - at[:-1], counts) + np.arange(at[-1])
        return JobPeriods(at, self.us[source], self.patterned)

    def cut(self, most_us: Ints) -> JobPeriods:
        """Return the periods cut where the job has gone on for ``most_us``; the first one always stays."""
        counts = np.diff(self.at)
        ends = np.cumsum(self.us) - np.repeat(np.concatenate(([0], np.cumsum(self.us)))[self.at[:-1]], counts)
        most = np.repeat(most_us, counts)
        begins = ends - self.us
        first = np.zeros(len(self.us), dtype=bool)
        first[self.at[:-1]] = True
        keep = first | (begins < most)
        us = np.minimum(ends, most) - begins
        at = np.concatenate(([0], np.cumsum(np.add.reduceat(keep, self.at[:-1]))))
        return JobPeriods(at, np.maximum(us[keep], 0), self.patterned)


def _sums(values: Ints, at: Ints) -> Ints:
    totals = np.concatenate(([0], np.cumsum(values)))
    sums: Ints = totals[at[1:]] - totals[at[:-1]]
    return sums


def trace_periods(
    numbers: Ints,
    run_us: Ints,
    interactive: npt.NDArray[np.bool_],
    extensions: Mapping[int, tuple[float, ...]],
    speedup: float,
) -> JobPeriods:
    """Return the periods of all jobs of a trace; those without columns of their own are busy all along.

    Raises
    ------
    InputError
        The columns of a job contradict each other or its run time.
    """
    patterns: dict[int, list[int]] = {}
    for row, extension in extensions.items():
        if not interactive[row]:
            continue
        try:
            pattern = InteractivePattern.from_extension(extension)
        except InputError as error:
            raise InputError(f"job {numbers[row]}: {error}") from error
        if pattern is None:
            continue
        if abs(pattern.total_s / speedup - run_us[row] / US_PER_S) > TOLERANCE_S:
            raise InputError(
                f"job {numbers[row]}: its interactive columns last {pattern.total_s:g} s, its run time is "
                f"{run_us[row] * speedup / US_PER_S:g} s"
            )
        patterns[row] = merged([round(period * US_PER_S / speedup) for period in pattern.periods_s])
    plain = JobPeriods.busy(run_us)
    if not patterns:
        return plain
    pieces: list[Ints] = []
    counts = np.diff(plain.at)
    done = 0
    for row in sorted(patterns):
        pieces += (plain.us[plain.at[done] : plain.at[row]], np.array(patterns[row], dtype=np.int64))
        counts[row] = len(patterns[row])
        done = row + 1
    pieces.append(plain.us[plain.at[done] :])
    return JobPeriods(np.concatenate(([0], np.cumsum(counts))), np.concatenate(pieces), patterned=True)


def merged(periods_us: list[int]) -> list[int]:
    """Return idle, busy, idle, ... periods without zero ones, but for the first, which stays."""
    result = [periods_us[0]]
    for place, period in enumerate(periods_us[1:], start=1):
        if period == 0:
            continue
        if place % 2 == len(result) % 2:
            result.append(period)
        else:
            result[-1] += period
    return result


Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_LONGEST_S = 1e12


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Workload:
    """The jobs that are simulated, as arrays in order of job number.

    Parameters
    ----------
    number
        SWF field 1.
    interactive
        Whether the job is interactive.
    submit_us
        When it arrives, from the first submission of the whole trace (or the trace's second 0).
    requested_us
        Requested time that counts, on dedicated cores.
    asked_us
        Requested time in the trace; -1 where it has none.
    run_us
        Run time on dedicated cores in the trace, before a limit cut it.
    nodes, cores
        Its shape.
    memory_kib
        Memory a processor; NaN where the trace has none.
    user, queue
        SWF fields 12 and 15; -1 where the trace has none.
    periods
        Its idle and busy periods.
    timed_out
        Whether a limit stops it before its end.
    left_out
        How many jobs of the trace are not here, or were changed, by reason.
    lifecycles
        The jobs' lifecycles, where they do more than run once; None: none do.
    planned_us
        What the scheduler takes each job to last at most; None: the requested time.
    executable
        Number of the executable, -1 where not known; None: of none.
    app, applications
        Which of the applications each job runs, and their names; None: not known.
    dependencies
        Which jobs are submitted after another has ended; None: none are.
    reserved_kib, used_kib
        Memory a processor that is reserved, and that is used at most; None: ``memory_kib``, not looked at.
    """

    number: Ints
    interactive: Bools
    submit_us: Ints
    requested_us: Ints
    asked_us: Ints
    run_us: Ints
    nodes: Ints
    cores: Ints
    memory_kib: Floats
    user: Ints
    queue: Ints
    periods: JobPeriods
    timed_out: Bools
    left_out: Mapping[str, int] = field(default_factory=dict)
    lifecycles: JobLifecycles | None = None
    planned_us: Ints | None = None
    executable: Ints | None = None
    app: Ints | None = None
    applications: tuple[str, ...] = ()
    dependencies: JobDependencies | None = None
    reserved_kib: Floats | None = None
    used_kib: Floats | None = None

    @classmethod
    def of_batch(cls, submit_us: Ints, run_us: Ints, nodes: Ints, requested_us: Ints, asked_us: Ints) -> Self:
        """Return made batch jobs of one core a node, numbered from 1 on, of which nothing else is known."""
        count = len(submit_us)
        unknown = np.full(count, -1, dtype=np.int64)
        return cls(
            number=np.arange(1, count + 1, dtype=np.int64),
            interactive=np.zeros(count, dtype=bool),
            submit_us=submit_us,
            requested_us=requested_us,
            asked_us=asked_us,
            run_us=run_us,
            nodes=nodes,
            cores=np.ones(count, dtype=np.int64),
            memory_kib=np.full(count, np.nan),
            user=unknown,
            queue=unknown,
            periods=JobPeriods.busy(run_us),
            timed_out=np.zeros(count, dtype=bool),
        )

    @property
    def limit_us(self) -> Ints:
        """What the scheduler takes each job to last at most, on dedicated cores."""
        return self.requested_us if self.planned_us is None else self.planned_us

    @property
    def count(self) -> int:
        """How many jobs there are."""
        return len(self.number)

    def members(self, *, interactive: bool) -> Ints:
        """Return the indices of the interactive, or of the batch jobs."""
        return np.flatnonzero(self.interactive == interactive)

    def pool_jobs(self, members: Ints, *, with_memory: bool) -> PoolJobs:
        """Return the arrays that the engine takes, for the jobs with the indices ``members``."""
        whole = len(members) == self.count  # then views rather than copies
        own = slice(None) if whole else members
        phase_at, phase_us = (self.periods.at, self.periods.us) if whole else self.periods.of(members)
        known_kib = self.memory_kib if self.reserved_kib is None else self.reserved_kib
        memory_kib = np.nan_to_num(known_kib[members]) * self.cores[members] if with_memory else 0.0
        return PoolJobs(
            submit_us=self.submit_us[own],
            requested_us=self.limit_us[own],
            nodes=self.nodes[own],
            cores=self.cores[own],
            memory_kib=np.ceil(np.broadcast_to(memory_kib, len(members))).astype(np.int64),
            app=np.zeros(len(members), dtype=np.int64) if self.app is None else self.app[own],
            phase_at=phase_at,
            phase_us=phase_us,
            user=self.user[own],
            lifecycles=None if self.lifecycles is None else self.lifecycles.select(members),
            dependencies=self.dependencies and self.dependencies.select(members),
            used_kib=None if self.used_kib is None else np.ceil(self.used_kib[own]).astype(np.int64),
        )


def make_workload(
    trace: SwfColumns,
    queues: PoolQueues,
    cleaning: Cleaning,
    *,
    node_memory_kib: int | None = None,
    keep_origin: bool = False,
    whole_nodes: bool = False,
) -> Workload:
    """Turn a trace into the jobs of a simulation.

    Parameters
    ----------
    trace
        The trace.
    queues
        The pools, which decide the shapes.
    cleaning
        What to do with odd jobs.
    node_memory_kib
        Memory of a node; None: memory does not matter.
    keep_origin
        Count time from the trace's second 0 rather than from its first submission.
    whole_nodes
        Give every job whole nodes, as few as have its processors.

    Raises
    ------
    InputError
        A job number comes twice, interactive columns contradict the run time, no job is left, or a job is odd
        in a way that ``cleaning`` refuses.
    UsageError
        The speed-up is not positive.
    """
    checked_speedup(cleaning.speedup)
    columns = _WorkloadColumns(trace, cleaning)
    left_out: dict[str, int] = {}
    keep = _judge(columns, cleaning, left_out)
    shapes_of = whole_node_shapes if whole_nodes else job_shapes
    shapes = shapes_of(columns, keep, queues, cleaning.oversize, node_memory_kib)
    left_out |= shapes.counts
    keep &= shapes.nodes > 0
    if not keep.any():
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items() if count)
        raise InputError(f"trace {trace.name} has no job to simulate ({reasons or 'it is empty'})")
    chosen = np.flatnonzero(keep)
    chosen = chosen[np.argsort(columns.number[chosen], kind="stable")]
    origin_us = 0 if keep_origin else int(columns.submit_us.min())
    workload = _assemble(columns, chosen, shapes, origin_us, cleaning.limits, left_out)
    if cleaning.memory is not None and node_memory_kib is not None:
        most_kib = np.floor(node_memory_kib / np.maximum(shapes.cores, 1))
        reserved = reserved_kib(trace, cleaning.memory, most_kib, cleaning.memory_coverage)[chosen]
        used_kib = trace.frame["used_memory_kib"].fill_null(0).to_numpy()[chosen]
        workload = replace(workload, reserved_kib=reserved, used_kib=np.nan_to_num(used_kib))
    return workload if cleaning.dependencies is False else _linked(workload, trace, chosen, queues, cleaning)


def _linked(
    workload: Workload, trace: SwfColumns, chosen: Ints, queues: PoolQueues, cleaning: Cleaning
) -> Workload:
    """Return the workload with the dependencies of its jobs; ``chosen`` are their rows in the trace."""
    given = dependencies_of(trace.frame)
    place = np.full(len(given.preceding) + 1, -1, dtype=np.int64)
    place[chosen] = np.arange(len(chosen))
    rows = given.preceding[chosen]
    preceding = place[rows]
    is_apart = (preceding >= 0) & (workload.interactive[preceding] != workload.interactive) & queues.is_mq
    counts = {
        **given.ignored,
        NOT_SIMULATED: int(((rows >= 0) & (preceding < 0)).sum()),
        IN_OTHER_QUEUE: int(is_apart.sum()),
    }
    preceding[is_apart] = -1
    think_us = np.rint(given.think_s[chosen] * (US_PER_S / cleaning.speedup))
    if (think_us > _LONGEST_S * US_PER_S).any():
        raise InputError(f"trace {trace.name}: a think_s of more than {_LONGEST_S:g} s cannot be simulated")
    found = JobDependencies(preceding, np.nan_to_num(think_us, nan=-1).astype(np.int64))
    return replace(
        workload,
        left_out={**workload.left_out, **{reason: count for reason, count in counts.items() if count}},
        dependencies=found if found.count else None,
    )


class _WorkloadColumns:
    """The columns of a trace that matter, without nulls, in microseconds of the run's own time."""

    def __init__(self, trace: SwfColumns, cleaning: Cleaning) -> None:
        frame = trace.frame
        self.name = trace.name

        def whole(column: str) -> Ints:
            values: Ints = frame[column].fill_null(-1).to_numpy()
            return values

        def us(column: str) -> Ints:
            seconds = frame[column].fill_null(-1).to_numpy()
            if (seconds > _LONGEST_S).any():
                raise InputError(
                    f"trace {trace.name}: a {column} of more than {_LONGEST_S:g} s cannot be simulated"
                )
            scaled = np.rint(seconds * (US_PER_S / cleaning.speedup)).astype(np.int64)
            return np.where(seconds < 0, -1, scaled)

        self.number = whole("job_number")
        self.procs: Ints = trace.frame.select(procs_column().fill_null(-1)).to_series().to_numpy()
        self.submit_us = us("submit_s")
        self.asked_us = us("requested_s")
        self.run_us = us("run_s")
        asked_kib = frame["requested_memory_kib"].to_numpy()
        used_kib = frame["used_memory_kib"].to_numpy()
        self.memory_kib: Floats = np.where(np.isnan(asked_kib), used_kib, asked_kib)
        self.user, self.queue = whole("user"), whole("queue")
        self.executable = whole("executable")
        self.interactive: Bools = (
            np.zeros(len(self.number), dtype=bool)
            if cleaning.interactive_queue is None
            else self.queue == cleaning.interactive_queue
        )
        self.periods = trace_periods(
            self.number, np.maximum(self.run_us, 0), self.interactive, trace.extensions, cleaning.speedup
        )


def _judge(columns: _WorkloadColumns, cleaning: Cleaning, left_out: dict[str, int]) -> Bools:
    """Return which jobs can be simulated, shapes aside."""
    numbers, counts = np.unique(columns.number, return_counts=True)
    if (counts > 1).any():
        raise InputError(
            f"trace {columns.name} has job {numbers[counts > 1][0]} twice; numbers must be unique: "
            "`osub trace convert` gives later jobs new ones"
        )
    no_processor = columns.procs < 1
    empty = (columns.run_us <= 0) & ~no_processor
    if empty.any() and cleaning.zero_length is ZeroLength.FAIL:
        raise InputError.naming(
            "job {job} of trace {name} has no run time: choose {zero_length} skip or keep",
            job=columns.number[empty][0],
            name=columns.name,
        )
    left_out["without a processor"] = int(no_processor.sum())
    keep = ~no_processor
    if cleaning.zero_length is ZeroLength.SKIP:
        left_out["without a run time"] = int(empty.sum())
        keep &= ~empty
    return keep


def _assemble(
    columns: _WorkloadColumns,
    chosen: Ints,
    shapes: Shapes,
    origin_us: int,
    limits: TimeLimitRule,
    left_out: Mapping[str, int],
) -> Workload:
    run_us = np.maximum(columns.run_us[chosen], 0)
    asked_us = columns.asked_us[chosen]
    periods = columns.periods.select(chosen)
    total_us = periods.totals_us
    requested_us = np.where(asked_us > 0, asked_us, total_us)
    timed_out = requested_us < total_us
    if limits is TimeLimitRule.RAISE:
        requested_us = np.maximum(requested_us, total_us)
        timed_out[:] = False
    elif timed_out.any():
        periods = periods.cut(requested_us)
    return Workload(
        number=columns.number[chosen],
        interactive=columns.interactive[chosen],
        submit_us=columns.submit_us[chosen] - origin_us,
        requested_us=requested_us,
        asked_us=asked_us,
        run_us=total_us if columns.periods.patterned else run_us,
        nodes=shapes.nodes[chosen],
        cores=shapes.cores[chosen],
        memory_kib=shapes.memory_kib[chosen],
        user=columns.user[chosen],
        queue=columns.queue[chosen],
        executable=columns.executable[chosen],
        periods=periods,
        timed_out=timed_out,
        left_out={reason: count for reason, count in left_out.items() if count},
    )


def without_patterns(workload: Workload) -> Workload:
    """Return the workload with every job busy from its start to its end (thesis chapter 5)."""
    return replace(workload, periods=JobPeriods.busy(workload.run_us))
