"""H24 to H28: what notices, and checkpoints that are more frequent, are good for."""

from __future__ import annotations

from analysis.claims import Judgement, Row, best_of, over_settings
from simulator.experiments.hybrid.hybrid_measures import Measured
from simulator.experiments.hybrid.hybrid_survey import EVEN, MECHANISMS, Survey
from simulator.experiments.hybrid.hybrid_words import Value, claim, less, pairs, together, values_of
from simulator.hybrid.drawn_jobs import MIXES

_FOUR: dict[str, tuple[Value, bool]] = {
    "turnaround": (lambda one: one.turnaround, True),
    "utilisation": (lambda one: one.utilisation, False),
    "rigid preemption": (lambda one: one.rigid_preempted, True),
    "malleable preemption": (lambda one: one.malleable_preempted, True),
}


def notice_rows(survey: Survey) -> list[Row]:
    """Return the rows of H24 to H28."""
    return [_h24(survey), *_late(survey), *_often(survey)]


def _by_mix(survey: Survey, mechanism: str, value: Value) -> dict[str, list[float]]:
    return {mix: values_of(survey, mechanism, value, mix) for mix in MIXES}


def _best_mix(survey: Survey, before: str, mix: str, value: Value, *, lowest: bool) -> dict[str, Judgement]:
    return {
        f"{before}&{at}": best_of(_by_mix(survey, f"{before}&{at}", value), mix, lowest=lowest)
        for at in ("PAA", "SPAA")
    }


def _h24(survey: Survey) -> Row:
    said = claim(
        "H24",
        "Obs. 11",
        "CUP&* over W1-W5",
        "turnaround, utilisation, both preemption ratios",
        "best on W2",
    )
    parts = {
        f"{name}, {quantity}": judged
        for quantity, (value, lowest) in _FOUR.items()
        for name, judged in _best_mix(survey, "CUP", "W2", value, lowest=lowest).items()
    }
    ours = "; ".join(
        f"{name}: {pairs(_by_mix(survey, name, lambda one: one.turnaround), 'h')}"
        for name in ("CUP&PAA", "CUP&SPAA")
    )
    return Row.of(said, together(parts), ours)


def _late(survey: Survey) -> list[Row]:
    lowest = claim("H25", "Obs. 12", "CUA&* over W1-W5", "mean turnaround", "lowest on W4")
    better = claim("H26", "Obs. 12", "CUA&* over W1-W5", "instant-start rate", "slightly better on W4")
    rows = []
    for said, value, is_lowest, unit in (
        (lowest, lambda one: one.turnaround, True, "h"),
        (better, lambda one: one.instant, False, "%"),
    ):
        ours = "; ".join(
            f"{name}: {pairs(_by_mix(survey, name, value), unit)}" for name in ("CUA&PAA", "CUA&SPAA")
        )
        rows.append(Row.of(said, together(_best_mix(survey, "CUA", "W4", value, lowest=is_lowest)), ours))
    return rows


def _gain(survey: Survey, value: Value, sign: float) -> dict[str, list[float]]:
    """Return how much more, or less, a value is at Daly's optimum than at each interval below it."""
    return {
        f"{name} at {percent}%": [
            sign * one
            for one in less(
                [value(one) for one in survey.runs[name, EVEN]],
                [value(one) for one in survey.intervals[name, percent]],
            )
        ]
        for name in MECHANISMS
        for percent in sorted({percent for _, percent in survey.intervals if percent < 100})
    }


def _often(survey: Survey) -> list[Row]:
    falls = claim("H27", "Obs. 13, Fig. 7", "interval below Daly's", "rigid turnaround", "falls, for all six")
    rises = claim("H28", "Obs. 13, Fig. 7", "interval below Daly's", "utilisation", "rises")

    def rigid(one: Measured) -> float:
        return one.rigid

    def used(one: Measured) -> float:
        return one.utilisation

    return [
        Row.of(falls, over_settings(_gain(survey, rigid, 1.0)), _by_percent(survey, rigid, "h")),
        Row.of(rises, over_settings(_gain(survey, used, -1.0)), _by_percent(survey, used, "%")),
    ]


def _by_percent(survey: Survey, value: Value, unit: str) -> str:
    """Return the mean over the mechanisms at each interval."""
    percents = sorted({100, *(percent for _, percent in survey.intervals)})
    found: dict[str, list[float]] = {}
    for percent in percents:
        lists = [
            survey.runs[name, EVEN] if percent == 100 else survey.intervals[name, percent]
            for name in MECHANISMS
        ]
        found[f"{percent}%:"] = [sum(map(value, of)) / len(MECHANISMS) for of in zip(*lists, strict=True)]
    return pairs(found, unit)
