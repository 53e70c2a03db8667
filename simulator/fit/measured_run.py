"""What a real run tells the simulator: Slurm's latencies, and what jobs cost each other on shared cores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import polars as pl

from analysis.metrics import pace_of
from foundation.errors import InputError
from foundation.records import Run, load_run, parse_cores
from simulator.fit.slurm_latency import Latencies, read_latencies

_ENOUGH = 3
"""With fewer starts of either kind, those at once and those after a wait are taken together."""
Slot = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ran:
    """A completed job of a real run; ``slots`` are (node, core), ``again``: it began more than once."""

    interactive: bool
    submitted_s: float
    start_s: float
    end_s: float
    dedicated_s: float
    slots: frozenset[Slot]
    again: bool


@dataclass(frozen=True, slots=True)
class Lag:
    """How long a job took to start after it could, and whether it had to wait for cores until then."""

    seconds: float
    had_waited: bool


def completed(run: Run) -> list[Ran]:
    """Return the completed jobs of which everything is known, each with its last life, by submission."""
    columns = ("job_id", "kind", "submitted_s", "start_s", "end_s", "dedicated_s", "placement")
    known = run.jobs.filter(pl.col("state") == "COMPLETED").select(columns).drop_nulls()
    lives = (
        [] if run.allocations is None else run.allocations.filter(pl.col("why") != "start")["job"].to_list()
    )
    again = set(lives)
    return [
        Ran(
            interactive=kind == "interactive",
            submitted_s=submitted_s,
            start_s=start_s,
            end_s=end_s,
            dedicated_s=dedicated_s,
            slots=frozenset(
                (entry["node"], core) for entry in placement for core in parse_cores(entry["cores"])
            ),
            again=number in again,
        )
        for number, kind, submitted_s, start_s, end_s, dedicated_s, placement in known.sort(
            "submitted_s"
        ).iter_rows()
    ]


def measure_latencies(run: Run) -> Latencies:
    """Return the medians of a real run in which no job shares a core.

    Raises
    ------
    InputError
        It is no such run, or no job completed.
    """
    if run.info.kind != "real" or run.info.multiplicity != 1:
        raise InputError(
            f"latencies are measured on a real run with one job a core; {run.info.label} is none"
        )
    jobs = completed(run)
    submission = run.jobs.select(pl.col("submitted_s") - pl.col("due_s")).to_series().drop_nulls()
    lags = list(_lags(jobs, in_order=run.info.policy == "fcfs"))
    if not lags:
        raise InputError(f"no job completed in {run.info.label}: there is nothing to measure latencies on")
    at_once = [lag.seconds for lag in lags if not lag.had_waited]
    after_wait = [lag.seconds for lag in lags if lag.had_waited]
    enough = min(len(at_once), len(after_wait)) >= _ENOUGH
    scheduling_s = _middle(at_once if enough else at_once + after_wait)
    kinds = launches(jobs)
    serial, parallel, interactive = (some or [one for kind in kinds for one in kind] for some in kinds)
    return Latencies(
        submission_s=_middle(submission.to_list()),
        scheduling_s=scheduling_s,
        release_s=max(0.0, round(_middle(after_wait) - scheduling_s, 3)) if enough else 0.0,
        launch_serial_s=_middle(serial),
        launch_parallel_s=_middle(parallel),
        launch_interactive_s=_middle(interactive),
        pace=_pace(run),
    )


def _pace(run: Run) -> float | None:
    """Return the median of the jobs' paces, None where none is known."""
    paces = run.jobs.select(pace_of(run)).to_series().drop_nulls().to_list()
    return round(median(paces), 4) if paces else None


def launches(jobs: Iterable[Ran]) -> tuple[list[float], list[float], list[float]]:
    """Return how much longer than their dedicated times jobs ran.

    Those of one core, those of several, and the interactive ones.
    """
    found: tuple[list[float], list[float], list[float]] = [], [], []
    for job in jobs:
        kind = 2 if job.interactive else int(len(job.slots) > 1)
        found[kind].append(job.end_s - job.start_s - job.dedicated_s)
    return found


