"""T11 to T18: where which scheduler is better, and what applications that strong scale have of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.claims import Row, not_comparable
from foundation.units import counted
from simulator.experiments.timesharing.edison import Floats
from simulator.experiments.timesharing.slowdown_bins import FEWEST, Counts, crossing_s
from simulator.experiments.timesharing.strong_scaling import APPLICATIONS, sizes_to, turnarounds_s
from simulator.experiments.timesharing.timesharing_outcome import Setting
from simulator.experiments.timesharing.timesharing_survey import BATCH, SHARE, Survey
from simulator.experiments.timesharing.timesharing_words import (
    beside,
    claim,
    differences,
    direction,
    noted,
    over_settings,
    row,
    shown,
    told,
)

HOUR_S = 3600.0
ORDERS = 100.0
"""Orders of magnitude: at least two."""
SMALL, LARGE, ALL = range(3)
"""Rows of ``Outcome.classes``."""


def crossings_h(survey: Survey, size: int, batch: Setting = BATCH, share: Setting = SHARE) -> list[float]:
    """Return the length in hours from which on batch is better, for each seed."""
    both = zip(survey.outcomes[batch], survey.outcomes[share], survey.grids, strict=True)
    return [crossing_s(one.classes, other.classes, size, grid.lengths) / HOUR_S for one, other, grid in both]


def map_rows(survey: Survey) -> list[Row]:
    """Return T11 to T14."""
    small = claim("T11", "V, Fig. 7", "small jobs", "length at which batch becomes better", "about 2 h")
    large = claim("T12", "V, Fig. 7", "large jobs", "the same", "about 4 h")
    long = claim("T13", "V, X", "very long jobs", "batch advantage", "up to 8 times")
    short = claim(
        "T14", "V, X", "shortest jobs", "time-sharing advantage", "orders of magnitude, over 500 times"
    )
    hours = [crossings_h(survey, size) for size in (SMALL, LARGE)]
    later = direction([np.log(after / before) for before, after in zip(*hours, strict=True)])
    ahead = direction(differences(survey, SHARE, BATCH, lambda one: float(np.log(one.very_long_mean))))
    behind = direction(
        [
            value - np.log10(ORDERS)
            for value in differences(survey, BATCH, SHARE, lambda one: float(np.log10(one.short_mean)))
        ]
    )
    best, worst = _extremes(survey)
    advantage = np.exp(
        np.mean(differences(survey, SHARE, BATCH, lambda one: float(np.log(one.very_long_mean))))
    )
    gain = 10 ** np.mean(differences(survey, BATCH, SHARE, lambda one: float(np.log10(one.short_mean))))
    return [
        row(
            small,
            beside(not_comparable("a magnitude, on another trace"), float(np.mean(hours[0])), 2.0),
            f"{told(hours[0])} h (under 32 nodes)",
        ),
        row(
            large,
            beside(
                noted(later, "judged is that it is later than for small jobs"), float(np.mean(hours[1])), 4.0
            ),
            f"{told(hours[1])} h (100 nodes and more)",
        ),
        row(
            long,
            beside(noted(ahead, "judged is that there is one"), best, 8.0),
            f"{shown(float(advantage))} times from 8 h on; in a bin up to {shown(best)} times",
        ),
        row(
            short,
            beside(noted(behind, f"read as: {ORDERS:g} times and more under 100 s"), worst, 500.0),
            f"{shown(float(gain))} times under 100 s; in a bin up to {shown(worst)} times",
        ),
    ]


def _extremes(survey: Survey) -> tuple[float, float]:
    """Return the largest advantage of batch, and of time-sharing, in a bin of all seeds with ten jobs."""
    ratio = ratios(survey, BATCH, SHARE)
    known = ratio[np.isfinite(ratio)]
    if not len(known):
        return float("nan"), float("nan")
    return float(1 / known.min()), float(known.max())


def ratios(survey: Survey, batch: Setting, share: Setting, fewest: int = FEWEST) -> Floats:
    """Return batch's mean over time-sharing's by bin, all seeds together; NaN where there are few jobs."""
    one, other = (sum_of(survey, setting) for setting in (batch, share))
    found = np.full(one[1].shape, np.nan)
    enough = one[1] >= fewest
    found[enough] = one[0][enough] / other[0][enough]
    return found


def sum_of(survey: Survey, setting: Setting) -> tuple[Floats, Counts]:
    """Return sums of slowdowns and numbers of jobs by bin, over all seeds."""
    every = [one.bins for one in survey.outcomes[setting]]
    return np.sum([one.sums for one in every], axis=0), np.sum([one.counts for one in every], axis=0)


def scaling_rows(survey: Survey) -> list[Row]:
    """Return T15 to T18."""
    share = claim("T15", "V, Fig. 8", "strong scaling, time-sharing", "turnaround over nodes", "falls")
    batch = claim(
        "T16",
        "V, Fig. 8",
        "strong scaling, batch",
        "turnaround over nodes",
        "does not fall, rises at the largest",
    )
    end = claim(
        "T17",
        "V, X",
        "strong scaling, largest size",
        "turnaround, batch / time-sharing",
        "usually orders of magnitude",
    )
    real = claim("T18", "V", "the five applications", "scaling", "to 960 nodes and more, at 49% or better")
    found = {
        setting: {name: turnaround_curves(survey, setting, serial) for name, serial in APPLICATIONS.items()}
        for setting in (BATCH, SHARE)
    }
    falls = over_settings(
        {name: [np.log(of[0] / of[-1]) for of in found[SHARE][name]] for name in APPLICATIONS}
    )
    rises = over_settings(
        {
            f"{name}, {word}": [np.log(of[-1] / of[at]) for of in found[BATCH][name]]
            for name in APPLICATIONS
            for word, at in (("largest against smallest", 0), ("against a quarter of it", -3))
        }
    )
    apart = over_settings(
        {
            name: [
                np.log10(one[-1] / other[-1] / ORDERS)
                for one, other in zip(found[BATCH][name], found[SHARE][name], strict=True)
            ]
            for name in APPLICATIONS
        }
    )
    curves = {setting: _told_curves(found[setting]) for setting in (BATCH, SHARE)}
    times = [
        float(
            np.mean(
                [
                    one[-1] / other[-1]
                    for one, other in zip(found[BATCH][name], found[SHARE][name], strict=True)
                ]
            )
        )
        for name in APPLICATIONS
    ]
    nodes = sizes_to(survey.world.nodes)[-1]
    return [
        row(share, falls, curves[SHARE]),
        row(batch, rises, curves[BATCH]),
        row(
            end,
            noted(apart, f"read as: {ORDERS:g} times and more"),
            f"{' and '.join(map(shown, times))} times on {counted(nodes, 'node')}",
        ),
        row(
            real,
            not_comparable("their measurements are not public; a perfect and an Amdahl one stand in"),
            "-",
        ),
    ]


def turnaround_curves(survey: Survey, setting: Setting, serial: float) -> list[list[float]]:
    """Return the turnaround of an application for each of its sizes, for each seed."""
    both = zip(survey.outcomes[setting], survey.grids, strict=True)
    return [turnarounds_s(one.bins, grid, serial, survey.world.nodes) for one, grid in both]


def _told_curves(found: dict[str, list[list[float]]]) -> str:
    def hours(values: Sequence[list[float]], at: int) -> str:
        return shown(float(np.mean([of[at] for of in values])) / HOUR_S)

    return "; ".join(f"{name}: {hours(of, 0)} h to {hours(of, -1)} h" for name, of in found.items())
