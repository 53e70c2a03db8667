"""Every H claim of Fan et al., judged; ``claims_mechanisms`` has those on mechanisms against each other.

H1 to H6: EASY alone, and what the six mechanisms change. H19 to H23 and H29: instant starts, decisions, and
the traces that were drawn. H24 to H28: what notices, and checkpoints that are more frequent, are good for.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from analysis.claims import (
    Judgement,
    Row,
    best_of,
    direction,
    fact,
    magnitude,
    no_difference,
    not_comparable,
    over_settings,
)
from analysis.claims.estimate import estimate, figures
from analysis.quantiles import quantiles
from foundation.units import counted_of
from simulator.experiments.hybrid.claims_mechanisms import mechanism_rows
from simulator.experiments.hybrid.hybrid_measures import Measured
from simulator.experiments.hybrid.hybrid_survey import EVEN, MECHANISMS, Survey
from simulator.experiments.hybrid.hybrid_words import (
    OTHER_TRACE,
    Value,
    against_base,
    by_mechanism,
    by_setting,
    claim,
    less,
    pairs,
    spread,
    together,
    values_of,
)
from simulator.hybrid.drawn_jobs import MIXES

LEAST_SHARE, MOST_SHARE = 0.03, 0.15
DECISION_MS = 10.0

_FOUR: dict[str, tuple[Value, bool]] = {
    "turnaround": (lambda one: one.turnaround, True),
    "utilisation": (lambda one: one.utilisation, False),
    "rigid preemption": (lambda one: one.rigid_preempted, True),
    "malleable preemption": (lambda one: one.malleable_preempted, True),
}


def claim_rows(survey: Survey) -> list[Row]:
    """Return the rows of H1 to H30, in order."""
    found = [
        *base_rows(survey),
        *mechanism_rows(survey),
        *instant_rows(survey),
        *notice_rows(survey),
    ]
    rows = {row.id: row for row in found}
    rows["H30"] = _h30(rows)
    return sorted(rows.values(), key=lambda row: int(row.id[1:]))


def _h30(rows: dict[str, Row]) -> Row:
    said = claim(
        "H30",
        "VI",
        "summary",
        "preference",
        "CUA over CUP; SPAA over PAA in general; N&SPAA for rigid jobs",
    )
    rests_on = ("H9", "H13", "H14", "H16")
    parts = {name: Judgement(verdict=rows[name].verdict) for name in rests_on}
    judged = together(parts)
    told = ", ".join(f"{name} {rows[name].verdict.value}" for name in rests_on)
    return Row.of(said, Judgement(verdict=judged.verdict, note="the least of those that it rests on"), told)


def base_rows(survey: Survey) -> list[Row]:
    """Return the rows of H1 to H6."""
    return [*_table_ii(survey), _h4(survey), _h5(survey), _h6(survey)]


def _table_ii(survey: Survey) -> list[Row]:
    found: tuple[tuple[str, str, str, float, Value, str], ...] = (
        ("H1", "mean turnaround", "15.6 h", 15.6, lambda one: one.turnaround, "h"),
        ("H2", "utilisation", "83.93%", 0.8393, lambda one: one.utilisation, ""),
        ("H3", "instant-start rate", "22.69%", 0.2269, lambda one: one.instant, ""),
    )
    rows = []
    for name, quantity, told, paper, value, unit in found:
        judged = magnitude([value(one) for one in survey.base], paper, other_data=OTHER_TRACE)
        rows.append(Row.of(claim(name, "Table II", "baseline", quantity, told), judged, unit=unit))
    return rows


def _useful(one: Measured) -> float:
    return one.utilisation


def _h4(survey: Survey) -> Row:
    said = claim("H4", "Obs. 1", "six mechanisms, W1-W5", "utilisation against H2", "rises, up to 90%")
    judged = over_settings(against_base(survey, _useful))
    cause = "all jobs come to their end, so useful node time is the trace's: only the last end can differ"
    note = f"{judged.note}; {cause}"
    found = Judgement(verdict=judged.verdict, estimate=judged.estimate, note=note)
    return Row.of(said, found, spread(by_setting(survey, _useful), "%"))


def _h5(survey: Survey) -> Row:
    said = claim("H5", "Obs. 1", "six mechanisms", "instant-start rate against H3", "22% to 98%")
    judged = over_settings(against_base(survey, lambda one: one.instant))
    return Row.of(said, judged, spread(by_setting(survey, lambda one: one.instant), "%"))


def _h6(survey: Survey) -> Row:
    said = claim(
        "H6",
        "Obs. 1",
        "six mechanisms",
        "mean turnaround against H1",
        "worse, 15 h to as much as 22 h",
    )
    judged = over_settings(against_base(survey, lambda one: one.turnaround))
    return Row.of(said, judged, spread(by_setting(survey, lambda one: one.turnaround), "h"))


def instant_rows(survey: Survey) -> list[Row]:
    """Return the rows of H19 to H23 and of H29."""
    return [_h19(survey), _h20(survey), _h21(survey), *_traces(survey), _h23(survey)]


def _h19(survey: Survey) -> Row:
    said = claim("H19", "Obs. 9", "all", "instant-start rate", "98% in the mean")
    rates = by_mechanism(survey, lambda one: one.instant)
    means = [float(np.mean(of)) for of in zip(*rates.values(), strict=True)]
    at_once = by_mechanism(survey, lambda one: one.at_once)
    ours = f"{figures(100 * estimate(means).mean)}% within the warning, {spread(at_once, '%')} within 0 s"
    return Row.of(said, magnitude(means, 0.98, other_data=OTHER_TRACE), ours)


def _h20(survey: Survey) -> Row:
    said = claim("H20", "Obs. 9", "between mechanisms", "instant-start rate", "no significant difference")
    rates = by_mechanism(survey, lambda one: one.instant)
    names = list(MECHANISMS)
    judged = together(
        {
            f"{a} and {b}": no_difference(less(rates[a], rates[b]))
            for place, a in enumerate(names)
            for b in names[place + 1 :]
        }
    )
    return Row.of(said, judged, pairs(rates, "%"))


def _h21(survey: Survey) -> Row:
    said = claim(
        "H21", "Obs. 9", "misses", "cause", "running on-demand jobs and the new one exceed the machine"
    )
    shares = []
    for seed in range(survey.seeds):
        every = [survey.runs[name, mix][seed].full for name in MECHANISMS for mix in MIXES]
        own = [share for share in every if share is not None]
        if own:
            shares.append(float(np.mean(own)))
    if not shares:
        return Row.of(said, not_comparable("every on-demand job started instantly"))
    judged = direction([share - 0.5 for share in shares])
    mean = figures(100 * estimate(shares).mean)
    ours = f"{mean}% of the misses; the others meet nodes under warning, or reserved for another one"
    return Row.of(said, replace(judged, note="read as: of more than half of them"), ours)


def _traces(survey: Survey) -> list[Row]:
    drawn = survey.traces
    share = claim("H22", "Obs. 9, Fig. 4", "generated traces", "on-demand share of jobs", "3% to 15%")
    inside = sum(LEAST_SHARE <= one <= MOST_SHARE for one in drawn.shares)
    bursty = claim("H29", "Fig. 5", "generated traces", "on-demand jobs a week", "bursty: none, or very many")
    told = (
        f"{figures(100 * estimate(drawn.empty).mean)}% of the weeks have none, the busiest has "
        f"{figures(estimate(drawn.busiest).mean)} times the mean; variance over mean "
        f"{figures(estimate(drawn.dispersion).mean)}, 1 if they came independently"
    )
    return [
        Row.of(
            share,
            fact(
                holds=inside == len(drawn.shares),
                note=f"{counted_of(inside, len(drawn.shares), 'seed')} inside",
            ),
            f"{figures(100 * min(drawn.shares))}% to {figures(100 * max(drawn.shares))}%",
        ),
        Row.of(bursty, direction([one - 1 for one in drawn.dispersion]), told),
    ]


def _h23(survey: Survey) -> Row:
    said = claim("H23", "Obs. 10", "all", "time of one decision", "under 10 ms")
    p99 = {name: 1e3 * float(quantiles(of, (0.99,))[0]) for name, of in survey.decisions_s.items()}
    most = max(float(of.max()) for of in survey.decisions_s.values()) * 1e3
    worst = max(p99.values())
    note = f"every event of the first seed with its pass; the longest of all {figures(most)} ms"
    ours = f"99% within {figures(worst)} ms"
    return Row.of(said, fact(holds=worst < DECISION_MS, note=note), ours)


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
