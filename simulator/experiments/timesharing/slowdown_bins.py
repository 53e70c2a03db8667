"""Mean bounded slowdowns by size and length, and what they make of applications that strong scale.

There are 26 by 26 logarithmic bins, and classes of sizes. The measurements of the five APEX applications
(Hofmeyr et al., section V) are not published. Instead there are a perfect one and one after Amdahl with an
efficiency of 49% on 960 nodes, the least that is printed of the five.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.experiments.timesharing.edison import Floats

BINS = 26
FEWEST = 10
"""A mean over fewer jobs is marked, and takes no part in verdicts."""
SIZE_EDGES = (1, 10, 100, 1000)
"""Where classes of sizes begin."""
SMALL_TO, LARGE_FROM = 32, 100
"""Small jobs have fewer nodes, as 90% have; large ones have at least so many, as half of the node-hours."""

SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 960)
NODE_S = 57_600.0
"""What each has to do: 16 node-hours on one node."""
EFFICIENCY = 0.49
SERIAL = (1 / EFFICIENCY - 1) / (SIZES[-1] - 1)
"""Share of the work that does not scale, such that the efficiency on the last size is that."""
APPLICATIONS: Mapping[str, float] = {"perfect": 0.0, "49% at 960 nodes": SERIAL}
"""Serial share by application."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class BinEdges:
    """The edges of the bins: sizes in nodes, lengths in seconds, each of shape (27,)."""

    sizes: Floats
    lengths: Floats

    @classmethod
    def of(cls, nodes: int, longest_s: float) -> BinEdges:
        """Return logarithmic edges from 1 to ``nodes`` and from 10 s to the longest job."""
        return cls(np.geomspace(1, max(nodes, 2), BINS + 1), np.geomspace(10, max(longest_s, 20.0), BINS + 1))

    def size_of(self, nodes: Counts) -> Counts:
        """Return the bin of each size."""
        return _places(self.sizes, nodes)

    def length_of(self, run_s: Floats) -> Counts:
        """Return the bin of each length."""
        return _places(self.lengths, run_s)


def _places(edges: Floats, values: npt.NDArray[np.generic]) -> Counts:
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, BINS - 1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Binned:
    """Sums of slowdowns and numbers of jobs, shape (sizes, lengths)."""

    sums: Floats
    counts: Counts

    @property
    def means(self) -> Floats:
        """Means, NaN where there is no job."""
        with np.errstate(invalid="ignore"):
            return np.where(self.counts > 0, self.sums / self.counts, np.nan)

    def __add__(self, other: Binned) -> Binned:
        return Binned(self.sums + other.sums, self.counts + other.counts)

    def pooled(self, size: int, length: int) -> float:
        """Return the mean of a bin, with its neighbours' jobs until there are ten; NaN if there are not."""
        for reach in range(BINS):
            rows = slice(max(0, size - reach), size + reach + 1)
            columns = slice(max(0, length - reach), length + reach + 1)
            count = int(self.counts[rows, columns].sum())
            if count >= FEWEST:
                return float(self.sums[rows, columns].sum() / count)
        return float("nan")


def binned(rows: Counts, columns: Counts, values: Floats, shape: tuple[int, int]) -> Binned:
    """Add values up by row and column."""
    flat = rows * shape[1] + columns
    size = shape[0] * shape[1]
    sums: Floats = np.bincount(flat, weights=values, minlength=size).astype(np.float64)
    counts: Counts = np.bincount(flat, minlength=size).astype(np.int64)
    return Binned(sums.reshape(shape), counts.reshape(shape))


def crossing_s(batch: Binned, sharing: Binned, row: int, edges: Floats) -> float:
    """Return the length from which on batch is the better one; the longest if it never is.

    Rows are classes of sizes; lengths with too few jobs are passed over, and the logarithm of the ratio is
    interpolated where it last goes from above one to below.
    """
    enough = np.flatnonzero((batch.counts[row] >= FEWEST) & (sharing.counts[row] >= FEWEST))
    if not len(enough):
        return float(edges[-1])
    middles = np.sqrt(edges[:-1] * edges[1:])[enough]
    ratio = np.log(batch.means[row][enough] / sharing.means[row][enough])
    above = np.flatnonzero(ratio > 0)
    if not len(above):
        return float(edges[0])
    last = int(above[-1])
    if last == len(enough) - 1:
        return float(edges[-1])
    part = ratio[last] / (ratio[last] - ratio[last + 1])
    return float(middles[last] * (middles[last + 1] / middles[last]) ** part)


def dedicated_s(nodes: int, serial: float) -> float:
    """Return the run time on dedicated nodes."""
    return NODE_S * (serial + (1 - serial) / nodes)


def turnarounds_s(bins: Binned, grid: BinEdges, serial: float, most: int) -> list[float]:
    """Return the turnaround for each size up to ``most`` nodes: run time times the slowdown of its bin."""
    found = []
    for nodes in sizes_to(most):
        run_s = dedicated_s(nodes, serial)
        size = int(grid.size_of(np.array([nodes]))[0])
        length = int(grid.length_of(np.array([run_s]))[0])
        found.append(run_s * bins.pooled(size, length))
    return found


def sizes_to(most: int) -> list[int]:
    """Return the sizes that the machine has."""
    return [nodes for nodes in SIZES if nodes <= most] or [1]
