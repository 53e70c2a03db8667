"""T19 to T28: noise, and jobs that are not SPMD."""

from __future__ import annotations

import numpy as np

from analysis.claims import Claim, Judgement, Row, Verdict, fact, no_difference
from simulator.experiments.timesharing.claims_map import ALL, crossings_h
from simulator.experiments.timesharing.slowdown_bins import FEWEST
from simulator.experiments.timesharing.timesharing_outcome import LONG_S, Outcome, Setting
from simulator.experiments.timesharing.timesharing_survey import (
    ANY_BATCH,
    ANY_SHARE,
    BATCH,
    LITTLE_BATCH,
    LITTLE_SHARE,
    NOISY_ANY_BATCH,
    NOISY_ANY_SHARE,
    NOISY_BATCH,
    NOISY_SHARE,
    SHARE,
    Survey,
)
from simulator.experiments.timesharing.timesharing_words import (
    beside,
    claim,
    differences,
    direction,
    mean,
    noted,
    over_settings,
    row,
    shown,
    told,
)

ALMOST = 0.9
"""Almost everywhere: in more of the bins with ten jobs."""


def _slowdown(one: Outcome) -> float:
    return one.mean


def noise_rows(survey: Survey) -> list[Row]:
    """Return T19 to T23."""
    batch = claim("T19", "VI, Fig. 10", "batch, no noise to noise", "mean slowdown", "137 to 1,009")
    tail = claim(
        "T20", "VI", "batch, no noise to noise", "75th percentile of slowdown", "13 to 22: the tail grows"
    )
    share = claim("T21", "VI, VIII", "time-sharing, no noise to noise", "mean slowdown", "7.9 to 13")
    where = claim(
        "T22", "VI, Fig. 9", "noise", "better scheduler", "time-sharing almost everywhere, long jobs too"
    )
    skew = claim(
        "T23",
        "VI",
        "noise, large against small jobs",
        "skew of slowdown",
        "time-sharing up to one order; batch several",
    )
    quarter = [mean(survey, setting, lambda one: one.quarters[2]) for setting in (BATCH, NOISY_BATCH)]
    parts = {name: _parts(survey, least_s) for name, least_s in (("all", 0.0), ("4 h and more", LONG_S))}
    skews = {setting: survey.by_seed(setting, _skew) for setting in (NOISY_BATCH, NOISY_SHARE)}
    apart = over_settings(
        {
            "time-sharing": [1 - value for value in skews[NOISY_SHARE]],
            "batch": [value - 2 for value in skews[NOISY_BATCH]],
        }
    )
    return [
        _rise(survey, batch, (BATCH, LITTLE_BATCH, NOISY_BATCH), 1009.0),
        row(
            tail,
            direction(differences(survey, NOISY_BATCH, BATCH, lambda one: one.quarters[2])),
            " to ".join(map(shown, quarter)),
        ),
        _rise(survey, share, (SHARE, LITTLE_SHARE, NOISY_SHARE), 13.0),
        row(
            where,
            noted(
                over_settings({name: [part - ALMOST for part in of] for name, of in parts.items()}),
                f"read as: in more than {ALMOST:.0%} of the bins",
            ),
            ", ".join(f"{np.mean(of):.0%} of the bins ({name})" for name, of in parts.items()),
        ),
        row(
            skew,
            noted(apart, "read as: time-sharing under 1, batch over 2 orders, 1,000 nodes against 1 to 9"),
            f"orders of magnitude: time-sharing {told(skews[NOISY_SHARE])}, batch {told(skews[NOISY_BATCH])}",
        ),
    ]


def _rise(survey: Survey, said: Claim, settings: tuple[Setting, Setting, Setting], paper: float) -> Row:
    none, little, much = settings
    values = [mean(survey, setting, _slowdown) for setting in settings]
    judged = beside(direction(differences(survey, much, none, _slowdown)), values[2], paper)
    quiet, some, loud = map(shown, values)
    ours = f"{quiet} to {loud}; with the printed p, {little.noise:g}, {some}"
    return row(said, judged, ours)


