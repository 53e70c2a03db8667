"""The judges of the H claims of Fan et al.

H1 to H6: EASY alone, and what the six mechanisms change. H7 to H18: mechanisms against each other. H19 to H23
and H29: instant starts, decisions, and the traces that were drawn. H24 to H28: what notices, and checkpoints
that are more frequent, are good for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from analysis import claims as rules
from analysis.claims import ClaimRow, ClaimVerdict, Judgement
from analysis.quantiles import quantiles
from foundation.units import counted_of
from simulator.experiments.claim_study import Judged, judged_rows
from simulator.experiments.hybrid_survey import (
    ARRIVALS,
    EVEN,
    MECHANISMS,
    STRATEGIES,
    HybridSurvey,
    MeasuredHybrid,
)
from simulator.hybrid.drawn_jobs import MIXES

Values = dict[str, list[float]]
Judge = Callable[[HybridSurvey], Judged]

OTHER_TRACE = "another trace than the paper's"
LEAST_SHARE, MOST_SHARE = 0.03, 0.15
DECISION_MS = 10.0
SMALL_DIFFERENCE = 0.05
"""Turnarounds that differ by less than this share are about the same (H17)."""
PREPARED = tuple(name for name in MECHANISMS if not name.startswith("N"))
_LOWER_IS_BETTER = {
    "turnaround": True,
    "utilisation": False,
    "rigid_preempted": True,
    "malleable_preempted": True,
}


def claim_rows(survey: HybridSurvey) -> list[ClaimRow]:
    """Return the rows of H1 to H30, in order."""
    return judged_rows(JUDGES, survey)


def of_each(runs: Sequence[MeasuredHybrid], metric: str) -> list[float]:
    """Return one value a seed."""
    return [float(getattr(one, metric)) for one in runs]


def values_of(survey: HybridSurvey, mechanism: str, metric: str, mix: str | None = None) -> list[float]:
    """Return one value a seed: of a mix, or the mean over all mixes."""
    mixes = MIXES if mix is None else (mix,)
    lists = [of_each(survey.runs[mechanism, name], metric) for name in mixes]
    return [float(np.mean(of)) for of in zip(*lists, strict=True)]


def by_mechanism(survey: HybridSurvey, metric: str, names: Sequence[str] = tuple(MECHANISMS)) -> Values:
    """Return one value a seed for each mechanism, the mean over all mixes."""
    return {name: values_of(survey, name, metric) for name in names}


def by_mix(survey: HybridSurvey, mechanism: str, metric: str) -> Values:
    """Return one value a seed for each mix under a mechanism."""
    return {mix: values_of(survey, mechanism, metric, mix) for mix in MIXES}


def by_setting(survey: HybridSurvey, metric: str) -> Values:
    """Return one value a seed for each mechanism under each mix."""
    return {f"{name}, {mix}": values_of(survey, name, metric, mix) for name in MECHANISMS for mix in MIXES}


def _scaled(value: float, unit: str) -> str:
    return rules.figures(100 * value if unit == "%" else value)


def _after(unit: str) -> str:
    return f" {unit}" if unit and unit != "%" else unit


def spread(values: Mapping[str, Sequence[float]], unit: str) -> str:
    """Return the least and the largest mean."""
    found = [rules.estimate(of).mean for of in values.values()]
    return f"{_scaled(min(found), unit)} to {_scaled(max(found), unit)}{_after(unit)}"


def pairs(values: Mapping[str, Sequence[float]], unit: str) -> str:
    """Return each mean under its name."""
    means = (f"{name} {_scaled(rules.estimate(of).mean, unit)}" for name, of in values.items())
    return ", ".join(means) + _after(unit)


def together(parts: Mapping[str, Judgement]) -> Judgement:
    """Return a judgement of several: it holds if all do, else it is the worst, whose estimate it has."""
    name, worst = rules.weakest(parts)
    held = sum(one.verdict is ClaimVerdict.HOLDS for one in parts.values())
    why = ", ".join(filter(None, (f"{name}: {worst.verdict.value}", worst.note)))
    return replace(worst, note=f"{held} of {len(parts)} hold; {why}")


def table_ii(metric: str, paper: float, unit: str = "") -> Judge:
    """Judge a magnitude of EASY alone."""

    def judge(survey: HybridSurvey) -> Judged:
        found = of_each(survey.base, metric)
        return rules.magnitude(found, paper, other_data=OTHER_TRACE), rules.estimate(found).text(unit)

    return judge


def rises(metric: str, unit: str, cause: str = "") -> Judge:
    """Judge that a metric is larger under each mechanism and mix than under EASY alone."""

    def judge(survey: HybridSurvey) -> Judged:
        base = of_each(survey.base, metric)
        settings = by_setting(survey, metric)
        judged = rules.over_settings({name: rules.differences(of, base) for name, of in settings.items()})
        return rules.noted(judged, cause), spread(settings, unit)

    return judge


def shrinking(metric: str, unit: str, signs: Mapping[str, float]) -> Judge:
    """Judge SPAA less PAA after each strategy, with that strategy's sign."""

    def judge(survey: HybridSurvey) -> Judged:
        settings = {
            before: rules.differences(
                values_of(survey, f"{before}&SPAA", metric), values_of(survey, f"{before}&PAA", metric), sign
            )
            for before, sign in signs.items()
        }
        return rules.over_settings(settings), pairs(by_mechanism(survey, metric), unit)

    return judge


