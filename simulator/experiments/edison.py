"""The worlds of the study of time-sharing, and mean bounded slowdowns by size and length.

The worlds of the study: a trace like Edison's, or a real one, on whole nodes at a load of 0.89.

Edison's is not public; one is drawn to what is printed of it (Hofmeyr et al., section II).

90% of the jobs have less than 32 nodes; half of the node-hours come from jobs of more than 100, a fifth from
more than 1,000; 4,000 jobs a day; an offered load of 0.89 after the warm-up. Neither how size and length go
together nor how arrivals cluster is printed: here size and length are independent, and the rate of arrivals
has the course of a day and of a week, a factor for each day that resembles the last, and a spell
of high load.

Mean bounded slowdowns by size and length, and what they make of applications that strong scale.

There are 26 by 26 logarithmic bins, and classes of sizes. The measurements of the five APEX applications
(Hofmeyr et al., section V) are not published. Instead there are a perfect one and one after Amdahl with an
efficiency of 49% on 960 nodes, the least that is printed of the five.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from foundation.errors import InputError
from foundation.units import US_PER_S, counted
from simulator.model.system import System, single_queue
from simulator.simulation import Cleaning, make_workload
from simulator.timeshare.timeshare_pool import draw_memory
from simulator.timeshare.timeshare_state import TimeshareDemands
from workloads.swf import SwfColumns, load_columns

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NODES = 5576
DAYS, WARM_UP_DAYS, SPELL_DAY = 600, 100, 350
JOBS_A_DAY = 4000
LOAD = 0.89
DAY_S = 86_400
SHORTEST_US = 10 * US_PER_S
WARM_UP_SHARE = 0.15
"""Of a real trace that is too short for ``WARM_UP_DAYS``."""
SHORTEST_S, LONGEST_S = 10, 172_800
_SIZES = (1, 2, 32, 101, 1001, 4097)
_SHARES = (0.45, 0.45, 0.0825, 0.0157, 0.0018)
"""How many jobs have from one of the sizes to below the next; within, the logarithm is uniform."""
_SPREAD = 2.0
"""Standard deviation of the logarithm of the length."""
_HOURS = np.array(
    [5, 4, 4, 4, 4, 4, 5, 6, 8, 10, 11, 11, 11, 11, 12, 12, 11, 10, 9, 8, 8, 7, 7, 6], dtype=float
)
_WEEK = np.array([1.1, 1.15, 1.15, 1.1, 1.1, 0.7, 0.7])
_DAY_SPREAD, _DAY_MEMORY = 0.25, 0.6
_SPELL = 1.35
_DAYS_A_SPELL_DAY = 50
ESTIMATES_S = np.array(
    [300, 600, 900, 1800, 3600, 7200, 14400, 21600, 28800, 43200, 64800, 86400, 129600, LONGEST_S]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edison:
    """What is drawn: for ``days`` days; loads and the spell are relative to the part after the warm-up."""

    nodes: int = NODES
    days: int = DAYS
    warm_up_days: int = WARM_UP_DAYS
    spell_day: int = SPELL_DAY
    jobs_a_day: int = JOBS_A_DAY
    load: float = LOAD

    def draw(self, seed: int) -> TimeshareDemands:
        """Return the jobs, in order of arrival."""
        rng = np.random.default_rng([seed, 2016])
        submit_s = self._arrivals_s(rng)
        sizes = self._sizes(len(submit_s), rng)
        run_s = self._lengths_s(submit_s, sizes, rng)
        asked = run_s * (1 + rng.uniform(0, 4, len(run_s)))
        request_s = ESTIMATES_S[np.searchsorted(ESTIMATES_S, asked).clip(0, len(ESTIMATES_S) - 1)]
        return TimeshareDemands(
            submit_us=submit_s * US_PER_S,
            run_us=run_s * US_PER_S,
            request_us=np.maximum(request_s, run_s) * US_PER_S,
            nodes=sizes,
            memory=draw_memory(len(run_s), seed),
        )

    def _arrivals_s(self, rng: np.random.Generator) -> Ints:
        walk = np.zeros(self.days)
        for day in range(1, self.days):
            walk[day] = _DAY_MEMORY * walk[day - 1] + rng.normal(0, _DAY_SPREAD)
        daily = np.exp(walk) * np.resize(_WEEK, self.days)
        half = max(1, self.days // _DAYS_A_SPELL_DAY // 2)
        daily[self.spell_day - half : self.spell_day + half] *= _SPELL
        rates = np.repeat(daily, 24) * np.tile(_HOURS, self.days)
        counts = rng.poisson(rates * (self.jobs_a_day * self.days / rates.sum()))
        hours = np.repeat(np.arange(len(rates)), counts)
        return np.sort(hours * 3600 + rng.integers(0, 3600, len(hours)))

    def _sizes(self, count: int, rng: np.random.Generator) -> Ints:
        """Draw sizes, each class as often as its share says and evenly filled, so that few days suffice."""
        edges = np.minimum(_SIZES, self.nodes + 1)
        kind = np.searchsorted(np.cumsum(_SHARES)[:-1], rng.permutation(count) / count, side="right")
        low, high = edges[kind], np.maximum(edges[kind + 1], edges[kind] + 1)
        drawn: Ints = np.floor(low * (high / low) ** _evenly(kind, rng)).astype(np.int64)
        return np.minimum(drawn, self.nodes)

    def _lengths_s(self, submit_s: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        """Draw lengths, and scale them until the load after the warm-up is as it should be."""
        drawn: Floats = np.exp(_SPREAD * ndtri(_evenly(np.searchsorted(_SIZES, sizes, side="right"), rng)))
        after = submit_s >= self.warm_up_days * DAY_S
        wanted = self.load * self.nodes * (self.days - self.warm_up_days) * DAY_S
        low, high = 1.0, 1e6
        for _ in range(60):
            middle = (low * high) ** 0.5
            run_s = np.clip(drawn * middle, SHORTEST_S, LONGEST_S)
            low, high = (middle, high) if float(sizes[after] @ run_s[after]) < wanted else (low, middle)
        lengths: Ints = np.rint(np.clip(drawn * high, SHORTEST_S, LONGEST_S)).astype(np.int64)
        return lengths


def _evenly(kind: Ints, rng: np.random.Generator) -> Floats:
    """Return for each job a number between 0 and 1, evenly spaced among the jobs of its kind."""
    found = np.empty(len(kind))
    for one in np.unique(kind):
        places = np.flatnonzero(kind == one)
        found[places] = (rng.permutation(len(places)) + 0.5) / len(places)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineWorld:
    """A machine and its jobs.

    Parameters
    ----------
    name, summary
        Its name, and what it is in a sentence.
    nodes, days
        The machine, and from the first to the last submission.
    warm_up_us
        What is submitted before is not counted.
    spell_us
        When the load was made high for a while; None: it was not.
    draw
        Returns the jobs for a seed.
    """

    name: str
    summary: str
    nodes: int
    days: float
    warm_up_us: int
    spell_us: int | None
    draw: Callable[[int], TimeshareDemands]


def generated(days: int) -> MachineWorld:
    """Return a world like Edison, of fewer days than its 600, with the same parts."""
    warm_up, spell = max(1, days // 6), days * 7 // 12
    edison = Edison(days=days, warm_up_days=warm_up, spell_day=spell)
    return MachineWorld(
        name="Edison, generated",
        summary=(
            f"Edison's trace is not public: {counted(days, 'day')} like it are drawn for each seed, "
            f"{counted(edison.jobs_a_day, 'job')} a day on {NODES:,} nodes, a load of {LOAD} after a "
            f"warm-up of {counted(warm_up, 'day')}, memory 2% of a node in the median."
        ),
        nodes=NODES,
        days=days,
        warm_up_us=warm_up * DAY_S * US_PER_S,
        spell_us=spell * DAY_S * US_PER_S,
        draw=edison.draw,
    )


def of_trace(path: Path) -> MachineWorld:
    """Return the world of a real trace, its arrivals closer together or farther apart for a load of 0.89.

    Raises
    ------
    InputError
        It cannot be read, does not tell its size, or has no job of ten seconds.
    """
    columns = load_columns(path)
    system = _system(columns)
    workload = make_workload(
        columns,
        single_queue(system, 1),
        Cleaning(interactive_queue=None, dependencies=False),
        whole_nodes=True,
    )
    chosen = np.flatnonzero(workload.run_us >= SHORTEST_US)
    if not len(chosen):
        raise InputError(f"trace {columns.name} has no job of 10 s or more (run_s)")
    submit_us = workload.submit_us[chosen] - workload.submit_us[chosen].min()
    jobs = TimeshareDemands(
        submit_us=submit_us,
        run_us=workload.run_us[chosen],
        request_us=workload.requested_us[chosen],
        nodes=workload.nodes[chosen],
        memory=np.zeros(len(chosen), dtype=np.int64),
    )
    real_days = float(submit_us.max()) / US_PER_S / DAY_S
    warm_up = WARM_UP_DAYS / real_days if real_days > 2 * WARM_UP_DAYS else WARM_UP_SHARE
    load = float(jobs.nodes @ jobs.run_us) / max(1.0, float(submit_us.max())) / system.nodes
    jobs = replace(jobs, submit_us=np.rint(submit_us * (load / LOAD)).astype(np.int64))
    last_us = int(jobs.submit_us.max())
    return MachineWorld(
        name=columns.name,
        summary=(
            f"{columns.name} on whole nodes of {system}: {counted(len(chosen), 'job')} of 10 s and more in "
            f"{real_days:.0f} days; arrivals are compressed by {LOAD / load:.2f} from a load "
            f"of {load:.2f} to {LOAD}; the first {warm_up:.0%} are warm-up. Seeds are of memory and noise."
        ),
        nodes=system.nodes,
        days=last_us / US_PER_S / DAY_S,
        warm_up_us=round(last_us * warm_up),
        spell_us=None,
        draw=lambda seed: replace(jobs, memory=draw_memory(len(chosen), seed)),
    )


def _system(columns: SwfColumns) -> System:
    """Return the nodes that the header tells, and cores a node such that all processors fit."""
    nodes, procs = columns.header.max_nodes, columns.header.max_procs
    if nodes is None and procs is None:
        raise InputError(f"trace {columns.name} has neither MaxNodes nor MaxProcs in its header")
    if nodes is None or nodes < 1:
        return System(procs or 1, 1)
    return System(nodes, max(1, (procs or nodes) // nodes))


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
