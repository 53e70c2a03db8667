"""What the thesis reports of a run (7.4.1), and its trace at its own size, N12C12, simulated (7.5.5).

Placement: least occupied node, lowest index, least occupied cores. Speed 1/(m x 1.2) on a core of m >= 2 busy
jobs; exact run times, no cost of scheduling. SQ with M = 1 to 4, and MQ with one to four interactive nodes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from analysis.claims import differences
from analysis.metrics import USED, numbered_once, with_derived
from analysis.quantiles import quantile
from foundation.records import Run
from osub.physical.layouts import INTERACTIVE_CAP, full_trace
from simulator.recording import job_frame, placement_arrays
from simulator.simulation import Cleaning, OversizeRule, SimulationResult
from simulator.simulation_session import SimulationSession
from simulator.simulation_spec import SimulationSpec
from workloads.swf import SwfTrace, write_swf
from workloads.trace.scaling import CORES, NODES

REAL_WAIT_S = 2.0
"""A job of a compressed replay that waits longer did not start at once: Slurm itself takes up to a second."""
THESIS_WAIT_S = 5.0
SHARES = (90, 95, 100)
MUCH = 2.0
"""Degradation beyond that is listed job by job (Table 7.7)."""
_COLUMNS = (
    "trace_job",
    "job_id",
    "kind",
    "app",
    "args",
    "cores",
    "submit_s",
    "start_s",
    "end_s",
    "dedicated_s",
    "wait_s",
    "run_s",
    "slowdown_osub",
    "degradation",
)


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """One run in figures, and its jobs.

    Attributes
    ----------
    jobs
        One row a job that completed, by number.
    wait_threshold_s
        What counts as waiting.
    intervals
        How often each usage interval occurs, by job and interval, every slice counted as the thesis does;
        None where no slices are recorded.
    failed
        Jobs that did not complete.
    """

    jobs: pl.DataFrame
    wait_threshold_s: float
    intervals: pl.DataFrame | None = None
    failed: int = 0

    def waited(self, kind: str = "interactive") -> float:
        """Return the share of the jobs of a kind that waited."""
        waits = self.of_kind(kind).get_column("wait_s")
        return int((waits > self.wait_threshold_s).sum()) / len(waits) if len(waits) else 0.0

    def slowest_job(self, kind: str) -> int | None:
        """Return the job of the largest slowdown of a kind."""
        jobs = self.of_kind(kind).drop_nulls("slowdown_osub")
        return None if not jobs.height else int(jobs.sort("slowdown_osub")["trace_job"][-1])

    def percentiles_s(self) -> tuple[float, float, float]:
        """Return when 90, 95 and 100 percent of the jobs were done, from the first submission."""
        ends = sorted((self.jobs["end_s"] - self.jobs["submit_s"].min()).drop_nulls().to_list())
        if not ends:
            return 0.0, 0.0, 0.0
        first, second, third = (ends[max(0, -(-share * len(ends) // 100) - 1)] for share in SHARES)
        return first, second, third

    def degraded(self) -> pl.DataFrame:
        """Return the jobs that ran for more than twice as long as alone."""
        return self.jobs.filter(pl.col("degradation") > MUCH).sort("degradation", descending=True)

    def interval_shares(self) -> dict[int, float]:
        """Return which part of the usage intervals each length has."""
        if self.intervals is None or not self.intervals.height:
            return {}
        counted = self.intervals.group_by("interval").agg(pl.col("count").sum()).sort("interval")
        whole = counted["count"].sum()
        return {interval: count / whole for interval, count in counted.iter_rows()}

    def spread(self) -> float:
        """Return how far the slowdowns of the middle half of the jobs lie apart."""
        values = self.jobs["slowdown_osub"].drop_nulls()
        return (quantile(values, 0.75) or 0.0) - (quantile(values, 0.25) or 0.0)

    def of_kind(self, kind: str) -> pl.DataFrame:
        """Return the jobs of a kind."""
        return self.jobs.filter(pl.col("kind") == kind)


Value = Callable[[ReplayOutcome], float]


def longest_wait(kind: str) -> Value:
    """Return what tells the longest wait of a kind."""
    return lambda outcome: _largest(outcome.of_kind(kind)["wait_s"])


def largest_slowdown(kind: str) -> Value:
    """Return what tells the largest (wait + run) over dedicated time of a kind."""
    return lambda outcome: _largest(outcome.of_kind(kind)["slowdown_osub"])


def percentile(number: int) -> Value:
    """Return what tells a percentile of completion."""
    return lambda outcome: outcome.percentiles_s()[number]


def outcome_of_run(run: Run, wait_threshold_s: float = REAL_WAIT_S) -> ReplayOutcome:
    """Return the outcome of a RUN, real or simulated."""
    return ReplayOutcome(
        jobs=_completed(run.jobs),
        wait_threshold_s=wait_threshold_s,
        intervals=_intervals(run.slices) if run.slices is not None and run.slices.height else None,
        failed=int((run.jobs["state"] != "COMPLETED").sum()),
    )


def outcome_of_frame(jobs: pl.DataFrame) -> ReplayOutcome:
    """Return the outcome of simulated jobs at the thesis's own size."""
    return ReplayOutcome(jobs=_completed(jobs), wait_threshold_s=THESIS_WAIT_S)


