"""What a real run measures: latencies of its cluster, and overheads of sharing.

What a real run tells the simulator: Slurm's latencies, and what jobs cost each other on shared cores.

What a real cluster adds to a schedule: the time that submitting, scheduling, launching and ending take.

A simulated job is in the queue, starts and ends in no time. With latencies it enters the queue
``submission_s`` after it is due, holds its cores for ``scheduling_s`` before it starts and for ``release_s``
after it has ended, idle both times. Its run is longer than its dedicated time by its launch time. Some of the
run, at the beginning and at the end, passes without computing, whatever shares the cores; the rest computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated

import msgspec
import numpy as np
import polars as pl

from analysis.metrics import pace_of
from foundation.errors import InputError
from foundation.records import Run, load_run, parse_cores
from foundation.units import seconds_to_us
from simulator.jit.field_records import Ints
from simulator.simulation import JobPeriods, SimulationResult, Workload, merged

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class Latencies(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Latencies, in the run's own seconds.

    Parameters
    ----------
    submission_s
        From when a job is due until Slurm has it.
    scheduling_s
        From when a job could start until it does.
    release_s
        From the end of a job until another may start on its cores, beyond ``scheduling_s``.
    launch_serial_s, launch_parallel_s, launch_interactive_s
        What the run of a batch job of one core, of several, or of an interactive job takes on dedicated cores
        beyond its dedicated time.
    blocked_serial_s, blocked_parallel_s
        Of the run of a batch job of one core, or of several, what passes before its first step without
        computing: it waits for files, for the launcher, for MPI.
    ending_serial_s, ending_parallel_s
        The same from its last step to its end.
    pace
        Of the host that they were measured on: CPU time of steps over what they take as calibrated. Nothing
        is simulated with it; a comparison takes it out.
    """

    submission_s: Seconds = 0.0
    scheduling_s: Seconds = 0.0
    release_s: Seconds = 0.0
    launch_serial_s: Seconds = 0.0
    launch_parallel_s: Seconds = 0.0
    launch_interactive_s: Seconds = 0.0
    blocked_serial_s: Seconds = 0.0
    blocked_parallel_s: Seconds = 0.0
    ending_serial_s: Seconds = 0.0
    ending_parallel_s: Seconds = 0.0
    pace: Annotated[float, msgspec.Meta(gt=0, le=1000)] | None = None

    def launch_us(self, workload: Workload) -> Ints:
        """Return the launch time of each job, shape (jobs,)."""
        batch = np.where(
            workload.nodes * workload.cores > 1,
            seconds_to_us(self.launch_parallel_s),
            seconds_to_us(self.launch_serial_s),
        )
        launch: Ints = np.where(workload.interactive, seconds_to_us(self.launch_interactive_s), batch)
        return launch

    def idle_us(self, workload: Workload) -> tuple[Ints, Ints]:
        """Return what each job idles at its beginning and at its end, shape (jobs,).

        None of an interactive job, whose periods say it; at most a quarter of the run each.
        """
        several = workload.nodes * workload.cores > 1
        most_us = np.where(workload.interactive, 0, (self.launch_us(workload) + workload.run_us) // 4)
        begin, end = (
            np.minimum(most_us, np.where(several, seconds_to_us(parallel_s), seconds_to_us(serial_s)))
            for serial_s, parallel_s in (
                (self.blocked_serial_s, self.blocked_parallel_s),
                (self.ending_serial_s, self.ending_parallel_s),
            )
        )
        return begin, end


def read_latencies(path: Path) -> Latencies:
    """Read latencies from a JSON file with the fields of ``Latencies``; absent ones are zero.

    Raises
    ------
    InputError
        The file cannot be read, or is no such file.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Latencies)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InputError(f"{path} is no file of latencies: {error}") from error


def delayed(workload: Workload, latencies: Latencies) -> Workload:
    """Return the workload as the engine is to see it; ``undelayed`` takes the latencies out again."""
    scheduling_us, release_us = seconds_to_us(latencies.scheduling_s), seconds_to_us(latencies.release_s)
    submission_us = seconds_to_us(latencies.submission_s)
    launch_us = latencies.launch_us(workload)
    blocked_us, ending_us = (each.tolist() for each in latencies.idle_us(workload))
    bounds = workload.periods.at.tolist()
    us = workload.periods.us.tolist()
    pieces: list[list[int]] = []
    for job, launch in enumerate(launch_us.tolist()):
        own = [scheduling_us, launch, *us[bounds[job] : bounds[job + 1]]]
        # Idle periods have even places.
        own += [release_us] if len(own) % 2 == 0 else [0, release_us]
        idle_us = blocked_us[job] + ending_us[job]
        if idle_us:  # a batch job: it computes from its start to its end
            own = [scheduling_us + blocked_us[job], sum(own[1::2]) - idle_us, release_us + ending_us[job]]
        pieces.append(merged(own))
    periods = JobPeriods(
        np.concatenate(([0], np.cumsum([len(piece) for piece in pieces]))),
        np.array([period for piece in pieces for period in piece], dtype=np.int64),
        workload.periods.patterned,
    )
    return replace(
        workload,
        submit_us=workload.submit_us + submission_us,
        dependencies=workload.dependencies and workload.dependencies.later(submission_us - release_us),
        planned_us=workload.limit_us + scheduling_us + launch_us + release_us,
        periods=periods,
    )


def undelayed(result: SimulationResult, workload: Workload, latencies: Latencies) -> SimulationResult:
    """Return what became of ``workload``: starts and ends of the jobs, not of their hold on the cores."""
    lag_us = seconds_to_us(latencies.submission_s)
    return replace(
        result,
        workload=replace(workload, submit_us=result.submit_us - lag_us),
        lag_us=lag_us,
        start_us=result.start_us + seconds_to_us(latencies.scheduling_s),
        end_us=result.end_us - seconds_to_us(latencies.release_s),
    )


_ENOUGH = 3
"""With fewer starts of either kind, those at once and those after a wait are taken together."""
_PRIOR_S = 5.0
_MOST_OVERHEAD = 8.0
Slot = tuple[str, int]
Slowdowns = tuple[tuple[float, float], tuple[float, float]]


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


def completed(run: Run) -> list[Ran]:
    """Return the completed jobs of which everything is known, each with its last life, by submission."""
    columns = ("job_id", "kind", "submitted_s", "start_s", "end_s", "dedicated_s", "placement")
    known = run.jobs.filter(pl.col("state") == "COMPLETED").select(columns).drop_nulls()
    allocations = run.allocations
    again = () if allocations is None else set(allocations.filter(pl.col("why") != "start")["job"])
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
    at_once = [lag_s for lag_s, had_waited in lags if not had_waited]
    after_wait = [lag_s for lag_s, had_waited in lags if had_waited]
    enough = min(len(at_once), len(after_wait)) >= _ENOUGH
    scheduling_s = _middle(at_once if enough else at_once + after_wait)
    kinds = launches(jobs)
    serial, parallel, interactive = (some or [one for kind in kinds for one in kind] for some in kinds)
    idle = {name: _middle(some) for name, some in idle_parts(run).items() if some}
    return Latencies(
        submission_s=_middle(submission.to_list()),
        scheduling_s=scheduling_s,
        release_s=max(0.0, round(_middle(after_wait) - scheduling_s, 3)) if enough else 0.0,
        launch_serial_s=_middle(serial),
        launch_parallel_s=_middle(parallel),
        launch_interactive_s=_middle(interactive),
        pace=_pace(run),
        **idle,
    )


def idle_parts(run: Run) -> dict[str, list[float]]:
    """Return what passed without computing before the first step of each batch job and after its last one.

    By the names of ``Latencies``. Start-up computes for what its ranks used in the mean beyond their steps.
    """
    ranks = pl.col("cores")
    computed_s = (pl.col("cpu_s") / ranks - pl.col("steps_cpu_s")).clip(0)
    known = (
        run.jobs.filter((pl.col("state") == "COMPLETED") & (pl.col("kind") == "batch"))
        .select(
            parallel=ranks > 1,
            blocked=(pl.col("first_step_s") - pl.col("start_s") - computed_s).clip(0),
            ending=(pl.col("end_s") - pl.col("last_step_s")).clip(0),
        )
        .drop_nulls()
    )
    return {
        f"{part}_{kind}_s": known.filter(pl.col("parallel") == (kind == "parallel"))[part].to_list()
        for part in ("blocked", "ending")
        for kind in ("serial", "parallel")
    }


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


def _lags(jobs: Sequence[Ran], *, in_order: bool) -> Iterator[tuple[float, bool]]:
    """Yield how long each job took to start after it could, and whether it had to wait for cores until then.

    It could when its cores were free, and, ``in_order``, those of all jobs before it.

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
        yield max(0.0, job.start_s - ready_s), blocked_s > job.submitted_s


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
    _check_naive(run)
    return _overhead(run, shared_work(run, latencies))


def _check_naive(run: Run) -> None:
    if run.info.kind != "real" or run.info.gang.kind != "none":
        raise InputError(f"C_o is measured on a real run without gang scheduling; {run.info.label} is none")


def _overhead(run: Run, done: Sequence[SharedWork]) -> float:
    shared_s = sum(sum(job.seconds) for job in done)
    work_s = sum(job.work_s for job in done)
    if shared_s <= 0:
        raise InputError(f"no two batch jobs of {run.info.label} shared a core: C_o cannot be measured on it")
    if work_s <= 0:
        raise InputError(
            f"jobs of {run.info.label} ran longer alone than their whole work takes, so what they did on "
            "shared cores is not known: measure C_o on a replay of more jobs on a calm host"
        )
    return round(shared_s / work_s, 3)


@dataclass(frozen=True, slots=True)
class SharedWork:
    """What a batch job did on shared cores.

    Parameters
    ----------
    several
        Whether it has several cores.
    seconds
        How long it shared with a job of one core, and with one of several, each divided by the multiplicity.
    work_s
        What it did meanwhile, in seconds on dedicated cores.
    """

    several: bool
    seconds: tuple[float, float]
    work_s: float


def shared_work(run: Run, latencies: Latencies) -> list[SharedWork]:
    """Return what each batch job did on shared cores; none that shared with an interactive one."""
    jobs = [_computing(job, latencies) for job in completed(run)]
    done = []
    for job in jobs:
        others = [other for other in jobs if other is not job and other.slots & job.slots]
        if job.interactive or any(other.interactive and _overlap(job, other) for other in others):
            continue
        alone_s, seconds = _alone_and_shared(job, others)
        if sum(seconds) > 0:
            done.append(SharedWork(len(job.slots) > 1, seconds, job.dedicated_s - alone_s))
    return done


def _computing(job: Ran, latencies: Latencies) -> Ran:
    """Return a batch job from where it computes first to where it does last, with what it computes."""
    if job.interactive:
        return job
    kind = "serial" if len(job.slots) == 1 else "parallel"
    launch_s, blocked_s, ending_s = (
        getattr(latencies, f"{part}_{kind}_s") for part in ("launch", "blocked", "ending")
    )
    all_s = job.dedicated_s + launch_s
    blocked_s, ending_s = min(blocked_s, all_s / 4), min(ending_s, all_s / 4)
    return replace(
        job,
        start_s=job.start_s + blocked_s,
        end_s=max(job.start_s + blocked_s, job.end_s - ending_s),
        dedicated_s=all_s - blocked_s - ending_s,
    )


def slowdowns_by_kind(done: Sequence[SharedWork], overhead: float) -> Slowdowns | None:
    """Return how much jobs of one core and of several slow each other, two to a core.

    Ranks that wait for each other lose far more to a job that does the same than to one of a single core.
    Those that give up the core while they wait, as over a network, leave a job of one core more than its
    half. So work is fitted to seconds with a C_o for each pair of kinds (least squares, at most the whole
    core; ``_PRIOR_S`` seconds at the common C_o replace what was not seen).

    Returns
    -------
    slowdowns
        ``[a][b]``: of kind ``a`` by kind ``b``, 0 one core, 1 several; None where all jobs are of one kind.
    """
    if len({job.several for job in done}) < 2:
        return None
    rows = []
    for several in (False, True):
        own = [job for job in done if job.several is several]
        seconds = np.array([*(job.seconds for job in own), (_PRIOR_S, 0.0), (0.0, _PRIOR_S)])
        work = np.array([*(job.work_s for job in own), *[_PRIOR_S / overhead] * 2])
        products, wanted = seconds.T @ seconds, seconds.T @ work
        speeds = [1 / overhead] * 2
        for place in (0, 1) * 50:  # one after the other: that finds the bounded minimum
            other = 1 - place
            best = (wanted[place] - products[place, other] * speeds[other]) / products[place, place]
            most = 2.0 if place and not several else 1.0
            speeds[place] = min(most, max(1 / _MOST_OVERHEAD, float(best)))
        rows.append((round(2 / speeds[0], 3), round(2 / speeds[1], 3)))
    return (rows[0], rows[1])


def _overlap(job: Ran, other: Ran) -> bool:
    return other.start_s < job.end_s and job.start_s < other.end_s


def _alone_and_shared(job: Ran, others: Sequence[Ran]) -> tuple[float, tuple[float, float]]:
    """Return the seconds alone, and those shared, each divided by the multiplicity of the fullest core.

    The latter with jobs of one core there, and with any of several.
    """
    instants = {job.start_s, job.end_s}
    for other in others:
        instants |= {at for at in (other.start_s, other.end_s) if job.start_s < at < job.end_s}
    alone_s, shared_s = 0.0, [0.0, 0.0]
    ordered = sorted(instants)
    for begin, end in pairwise(ordered):
        here = [other for other in others if other.start_s <= begin and end <= other.end_s]
        there = max(([other for other in here if slot in other.slots] for slot in job.slots), key=len)
        if there:
            several = any(len(other.slots) > 1 for other in there)
            shared_s[several] += (end - begin) / (1 + len(there))
        else:
            alone_s += end - begin
    return alone_s, (shared_s[0], shared_s[1])


def latencies_of(path: Path) -> Latencies:
    """Return the latencies in a JSON file, or those measured on a RUN.

    Raises
    ------
    InputError
        It is neither, or not such a run as latencies are measured on.
    """
    return measure_latencies(load_run(path)) if path.is_dir() else read_latencies(path)


@dataclass(frozen=True, slots=True)
class Overheads:
    """What sharing costs in a simulation.

    Parameters
    ----------
    overhead
        C_o as it is written, at least 1.
    by_kind
        Slowdowns of jobs of one core and of several; None: C_o holds for all.
    slice_cost
        How many seconds of its own slices a job takes for a second of work, while it shares cores.
    """

    overhead: str
    by_kind: Slowdowns | None = None
    slice_cost: float = 1.0


def overheads_of(word: str, latencies: Latencies | None, *, in_slices: bool = False) -> Overheads:
    """Return C_o as it is written, or, where ``word`` names a RUN, what sharing costs there.

    With ``in_slices`` the RUN may be one under gangd; its slices then cost what they cost there.

    Raises
    ------
    InputError
        That cannot be measured on that run.
    """
    if not Path(word).is_dir():
        return Overheads(word)
    run, usual = load_run(Path(word)), latencies or Latencies()
    under_gangd = in_slices and run.info.kind == "real" and run.info.gang.kind == "osub"
    if not under_gangd:
        _check_naive(run)
    done = shared_work(run, usual)
    overhead = max(1.0, _overhead(run, done))
    if under_gangd:
        return Overheads("1.0", slice_cost=overhead)
    return Overheads(str(overhead), None if in_slices else slowdowns_by_kind(done, overhead))
