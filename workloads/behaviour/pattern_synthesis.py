"""New patterns that resemble recorded ones: clusters under dynamic time warping, and barycentres within them.

Source: thesis section 6.3.1 names the method: cluster the recordings by their DTW distance, and average
members of a cluster to new series (Petitjean et al., Pattern Recognition 44(3), 2011; Forestier et al., ICDM
2017).

What is aligned is either the sequence of a pattern's periods (the logarithm of each one's length, idle ones
negative), or, as in the thesis, the utilisation of the CPU, sample by sample. A session of hours has many
idle samples and a few busy ones, over which an average of samples smears; one of periods keeps them apart.
Distances, clusters and barycentres are dtaidistance's.
"""

from __future__ import annotations

import importlib
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foundation.errors import HostError, UsageError
from foundation.units import counted
from workloads.swf import InteractivePattern
from workloads.trace.local_clock import stretch, to_ms, to_s

NEIGHBOURS = 5
"""A recording is averaged with members of its cluster out of so many that are nearest to it."""
OTHERS = 3
"""Of them, at most."""
MOST_CLUSTERS = 12
_ITERATIONS = 5

SAMPLES = 240
"""Of a session's utilisation, whatever its length."""

Series = NDArray[np.float64]


class AlignedSeries(StrEnum):
    """What is aligned: lengths of periods, or samples of the utilisation."""

    PERIODS = "periods"
    UTILISATION = "utilisation"


@dataclass(frozen=True, slots=True)
class Synthesis:
    """New patterns, and the sizes of the clusters they come from (largest first)."""

    patterns: tuple[InteractivePattern, ...]
    cluster_sizes: tuple[int, ...]


def synthesize(
    sources: Sequence[InteractivePattern],
    count: int,
    seed: int = 1,
    clusters: int | None = None,
    aligned: AlignedSeries = AlignedSeries.PERIODS,
) -> Synthesis:
    """Return ``count`` new patterns that resemble ``sources``.

    For each, a cluster is drawn by its size, then a member, then one to three of the members nearest to it.
    The barycentre of periods has the first one's number of them; that of the utilisation is busy in the
    samples in which it is highest, as many as one of the members is busy in. An average of logarithms makes
    all lengths smaller than they were, and says less of rare ones, so busy and idle periods are stretched:
    to the first one's execution time, and to the utilisation of one of the members. The distributions of both
    are thereby kept.

    Parameters
    ----------
    sources
        Recorded patterns; those without length are not used.
    count
        How many to make.
    seed
        Of all random choices.
    clusters
        How many; by default the square root of half the number of sources, 1 to 12.
    aligned
        What is aligned.

    Raises
    ------
    UsageError
        There are fewer than two sources with length, or an argument is out of range.
    HostError
        dtaidistance is not installed.
    """
    usable = [pattern for pattern in sources if pattern.total_s > 0]
    wanted = round(math.sqrt(len(usable) / 2)) if clusters is None else clusters
    if len(usable) < 2 or count < 1:
        raise UsageError("synthesis needs at least 2 recorded patterns with a length, and 1 to make")
    if clusters is not None and not 1 <= clusters <= len(usable):
        raise UsageError(
            f"{counted(clusters, 'cluster')} of {counted(len(usable), 'pattern')} are not possible"
        )
    by_periods = aligned is AlignedSeries.PERIODS
    series = [encode(pattern) if by_periods else samples_of(pattern) for pattern in usable]
    tools = _Tools.load()
    wanted = max(1, min(wanted, len(usable) if clusters else MOST_CLUSTERS))
    members = tools.clusters(series, wanted, seed)
    distances = tools.distances(series)
    rng = np.random.default_rng(seed)
    shares = np.array([len(cluster) for cluster in members]) / len(series)
    least_ms = _shortest_ms(usable)
    made = []
    for _ in range(count):
        cluster = members[int(rng.choice(len(members), p=shares))]
        chosen = _draw(cluster, distances, rng)
        average = tools.barycentre([series[place] for place in chosen])
        like = usable[chosen[int(rng.integers(len(chosen)))]]
        total_ms = to_ms(usable[chosen[0]].total_s)
        new = decode(average, least_ms) if by_periods else from_samples(average, like, total_ms)
        made.append(_fitted(new, total_ms, like))
    return Synthesis(tuple(made), tuple(sorted(map(len, members), reverse=True)))


def encode(pattern: InteractivePattern) -> Series:
    """Return log(1 + length in s) of the periods: idle, busy, idle, ...; idle ones negative."""
    lengths = np.log1p(np.array(pattern.periods_s, dtype=np.float64))
    lengths[0::2] *= -1
    return lengths


def decode(series: Series, least_ms: int = 1) -> InteractivePattern:
    """Return the pattern of an encoded series; periods between others have at least ``least_ms``."""
    signs = np.where(np.arange(len(series)) % 2 == 0, -1.0, 1.0)
    periods_ms = np.rint(1000 * np.expm1(np.maximum(0.0, signs * series))).astype(np.int64).tolist()
    if len(periods_ms) == 1:
        periods_ms = [max(1, periods_ms[0])]
    periods_ms[1:-1] = [max(least_ms, length_ms) for length_ms in periods_ms[1:-1]]
    return InteractivePattern.of_periods(list(map(to_s, periods_ms)))


