"""A trace drawn from the Lublin-Feitelson model of rigid jobs, where no real one is at hand.

Source: Lublin and Feitelson, "The Workload on Parallel Supercomputers: Modeling the Characteristics of Rigid
Jobs", JPDC 63(11), 2003, and the parameters that its authors published with the model (for typeless,
batch and interactive jobs).

* Size: serial with one probability; else two-stage uniform in log2, rounded to a power of two with another
  probability.
* Run time: the logarithm is hyper-gamma; larger jobs draw from the second gamma more often.
* Arrivals: the logarithm of the gap between arrivals is gamma, in a time that runs faster in busy half
  hours; the share of each half hour comes from a third gamma distribution, over a day that starts at 5:30.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foundation.errors import UsageError
from foundation.units import counted
from workloads.swf import SwfHeader, SwfJob, SwfTrace
from workloads.trace.local_clock import DAY_S
from workloads.trace.models.interactive_jobs import sample_sessions_s, synthesize_patterns

BATCH_QUEUE, INTERACTIVE_QUEUE = 1, 0
_ESTIMATES_S = np.array(
    [300, 600, 900, 1800, 3600, 7200, 14400, 21600, 28800, 43200, 64800, 86400, 172800, 259200, 604800]
)
_ESTIMATE_FACTOR = 4.0

MOST_LOAD = 1000.0
"""Of the system: with more, all jobs come at once."""

SLOT_S = 1800
SLOTS_PER_DAY = 48
_FIRST_SLOT = 11
_LONGEST_LOG_RUN = 12.0
_LONGEST_LOG_GAP = 13.0

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def generate_trace(
    jobs: int,
    nodes: int,
    cores_per_node: int,
    seed: int = 1,
    load: float | None = 0.7,
    interactive_share: float = 0.0,
    interactive_procs: int | None = None,
) -> SwfTrace:
    """Draw a trace from the Lublin-Feitelson model.

    Parameters
    ----------
    jobs
        Jobs in all.
    nodes, cores_per_node
        The machine; the largest job has all of its cores. Each job divides equally over nodes of it
        (``workloads.job_shape``): a drawn size that does not is lowered to the next that does.
    seed
        Of all random choices: the same arguments give the same trace.
    load
        Processor seconds of the jobs over those of the machine from the first to the last submission;
        the gaps between arrivals are stretched to reach it, along the day's course. ``None`` keeps the
        model's gaps.
    interactive_share
        Share of the jobs that are interactive (queue 0, the others are in queue 1): sessions of
        the measured lengths with busy and idle periods (see ``interactive.py``), arriving as the model's
        interactive jobs do. Their idle time counts in ``load``.
    interactive_procs
        Largest interactive job; by default one node.

    Raises
    ------
    UsageError
        An argument is out of range.
    """
    if jobs < 1 or nodes < 1 or cores_per_node < 1:
        raise UsageError("a trace needs at least 1 job, 1 node and 1 core a node")
    if not 0 <= interactive_share <= 1 or (load is not None and not 0 < load <= MOST_LOAD):
        raise UsageError(
            f"a trace needs an interactive share of 0 to 1, and a load above 0 and at most {MOST_LOAD:g}"
        )
    procs = nodes * cores_per_node
    rng = np.random.default_rng(seed)
    sessions = round(interactive_share * jobs)
    count = jobs - sessions
    model = BATCH if sessions else TYPELESS
    sizes = sample_sizes(model, count, procs, rng)
    runs_s = sample_runs_s(model, sizes, rng)
    sizes = _placeable(sizes, nodes, cores_per_node)
    widest = min(procs, cores_per_node if interactive_procs is None else max(1, interactive_procs))
    session_sizes = np.minimum(sample_sizes(INTERACTIVE, sessions, procs, rng), widest)
    session_sizes = _placeable(session_sizes, nodes, cores_per_node)
    sessions_s = sample_sessions_s(sessions, rng)
    work_s = int(sizes @ runs_s) + int(session_sizes @ sessions_s)
    span_s = None if load is None else work_s / (load * procs)
    leading = _arrivals_s(model if count else INTERACTIVE, count or sessions, span_s, rng)
    submits_s, session_submits_s = leading[:count], leading[count:]
    if count and sessions:
        session_submits_s = _along_the_day_s(sessions, float(leading[0]), float(leading[-1]), rng)
    batch = _jobs(submits_s, sizes, runs_s, BATCH_QUEUE, rng)
    interactive = _jobs(session_submits_s, session_sizes, sessions_s, INTERACTIVE_QUEUE, rng)
    patterns = synthesize_patterns(sessions_s, rng)
    interactive = [
        replace(job, extension=pattern.to_extension())
        for job, pattern in zip(interactive, patterns, strict=True)
    ]
    ordered = sorted([*batch, *interactive], key=lambda job: job.submit_s)
    first_s = int(ordered[0].submit_s)
    numbered = tuple(
        replace(job, job_number=number, submit_s=job.submit_s - first_s // DAY_S * DAY_S)
        for number, job in enumerate(ordered, start=1)
    )
    note = (
        f"osub generate: {counted(jobs, 'job')}, seed {seed}, load {load}, "
        f"interactive share {interactive_share:g}"
    )
    return SwfTrace(
        _header(jobs, nodes, procs, note, bool(sessions)), numbered, f"lublin-{nodes}x{cores_per_node}-{seed}"
    )


def _placeable(sizes: IntArray, nodes: int, cores: int) -> IntArray:
    """Return the largest sizes, none above its own, that are equal shares of at most ``nodes`` nodes."""
    fitting = np.zeros(nodes * cores + 1, dtype=np.int64)
    for count in range(1, nodes + 1):
        shares = np.arange(count, count * cores + 1, count)
        fitting[shares] = shares
    lowered: IntArray = np.maximum.accumulate(fitting)[sizes]
    return lowered


def _arrivals_s(
    model: LublinParameters, count: int, span_s: float | None, rng: np.random.Generator
) -> FloatArray:
    """Return submit times from midnight of day 0; with ``span_s``, so much from the first to the last."""
    points = np.cumsum(sample_gaps(model, count, rng))
    weights = slot_weights(model)
    if span_s is None or count == 1:
        return follow_the_day(points, weights)
    ahead = points - points[0]
    first_s = follow_the_day(points[:1], weights)[0]
    factor = least_factor(
        lambda factor: follow_the_day(points[:1] + factor * ahead[-1:], weights)[0] - first_s,
        span_s,
        2.0 * SLOTS_PER_DAY * (span_s / DAY_S + 1) / ahead[-1],
    )
    return follow_the_day(points[0] + factor * ahead, weights)


def least_factor(total: Callable[[float], float], wanted: float, most: float = 1e6) -> float:
    """Return about the least factor, up to ``most``, with which a total that grows with it is as wanted."""
    low, high = 0.0, most
    for _ in range(60):
        factor = (low + high) / 2
        low, high = (factor, high) if total(factor) < wanted else (low, factor)
    return high


def _along_the_day_s(count: int, start_s: float, end_s: float, rng: np.random.Generator) -> FloatArray:
    """Return ``count`` sorted instants between the two, dense where interactive jobs usually arrive."""
    weights = slot_weights(INTERACTIVE)
    days = np.arange(int(end_s // DAY_S) + 2)
    edges_s = (days[:, None] * DAY_S + np.arange(SLOTS_PER_DAY) * SLOT_S).ravel()
    points = np.concatenate(([0.0], np.cumsum(np.tile(weights, len(days)))[:-1]))
    bounds = np.interp([start_s, end_s], edges_s, points)
    chosen = np.sort(rng.uniform(bounds[0], bounds[1], count))
    instants: FloatArray = np.interp(chosen, points, edges_s)
    return instants


def _jobs(
    submits_s: FloatArray, sizes: IntArray, runs_s: IntArray, queue: int, rng: np.random.Generator
) -> list[SwfJob]:
    asked = runs_s * (1 + rng.uniform(0, _ESTIMATE_FACTOR, len(runs_s)))
    estimates_s = _ESTIMATES_S[np.searchsorted(_ESTIMATES_S, asked).clip(0, len(_ESTIMATES_S) - 1)]
    columns = (submits_s.astype(np.int64), runs_s, sizes, estimates_s)
    return [
        SwfJob(
            job_number=1,
            submit_s=submit_s,
            run_s=run_s,
            allocated_procs=size,
            requested_procs=size,
            requested_s=estimate_s,
            status=1,
            queue=queue,
        )
        for submit_s, run_s, size, estimate_s in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _header(jobs: int, nodes: int, procs: int, note: str, interactive: bool) -> SwfHeader:
    lines = [
        "Version: 2.2",
        "Computer: none, the jobs are drawn from a model",
        "Information: Lublin and Feitelson, JPDC 63(11), 2003",
        f"MaxJobs: {jobs}",
        f"MaxRecords: {jobs}",
        f"MaxNodes: {nodes}",
        f"MaxProcs: {procs}",
        f"Queue: {BATCH_QUEUE} batch",
        *([f"Queue: {INTERACTIVE_QUEUE} interactive"] if interactive else []),
        "Note: second 0 is midnight",
        f"Note: {note}",
    ]
    return SwfHeader.of_lines(lines)


def offered_load(trace: SwfTrace, cores: int) -> float | None:
    """Return the work over what so many cores do from the first submission to the last; None for no time."""
    span_s = trace.jobs[-1].submit_s - trace.jobs[0].submit_s
    work_s = sum((job.procs or 0) * (job.run_s or 0) for job in trace.jobs)
    return work_s / (span_s * cores) if span_s else None


@dataclass(frozen=True, slots=True)
class LublinParameters:
    """The model's parameters for one type of jobs; names follow the paper.

    ``uhi`` and ``umed`` are missing: they depend on the machine (``uhi`` is log2 of its processors,
    ``umed`` is ``umed_below`` less). Gamma distributions are given as (shape, scale).
    """

    serial_share: float
    power_of_two_share: float
    ulow: float
    umed_below: float
    uprob: float
    gamma_run_1: tuple[float, float]
    gamma_run_2: tuple[float, float]
    pa: float
    pb: float
    gamma_gap: tuple[float, float]
    gamma_day: tuple[float, float]
    arar: float


TYPELESS = LublinParameters(
    0.244,
    0.576,
    0.8,
    2.5,
    0.86,
    (4.2, 0.94),
    (312.0, 0.03),
    -0.0054,
    0.78,
    (10.2303, 0.4871),
    (8.1737, 3.9631),
    1.0225,
)
BATCH = LublinParameters(
    0.2927,
    0.6686,
    1.2,
    2.0,
    0.875,
    (6.57, 0.823),
    (639.1, 0.0156),
    -0.003,
    0.6986,
    (6.0415, 0.8531),
    (6.1271, 5.2740),
    1.0519,
)
INTERACTIVE = LublinParameters(
    0.1541,
    0.625,
    1.0,
    2.5,
    0.705,
    (3.8351, 0.6605),
    (7.073, 0.6856),
    -0.0118,
    0.9156,
    (6.5510, 0.6621),
    (8.9186, 3.6680),
    0.9797,
)


def sample_sizes(parameters: LublinParameters, count: int, procs: int, rng: np.random.Generator) -> IntArray:
    """Return ``count`` job sizes from 1 to ``procs``."""
    if procs == 1:
        return np.ones(count, dtype=np.int64)
    high = math.log2(procs)
    middle = min(max(high - parameters.umed_below, parameters.ulow), high)
    low = min(parameters.ulow, high)
    kind = rng.random(count)
    first = rng.random(count) <= parameters.uprob
    uniform = rng.random(count)
    logs = np.where(first, low + uniform * (middle - low), middle + uniform * (high - middle))
    serial = kind <= parameters.serial_share
    power = kind <= parameters.serial_share + parameters.power_of_two_share
    logs = np.where(power, np.floor(logs + 0.5), logs)
    sizes = np.floor(2.0**logs + 0.5)
    # a machine that is no power of two has a largest power of two below its size
    largest_power = 2.0 ** math.floor(high)
    sizes = np.where(power, np.minimum(sizes, largest_power), np.minimum(sizes, procs))
    chosen: IntArray = np.where(serial, 1, sizes).astype(np.int64)
    return chosen


def sample_runs_s(parameters: LublinParameters, sizes: IntArray, rng: np.random.Generator) -> IntArray:
    """Return a run time in whole seconds, at least 1 s and at most 45 h, for each of ``sizes``."""
    first_share = np.clip(parameters.pa * sizes + parameters.pb, 0, 1)
    logs = np.full(len(sizes), np.inf)
    while (again := np.flatnonzero(logs > _LONGEST_LOG_RUN)).size:
        first = rng.random(again.size) <= first_share[again]
        draws = (
            rng.gamma(*parameters.gamma_run_1, again.size),
            rng.gamma(*parameters.gamma_run_2, again.size),
        )
        logs[again] = np.where(first, *draws)
    runs_s: IntArray = np.maximum(1, np.exp(logs)).astype(np.int64)
    return runs_s


def slot_weights(parameters: LublinParameters) -> FloatArray:
    """Return the relative rate of arrivals in each half hour from midnight on; the mean is 1."""
    shape, scale = parameters.gamma_day
    # the integral of the gamma density over each half hour, by the midpoint rule
    steps = 64
    middles = (np.arange(SLOTS_PER_DAY * steps) + 0.5) / steps + _FIRST_SLOT - 0.5
    density = np.exp((shape - 1) * np.log(middles / scale) - middles / scale)
    shares = density.reshape(SLOTS_PER_DAY, steps).sum(axis=1)
    # the model counts half hours from 1
    return np.roll(shares / shares.mean(), _FIRST_SLOT - 1)


def sample_gaps(parameters: LublinParameters, count: int, rng: np.random.Generator) -> FloatArray:
    """Return ``count`` gaps between arrivals, in half hours of mean activity."""
    shape, scale = parameters.gamma_gap
    logs = np.full(count, np.inf)
    while (again := np.flatnonzero(logs > _LONGEST_LOG_GAP)).size:
        logs[again] = rng.gamma(shape * parameters.arar, scale, again.size)
    gaps: FloatArray = np.exp(logs) / SLOT_S
    return gaps


def follow_the_day(points: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the seconds from midnight until the sum of ``weights`` over the half hours is ``points``."""
    days, rest = np.divmod(points, weights.sum())
    ends = np.concatenate(([0.0], np.cumsum(weights)))
    seconds: FloatArray = np.interp(rest, ends, np.arange(SLOTS_PER_DAY + 1) * SLOT_S)
    return days * SLOTS_PER_DAY * SLOT_S + seconds
