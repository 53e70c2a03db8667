"""H7 to H18: the six mechanisms against each other."""

from __future__ import annotations

from analysis.claims import Row, best_of, no_difference, over_settings
from simulator.experiments.hybrid.hybrid_measures import Measured
from simulator.experiments.hybrid.hybrid_survey import MECHANISMS, STRATEGIES, Survey
from simulator.experiments.hybrid.hybrid_words import (
    Value,
    by_mechanism,
    claim,
    less,
    pairs,
    together,
    values_of,
)
from simulator.hybrid.drawn_jobs import MIXES

SIX = "six mechanisms, mean over W1-W5"
SMALL_DIFFERENCE = 0.05
"""Turnarounds that differ by less than this share are about the same (H17)."""


def _turnaround(one: Measured) -> float:
    return one.turnaround


def _utilisation(one: Measured) -> float:
    return one.utilisation


def _rigid(one: Measured) -> float:
    return one.rigid_preempted


def _malleable(one: Measured) -> float:
    return one.malleable_preempted


def mechanism_rows(survey: Survey) -> list[Row]:
    """Return the rows of H7 to H18."""
    return [
        _h7(survey),
        _h8(survey),
        *_shrinking(survey),
        _h12(survey),
        *_collecting(survey),
        *_kinds(survey),
    ]


def _h7(survey: Survey) -> Row:
    said = claim("H7", "Obs. 2", "N&PAA, five others", "mean turnaround, utilisation", "worst in both")
    took, used = by_mechanism(survey, _turnaround), by_mechanism(survey, _utilisation)
    judged = together(
        {
            "turnaround": best_of(took, "N&PAA", lowest=False),
            "utilisation": best_of(used, "N&PAA", lowest=True),
        }
    )
    return Row.of(said, judged, f"{pairs(took, 'h')}; {pairs(used, '%')}")


def _h8(survey: Survey) -> Row:
    said = claim("H8", "Obs. 2", "N&PAA, five others", "malleable preemption ratio", "highest, clearly")
    found = by_mechanism(survey, _malleable)
    return Row.of(said, best_of(found, "N&PAA", lowest=False), pairs(found, "%"))


def _spaa_less_paa(survey: Survey, value: Value, sign: float = 1.0) -> dict[str, list[float]]:
    return {
        before: [
            sign * one
            for one in less(
                values_of(survey, f"{before}&SPAA", value), values_of(survey, f"{before}&PAA", value)
            )
        ]
        for before in STRATEGIES
    }


def _shrinking(survey: Survey) -> list[Row]:
    told = "SPAA, PAA, same strategy"
    higher = claim("H9", "Obs. 3", told, "utilisation", "higher under SPAA")
    lower = claim("H10", "Obs. 3", told, "malleable preemption ratio", "much lower under SPAA")
    slightly = claim("H11", "Obs. 3, 4", told, "rigid preemption ratio", "slightly higher under SPAA")
    return [
        Row.of(
            higher,
            over_settings(_spaa_less_paa(survey, _utilisation)),
            pairs(by_mechanism(survey, _utilisation), "%"),
        ),
        Row.of(
            lower,
            over_settings(_spaa_less_paa(survey, _malleable, -1.0)),
            pairs(by_mechanism(survey, _malleable), "%"),
        ),
        Row.of(
            slightly,
            over_settings(_spaa_less_paa(survey, _rigid)),
            pairs(by_mechanism(survey, _rigid), "%"),
        ),
    ]


def _h12(survey: Survey) -> Row:
    said = claim("H12", "Obs. 4", "PAA, SPAA", "mean turnaround", "lower under PAA; reversed for N")
    found = {
        before: [(-1.0 if before == "N" else 1.0) * one for one in of]
        for before, of in _spaa_less_paa(survey, _turnaround).items()
    }
    return Row.of(said, over_settings(found), pairs(by_mechanism(survey, _turnaround), "h"))


def _cua_against_cup(survey: Survey, value: Value, sign: float) -> dict[str, list[float]]:
    return {
        f"{at}, {mix}": [
            sign * one
            for one in less(
                values_of(survey, f"CUP&{at}", value, mix), values_of(survey, f"CUA&{at}", value, mix)
            )
        ]
        for at in ("PAA", "SPAA")
        for mix in MIXES
    }


def _collecting(survey: Survey) -> list[Row]:
    lower = claim("H13", "Obs. 5", "CUA, CUP", "mean turnaround", "slightly lower under CUA, mostly")
    higher = claim("H14", "Obs. 5", "CUA, CUP", "utilisation", "slightly higher under CUA, mostly")
    names = [name for name in MECHANISMS if not name.startswith("N")]
    return [
        Row.of(
            lower,
            over_settings(_cua_against_cup(survey, _turnaround, 1.0), most=True),
            pairs(by_mechanism(survey, _turnaround, names), "h"),
        ),
        Row.of(
            higher,
            over_settings(_cua_against_cup(survey, _utilisation, -1.0), most=True),
            pairs(by_mechanism(survey, _utilisation, names), "%"),
        ),
    ]


def _kinds(survey: Survey) -> list[Row]:
    lower = claim(
        "H15",
        "Obs. 6",
        "CUA&*, CUP&*",
        "turnaround, malleable against rigid",
        "malleable clearly lower in all four",
    )
    rigid, soft = (
        by_mechanism(survey, lambda one: one.rigid),
        by_mechanism(survey, lambda one: one.malleable),
    )
    four = {name: less(rigid[name], soft[name]) for name in rigid if not name.startswith("N")}
    lowest = claim("H16", "Obs. 7", "N&SPAA", "rigid turnaround among the six", "lowest")
    alike = claim("H17", "Obs. 7", "N&SPAA", "rigid and malleable turnaround", "both about 24 h")
    own = zip(soft["N&SPAA"], rigid["N&SPAA"], strict=True)
    higher = claim("H18", "Obs. 8", SIX, "preemption ratio, malleable against rigid", "malleable higher")
    ratios = by_mechanism(survey, lambda one: one.malleable_preempted - one.rigid_preempted)
    both = {"rigid": rigid["N&SPAA"], "malleable": soft["N&SPAA"]}
    relative = [(mine - other) / other for mine, other in own if other > 0]
    return [
        Row.of(lower, over_settings(four), f"rigid less malleable: {pairs(four, 'h')}"),
        Row.of(lowest, best_of(rigid, "N&SPAA", lowest=True), pairs(rigid, "h")),
        Row.of(alike, no_difference(relative or [0.0], SMALL_DIFFERENCE), pairs(both, "h")),
        Row.of(higher, over_settings(ratios), f"malleable less rigid: {pairs(ratios, '%')}"),
    ]
