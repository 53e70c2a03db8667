"""Data sets of the thesis, and cases of its experiments: what is run, and what the thesis reports of each.

The traces of the experiments: cleaning as in the thesis's program, interactive patterns, data sets 1 to 6.

Sources: thesis sections 5.3.3, 6.3.1 and 6.4.2, Tables 5.1 and 6.4; the published NCS program for the
cleaning: an unknown run time is taken from the CPU time, a job without either is left out, a run time of zero
becomes 1 s. For UniLu-Gaia that and leaving out the 88 interactive jobs wider than a node gives the thesis's
51,871 jobs, 1,762 interactive, 82 users.

Runs cases of an experiment, and what the thesis reports of each (section 5.3.2).

Pools that cases have in common are simulated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.quantiles import quantiles
from foundation.errors import InputError
from foundation.units import US_PER_S, counted
from simulator.engine.pool_run import run_pool
from simulator.engine.run_rules import RunRules
from simulator.experiments.claim_study import Step, run_trials
from simulator.jit.field_records import Ints
from simulator.model.system import NodePool, PoolQueues, System, multiple_queues, nodes_of_share, single_queue
from simulator.simulation import CLIPPED, Cleaning, OversizeRule, Workload, make_workload, without_patterns
from workloads.swf import InteractivePattern, SwfColumns, procs_column
from workloads.swf.swf_job import RESERVED_COLUMNS
from workloads.trace.models import MOST_CORES, MOST_RUN_S, choose, synthesize_patterns

DATA_SETS = (1_762, 6_500, 15_913, 25_336, 34_772, 39_473)
"""Interactive jobs of data sets 1 to 6 (Table 6.4)."""


def cleaned(trace: SwfColumns, most_cores: int | None, interactive_queue: int = 0) -> SwfColumns:
    """Return the trace without what the thesis left out, with a run time for every job.

    Interactive jobs of more than ``most_cores`` cores are left out; None: none is.

    Raises
    ------
    InputError
        No job is left.
    """
    frame = trace.frame.with_row_index("row").with_columns(run_s=pl.coalesce("run_s", "cpu_s"))
    interactive = pl.col("queue").fill_null(-1) == interactive_queue
    too_wide = interactive & (procs_column() > most_cores) if most_cores is not None else pl.lit(value=False)
    kept = frame.filter(
        pl.col("run_s").is_not_null() & procs_column().is_not_null() & ~too_wide
    ).with_columns(run_s=pl.when(pl.col("run_s") == 0).then(1.0).otherwise("run_s"))
    if not kept.height:
        raise InputError(f"trace {trace.name} has no job with a run time")
    new_row = {old: new for new, old in enumerate(kept["row"].to_list())}
    # a pattern of no length would contradict the second that its job now runs
    extensions = {
        new_row[row]: extension
        for row, extension in trace.extensions.items()
        if row in new_row
        and (pattern := InteractivePattern.from_extension(extension))
        and pattern.total_s > 0
    }
    return replace(trace, frame=kept.drop("row"), extensions=extensions)


def in_blocks(trace: SwfColumns) -> SwfColumns:
    """Return the trace with busy periods before idle ones in columns 25 and up, where they alternate.

    Table 6.1 of the thesis has all activations first. The published data sets (``..._alloced.swf``) and the
    program that reads them have activation, idle, activation, ...
    """
    first = RESERVED_COLUMNS + 3
    extensions = {
        row: (*extension[:first], *extension[first::2], *extension[first + 1 :: 2])
        for row, extension in trace.extensions.items()
    }
    return replace(trace, extensions=extensions)


def with_interactive_jobs(trace: SwfColumns, wanted: int, seed: int, queue: int = 0) -> SwfColumns:
    """Return the trace with ``wanted`` interactive jobs, batch jobs chosen at random among small short ones.

    Sets for larger numbers contain those for smaller ones.

    Raises
    ------
    InputError
        There are not so many jobs to choose from.
    """
    frame = trace.frame
    interactive = (frame["queue"].fill_null(-1) == queue).to_numpy()
    missing = wanted - int(interactive.sum())
    small = (
        frame.select((procs_column() <= MOST_CORES) & (pl.col("run_s") < MOST_RUN_S)).to_series().to_numpy()
    )
    candidates = np.flatnonzero(small & ~interactive)
    if missing > len(candidates):
        raise InputError(
            f"trace {trace.name} has {counted(len(candidates), 'batch job')} to make interactive, "
            f"not {missing}"
        )
    if missing <= 0:
        return trace
    queues: Ints = frame["queue"].fill_null(-1).to_numpy().copy()
    queues[choose(candidates.tolist(), missing, seed)] = queue
    return replace(trace, frame=frame.with_columns(queue=pl.Series(queues)))


def with_patterns(trace: SwfColumns, seed: int, queue: int = 0) -> SwfColumns:
    """Return the trace with busy and idle periods for the interactive jobs that have none (section 6.3.1)."""
    rows = np.flatnonzero((trace.frame["queue"].fill_null(-1) == queue).to_numpy())
    rows = np.array([row for row in rows.tolist() if row not in trace.extensions], dtype=np.int64)
    if not len(rows):
        return trace
    runs = trace.frame["run_s"].to_numpy()[rows]
    patterns = synthesize_patterns(runs, np.random.default_rng(seed))
    fresh = {row: pattern.to_extension() for row, pattern in zip(rows.tolist(), patterns, strict=True)}
    return replace(trace, extensions={**trace.extensions, **fresh})


Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_US_PER_H = 3600 * US_PER_S
LONG_S = 600
"""Batch jobs that run longer are "long normal jobs" (Figure 5.7; the program's evaluation scripts)."""
CURVE_SHARES = tuple(share / 1000 for share in range(1001))


class JobOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One job of Table 5.4."""

    job: int
    run_s: float
    wait_s: float
    slowdown_osub: float


class CaseOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A case in figures; times of completion are hours from the first submission.

    ``curve`` is S_OSub at 0, 0.1, ... 100% of the jobs, ascending.
    """

    label: str
    jobs: int
    interactive_jobs: int
    interactive_waited: Annotated[float, "share of the interactive jobs that waited at all"]
    interactive_wait_max_s: float
    wait_max_s: float
    slowdown_interactive_max: float
    slowdown_batch_max: float
    slowdown_long_batch_max: Annotated[float, "of batch jobs that run for more than LONG_S"]
    slowdown_from_100: Annotated[float, "share of all jobs with S_OSub of at least 100"]
    cpu_time_done_h: Annotated[tuple[float, float, float], "90%, 95% and 100% of the CPU time"]
    jobs_done_h: Annotated[tuple[float, float, float], "90%, 95% and 100% of the jobs"]
    engine_cpu_s: float
    curve: tuple[float, ...]
    examples: tuple[JobOutcome, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThesisCase:
    """A configuration to be simulated: SQ, or MQ with so many interactive nodes."""

    label: str
    multiplicity: int = 1
    interactive_nodes: int | None = None
    multiplicity_interactive: int = 1

    def queues(self, system: System) -> PoolQueues:
        """Return the queues of the case."""
        if self.interactive_nodes is None:
            return single_queue(system, self.multiplicity)
        return multiple_queues(
            system, self.interactive_nodes, self.multiplicity, self.multiplicity_interactive
        )


def sq(multiplicity: int) -> ThesisCase:
    """Return SQ with multiplicity M."""
    return ThesisCase(label=f"SQ, M={multiplicity}", multiplicity=multiplicity)


def mq(system: System, share: str, multiplicity_interactive: int, multiplicity: int = 1) -> ThesisCase:
    """Return MQ with a share R of interactive nodes, rounded down as the thesis's scripts do it."""
    return ThesisCase(
        label=f"MQ, R={share}",
        multiplicity=multiplicity,
        interactive_nodes=max(1, int(system.nodes * Fraction(share.removesuffix("%")) / 100)),
        multiplicity_interactive=multiplicity_interactive,
    )


def to_nearest(system: System, case: ThesisCase, share: str) -> ThesisCase | None:
    """Return an MQ case with R to the nearest whole number, as `osub simulate` has it, if that differs."""
    nodes = nodes_of_share(system, share)
    if nodes == case.interactive_nodes:
        return None
    return replace(case, label=f"{case.label} ({counted(nodes, 'node')})", interactive_nodes=nodes)


def mq_cases(system: System, shares: Sequence[str], multiplicity_interactive: int) -> list[ThesisCase]:
    """Return MQ for each share, rounded down; then those that are others to the nearest whole number."""
    down = [mq(system, share, multiplicity_interactive) for share in shares]
    nearest = [to_nearest(system, case, share) for case, share in zip(down, shares, strict=True)]
    return [*down, *(case for case in nearest if case is not None)]


def published_label(label: str) -> str:
    """Return the label of the case in the thesis that a case repeats."""
    return label.split(" (")[0]


@dataclass(frozen=True, slots=True, eq=False)
class PoolOutcome:
    """Starts and ends of the jobs of a pool, ``members`` of the workload."""

    members: Ints
    start_us: Ints
    end_us: Ints
    engine_cpu_s: float


def members_of(workload: Workload, queues: PoolQueues, pool: NodePool) -> Ints:
    """Return the indices of the jobs that ``pool`` takes."""
    if not queues.is_mq:
        return np.arange(workload.count)
    return workload.members(interactive=pool is queues.interactive)


def _fits(workload: Workload, queues: PoolQueues) -> bool:
    """Whether no job is wider than its pool."""
    return all(
        workload.nodes[members_of(workload, queues, pool)].max(initial=0) <= pool.nodes
        for pool in queues.pools
    )


@dataclass(slots=True)
class ThesisStudy:
    """A trace on a system under one set of rules, for many cases.

    Parameters
    ----------
    trace
        A trace in which every job has a run time.
    system, rules
        The nodes and the plug-ins.
    patterns
        Whether interactive jobs idle (thesis chapter 6) or are busy all along (chapter 5).
    examples
        Jobs of which the outcome tells more.
    interactive_queue
        SWF queue of the interactive jobs.
    """

    trace: SwfColumns
    system: System
    rules: RunRules
    patterns: bool
    examples: tuple[int, ...] = ()
    interactive_queue: int = 0
    _workloads: dict[tuple[int, ...], Workload] = field(default_factory=dict)
    _pools: dict[tuple[str, int, int], PoolOutcome] = field(default_factory=dict)

    def with_trace(self, trace: SwfColumns) -> ThesisStudy:
        """Return a study of another trace under the same rules."""
        return ThesisStudy(
            trace, self.system, self.rules, self.patterns, self.examples, self.interactive_queue
        )

    def run(self, case: ThesisCase) -> CaseOutcome:
        """Simulate a case."""
        queues = case.queues(self.system)
        workload = self.workload(queues)
        start_us = np.zeros(workload.count, dtype=np.int64)
        end_us = np.zeros(workload.count, dtype=np.int64)
        engine_cpu_s = 0.0
        for pool in queues.pools:
            known = self.pool(workload, queues, pool)
            start_us[known.members], end_us[known.members] = known.start_us, known.end_us
            engine_cpu_s += known.engine_cpu_s
        return outcome_of(case.label, workload, start_us, end_us, engine_cpu_s, self.examples)

    def workload(self, queues: PoolQueues) -> Workload:
        """Return the jobs: the same for all queues in which every job fits, else cut to the pools."""
        sizes = tuple(pool.nodes for pool in queues.pools)
        for known_sizes, known in self._workloads.items():
            if sizes == known_sizes or (CLIPPED not in known.left_out and _fits(known, queues)):
                return known
        made = make_workload(
            self.trace,
            queues,
            Cleaning(
                interactive_queue=self.interactive_queue, oversize=OversizeRule.CLIP, dependencies=False
            ),
            node_memory_kib=self.rules.node_memory_kib,
        )
        self._workloads[sizes] = made if self.patterns else without_patterns(made)
        return self._workloads[sizes]

    def pool(self, workload: Workload, queues: PoolQueues, pool: NodePool) -> PoolOutcome:
        """Simulate one pool, unless it was simulated before."""
        key = (pool.name, pool.nodes, pool.multiplicity)
        if key not in self._pools:
            members = members_of(workload, queues, pool)
            jobs = workload.pool_jobs(members, with_memory=self.rules.node_memory_kib is not None)
            run = run_pool(jobs, workload.number[members], pool, self.rules)
            self._pools[key] = PoolOutcome(members, run.start_us.copy(), run.end_us.copy(), run.engine_cpu_s)
        return self._pools[key]


def run_all(study: ThesisStudy, cases: list[ThesisCase], step: Step) -> dict[str, CaseOutcome]:
    """Simulate cases in order, and return their outcomes by label."""
    by_label = {case.label: case for case in cases}
    return run_trials(by_label, lambda label: study.run(by_label[label]), step, study.trace.name)


def outcome_of(
    label: str,
    workload: Workload,
    start_us: Ints,
    end_us: Ints,
    engine_cpu_s: float,
    examples: tuple[int, ...] = (),
) -> CaseOutcome:
    """Measure a case."""
    wait_us = start_us - workload.submit_us
    run_s = workload.run_us / US_PER_S
    slowdown = (end_us - workload.submit_us) / US_PER_S / run_s
    interactive = workload.interactive
    work = workload.periods.busy_us / US_PER_S * workload.nodes * workload.cores
    places = np.searchsorted(workload.number, examples)
    return CaseOutcome(
        label=label,
        jobs=workload.count,
        interactive_jobs=int(interactive.sum()),
        interactive_waited=_mean(wait_us[interactive] > 0),
        interactive_wait_max_s=_max(wait_us[interactive]) / US_PER_S,
        wait_max_s=_max(wait_us) / US_PER_S,
        slowdown_interactive_max=_max(slowdown[interactive]),
        slowdown_batch_max=_max(slowdown[~interactive]),
        slowdown_long_batch_max=_max(slowdown[~interactive & (run_s > LONG_S)]),
        slowdown_from_100=_mean(slowdown >= 100),
        cpu_time_done_h=done_h(end_us, work),
        jobs_done_h=done_h(end_us, np.ones(workload.count)),
        engine_cpu_s=engine_cpu_s,
        curve=tuple(quantiles(slowdown, CURVE_SHARES).tolist()),
        examples=tuple(
            JobOutcome(
                job=number,
                run_s=float(end_us[place] - start_us[place]) / US_PER_S,
                wait_s=float(wait_us[place]) / US_PER_S,
                slowdown_osub=float(slowdown[place]),
            )
            for number, place in zip(examples, places.tolist(), strict=True)
            if place < workload.count and workload.number[place] == number
        ),
    )


def done_h(end_us: Ints, weight: Floats) -> tuple[float, float, float]:
    """Return when 90, 95 and 100% of the weight was done."""
    order = np.argsort(end_us, kind="stable")
    shares = np.cumsum(weight[order]) / weight.sum()
    ends_h = end_us[order] / _US_PER_H
    found = [float(ends_h[np.searchsorted(shares, share)]) for share in (0.90, 0.95)]
    return found[0], found[1], float(ends_h[-1])


def _mean(flags: Bools) -> float:
    return float(flags.mean()) if len(flags) else 0.0


def _max(values: npt.NDArray[np.int64] | Floats) -> float:
    return float(values.max()) if len(values) else 0.0