def samples_of(pattern: InteractivePattern) -> Series:
    """Return the share of each of SAMPLES equal parts of a session in which it is busy."""
    lengths_s = np.array(pattern.periods_s, dtype=np.float64)
    busy_s = np.where(np.arange(len(lengths_s)) % 2 == 1, lengths_s, 0.0)
    edges_s = np.linspace(0.0, pattern.total_s, SAMPLES + 1)
    until_s = np.interp(edges_s, np.append(0.0, lengths_s.cumsum()), np.append(0.0, busy_s.cumsum()))
    shares: Series = np.diff(until_s) / (pattern.total_s / SAMPLES)
    return shares


def from_samples(series: Series, like: InteractivePattern, total_ms: int) -> InteractivePattern:
    """Return the pattern that is busy in the highest samples, as many as ``like`` is busy in, or one."""
    most = max(1, round(len(series) * like.busy_s / like.total_s)) if like.busy_s else 0
    busy = np.zeros(len(series) + 2, dtype=np.bool_)
    busy[1 + np.argsort(-series, kind="stable")[:most]] = True
    changes = np.flatnonzero(busy[1:] != busy[:-1])
    edges_ms = np.rint(changes * (total_ms / len(series))).astype(np.int64).tolist()
    ends_ms = pairwise([0, *edges_ms, total_ms])
    return InteractivePattern.of_periods([to_s(after - before) for before, after in ends_ms])


def _shortest_ms(patterns: Sequence[InteractivePattern]) -> int:
    inner = [to_ms(period_s) for pattern in patterns for period_s in pattern.periods_s[1:-1]]
    return max(1, min((length_ms for length_ms in inner if length_ms > 0), default=1))


def _fitted(pattern: InteractivePattern, total_ms: int, like: InteractivePattern) -> InteractivePattern:
    """Return ``pattern`` of ``total_ms``, busy for as large a part of it as ``like``."""
    if not pattern.activations_s or not like.busy_s:
        return stretch(pattern, total_ms)
    busy_ms = min(total_ms, max(1, round(total_ms * like.busy_s / like.total_s)))
    periods_ms = [to_ms(period_s) for period_s in pattern.periods_s]
    periods_ms[1::2] = _apportioned(periods_ms[1::2], busy_ms)
    periods_ms[0::2] = _apportioned(periods_ms[0::2], total_ms - busy_ms)
    return InteractivePattern.of_periods(list(map(to_s, periods_ms)))


def _apportioned(lengths_ms: Sequence[int], total_ms: int) -> list[int]:
    """Return ``lengths_ms`` in proportion, of the sum ``total_ms``; all is in the first if all are 0."""
    weights = lengths_ms if sum(lengths_ms) else [1, *[0] * (len(lengths_ms) - 1)]
    ends = [0, *(total_ms * end // sum(weights) for end in accumulate(weights))]
    return [after - before for before, after in pairwise(ends)]


def _draw(cluster: list[int], distances: Series, rng: np.random.Generator) -> list[int]:
    """Return a member of ``cluster``, and one to three of those nearest to it, as far as there are any."""
    first = cluster[int(rng.integers(len(cluster)))]
    others = sorted((place for place in cluster if place != first), key=lambda place: distances[first, place])
    near = others[:NEIGHBOURS]
    number = min(len(near), int(rng.integers(1, OTHERS + 1)))
    return [first, *(near[place] for place in rng.permutation(len(near))[:number].tolist())]


@dataclass(frozen=True, slots=True)
class _Tools:
    """The parts of dtaidistance, imported on use: an optional dependency, and slow to import."""

    dtw: Any
    barycentres: Any
    kmeans: Any
    use_c: bool

    @classmethod
    def load(cls) -> _Tools:
        try:
            dtw = importlib.import_module("dtaidistance.dtw")
            barycentres = importlib.import_module("dtaidistance.dtw_barycenter")
            kmeans = importlib.import_module("dtaidistance.clustering.kmeans")
        except ImportError as error:
            raise HostError(
                "synthesis needs the package dtaidistance: install it with `pip install osub[traces]`"
            ) from error
        return cls(dtw, barycentres, kmeans, getattr(dtw, "dtw_cc", None) is not None)

    def distances(self, series: list[Series]) -> Series:
        matrix = self.dtw.distance_matrix(series, use_c=self.use_c, parallel=False, compact=False)
        half: Series = np.where(np.isfinite(matrix), matrix, 0.0)
        return np.maximum(half, half.T)

    def clusters(self, series: list[Series], count: int, seed: int) -> list[list[int]]:
        """Return the places of each cluster's members; none is empty."""
        if count == 1:
            return [list(range(len(series)))]
        model = self.kmeans.KMeans(
            k=count,
            max_it=2 * _ITERATIONS,
            max_dba_it=_ITERATIONS,
            dists_options={"use_c": self.use_c},
            show_progress=False,
            # the better initialization tries several candidates, which few series cannot offer
            initialize_with_kmeanspp=len(series) >= 3 * count,
        )
        with _seeded(seed):
            found, _ = model.fit(series, use_parallel=False)
        return [sorted(map(int, found[key])) for key in sorted(found) if len(found[key])]

    def barycentre(self, series: list[Series]) -> Series:
        average = self.barycentres.dba_loop(series, c=series[0].copy(), max_it=_ITERATIONS, use_c=self.use_c)
        return np.asarray(average, dtype=np.float64)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the two global generators that dtaidistance draws from, and put them back."""
    before, numpy_before = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(numpy_before)
