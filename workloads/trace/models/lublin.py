"""The Lublin-Feitelson model of sizes, run times and arrivals of rigid jobs.

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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SLOT_S = 1800
SLOTS_PER_DAY = 48
_FIRST_SLOT = 11
_LONGEST_LOG_RUN = 12.0
_LONGEST_LOG_GAP = 13.0

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


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
