"""V7 to V10: what greedy and the optimum lose."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from analysis.claims import Judgement, Row, Verdict, direction, estimate, over_settings
from analysis.claims.estimate import figures
from simulator.experiments.eviction.eviction_survey import FILE_SYSTEMS_GB_S, SETTINGS, Setting, Survey
from simulator.experiments.eviction.eviction_words import by_setting, claim, means
from simulator.experiments.eviction.scenarios import NEEDS
from simulator.experiments.eviction.solver_measures import Measured

AXES = {512: 125, 1024: 400, 2048: 800}
"""Where the axes of Fig. 8 end, node-hours."""


def loss_rows(survey: Survey) -> list[Row]:
    """Return the rows of V7 to V10."""
    return [_v7(survey), _v8(survey), _v9(survey), _v10(survey)]


def _v7(survey: Survey) -> Row:
    axes = ", ".join(str(end) for end in AXES.values())
    said = claim(
        "V7",
        "IV-E, Fig. 8",
        "every setting",
        "greedy's relative loss",
        f"positive; axes to {axes} node-hours",
    )
    judged = over_settings(by_setting(survey, lambda one: float(np.mean(one.relative))))
    most = {
        need: max(max(one.relative) for setting in _of(need) for one in survey.settings[setting])
        for need in NEEDS
    }
    largest = ", ".join(figures(value) for value in most.values())
    lowest = means(by_setting(survey, lambda one: float(np.mean(one.relative))))
    ours = (
        f"{figures(min(lowest.values()))} to {figures(max(lowest.values()))} node-hours in the mean over "
        f"deadlines; the largest {largest}"
    )
    return Row.of(said, judged, ours)


def _v8(survey: Survey) -> Row:
    said = claim(
        "V8",
        "IV-E, Fig. 8",
        "all but scenario 3 with T > 13",
        "greedy's relative loss over the deadline",
        "rises",
    )
    slopes = {str(setting): survey.slopes[FILE_SYSTEMS_GB_S[0]][setting] for setting in SETTINGS}
    judged = over_settings(slopes)
    every = [one for of in survey.settings.values() for one in of]
    first = [_first_fit(one) for one in every]
    rising = sum(one.relative[at - 1] > one.relative[0] for one, at in zip(every, first, strict=True))
    fitting = sum(at < len(one.greedy) for one, at in zip(every, first, strict=True))
    note = (
        f"{judged.note}; it rises in {rising} of {len(every)} cases until greedy's dearest job can be "
        f"checkpointed in time, and falls then; in {fitting} cases that is within 15 min"
    )
    found = {name: estimate(of).mean for name, of in slopes.items()}
    ours = f"{figures(min(found.values()))} to {figures(max(found.values()))} node-hours a minute"
    return Row.of(said, replace(judged, note=note), ours)


def _first_fit(one: Measured) -> int:
    """Return the first deadline at which greedy loses less than at 0; one past the last if there is none."""
    losses = enumerate(one.greedy)
    return next((at for at, loss in losses if loss < one.greedy[0] - 1e-9), len(one.greedy))


def _v9(survey: Survey) -> Row:
    said = claim("V9", "IV-E", "all three approaches", "least loss over the deadline", "falls")
    falls = {
        f"{name}, {solver}": values
        for solver, of in (
            ("optimum", by_setting(survey, lambda one: one.optimum[0] - one.optimum[-1])),
            ("greedy", by_setting(survey, lambda one: one.greedy[0] - one.greedy[-1])),
        )
        for name, values in of.items()
    }
    judged = over_settings(falls)
    every = [one for of in survey.settings.values() for one in of]
    rising = sum(bool(np.any(np.diff(one.optimum) > 1e-6)) for one in every)
    greedy = sum(bool(np.any(np.diff(one.greedy) > 1e-6)) for one in every)
    verdict = Verdict.FAILS if rising else judged.verdict
    note = f"{judged.note}; in between it rises in {rising} of {len(every)} cases, greedy's in {greedy}"
    optimum = means(by_setting(survey, lambda one: one.optimum[0] - one.optimum[-1]))
    ours = (
        f"the optimum by {figures(min(optimum.values()))} to {figures(max(optimum.values()))} node-hours "
        "from 0 to 15 min; backtracking as the optimum"
    )
    return Row.of(said, Judgement(verdict=verdict, estimate=judged.estimate, note=note), ours)


def _v10(survey: Survey) -> Row:
    said = claim("V10", "IV-E", "larger deadlines", "optimal loss", "often 0")
    nothing = by_setting(survey, lambda one: float(one.optimum[-1] == 0))
    seeds = range(len(next(iter(nothing.values()))))
    shares = [float(np.mean([of[seed] for of in nothing.values()])) for seed in seeds]
    judged = direction([share - 0.5 for share in shares])
    by_need = ", ".join(
        f"{np.mean([np.mean(nothing[str(setting)]) for setting in _of(need)]):.0%} for K={need:,}"
        for need in NEEDS
    )
    note = "read as: in more than half of all cases at 15 min"
    return Row.of(said, replace(judged, note=note), f"0 in {np.mean(shares):.0%} at 15 min: {by_need}")


def _of(need: int) -> list[Setting]:
    return [setting for setting in SETTINGS if setting.need == need]