def _middle(values: Sequence[float]) -> float:
    return max(0.0, round(median(values), 3))


def _lags(jobs: Sequence[Ran], *, in_order: bool) -> Iterator[Lag]:
    """Compare each start with when its cores were free, and, ``in_order``, those of all jobs before it.

    A job that was put back did not wait for cores alone: Slurm lets it wait for two minutes.
    """
    before_s = 0.0
    for job in (job for job in jobs if not job.again):
        freed_s = max(
            (other.end_s for other in jobs if other.end_s <= job.start_s and other.slots & job.slots),
            default=0.0,
        )
        blocked_s = max(freed_s, before_s)
        ready_s = max(job.submitted_s, blocked_s)
        if in_order:
            before_s = ready_s
        yield Lag(max(0.0, job.start_s - ready_s), had_waited=blocked_s > job.submitted_s)


def measure_overhead(run: Run, latencies: Latencies) -> float:
    """Return C_o of 1/(m x C_o), from the batch jobs of a real run whose cores the operating system shares.

    What each job did alone on its cores is known (one second a second), and so is what it had to do in all;
    the rest it did on shared cores, at 1/(m x C_o).

    Parameters
    ----------
    run
        The run; jobs that share a core with an interactive one do not count.
    latencies
        Those of the same cluster: launching is work.

    Raises
    ------
    InputError
        It is no such run, or its batch jobs did not share cores.
    """
    if run.info.kind != "real" or run.info.gang.kind != "none":
        raise InputError(f"C_o is measured on a real run without gang scheduling; {run.info.label} is none")
    jobs = completed(run)
    shared_s = work_s = 0.0
    for job in jobs:
        others = [other for other in jobs if other is not job and other.slots & job.slots]
        if job.interactive or any(other.interactive and _overlap(job, other) for other in others):
            continue
        launch_s = latencies.launch_serial_s if len(job.slots) == 1 else latencies.launch_parallel_s
        alone_s, part_s = _alone_and_shared(job, others)
        if part_s > 0:
            shared_s += part_s
            work_s += job.dedicated_s + launch_s - alone_s
    if shared_s <= 0 or work_s <= 0:
        raise InputError(f"no two batch jobs of {run.info.label} shared a core: C_o cannot be measured on it")
    return round(shared_s / work_s, 3)


def _overlap(job: Ran, other: Ran) -> bool:
    return other.start_s < job.end_s and job.start_s < other.end_s


def _alone_and_shared(job: Ran, others: Sequence[Ran]) -> tuple[float, float]:
    """Return the seconds alone, and those shared, each divided by the multiplicity of the fullest core."""
    instants = {job.start_s, job.end_s}
    for other in others:
        instants |= {at for at in (other.start_s, other.end_s) if job.start_s < at < job.end_s}
    alone_s = shared_s = 0.0
    ordered = sorted(instants)
    for begin, end in pairwise(ordered):
        here = [other for other in others if other.start_s <= begin and end <= other.end_s]
        multiplicity = max(1 + sum(slot in other.slots for other in here) for slot in job.slots)
        if multiplicity == 1:
            alone_s += end - begin
        else:
            shared_s += (end - begin) / multiplicity
    return alone_s, shared_s


def latencies_of(path: Path) -> Latencies:
    """Return the latencies in a JSON file, or those measured on a RUN.

    Raises
    ------
    InputError
        It is neither, or not such a run as latencies are measured on.
    """
    return measure_latencies(load_run(path)) if path.is_dir() else read_latencies(path)


def overhead_of(word: str, latencies: Latencies | None) -> str:
    """Return C_o as it is written, or, where ``word`` names a RUN, as it is measured there, and at least 1.

    Raises
    ------
    InputError
        C_o cannot be measured on that run.
    """
    if not Path(word).is_dir():
        return word
    return str(max(1.0, measure_overhead(load_run(Path(word)), latencies or Latencies())))
