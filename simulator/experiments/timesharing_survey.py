"""All settings of the study over all seeds; of each run figures after the warm-up, bins and the load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis import claims
from analysis.quantiles import quantiles
from foundation.units import US_PER_S
from simulator.experiments import edison
from simulator.experiments.claim_study import run_grid
from simulator.timeshare.timeshare_pool import (
    NO_NOISE_AT_ALL,
    MemoryForm,
    Noise,
    TimeshareResult,
    draw_memory_below,
    run,
)
from simulator.timeshare.timeshare_state import SPAN_US, SharingConfig, TimeshareDemands

BETA_S = 10.0
HOUR_S = 3600.0
LONG_S, VERY_LONG_S, SHORT_S = 4 * 3600, 8 * 3600, 100
SPANS_A_DAY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesharingSetting:
    """A scheduler, and what disturbs it.

    ``memory`` is how many of the node-hours are below 60% of a node's memory, in which form; None: as in the
    world, where memory hardly matters.
    """

    batch: bool = False
    overhead: float = 0.0
    noise: float = 0.0
    spmd: bool = True
    memory: tuple[float, MemoryForm] | None = None

    def __str__(self) -> str:
        words = ["batch" if self.batch else "time-sharing"]
        words += [f"overhead {self.overhead:.0%}"] * (self.overhead > 0)
        words += [f"noise {self.noise:g}"] * (self.noise > 0)
        words += ["not SPMD"] * (not self.spmd)
        if self.memory is not None:
            words.append(f"memory {self.memory[0]:.0%}, {self.memory[1]}")
        return ", ".join(words)


NOISE, PRINTED_NOISE = 0.001, 0.0001
"""What five or six slow nodes at a time need, and what is printed (CLAIMS 4c)."""
OVERHEADS = (0.02, 0.05, 0.08, 0.10, 0.13)

BATCH, SHARE = TimesharingSetting(batch=True), TimesharingSetting()
NOISY_BATCH, NOISY_SHARE = TimesharingSetting(batch=True, noise=NOISE), TimesharingSetting(noise=NOISE)
ANY_BATCH, ANY_SHARE = TimesharingSetting(batch=True, spmd=False), TimesharingSetting(spmd=False)
NOISY_ANY_BATCH = TimesharingSetting(batch=True, noise=NOISE, spmd=False)
NOISY_ANY_SHARE = TimesharingSetting(noise=NOISE, spmd=False)
LITTLE_BATCH, LITTLE_SHARE = (
    TimesharingSetting(batch=True, noise=PRINTED_NOISE),
    TimesharingSetting(noise=PRINTED_NOISE),
)
PRINTED_BELOW = 0.9
"""Share of the node-hours below 60% of a node's memory in the paper (section II)."""
FORMS: tuple[MemoryForm, ...] = ("all need more", "some need most")
MEMORY_SETTINGS = tuple(
    TimesharingSetting(memory=(share, form)) for form in FORMS for share in (0.97, 0.95, 0.92, PRINTED_BELOW)
)
SETTINGS = (
    BATCH,
    SHARE,
    *(TimesharingSetting(overhead=overhead) for overhead in OVERHEADS),
    NOISY_BATCH,
    NOISY_SHARE,
    LITTLE_BATCH,
    LITTLE_SHARE,
    ANY_BATCH,
    ANY_SHARE,
    NOISY_ANY_BATCH,
    NOISY_ANY_SHARE,
    *MEMORY_SETTINGS,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TimesharingOutcome:
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
    bins: edison.Binned
    classes: edison.Binned
    sizes: edison.Binned
    utilisation: float
    load: float
    course: edison.Floats
    at_once: float
    most: int


Metric = str | Callable[[TimesharingOutcome], float]
"""An attribute of an outcome, or what is computed of it."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TimesharingSurvey:
    """What was simulated and what came of it: one outcome a seed for each setting.

    ``grids`` and ``jobs`` are the bins and the jobs of each seed.
    """

    world: edison.MachineWorld
    outcomes: Mapping[TimesharingSetting, Sequence[TimesharingOutcome]]
    grids: Sequence[edison.BinEdges]
    jobs: Sequence[TimeshareDemands]

    def by_seed(self, setting: TimesharingSetting, metric: Metric) -> list[float]:
        """Return a value for each seed."""
        outcomes = self.outcomes[setting]
        if isinstance(metric, str):
            return [float(getattr(one, metric)) for one in outcomes]
        return [metric(one) for one in outcomes]


def survey(world: edison.MachineWorld, seeds: int, step: Callable[[str], None]) -> TimesharingSurvey:
    """Simulate everything; ``step`` is called ``steps_of(seeds)`` times."""
    drawn: list[TimeshareDemands] = []

    def draw(seed: int) -> TimeshareDemands:
        drawn.append(world.draw(seed))
        return drawn[-1]

    outcomes = run_grid(
        SETTINGS,
        range(1, seeds + 1),
        draw,
        lambda jobs, setting, seed: outcome_of(world, jobs, setting, seed),
        step,
    )
    return TimesharingSurvey(
        world=world, outcomes=outcomes, grids=[grid_of(world, jobs) for jobs in drawn], jobs=drawn
    )


def steps_of(seeds: int) -> int:
    """Return how many trials ``survey`` has."""
    return seeds * len(SETTINGS)


def mean(survey: TimesharingSurvey, setting: TimesharingSetting, metric: Metric) -> float:
    """Return the mean over the seeds."""
    return float(np.mean(survey.by_seed(setting, metric)))


def differences(
    survey: TimesharingSurvey, more: TimesharingSetting, less: TimesharingSetting, metric: Metric
) -> list[float]:
    """Return by how much a value is larger in one setting than in the other, for each seed."""
    return claims.differences(survey.by_seed(more, metric), survey.by_seed(less, metric))


def changes(survey: TimesharingSurvey, after: TimesharingSetting, before: TimesharingSetting) -> list[float]:
    """Return the relative change of the mean slowdown, for each seed."""
    pairs = zip(survey.by_seed(after, "mean"), survey.by_seed(before, "mean"), strict=True)
    return [one / other - 1 for one, other in pairs]


def smooth(course: edison.Floats, days: int) -> edison.Floats:
    """Return the moving mean over some days."""
    width = days * SPANS_A_DAY
    if len(course) < width:
        return course
    found: edison.Floats = np.convolve(course, np.ones(width) / width, mode="valid")
    return found


def crossings_h(
    survey: TimesharingSurvey, size: int, batch: TimesharingSetting = BATCH, share: TimesharingSetting = SHARE
) -> list[float]:
    """Return the length in hours from which on batch is better, for each seed."""
    both = zip(survey.outcomes[batch], survey.outcomes[share], survey.grids, strict=True)
    return [
        edison.crossing_s(one.classes, other.classes, size, grid.lengths) / HOUR_S
        for one, other, grid in both
    ]


def ratios(
    survey: TimesharingSurvey,
    batch: TimesharingSetting,
    share: TimesharingSetting,
    fewest: int = edison.FEWEST,
) -> edison.Floats:
    """Return batch's mean over time-sharing's by bin, all seeds together; NaN where there are few jobs."""
    one, other = (sum_of(survey, setting) for setting in (batch, share))
    found = np.full(one[1].shape, np.nan)
    enough = one[1] >= fewest
    found[enough] = one[0][enough] / other[0][enough]
    return found


def sum_of(survey: TimesharingSurvey, setting: TimesharingSetting) -> tuple[edison.Floats, edison.Counts]:
    """Return sums of slowdowns and numbers of jobs by bin, over all seeds."""
    every = [one.bins for one in survey.outcomes[setting]]
    return np.sum([one.sums for one in every], axis=0), np.sum([one.counts for one in every], axis=0)


def turnaround_curves(
    survey: TimesharingSurvey, setting: TimesharingSetting, serial: float
) -> list[list[float]]:
    """Return the turnaround of an application for each of its sizes, for each seed."""
    both = zip(survey.outcomes[setting], survey.grids, strict=True)
    return [edison.turnarounds_s(one.bins, grid, serial, survey.world.nodes) for one, grid in both]


def outcome_of(
    world: edison.MachineWorld, jobs: TimeshareDemands, setting: TimesharingSetting, seed: int
) -> TimesharingOutcome:
    """Simulate the jobs in a setting."""
    if setting.memory is not None:
        jobs = replace(jobs, memory=draw_memory_below(len(jobs.nodes), seed, *setting.memory))
    noise = Noise(probability=setting.noise, seed=seed) if setting.noise else NO_NOISE_AT_ALL
    manner = SharingConfig(batch=setting.batch, overhead=setting.overhead, spmd=setting.spmd)
    return summed_up(world, jobs, run(jobs, world.nodes, manner, noise), setting.overhead)


def grid_of(world: edison.MachineWorld, jobs: TimeshareDemands) -> edison.BinEdges:
    """Return the bins for these jobs."""
    return edison.BinEdges.of(world.nodes, float(jobs.run_us.max()) / US_PER_S)


def summed_up(
    world: edison.MachineWorld, jobs: TimeshareDemands, course: TimeshareResult, overhead: float
) -> TimesharingOutcome:
    """Return the figures of a run; what overhead takes is no progress."""
    grid = grid_of(world, jobs)
    counted = jobs.submit_us >= world.warm_up_us
    run_s = jobs.run_us[counted] / US_PER_S
    nodes = jobs.nodes[counted]
    turnaround_s = (course.end_us - jobs.submit_us)[counted] / US_PER_S
    slowdown = turnaround_s / np.maximum(run_s, BETA_S)
    lengths = grid.length_of(run_s)
    small = np.where(nodes < edison.SMALL_TO, 0, np.where(nodes >= edison.LARGE_FROM, 1, 2))
    classes = edison.binned(small, lengths, slowdown, (3, edison.BINS))
    whole = edison.binned(np.full(len(nodes), 2), lengths, slowdown, (3, edison.BINS))
    classes.sums[2], classes.counts[2] = whole.sums[2], whole.counts[2]
    size_class = np.searchsorted(edison.SIZE_EDGES, nodes, side="right") - 1
    spans = slice(world.warm_up_us // SPAN_US, int(jobs.submit_us.max()) // SPAN_US)
    design = np.stack([np.ones(len(nodes)), np.log10(nodes), np.log10(run_s)], axis=1)
    slopes = np.linalg.lstsq(design, np.log10(slowdown), rcond=None)[0]
    low, middle, high = quantiles(slowdown, (0.25, 0.5, 0.75))
    return TimesharingOutcome(
        mean=float(slowdown.mean()),
        largest=float(slowdown.max()),
        quarters=(float(low), float(middle), float(high)),
        long_mean=_mean(slowdown[run_s >= LONG_S]),
        very_long_mean=_mean(slowdown[run_s >= VERY_LONG_S]),
        short_mean=_mean(slowdown[run_s < SHORT_S]),
        slopes=(float(slopes[1]), float(slopes[2])),
        bins=edison.binned(grid.size_of(nodes), lengths, slowdown, (edison.BINS, edison.BINS)),
        classes=classes,
        sizes=edison.binned(
            size_class, np.zeros(len(nodes), dtype=np.int64), slowdown, (len(edison.SIZE_EDGES), 1)
        ),
        utilisation=_mean(course.progress[spans]) * (1 - overhead),
        load=_mean(course.load[spans]),
        course=course.load,
        at_once=float((course.start_us == jobs.submit_us)[counted].mean()),
        most=course.most,
    )


def _mean(values: edison.Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")
