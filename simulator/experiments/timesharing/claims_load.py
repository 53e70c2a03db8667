"""T1 to T10, and T29 to T32: what schedulers do with load, and what the trace is like."""

from __future__ import annotations

import numpy as np

from analysis.claims import Judgement, Row, Verdict, no_difference, not_comparable
from foundation.units import counted
from simulator.experiments.timesharing.edison import Floats
from simulator.experiments.timesharing.timesharing_outcome import SPANS_A_DAY, Outcome, Setting
from simulator.experiments.timesharing.timesharing_survey import BATCH, OVERHEADS, SHARE, Survey
from simulator.experiments.timesharing.timesharing_words import (
    OTHER_TRACE,
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
from simulator.timeshare.timeshare_state import MEMORY, SPAN_US

SOME, KNEE, MUCH = Setting(overhead=0.05), Setting(overhead=0.08), Setting(overhead=0.13)
NEARLY = 0.2
"""Slowdown under time-sharing is nearly uniform if it changes by no more than that part of batch's change."""
MAJORITY = 0.9


def load_rows(survey: Survey) -> list[Row]:
    """Return T1 to T10."""
    return [*_against_real(survey), *_uniformity(survey), *_overheads(survey), *_loads(survey)]


def _utilisation(one: Outcome) -> float:
    return one.utilisation


def _slowdown(one: Outcome) -> float:
    return one.mean


def _against_real(survey: Survey) -> list[Row]:
    said = claim("T1", "III, Fig. 3", "simulated against real batch", "utilisation", "89% both")
    also = claim(
        "T2", "III, Fig. 4", "simulated against real batch", "slowdown", "slightly better, shorter tail"
    )
    reason = "when Edison's jobs really started is not public"
    used = f"simulated: {mean(survey, BATCH, _utilisation):.1%}"
    largest = shown(mean(survey, BATCH, lambda one: one.largest))
    tail = f"simulated: mean {shown(mean(survey, BATCH, _slowdown))}, largest {largest}"
    return [row(said, not_comparable(reason), used), row(also, not_comparable(reason), tail)]


def _uniformity(survey: Survey) -> list[Row]:
    batch, sharing = ([_slopes(survey, setting, at) for at in (0, 1)] for setting in (BATCH, SHARE))
    said = claim("T3", "II, Fig. 2; V", "batch", "slowdown", "grows with nodes, falls with length")
    judged = over_settings({"nodes": batch[0], "length": [-slope for slope in batch[1]]})
    words = "its logarithm changes by {} with a decade of nodes, by {} with one of length"
    also = claim(
        "T4", "V, VIII", "time-sharing", "slowdown over size and length", "nearly uniform, uncorrelated"
    )
    uniform = over_settings(
        {
            name: [NEARLY * abs(before) - abs(now) for before, now in zip(was, new, strict=True)]
            for name, was, new in zip(("nodes", "length"), batch, sharing, strict=True)
        }
    )
    note = f"read as: it changes by at most {NEARLY:.0%} of batch's change"
    return [
        row(said, judged, words.format(*map(told, batch))),
        row(also, noted(uniform, note), words.format(*map(told, sharing))),
    ]


def _slopes(survey: Survey, setting: Setting, at: int) -> list[float]:
    return survey.by_seed(setting, lambda one: one.slopes[at])


def _overheads(survey: Survey) -> list[Row]:
    same = claim(
        "T5", "IV, Fig. 5", "time-sharing, no overhead", "utilisation against batch", "the same, 0.89"
    )
    lower = claim("T6", "IV, Fig. 5", "overhead 13%", "utilisation", "0.83, 7% lower")
    little = claim(
        "T7", "IV, Fig. 5", "overhead at most 5%", "utilisation, slowdown", "no significant effect"
    )
    knee = claim("T8", "IV, Fig. 5", "overhead around 10%", "mean slowdown", "climbs steeply (knee)")
    used = {setting: mean(survey, setting, _utilisation) for setting in (BATCH, SHARE, SOME, MUCH)}
    slow = {setting: mean(survey, setting, _slowdown) for setting in (SHARE, SOME, KNEE, MUCH)}
    falls = differences(survey, SHARE, MUCH, _utilisation)
    climbs = [
        (after - before) / 5 - (before - first) / 8
        for first, before, after in zip(
            *(survey.by_seed(setting, _slowdown) for setting in (SHARE, KNEE, MUCH)), strict=True
        )
    ]
    course = ", ".join(
        f"{shown(mean(survey, Setting(overhead=overhead), _slowdown))} at {overhead:.0%}"
        for overhead in (0.0, *OVERHEADS)
    )
    return [
        row(
            same,
            no_difference(differences(survey, SHARE, BATCH, _utilisation)),
            f"{used[SHARE]:.3f}, batch {used[BATCH]:.3f}",
        ),
        row(lower, beside(direction(falls), used[MUCH], 0.83), f"{used[MUCH]:.3f} against {used[SHARE]:.3f}"),
        row(
            little,
            _little(survey),
            f"utilisation {used[SHARE]:.3f} to {used[SOME]:.3f}, slowdown {shown(slow[SHARE])} to "
            f"{shown(slow[SOME])}",
        ),
        row(knee, noted(direction(climbs), "a point from 8 to 13% costs more than one up to 8%"), course),
    ]


def _little(survey: Survey) -> Judgement:
    """Judge T7: both must be without a significant change."""
    use = no_difference(differences(survey, SHARE, SOME, _utilisation))
    pairs = zip(survey.by_seed(SOME, _slowdown), survey.by_seed(SHARE, _slowdown), strict=True)
    slow = no_difference([some / none - 1 for some, none in pairs])
    worst = slow if slow.verdict is not Verdict.HOLDS else use
    note = f"utilisation {use.verdict}, slowdown {slow.verdict}"
    return noted(worst, note)


def _loads(survey: Survey) -> list[Row]:
    course = claim(
        "T9", "IV, Fig. 6", "after the spike of load", "load", "falls again up to 10%, climbs on at 13%"
    )
    level = claim("T10", "IV", "no overhead", "load", "9 in the mean, weekly mean at most 20")
    found = f"{shown(mean(survey, SHARE, lambda one: one.load))} in the mean"
    days = min(7, max(1, int(survey.world.days // 60)))
    peak = mean(survey, SHARE, lambda one: float(smooth(one.course, days).max()))
    ours = f"{found}, mean over {counted(days, 'day')} at most {shown(peak)}"
    rows = [row(level, not_comparable("it follows from how arrivals cluster"), ours)]
    if survey.world.spell_us is None:
        return [row(course, not_comparable("this trace has no such spike"), "-"), *rows]
    drops = {
        setting: [_drop(one, survey, seed) for seed, one in enumerate(survey.outcomes[setting])]
        for setting in (SOME, MUCH)
    }
    judged = over_settings({"5%": drops[SOME], "13%": [-drop for drop in drops[MUCH]]})
    words = (
        f"from the spike to the last day it falls by {told(drops[SOME])} at 5%, {told(drops[MUCH])} at 13%"
    )
    return [row(course, judged, words), *rows]


def smooth(course: Floats, days: int) -> Floats:
    """Return the moving mean over some days."""
    width = days * SPANS_A_DAY
    if len(course) < width:
        return course
    found: Floats = np.convolve(course, np.ones(width) / width, mode="valid")
    return found


def _drop(one: Outcome, survey: Survey, seed: int) -> float:
    """Return by how much the load of a day falls from the spike to the last submission."""
    spell = int(survey.world.spell_us or 0) // SPAN_US
    last = int(survey.jobs[seed].submit_us.max()) // SPAN_US
    daily = smooth(one.course, 1)
    around = daily[spell - 2 * SPANS_A_DAY : spell + 4 * SPANS_A_DAY]
    if not len(around) or last - SPANS_A_DAY >= len(daily):
        return float("nan")
    return float(around.max() - daily[last - SPANS_A_DAY])


def trace_rows(survey: Survey) -> list[Row]:
    """Return T29 to T32."""
    admitted = claim("T29", "VIII", "memory admission", "jobs admitted at once", "the vast majority")
    sizes = claim(
        "T30", "II, Fig. 1", "trace", "sizes", "90% under 32 nodes; half of the use over 100, 20% over 1,000"
    )
    memory = claim("T31", "II", "trace", "arrivals, memory", "4,000 jobs a day; 90% of node-hours under 60%")
    tail = claim(
        "T32", "X", "worst and mean", "heavy tail", "batch: higher maximum; for long jobs lower mean"
    )
    shares = survey.by_seed(SHARE, lambda one: one.at_once)
    jobs = survey.jobs[0]
    use = (jobs.nodes * jobs.run_us).astype(float)
    part = [float(use[jobs.nodes > over].sum() / use.sum()) for over in (100, 1000)]
    small = float((jobs.nodes < 32).mean())
    low = float(use[jobs.memory < 0.6 * MEMORY].sum() / use.sum())
    drawn = "drawn to be so" if survey.world.spell_us is not None else OTHER_TRACE
    ends = over_settings(
        {
            "largest": differences(survey, BATCH, SHARE, lambda one: one.largest),
            "mean of 4 h and more": differences(survey, SHARE, BATCH, lambda one: one.long_mean),
        }
    )
    largest = [shown(mean(survey, setting, lambda one: one.largest)) for setting in (BATCH, SHARE)]
    long = [shown(mean(survey, setting, lambda one: one.long_mean)) for setting in (BATCH, SHARE)]
    per_day = len(jobs.nodes) / survey.world.days
    return [
        row(
            admitted,
            noted(direction([share - MAJORITY for share in shares]), f"read as: more than {MAJORITY:.0%}"),
            f"{np.mean(shares):.2%}",
        ),
        row(
            sizes,
            not_comparable(drawn),
            f"{small:.0%} under 32; {part[0]:.0%} over 100, {part[1]:.0%} over 1,000",
        ),
        row(memory, not_comparable(drawn), f"{per_day:,.0f} jobs a day; {low:.0%} under 60%"),
        row(
            tail,
            ends,
            f"largest {largest[0]}, time-sharing {largest[1]}; from 4 h on {long[0]}, time-sharing {long[1]}",
        ),
    ]