def collecting(metric: str, unit: str, sign: float) -> Judge:
    """Judge CUP less CUA, in most cases."""

    def judge(survey: HybridSurvey) -> Judged:
        settings = {
            f"{at}, {mix}": rules.differences(
                values_of(survey, f"CUP&{at}", metric, mix), values_of(survey, f"CUA&{at}", metric, mix), sign
            )
            for at in ARRIVALS
            for mix in MIXES
        }
        return rules.over_settings(settings, most=True), pairs(by_mechanism(survey, metric, PREPARED), unit)

    return judge


def extreme(metric: str, unit: str, *, lowest: bool, named: str) -> Judge:
    """Judge that the named mechanism is the lowest, or the highest, of the six."""

    def judge(survey: HybridSurvey) -> Judged:
        found = by_mechanism(survey, metric)
        return rules.best_of(found, named, lowest=lowest), pairs(found, unit)

    return judge


def best_mix(
    survey: HybridSurvey, before: str, mix: str, metric: str, *, lowest: bool
) -> dict[str, Judgement]:
    """Judge that a mix is the best of all, for a strategy with either arrival."""
    return {
        f"{before}&{at}": rules.best_of(by_mix(survey, f"{before}&{at}", metric), mix, lowest=lowest)
        for at in ARRIVALS
    }


def mixes_text(survey: HybridSurvey, before: str, metric: str, unit: str) -> str:
    """Return the means under all mixes, for a strategy with either arrival."""
    return "; ".join(
        f"{before}&{at}: {pairs(by_mix(survey, f'{before}&{at}', metric), unit)}" for at in ARRIVALS
    )


def late(metric: str, unit: str, *, lowest: bool) -> Judge:
    """Judge that CUA is best where notices come late."""

    def judge(survey: HybridSurvey) -> Judged:
        parts = best_mix(survey, "CUA", "W4", metric, lowest=lowest)
        return together(parts), mixes_text(survey, "CUA", metric, unit)

    return judge


def at_interval(survey: HybridSurvey, name: str, percent: int) -> Sequence[MeasuredHybrid]:
    """Return the runs of a mechanism with checkpoints at a percentage of Daly's interval."""
    return survey.runs[name, EVEN] if percent == 100 else survey.intervals[name, percent]


def often(metric: str, unit: str, sign: float) -> Judge:
    """Judge how much more, or less, a metric is at Daly's optimum than at each interval below it."""

    def judge(survey: HybridSurvey) -> Judged:
        at_daly = {(name, 100): survey.runs[name, EVEN] for name in MECHANISMS}
        return _by_interval({**at_daly, **survey.intervals}, metric, unit, sign)

    return judge


