"""What is kept of one run: figures after the warm-up, bins, and the course of the load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.quantiles import quantiles
from foundation.units import US_PER_S
from simulator.experiments.timesharing.edison import Floats
from simulator.experiments.timesharing.slowdown_bins import (
    BINS,
    LARGE_FROM,
    SIZE_EDGES,
    SMALL_TO,
    Binned,
    Grid,
    binned,
)
from simulator.experiments.timesharing.timesharing_world import World
from simulator.timeshare.step_noise import NO_NOISE_AT_ALL, Noise
from simulator.timeshare.timeshare_run import Course, run
from simulator.timeshare.timeshare_state import SPAN_US, Demands, Manner

BETA_S = 10.0
LONG_S, VERY_LONG_S, SHORT_S = 4 * 3600, 8 * 3600, 100
SPANS_A_DAY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A scheduler, and what disturbs it."""

    batch: bool = False
    overhead: float = 0.0
    noise: float = 0.0
    spmd: bool = True

    def __str__(self) -> str:
        words = ["batch" if self.batch else "time-sharing"]
        words += [f"overhead {self.overhead:.0%}"] * (self.overhead > 0)
        words += [f"noise {self.noise:g}"] * (self.noise > 0)
        words += ["not SPMD"] * (not self.spmd)
        return ", ".join(words)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Outcome:
    """One run.

    Parameters
    ----------
    mean, largest, quarters
        Bounded slowdown: mean, maximum, and quartiles.
    long_mean, very_long_mean, short_mean
        Its mean over jobs of 4 h and more, 8 h and more, less than 100 s.
    slopes
        By how much its decimal logarithm rises with a decade of nodes, and of length, at once.
    bins, classes, sizes
        Its sums by bin; by length for small jobs (row 0), large ones (1) and all (2); by class of sizes.
    utilisation, load
        Mean progress of a node, mean jobs on one, from the end of the warm-up to the last submission.
    course
        Jobs on a node by span of six hours.
    at_once
        Share of the jobs that started when they came.
    most
        Most jobs on a node at a time.
    """

    mean: float
    largest: float
    quarters: tuple[float, float, float]
    long_mean: float
    very_long_mean: float
    short_mean: float
    slopes: tuple[float, float]
    bins: Binned
    classes: Binned
    sizes: Binned
    utilisation: float
    load: float
    course: Floats
    at_once: float
    most: int


def outcome_of(world: World, jobs: Demands, setting: Setting, seed: int) -> Outcome:
    """Simulate the jobs in a setting."""
    noise = Noise(probability=setting.noise, seed=seed) if setting.noise else NO_NOISE_AT_ALL
    manner = Manner(batch=setting.batch, overhead=setting.overhead, spmd=setting.spmd)
    return summed_up(world, jobs, run(jobs, world.nodes, manner, noise), setting.overhead)


def grid_of(world: World, jobs: Demands) -> Grid:
    """Return the bins for these jobs."""
    return Grid.of(world.nodes, float(jobs.run_us.max()) / US_PER_S)


def summed_up(world: World, jobs: Demands, course: Course, overhead: float) -> Outcome:
    """Return the figures of a run; what overhead takes is no progress."""
    grid = grid_of(world, jobs)
    counted = jobs.submit_us >= world.warm_up_us
    run_s = jobs.run_us[counted] / US_PER_S
    nodes = jobs.nodes[counted]
    turnaround_s = (course.end_us - jobs.submit_us)[counted] / US_PER_S
    slowdown = turnaround_s / np.maximum(run_s, BETA_S)
    lengths = grid.length_of(run_s)
    small = np.where(nodes < SMALL_TO, 0, np.where(nodes >= LARGE_FROM, 1, 2))
    classes = binned(small, lengths, slowdown, (3, BINS))
    whole = binned(np.full(len(nodes), 2), lengths, slowdown, (3, BINS))
    classes.sums[2], classes.counts[2] = whole.sums[2], whole.counts[2]
    size_class = np.searchsorted(SIZE_EDGES, nodes, side="right") - 1
    spans = slice(world.warm_up_us // SPAN_US, int(jobs.submit_us.max()) // SPAN_US)
    design = np.stack([np.ones(len(nodes)), np.log10(nodes), np.log10(run_s)], axis=1)
    slopes = np.linalg.lstsq(design, np.log10(slowdown), rcond=None)[0]
    low, middle, high = quantiles(slowdown, (0.25, 0.5, 0.75))
    return Outcome(
        mean=float(slowdown.mean()),
        largest=float(slowdown.max()),
        quarters=(float(low), float(middle), float(high)),
        long_mean=_mean(slowdown[run_s >= LONG_S]),
        very_long_mean=_mean(slowdown[run_s >= VERY_LONG_S]),
        short_mean=_mean(slowdown[run_s < SHORT_S]),
        slopes=(float(slopes[1]), float(slopes[2])),
        bins=binned(grid.size_of(nodes), lengths, slowdown, (BINS, BINS)),
        classes=classes,
        sizes=binned(size_class, np.zeros(len(nodes), dtype=np.int64), slowdown, (len(SIZE_EDGES), 1)),
        utilisation=_mean(course.progress[spans]) * (1 - overhead),
        load=_mean(course.load[spans]),
        course=course.load,
        at_once=float((course.start_us == jobs.submit_us)[counted].mean()),
        most=course.most,
    )


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")
