"""What a site's log says before anything is simulated: its system, classes of jobs, CPU use, memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.quantiles import quantile
from foundation.errors import InputError, UsageError
from foundation.records import TRACE_NAME, load_run
from osub.live.system_named import system_named
from simulator.model.system import System
from workloads.importers.assemble_trace import INTERACTIVE_QUEUE, ImportOptions
from workloads.importers.detect_log import load_any
from workloads.swf import InteractivePattern, SwfColumns, numbers_of, procs_column

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
LEAST_BLOCKS = 5
"""Fewer weeks are not enough to draw from: then days are drawn, and fewer days give no interval."""
SHORT_S = 3600.0
_WIDTH = re.compile(r"jobs mostly have ([\d,]+) a node$")
LOW_EFFICIENCY = 0.7
"""A class that computes for more of its time gains little by sharing."""
ASSUMED_UTILISATION = (0.13, 0.5)
"""Utilisation of interactive jobs where the log has none: as in thesis Table 7.2, and four times that."""
_DRAWS = 20_000
_INFO_NAME = "run.json"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobClass:
    """Jobs that a partition of their own could take.

    Parameters
    ----------
    name, partition
        In words, and as a partition is called in slurm.conf.
    members
        Which jobs of the log; shape (jobs,).
    limit_s
        The time limit that makes the class, if one does.
    most_nodes
        The nodes that suffice for 95% of the class: wider jobs stay where they are, and are no members.
    interactive
        Whether a user waits at a prompt.
    core_share
        Share of all core time.
    efficiency
        CPU time over core time; None: not known.
    run_median_s, wait_mean_s
        By the log; None: not known.
    """

    name: str
    partition: str
    members: Bools
    limit_s: float | None
    most_nodes: int
    interactive: bool
    core_share: float
    efficiency: float | None
    run_median_s: float
    wait_mean_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SiteLog:
    """A log, by columns; arrays have shape (jobs,), and NaN for what is not known.

    Parameters
    ----------
    columns
        The trace.
    system, system_source
        The system, and how it is known.
    run_s, procs, wait_s
        Of the log.
    utilisation
        CPU time over run time of a job's cores, 0.01 to 1.
    block
        Week of each job's submission (day, in a log of few weeks), from 0 on.
    block_name, block_s
        ``week`` or ``day``, and its length in the log's own seconds.
    speedup
        What times of a RUN's trace were divided by.
    """

    columns: SwfColumns
    system: System
    system_source: str
    run_s: Floats
    procs: Floats
    wait_s: Floats
    utilisation: Floats
    block: npt.NDArray[np.int64]
    block_name: str
    block_s: float
    speedup: float

    @property
    def core_s(self) -> Floats:
        """Core time of each job."""
        return self.run_s * self.procs

    def column(self, name: str) -> Floats:
        """Return a column of the trace as numbers."""
        return numbers_of(self.columns.frame, name)


def read_site_log(path: Path, options: ImportOptions, system: str | None, *, lenient: bool) -> SiteLog:
    """Read what ``osub trace convert`` reads, or a RUN.

    Raises
    ------
    InputError
        It cannot be read, or no job ran.
    UsageError
        ``system`` names none.
    """
    is_run = (path / _INFO_NAME).is_file()
    columns = load_any(path / TRACE_NAME if is_run else path, options, strict=not lenient)
    frame, speedup = columns.frame, 1.0
    if is_run:
        run = load_run(path)
        own = run.jobs.select(job_number="trace_job", own_s=pl.col("start_s") - pl.col("submit_s"))
        frame = frame.join(own, on="job_number", how="left", maintain_order="left")
        frame = frame.with_columns(wait_s=pl.col("own_s")).drop("own_s")
        columns, speedup = replace(columns, frame=frame), run.info.speedup
        system = system or run.info.system
    run_s = np.nan_to_num(np.maximum(numbers_of(frame, "run_s"), 0))
    procs = np.nan_to_num(frame.select(procs_column().cast(pl.Float64)).to_series().to_numpy())
    cpu_s = numbers_of(frame, "cpu_s")
    with np.errstate(divide="ignore", invalid="ignore"):
        # no CPU time at all is what accounting has that measures none
        utilisation = np.where((cpu_s > 0) & (run_s > 0), np.clip(cpu_s / run_s, 0.01, 1.0), np.nan)
    for row, extension in columns.extensions.items():
        pattern = InteractivePattern.from_extension(extension)
        if pattern is not None and pattern.total_s > 0:
            utilisation[row] = max(0.01, pattern.busy_s / pattern.total_s)
    if not (run_s * procs > 0).any():
        raise InputError(
            f"{path}: no job of this log has a run time and processors, so there is nothing to simulate"
        )
    known, source = (system_named(system), "as given") if system else _system_in(columns, procs)
    submit_s = numbers_of(frame, "submit_s")
    since_s = submit_s - submit_s.min()
    weeks = since_s.max() * speedup >= LEAST_BLOCKS * WEEK_S
    block_s = (WEEK_S if weeks else DAY_S) / speedup
    return SiteLog(
        columns=columns,
        system=known,
        system_source="as in the RUN" if is_run and source == "as given" else source,
        run_s=run_s,
        procs=procs,
        wait_s=numbers_of(frame, "wait_s"),
        utilisation=utilisation,
        block=(since_s / block_s).astype(np.int64),
        block_name="week" if weeks else "day",
        block_s=block_s,
        speedup=speedup,
    )


def _system_in(columns: SwfColumns, procs: Floats) -> tuple[System, str]:
    """Return the system of the header, else one that all jobs fit on, and how it is known."""
    header = columns.header
    nodes, cores = header.max_nodes, header.system_procs or int(procs.max())
    if nodes and header.max_procs:
        if not any("MaxProcs is not known" in note for note in header.notes):
            return System(nodes, max(1, cores // nodes)), "by the log's header"
        width = max(
            (int(found[1].replace(",", "")) for found in map(_WIDTH.search, header.notes) if found), default=1
        )
        source = "as many cores as were in use at once: name --system"
        return System(nodes, max(width, -(-cores // nodes))), source
    what = "by the log's header" if header.system_procs else "the widest job"
    return System(
        max(1, cores), 1
    ), f"{what}; nodes are not in the log, so each core counts as one: name --system"


def interactive_jobs(log: SiteLog) -> Bools:
    """Return the jobs of queue 0; none where all are."""
    queue = log.columns.frame["queue"].fill_null(-1).to_numpy()
    interactive: Bools = queue == INTERACTIVE_QUEUE
    return interactive if not interactive.all() else np.zeros_like(interactive)


def job_classes(log: SiteLog) -> list[JobClass]:
    """Return the classes that could have a partition: queues, and short jobs; a class of all jobs is none."""
    queue, header = log.columns.frame["queue"].fill_null(-1).to_numpy(), log.columns.header
    asked_s = log.column("requested_s")
    limits_known = bool((asked_s > 0).mean() > 0.9)
    found = []
    numbers = sorted(set(queue.tolist()))
    for number in numbers if len(numbers) > 1 else ():
        interactive = number == INTERACTIVE_QUEUE
        text = header.partitions.get(number) or header.queues.get(number) or ""
        word = text.split()[0] if text.split() else ""
        name = "interactive" if interactive else word if number in header.partitions else f"queue{number}"
        label = (
            "interactive jobs"
            if interactive
            else f"{'partition' if word == name else 'queue'} {word or number}"
        )
        found.append(_class(log, label, name, queue == number, None, interactive=interactive))
    short = (asked_s if limits_known else log.run_s) <= SHORT_S
    verb = "ask for" if limits_known else "ran for"
    found.append(_class(log, f"jobs that {verb} an hour at most", "short", short, SHORT_S, interactive=False))
    return [one for one in found if one.members.sum() < len(queue) and one.core_share > 0]


def _class(
    log: SiteLog, name: str, partition: str, members: Bools, limit_s: float | None, *, interactive: bool
) -> JobClass:
    cores = log.system.cores
    most_nodes = max(1, -(-int(quantile(log.procs[members], 0.95) or 1) // cores))
    members = members & (log.procs <= most_nodes * cores)
    return JobClass(
        name=name,
        partition=partition,
        members=members,
        limit_s=limit_s,
        most_nodes=most_nodes,
        interactive=interactive,
        core_share=float(log.core_s[members].sum() / log.core_s.sum()),
        efficiency=efficiency(log, members),
        run_median_s=quantile(log.run_s[members], 0.5) or 0.0,
        wait_mean_s=_mean(log.wait_s[members]),
    )


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def efficiency(log: SiteLog, members: Bools) -> float | None:
    """Return CPU time over core time of some jobs; None where half of their core time or more lacks it."""
    known = members & ~np.isnan(log.utilisation)
    core_s = log.core_s
    if not 2 * core_s[known].sum() > core_s[members].sum():
        return None
    return float((core_s * np.nan_to_num(log.utilisation))[known].sum() / core_s[known].sum())


def candidate_of(classes: Sequence[JobClass], jobs: int, named: str | None = None) -> JobClass | None:
    """Return the class that gains most by sharing: low CPU efficiency, short, few of all core time.

    Raises
    ------
    UsageError
        No class has the name that is given.
    """
    if named is not None:
        one = next((one for one in classes if one.partition == named), None)
        if one is None:
            known = ", ".join(one.partition for one in classes)
            raise UsageError(f"--candidate {named}: this log has {known or 'one kind of jobs only'}")
        return one
    fit = [one for one in classes if one.core_share < 0.9 and one.members.sum() >= max(20, jobs / 200)]
    low = [one for one in fit if _presumed(one) <= LOW_EFFICIENCY]
    return min(low or fit, key=lambda one: (round(_presumed(one), 1), one.run_median_s), default=None)


def _presumed(one: JobClass) -> float:
    if one.efficiency is not None:
        return one.efficiency
    return ASSUMED_UTILISATION[1] if one.interactive else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """What memory allows.

    Parameters
    ----------
    requested_over_used
        Memory asked for over the peaks, both by core time; None where the log lacks one.
    is_known
        Whether the log has peaks (MaxRSS).
    fits
        Share of core time in which the peaks of M jobs fit on their node, by M; empty: not known.
    """

    requested_over_used: float | None
    is_known: bool
    fits: dict[int, float]


def memory_facts(log: SiteLog, memory_gib: float | None, several: Sequence[int], seed: int) -> MemoryFacts:
    """Return the memory of co-located jobs: jobs drawn by core time, on all cores of a node."""
    asked, used = log.column("requested_memory_kib"), log.column("used_memory_kib")
    both = (asked > 0) & (used > 0)
    weight = log.core_s
    over = float((asked * weight)[both].sum() / (used * weight)[both].sum()) if both.any() else None
    known = (used > 0) & (weight > 0)
    if memory_gib is None or not known.any():
        return MemoryFacts(requested_over_used=over, is_known=bool(known.any()), fits={})
    rng = np.random.default_rng(seed)
    share = weight[known] / weight[known].sum()
    drawn = rng.choice(used[known], (_DRAWS, max(several)), p=share)
    core_kib = memory_gib * 2**20 / log.system.cores
    return MemoryFacts(
        requested_over_used=over,
        is_known=True,
        fits={m: float((drawn[:, :m].sum(axis=1) <= core_kib).mean()) for m in several},
    )
