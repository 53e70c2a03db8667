"""The shown behind the claims, as tables."""

from __future__ import annotations

import numpy as np

from analysis.claims import estimate
from simulator.experiments.paper_tables import ExperimentTable
from simulator.experiments.timesharing.slowdown_bins import SIZE_EDGES
from simulator.experiments.timesharing.timesharing_survey import (
    BATCH,
    NOISY_BATCH,
    NOISY_SHARE,
    SETTINGS,
    SHARE,
    Survey,
)
from simulator.experiments.timesharing.timesharing_words import mean, shown

_CLASSES = tuple(
    f"{low} to {high - 1}" if high else f"{low} and more"
    for low, high in zip(SIZE_EDGES, (*SIZE_EDGES[1:], 0), strict=True)
)


def tables(survey: Survey) -> list[ExperimentTable]:
    """Return what became of all settings, and of sizes of jobs."""
    return [_settings(survey), _sizes(survey)]


def _settings(survey: Survey) -> ExperimentTable:
    rows = [
        (
            str(setting),
            estimate(survey.by_seed(setting, lambda one: one.mean)).text(),
            *map(shown, np.mean([one.quarters for one in survey.outcomes[setting]], axis=0).tolist()),
            shown(mean(survey, setting, lambda one: one.largest)),
            f"{mean(survey, setting, lambda one: one.utilisation):.3f}",
            shown(mean(survey, setting, lambda one: one.load)),
            f"{mean(survey, setting, lambda one: one.at_once):.1%}",
        )
        for setting in SETTINGS
    ]
    return ExperimentTable(
        name="Figs. 5 and 10",
        title="bounded slowdown, utilisation and load, mean over the seeds",
        columns=("setting", "mean", "25%", "median", "75%", "largest", "utilisation", "load", "at once"),
        rows=rows,
        notes=("Utilisation is progress; load is jobs a node; at once: started when they came.",),
    )


def _sizes(survey: Survey) -> ExperimentTable:
    rows = []
    for setting in (BATCH, SHARE, NOISY_BATCH, NOISY_SHARE):
        means = np.array([one.sizes.means[:, 0] for one in survey.outcomes[setting]])
        known = [column[~np.isnan(column)] for column in means.T]
        rows.append((str(setting), *(shown(float(of.mean())) if len(of) else "-" for of in known)))
    return ExperimentTable(
        name="Slowdown by size",
        title="mean bounded slowdown, mean over the seeds",
        columns=("setting", *(f"{name} nodes" for name in _CLASSES)),
        rows=rows,
    )