def _parts(survey: Survey, least_s: float) -> list[float]:
    """Return in which part of the bins with ten jobs time-sharing is better under noise, for each seed."""
    found = []
    both = zip(survey.outcomes[NOISY_BATCH], survey.outcomes[NOISY_SHARE], survey.grids, strict=True)
    for one, other, grid in both:
        enough = (one.bins.counts >= FEWEST) & (grid.lengths[:-1] >= least_s)[np.newaxis, :]
        found.append(float((one.bins.sums[enough] > other.bins.sums[enough]).mean()) if enough.any() else 0.0)
    return found


def _skew(one: Outcome) -> float:
    """Return by how many orders of magnitude the largest jobs' mean slowdown is above the smallest ones'."""
    means = one.sizes.means[:, 0]
    known = means[~np.isnan(means)]
    return float(np.log10(known[-1] / known[0]))


def spmd_rows(survey: Survey) -> list[Row]:
    """Return T24 to T28."""
    lower = claim("T24", "VII, VIII", "time-sharing, non-SPMD, no noise", "mean slowdown", "7.9 to 3.3")
    longer = claim("T25", "VII", "non-SPMD", "where batch stays better", "only lengths of 16 h and more")
    none = claim("T26", "VII, Fig. 10", "non-SPMD, either scheduler", "effect of noise", "none to speak of")
    same = claim("T27", "X", "batch, SPMD against non-SPMD", "slowdown without noise", "unchanged")
    boxes = claim(
        "T28", "VII, Fig. 10", "distributions", "mean", "batch: far above the box; time-sharing: close"
    )
    slow = [mean(survey, setting, _slowdown) for setting in (SHARE, ANY_SHARE)]
    hours = crossings_h(survey, ALL, ANY_BATCH, ANY_SHARE)
    before = crossings_h(survey, ALL)
    later = direction([np.log(after / first) for first, after in zip(before, hours, strict=True)])
    pairs = zip(survey.outcomes[BATCH], survey.outcomes[ANY_BATCH], strict=True)
    alike = all(one.mean == other.mean and one.largest == other.largest for one, other in pairs)
    means = {setting: shown(mean(survey, setting, _slowdown)) for setting in (BATCH, SHARE)}
    tops = {setting: shown(mean(survey, setting, lambda one: one.quarters[2])) for setting in (BATCH, SHARE)}
    over = over_settings(
        {
            "batch": survey.by_seed(BATCH, lambda one: one.mean - one.quarters[2]),
            "time-sharing": survey.by_seed(SHARE, lambda one: one.quarters[2] - one.mean),
        }
    )
    return [
        row(
            lower,
            beside(direction(differences(survey, SHARE, ANY_SHARE, _slowdown)), slow[1], 3.3),
            " to ".join(map(shown, slow)),
        ),
        row(
            longer,
            beside(
                noted(later, "judged is that it is later than for SPMD jobs"), float(np.mean(hours)), 16.0
            ),
            f"from {told(hours)} h on; SPMD: {told(before)} h",
        ),
        row(none, *_without_effect(survey)),
        row(same, fact(holds=alike), "job by job the same" if alike else "not the same"),
        row(
            boxes,
            noted(over, "read as: above, and within, the upper quartile"),
            f"batch {means[BATCH]}, quartile {tops[BATCH]}; time-sharing {means[SHARE]}, {tops[SHARE]}",
        ),
    ]


def _without_effect(survey: Survey) -> tuple[Judgement, str]:
    judged, told_parts = [], []
    for name, quiet, noisy in (
        ("batch", ANY_BATCH, NOISY_ANY_BATCH),
        ("time-sharing", ANY_SHARE, NOISY_ANY_SHARE),
    ):
        both = zip(survey.by_seed(noisy, _slowdown), survey.by_seed(quiet, _slowdown), strict=True)
        change = [after / before - 1 for after, before in both]
        judged.append(no_difference(change))
        told_parts.append(f"{name} {np.mean(change):+.1%}")
    failing = [one for one in judged if one.verdict is not Verdict.HOLDS]
    note = "read as: no significant relative change of the mean"
    return noted((failing or judged)[0], note), ", ".join(told_parts)
