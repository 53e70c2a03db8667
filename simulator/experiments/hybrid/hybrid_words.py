"""What the claims have in common: how they are put, and values by mechanism and by mix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from analysis.claims import Claim, Judgement, Verdict, estimate
from analysis.claims.estimate import figures
from simulator.experiments.hybrid.hybrid_measures import Measured
from simulator.experiments.hybrid.hybrid_survey import MECHANISMS, Survey
from simulator.hybrid.drawn_jobs import MIXES

Value = Callable[[Measured], float]

OTHER_TRACE = "another trace than the paper's"


def claim(identifier: str, where: str, setting: str, quantity: str, paper: str) -> Claim:
    """Return a claim."""
    return Claim(id=identifier, where=where, setting=setting, quantity=quantity, paper=paper)


def values_of(survey: Survey, mechanism: str, value: Value, mix: str | None = None) -> list[float]:
    """Return one value a seed: of a mix, or the mean over all mixes."""
    mixes = MIXES if mix is None else (mix,)
    lists = [[value(one) for one in survey.runs[mechanism, name]] for name in mixes]
    return [float(np.mean(of)) for of in zip(*lists, strict=True)]


def by_mechanism(
    survey: Survey, value: Value, names: Sequence[str] = tuple(MECHANISMS)
) -> dict[str, list[float]]:
    """Return one value a seed for each mechanism, the mean over all mixes."""
    return {name: values_of(survey, name, value) for name in names}


def less(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Return the differences a - b, seed by seed."""
    return [one - other for one, other in zip(a, b, strict=True)]


def by_setting(survey: Survey, value: Value) -> dict[str, list[float]]:
    """Return one value a seed for each mechanism under each mix."""
    return {f"{name}, {mix}": values_of(survey, name, value, mix) for name in MECHANISMS for mix in MIXES}


def against_base(survey: Survey, value: Value, sign: float = 1.0) -> dict[str, list[float]]:
    """Return how far each mechanism under each mix is above EASY alone, or with sign -1 below it."""
    base = [value(one) for one in survey.base]
    return {name: [sign * one for one in less(of, base)] for name, of in by_setting(survey, value).items()}


def spread(values: Mapping[str, Sequence[float]], unit: str = "") -> str:
    """Return the least and the largest mean."""
    found = [estimate(of).mean for of in values.values()]
    scale = 100 if unit == "%" else 1
    after = f" {unit}" if unit and unit != "%" else unit
    return f"{figures(scale * min(found))} to {figures(scale * max(found))}{after}"


def pairs(values: Mapping[str, Sequence[float]], unit: str = "") -> str:
    """Return each mean under its name."""
    scale = 100 if unit == "%" else 1
    after = f" {unit}" if unit and unit != "%" else unit
    return ", ".join(f"{name} {figures(scale * estimate(of).mean)}" for name, of in values.items()) + after


def together(parts: Mapping[str, Judgement]) -> Judgement:
    """Return a judgement of several: it holds if all do, else it is the worst, whose estimate it has."""
    order = (Verdict.FAILS, Verdict.NOT_COMPARABLE, Verdict.TIE, Verdict.HOLDS)
    name, worst = min(parts.items(), key=lambda item: order.index(item[1].verdict))
    held = sum(one.verdict is Verdict.HOLDS for one in parts.values())
    note = f"{held} of {len(parts)} hold; {name}: {worst.verdict.value}"
    return Judgement(
        verdict=worst.verdict,
        estimate=worst.estimate,
        note=f"{note}, {worst.note}" if worst.note else note,
    )