def _completed(jobs: pl.DataFrame) -> pl.DataFrame:
    derived = with_derived(jobs.filter(pl.col("state") == "COMPLETED"))
    known = [pl.col(name) if name in derived.columns else pl.lit(None).alias(name) for name in _COLUMNS]
    return derived.select(known).sort("trace_job")


def _intervals(slices: pl.DataFrame) -> pl.DataFrame:
    """Return ``job``, ``interval``, ``count`` for the jobs that were ever held, every slice counted."""
    slices = numbered_once(slices)
    shared = slices.filter(pl.col("role") == "held").get_column("job").unique()
    return (
        slices.filter(USED & pl.col("job").is_in(shared.implode()))
        .select("job", "slice")
        .unique()
        .sort("job", "slice")
        .with_columns(interval=pl.col("slice").diff().over("job"))
        .drop_nulls("interval")
        .group_by("job", "interval")
        .agg(pl.len().cast(pl.Int64).alias("count"))
        .sort("job", "interval")
    )


def _largest(values: pl.Series) -> float:
    known = values.drop_nulls()
    return float(known.max() or 0.0) if len(known) else 0.0  # type: ignore[arg-type]  # of numbers


SYSTEM = f"N{NODES}C{CORES}"
OVERHEAD = "1.2"
CASES: dict[str, tuple[int, int | None]] = {
    **{f"MQ {nodes}+{NODES - nodes}": (1, nodes) for nodes in range(1, 5)},
    **{f"SQ M={most}": (most, None) for most in range(1, 5)},
}
"""Multiplicity, and interactive nodes of MQ."""
SHARED = "SQ M=2"


def case_of(label: str) -> str:
    """Return the case that simulates a layout of the thesis: no case tells who takes turns from another."""
    return SHARED if label.startswith(SHARED) else label


@dataclass(frozen=True, slots=True)
class FullSize:
    """What came of the thesis's own size.

    Attributes
    ----------
    outcomes
        By case, one for each seed.
    places, finish_s
        Of the fifteen jobs of Table 7.8, under SQ with M = 2.
    """

    outcomes: dict[str, list[ReplayOutcome]]
    places: dict[int, str]
    finish_s: dict[int, float]

    @property
    def seeds(self) -> int:
        """How many draws were simulated."""
        return len(self.outcomes[SHARED])

    def values(self, case: str, value: Value) -> list[float]:
        """Return a value of a case for each seed."""
        return [value(outcome) for outcome in self.outcomes[case]]

    def differences(self, more: str, less: str, value: Value) -> list[float]:
        """Return by how much a value is larger in one case than in another, for each seed."""
        return differences(self.values(more, value), self.values(less, value))


def simulate_full_size(
    day: Callable[[int], SwfTrace], seeds: int, done: Callable[[str], None] = lambda _: None
) -> FullSize:
    """Simulate every case on the draws 1 to ``seeds``.

    Parameters
    ----------
    day
        The whole day by seed.
    seeds
        How many.
    done
        Called after each seed.
    """
    outcomes: dict[str, list[ReplayOutcome]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory(prefix="osub-thesis-7-") as folder:
        path = Path(folder) / "trace.swf"
        for seed in range(1, seeds + 1):
            write_swf(path, day(seed))
            for case, (multiplicity, nodes) in CASES.items():
                outcomes[case].append(outcome_of_frame(job_frame(_simulated(path, multiplicity, nodes))))
            done(f"seed {seed}")
        write_swf(path, full_trace())
        first = _simulated(path, 2, None)
    numbers = first.workload.number.tolist()
    ends_s = (first.end_us / 1e6).tolist()
    return FullSize(outcomes, _places(first), dict(zip(numbers, ends_s, strict=True)))


def _simulated(path: Path, multiplicity: int, interactive_nodes: int | None) -> SimulationResult:
    words = SimulationSpec(
        system=SYSTEM,
        multiplicity=multiplicity,
        queues="sq" if interactive_nodes is None else "mq",
        interactive_nodes=interactive_nodes,
        multiplicity_interactive=INTERACTIVE_CAP,
        overhead=OVERHEAD,
        placement="thesis",
        instants="one-by-one",
    )
    return SimulationSession(path, words, Cleaning(oversize=OversizeRule.FAIL)).run()


def _places(result: SimulationResult) -> dict[int, str]:
    """Return where each job ran, as Table 7.8 writes it."""
    arrays = placement_arrays(result)
    found = {}
    for index, number in enumerate(result.workload.number.tolist()):
        parts = []
        for at in range(int(arrays.offsets[index]), int(arrays.offsets[index + 1])):
            first, count = int(arrays.node[at]), 1 if arrays.count is None else int(arrays.count[at])
            parts += [f"{first + more}({arrays.core_sets[arrays.cores[at]]})" for more in range(count)]
        found[number] = " ".join(parts)
    return found