def _by_interval(
    runs: Mapping[tuple[str, int], Sequence[MeasuredHybrid]], metric: str, unit: str, sign: float
) -> Judged:
    percents = sorted({percent for _, percent in runs})
    values = {key: of_each(of, metric) for key, of in runs.items()}
    settings = {
        f"{name} at {percent}%": rules.differences(values[name, 100], values[name, percent], sign)
        for name in MECHANISMS
        for percent in percents
        if percent < 100
    }
    means = {
        f"{percent}%:": [
            sum(of) / len(MECHANISMS)
            for of in zip(*(values[name, percent] for name in MECHANISMS), strict=True)
        ]
        for percent in percents
    }
    return rules.over_settings(settings), pairs(means, unit)


def _h27(survey: HybridSurvey) -> Judged:
    judged, ours = often("rigid", "h", 1.0)(survey)
    free, text = _by_interval(survey.free, "rigid", "h", 1.0)
    return judged, f"{ours}; with checkpoints that take no time: {free.verdict.value}, {text}"


def _h7(survey: HybridSurvey) -> Judged:
    took, used = by_mechanism(survey, "turnaround"), by_mechanism(survey, "utilisation")
    parts = {
        "turnaround": rules.best_of(took, "N&PAA", lowest=False),
        "utilisation": rules.best_of(used, "N&PAA", lowest=True),
    }
    return together(parts), f"{pairs(took, 'h')}; {pairs(used, '%')}"


def _h15(survey: HybridSurvey) -> Judged:
    four = {
        name: rules.differences(values_of(survey, name, "rigid"), values_of(survey, name, "malleable"))
        for name in PREPARED
    }
    return rules.over_settings(four), f"rigid less malleable: {pairs(four, 'h')}"


def _h17(survey: HybridSurvey) -> Judged:
    both = {kind: values_of(survey, "N&SPAA", kind) for kind in ("rigid", "malleable")}
    own = zip(both["malleable"], both["rigid"], strict=True)
    relative = [(mine - other) / other for mine, other in own if other > 0]
    return rules.no_difference(relative or [0.0], SMALL_DIFFERENCE), pairs(both, "h")


def _h18(survey: HybridSurvey) -> Judged:
    ratios = {}
    for name in MECHANISMS:
        lists = [
            rules.differences(of_each(runs, "malleable_preempted"), of_each(runs, "rigid_preempted"))
            for runs in (survey.runs[name, mix] for mix in MIXES)
        ]
        ratios[name] = [float(np.mean(of)) for of in zip(*lists, strict=True)]
    return rules.over_settings(ratios), f"malleable less rigid: {pairs(ratios, '%')}"


def _h19(survey: HybridSurvey) -> Judged:
    rates = by_mechanism(survey, "instant")
    means = [float(np.mean(of)) for of in zip(*rates.values(), strict=True)]
    at_once = spread(by_mechanism(survey, "at_once"), "%")
    ours = f"{rules.figures(100 * rules.estimate(means).mean)}% within the warning, {at_once} within 0 s"
    return rules.magnitude(means, 0.98, other_data=OTHER_TRACE), ours


def _h20(survey: HybridSurvey) -> Judged:
    rates = by_mechanism(survey, "instant")
    names = list(MECHANISMS)
    parts = {
        f"{a} and {b}": rules.no_difference(rules.differences(rates[a], rates[b]))
        for place, a in enumerate(names)
        for b in names[place + 1 :]
    }
    return together(parts), pairs(rates, "%")


def _h21(survey: HybridSurvey) -> Judged:
    shares = []
    for seed in range(survey.seeds):
        every = [survey.runs[name, mix][seed].full for name in MECHANISMS for mix in MIXES]
        own = [share for share in every if share is not None]
        if own:
            shares.append(float(np.mean(own)))
    if not shares:
        judged = rules.not_comparable("every on-demand job started instantly")
        return judged, "-"
    mean = rules.figures(100 * rules.estimate(shares).mean)
    ours = f"{mean}% of the misses; the others meet nodes under warning, or reserved for another one"
    judged = rules.direction([share - 0.5 for share in shares])
    return replace(judged, note="read as: of more than half of them"), ours


