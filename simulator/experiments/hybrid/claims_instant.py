"""H19 to H23, H29: instant starts, decisions, and the traces that were drawn."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from analysis.claims import Row, direction, fact, magnitude, no_difference, not_comparable
from analysis.claims.estimate import estimate, figures
from analysis.quantiles import quantiles
from simulator.experiments.hybrid.hybrid_survey import MECHANISMS, Survey
from simulator.experiments.hybrid.hybrid_words import (
    OTHER_TRACE,
    by_mechanism,
    claim,
    less,
    pairs,
    spread,
    together,
)
from simulator.hybrid.drawn_jobs import MIXES

LEAST_SHARE, MOST_SHARE = 0.03, 0.15
DECISION_MS = 10.0


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
            fact(holds=inside == len(drawn.shares), note=f"{inside} of {len(drawn.shares)} seeds inside"),
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
