"""What a fit finds: parameters of ``--policy slurm``, with robust estimates of where and how far.

Estimates that a few wild observations do not spoil, each with an interval.

Gaps are a constant and a wait that is as likely to be short as long: who comes at any time and is looked at
once a period waits so. Intervals are of 95 %, by the percentile bootstrap (Efron and Tibshirani, An
Introduction to the Bootstrap, 1993, chapter 13), always of the same draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from analysis.quantiles import quantiles
from simulator.fit.measured_run import Latencies
from simulator.policies.policy_family import Value
from simulator.policies.slurm_family import FAMILY

Floats = npt.NDArray[np.float64]
_DRAWS = 200
_MOST = 400
"""Of more observations as many are taken: pairs of them are compared."""
_CLEAR = 0.5
_CLEAR_PHASE = 0.9
_AS_GOOD = 0.8
_FEWEST = 5
_NEAR = 12.0
_STEP = 0.002


@dataclass(frozen=True, slots=True)
class RobustEstimate:
    """A value, its 95 % interval, and the number of observations."""

    value: float
    low: float
    high: float
    observations: int


def shortest(gaps: Sequence[float]) -> RobustEstimate:
    """Return the constant in gaps: the shortest but a few, less what even they have waited for.

    Of ``n`` waits that are spread evenly over a time the shortest is about ``1/(n + 1)`` of it, and in one
    case of twenty more than ``3/n``: the distances of ordered waits are exponential (Pyke, Journal of the
    Royal Statistical Society B 27, 1965).
    """
    ordered = np.sort(_some(np.asarray(gaps, dtype=np.float64)))
    count, few = len(ordered), max(1, len(ordered) // 20)
    half = max(2, (count + 1) // 2)
    apart = _slope(ordered[:half], _ranks(count)[:half]) / (count + 1)
    most = float(ordered[few - 1])
    return estimate(most - few * apart, most - (few + 2) * apart, most, len(gaps))


def longest_wait(gaps: Sequence[float]) -> float:
    """Return by how much the longest gap is longer than the shortest."""
    ordered = np.sort(_some(np.asarray(gaps, dtype=np.float64)))
    return _slope(ordered, _ranks(len(ordered)))


def _ranks(count: int) -> Floats:
    return (np.arange(count) + 0.5) / count


def _slope(ordered: Floats, ranks: Floats) -> float:
    """Return the median slope of all pairs.

    Source: Sen, Journal of the American Statistical Association 63, 1968.
    """
    one, other = np.triu_indices(len(ordered), 1)
    return float(np.median((ordered[other] - ordered[one]) / (ranks[other] - ranks[one])))


def middle(values: Sequence[float]) -> float:
    """Return the median."""
    return float(np.median(values))


def estimate(value: float, low: float, high: float, observations: int) -> RobustEstimate:
    """Return an estimate of what cannot be below 0, to a millisecond."""
    low, value, high = (round(max(0.0, float(one)), 3) for one in (min(low, value), value, max(high, value)))
    return RobustEstimate(value, low, high, observations)


def with_interval(measure: Callable[..., float], *samples: Sequence[float]) -> RobustEstimate:
    """Return what ``measure`` makes of samples, with the interval of the bootstrap."""
    rng = np.random.default_rng(1)
    arrays = [np.asarray(sample, dtype=np.float64) for sample in samples]
    draws = [measure(*(rng.choice(array, len(array)) for array in arrays)) for _ in range(_DRAWS)]
    low, high = quantiles(draws, (0.025, 0.975))
    return estimate(measure(*arrays), low, high, sum(map(len, arrays)))


def period(instants: Sequence[float], least_s: float, apart_s: float) -> RobustEstimate | None:
    """Return the longest period of which the distances of neighbouring instants are multiples.

    Parameters
    ----------
    instants
        When something happened that happens at a period's beats, but not at each.
    least_s
        The shortest period that is looked for.
    apart_s
        Instants that are nearer to the last are of the same beat.

    Returns
    -------
    Estimate or None
        None: they have no period, or there are too few to tell.
    """
    distances = np.diff(_beats(instants, apart_s)[-_MOST:])
    distances = distances[distances >= least_s * (1 - _STEP)]
    if len(distances) < _FEWEST:
        return None
    steps = int(np.log(max(1.0, float(np.median(distances)) / least_s)) / _STEP) + 2
    candidates = float(np.median(distances)) * np.exp(-_STEP * np.arange(steps))
    scores = np.array([_score(distances, candidate) for candidate in candidates])
    best = float(scores.max())
    if best < max(_CLEAR, 4.0 / np.sqrt(2 * len(distances))):
        return None
    longest = candidates[int(np.argmax(scores >= _AS_GOOD * best))]
    tries = longest * np.linspace(0.97, 1.03, 121)
    found = tries[int(np.argmax([_score(distances, one) for one in tries]))]
    beats = np.rint(distances / found)
    kept = (beats > 0) & (beats <= _NEAR)
    return with_interval(middle, (distances[kept] / beats[kept]).tolist())


def phase(instants: Sequence[float], beat_s: float, apart_s: float) -> RobustEstimate | None:
    """Return by how much instants are later than multiples of a period; None: they are too few, or differ.

    Parameters
    ----------
    instants, apart_s
        See ``period``.
    beat_s
        The period.
    """
    beats = _beats(instants, apart_s)[:_FEWEST]
    turns = 2 * np.pi * beats / beat_s
    if len(beats) < 3 or float(np.hypot(np.cos(turns).mean(), np.sin(turns).mean())) < _CLEAR_PHASE:
        return None
    first = float(beats[0] % beat_s)
    offsets = (beats - first + beat_s / 2) % beat_s - beat_s / 2
    return with_interval(lambda some: first + middle(some), offsets.tolist())


def _beats(instants: Sequence[float], apart_s: float) -> Floats:
    """Return the first instant of each beat."""
    beats: list[float] = []
    for at_s in sorted(instants):
        if not beats or at_s - beats[-1] > apart_s:
            beats.append(at_s)
    return np.array(beats)


def _score(distances: Floats, candidate: float) -> float:
    """Return how clearly distances are multiples of a period: 1 perfectly, about 0 by chance.

    Those that are too long tell nothing: a period that is slightly off loses its beat over them.
    """
    near = distances[distances <= _NEAR * candidate]
    if len(near) < max(_FEWEST, len(distances) // 2):
        return 0.0
    return float(np.cos(2 * np.pi * near / candidate).mean())


def _some(values: Floats) -> Floats:
    """Return at most so many values, evenly taken."""
    return values[:: max(1, -(-len(values) // _MOST))]


Source = Literal["configuration", "fitted", "default"]
LAUNCHES = ("launch_serial_s", "launch_parallel_s", "launch_interactive_s")
IDLE_PARTS = ("blocked_serial_s", "blocked_parallel_s", "ending_serial_s", "ending_parallel_s")
_DEFAULTS = {option.name: option.default for option in FAMILY.options}


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter, and where its value is from.

    Parameters
    ----------
    name, value
        An option of ``--policy slurm``, or a latency (``submission_s``, ...).
    source
        ``configuration``: Slurm's states it, or the replay does. ``fitted``: estimated from the run.
        ``default``: neither tells it.
    low, high, observations
        Of what is fitted: the 95 % interval, and on how many observations.
    note
        The words of the configuration, or why the value is the default.
    """

    name: str
    value: Value
    source: Source
    low: float | None = None
    high: float | None = None
    observations: int | None = None
    note: str | None = None


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What a run tells.

    Parameters
    ----------
    run, system
        Label and system of the run.
    starts
        How many starts tell anything.
    policy
        The options of ``--policy slurm``, all of them.
    latencies
        What comes on top of the schedule; see ``Latencies``.
    ignored
        What the configuration says that the policy does not have.
    """

    run: str
    system: str
    starts: int
    policy: tuple[Parameter, ...]
    latencies: tuple[Parameter, ...]
    ignored: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """The options as ``--set`` takes them."""
        return tuple(f"{parameter.name}={parameter.value}" for parameter in self.policy)

    def times(self, launching: Latencies | None = None) -> Latencies:
        """Return the latencies; how long launching takes, where this run does not tell it, from others."""
        times = {one.name: float(one.value) for one in self.latencies}
        for one in self.latencies:
            if launching is not None and one.source == "default" and one.name in (*LAUNCHES, *IDLE_PARTS):
                times[one.name] = getattr(launching, one.name)
        return Latencies(**times)


def fitted(name: str, estimate: RobustEstimate | None, why_not: str = "") -> Parameter:
    """Return a parameter with an estimate, or with its default and why there is none."""
    if estimate is None:
        return default(name, why_not)
    return Parameter(
        name=name,
        value=estimate.value,
        source="fitted",
        low=estimate.low,
        high=estimate.high,
        observations=estimate.observations,
    )


def default(name: str, why: str) -> Parameter:
    """Return a parameter of which nothing is known; a latency is then 0."""
    return Parameter(name=name, value=_DEFAULTS.get(name, 0.0), source="default", note=why)