def _h22(survey: HybridSurvey) -> Judged:
    shares = survey.traces.shares
    inside = sum(LEAST_SHARE <= one <= MOST_SHARE for one in shares)
    judged = rules.fact(holds=inside == len(shares), note=f"{counted_of(inside, len(shares), 'seed')} inside")
    return judged, f"{rules.figures(100 * min(shares))}% to {rules.figures(100 * max(shares))}%"


def _h23(survey: HybridSurvey) -> Judged:
    worst = max(1e3 * float(quantiles(of, (0.99,))[0]) for of in survey.decisions_s.values())
    most = max(float(of.max()) for of in survey.decisions_s.values()) * 1e3
    note = f"every event of the first seed with its pass; the longest of all {rules.figures(most)} ms"
    return rules.fact(holds=worst < DECISION_MS, note=note), f"99% within {rules.figures(worst)} ms"


def _h24(survey: HybridSurvey) -> Judged:
    parts = {
        f"{name}, {metric.replace('_preempted', ' preemption')}": judged
        for metric, lowest in _LOWER_IS_BETTER.items()
        for name, judged in best_mix(survey, "CUP", "W2", metric, lowest=lowest).items()
    }
    return together(parts), mixes_text(survey, "CUP", "turnaround", "h")


def _h29(survey: HybridSurvey) -> Judged:
    drawn = survey.traces
    ours = (
        f"{rules.figures(100 * rules.estimate(drawn.empty).mean)}% of the weeks have none, the busiest has "
        f"{rules.figures(rules.estimate(drawn.busiest).mean)} times the mean; variance over mean "
        f"{rules.figures(rules.estimate(drawn.dispersion).mean)}, 1 if they came independently"
    )
    return rules.direction([one - 1 for one in drawn.dispersion]), ours


def _h30(survey: HybridSurvey) -> Judged:
    verdicts = {name: JUDGES[name](survey)[0].verdict for name in ("H9", "H13", "H14", "H16")}
    judged = together({name: Judgement(verdict=verdict) for name, verdict in verdicts.items()})
    ours = ", ".join(f"{name} {verdict.value}" for name, verdict in verdicts.items())
    return replace(judged, note="the least of those that it rests on"), ours


JUDGES: dict[str, Judge] = {
    "H1": table_ii("turnaround", 15.6, "h"),
    "H2": table_ii("utilisation", 0.8393),
    "H3": table_ii("instant", 0.2269),
    "H4": rises(
        "utilisation",
        "%",
        "all jobs come to their end, so useful node time is the trace's: only the last end can differ",
    ),
    "H5": rises("instant", "%"),
    "H6": rises("turnaround", "h"),
    "H7": _h7,
    "H8": extreme("malleable_preempted", "%", lowest=False, named="N&PAA"),
    "H9": shrinking("utilisation", "%", dict.fromkeys(STRATEGIES, 1.0)),
    "H10": shrinking("malleable_preempted", "%", dict.fromkeys(STRATEGIES, -1.0)),
    "H11": shrinking("rigid_preempted", "%", dict.fromkeys(STRATEGIES, 1.0)),
    "H12": shrinking("turnaround", "h", {"N": -1.0, "CUA": 1.0, "CUP": 1.0}),
    "H13": collecting("turnaround", "h", 1.0),
    "H14": collecting("utilisation", "%", -1.0),
    "H15": _h15,
    "H16": extreme("rigid", "h", lowest=True, named="N&SPAA"),
    "H17": _h17,
    "H18": _h18,
    "H19": _h19,
    "H20": _h20,
    "H21": _h21,
    "H22": _h22,
    "H23": _h23,
    "H24": _h24,
    "H25": late("turnaround", "h", lowest=True),
    "H26": late("instant", "%", lowest=False),
    "H27": _h27,
    "H28": often("utilisation", "%", -1.0),
    "H29": _h29,
    "H30": _h30,
}
