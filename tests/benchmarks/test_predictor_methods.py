"""What the field's methods say of programs never measured, nearest pair and majority; asserts nothing.

Run it, two minutes on an idle core::

    pytest -m benchmark -s tests/benchmarks/test_predictor_methods.py

The pairs are those that come with osub (kind ``timeslice``, t = 0.5, certain ones). Each victim is left out
in turn, as victim and as opponent.

* Counters: logistic and ridge regression (a loss above t is dangerous), the nearest measured pair, a random
  forest. Operational intensity (roofline) is a difference of two logarithms that linear models have already.
* Curves over stressors (12 measurements of a new program): Bubble-Up looks the opponent's pressure up on the
  victim's curve, by resource, and takes the worst (Mars et al., MICRO 2011); SMiTe weighs products of
  sensitivity and pressure (Zhang et al., MICRO 2014); ``predict_unseen`` has both and their products.
* A few measured pairs of a new program: the other losses filled in by a mean, a part of the victim's and one
  of the opponent's, and one latent factor (collaborative filtering: Paragon, Delimitrou et al., ASPLOS
  2013). Which pairs are measured is drawn ten times; accuracies are means over draws.
* *Chosen within*: which of the methods of counters is used follows from folds within the rest (nested).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from predictor.chosen import pairs_of
from predictor.dataset import PairKind
from predictor.model import linear_models
from predictor.model.model_judges import Curves, curves_of, predict_unseen, rank_of
from predictor.model.pair_records import Floats, Records, records_of
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

DRAWS = 10
Method = Callable[[Records, Records], Floats]
"""Of records to fit on and records to judge: a value of each, above t where it is called dangerous."""


def _ridge(train: Records, test: Records) -> Floats:
    return linear_models.fit_loss(train).values(linear_models.Scaling.of(train).design(test))


def _logistic(train: Records, test: Records) -> Floats:
    odds = linear_models.fit_danger(train).values(linear_models.Scaling.of(train).design(test))
    return np.where(odds > 0, train.threshold + 1e-6, train.threshold - 1e-6)


def _forest(train: Records, test: Records) -> Floats:
    scaling = linear_models.Scaling.of(train)
    fitted = RandomForestRegressor(200, min_samples_leaf=3, random_state=0, n_jobs=1)
    return np.asarray(fitted.fit(scaling.design(train), train.loss).predict(scaling.design(test)))


def _majority(train: Records, test: Records) -> Floats:
    return np.full(len(test), 1.0 if 2 * train.dangerous.sum() > len(train) else 0.0)


COUNTERS: dict[str, Method] = {
    "logistic regression": _logistic,
    "ridge regression of the loss": _ridge,
    "nearest measured pair": linear_models.nearest_loss,
    "random forest": _forest,
}


def _left_out(records: Records, method: Method) -> Floats:
    said = np.full(len(records), np.nan)
    for split in linear_models.each_application(records, 3, 0):
        if split.is_usable:
            said[split.test] = method(records.where(split.train), records.where(split.test))
    return said


def _chosen_within(train: Records, test: Records) -> Floats:
    scores = {}
    for name, method in COUNTERS.items():
        right = []
        for split in linear_models.by_application(train, 4, 0):
            if split.is_usable:
                inner = train.where(split.test)
                said = method(train.where(split.train), inner)
                right += ((said > train.threshold) == inner.dangerous).tolist()
        scores[name] = float(np.mean(right)) if right else 0.0
    return COUNTERS[max(scores, key=lambda name: scores[name])](train, test)


def _bubble(records: Records, curves: Curves) -> Floats:
    """Look the opponent's pressure up on the victim's curve of each resource; the worst resource decides."""
    names = records.features.applications
    said = np.full(len(records), np.nan)
    for row, (victim, opponent) in enumerate(zip(records.victim, records.opponent, strict=True)):
        own, other = curves.sensitivity.get(names[victim]), curves.pressure.get(names[opponent])
        if own is None or other is None:
            continue
        worst = -np.inf
        for resource in curves.resources:
            dials = [k for k, name in enumerate(curves.stressors) if name.split(".")[1] == resource]
            # What a stressor loses to the others in the mean says how hard each of its dials presses.
            size = [float(np.mean([pressed[k] for pressed in curves.pressure.values()])) for k in dials]
            order = np.argsort(size)
            at = float(np.mean(other[dials]))
            worst = max(worst, float(np.interp(at, np.array(size)[order], own[dials][order])))
        said[row] = worst
    return said


def _smite(records: Records, curves: Curves) -> Floats:
    design, known = curves.design(records)
    products = design[:, -len(curves.resources) :]
    said = np.full(len(records), np.nan)
    for place in np.unique(records.victim):
        own = (records.victim == place) & known
        rest = known & (records.victim != place) & (records.opponent != place)
        if own.any() and rest.any():
            weights = np.linalg.lstsq(
                np.column_stack((np.ones(int(rest.sum())), products[rest])), records.loss[rest], rcond=None
            )[0]
            said[own] = np.column_stack((np.ones(int(own.sum())), products[own])) @ weights
    return said


def _filled(losses: Floats, shrink: float = 1.0, rounds: int = 15) -> Floats:
    """Fill a matrix of losses in: a mean, a part of the row's, one of the column's, and one latent factor."""
    there = ~np.isnan(losses)
    mean = float(losses[there].mean())
    rows, columns = np.zeros(len(losses)), np.zeros(len(losses))
    for _ in range(rounds):
        rows = np.where(there, losses - mean - columns, 0.0).sum(axis=1) / (there.sum(axis=1) + shrink)
        columns = np.where(there, losses - mean - rows[:, np.newaxis], 0.0).sum(axis=0)
        columns = columns / (there.sum(axis=0) + shrink)
    filled = mean + rows[:, np.newaxis] + columns
    rest = np.where(there, losses - filled, 0.0)
    of_column = np.random.default_rng(1).normal(size=len(losses)) * 0.1
    of_row = np.zeros(len(losses))
    for _ in range(rounds):
        of_row = rest @ of_column / (there @ of_column**2 + 0.05 * shrink)
        of_column = of_row @ rest / (of_row**2 @ there + 0.05 * shrink)
    whole: Floats = filled + np.outer(of_row, of_column)
    return whole


def _with_measured(every: Records, judged: Records, few: int, seed: int) -> Floats:
    """Return the losses filled in for each victim, of which ``few`` pairs are known; those are not judged."""
    count = len(every.features.applications)
    losses = np.full((count, count), np.nan)
    losses[every.victim, every.opponent] = every.loss
    said = np.full(len(judged), np.nan)
    dice = np.random.default_rng(seed)
    for place in np.unique(judged.victim):
        known = dice.choice(np.flatnonzero(~np.isnan(losses[place])), few, replace=False)
        seen = losses.copy()
        seen[place, :], seen[:, place] = np.nan, np.nan
        seen[place, known] = losses[place, known]
        own = (judged.victim == place) & ~np.isin(judged.opponent, known)
        said[own] = _filled(seen)[place, judged.opponent[own]]
    return said


def _row(name: str, records: Records, draws: list[Floats]) -> str:
    """Return accuracy and margin over the majority, with intervals by bootstrap over victims."""
    right, base = np.full((2, len(draws), len(records)), np.nan)
    most = 2 * records.dangerous.sum() > len(records)
    for number, said in enumerate(draws):
        known = ~np.isnan(said)
        right[number, known] = (said[known] > records.threshold) == records.dangerous[known]
        base[number, known] = records.dangerous[known] == most
    places = np.unique(records.victim)
    of_victim = np.array(
        [
            [
                np.nansum(values[:, records.victim == place])
                for values in (right, base, np.isfinite(right).astype(np.float64))
            ]
            for place in places
        ]
    )
    dice = np.random.default_rng(0)
    drawn = of_victim[dice.integers(0, len(places), (2000, len(places)))].sum(axis=1)
    shares, margins = drawn[:, 0] / drawn[:, 2], (drawn[:, 0] - drawn[:, 1]) / drawn[:, 2]
    low, high = np.quantile(shares, (0.025, 0.975))
    margin_low, margin_high = np.quantile(margins, (0.025, 0.975))
    sums = of_victim.sum(axis=0)
    known = ~np.isnan(draws[0])
    rank = np.mean([rank_of(said[~np.isnan(said)], records.loss[~np.isnan(said)]) for said in draws])
    share, margin = sums[0] / sums[2], 100 * (sums[0] - sums[1]) / sums[2]
    return (
        f"| {name} | {known.sum()} | {share:.0%} ({low:.0%} to {high:.0%}) | "
        f"{margin:+.0f} ({100 * margin_low:+.0f} to {100 * margin_high:+.0f}) | {rank:.2f} |"
    )


@linear_models.one_thread()
def test_methods_of_the_field_on_programs_never_measured() -> None:
    pairs = pairs_of(None)
    every = records_of(pairs, PairKind.TIMESLICE, 0.5)
    certain = every.where(~every.spans)
    curves = curves_of(pairs, PairKind.TIMESLICE)
    assert curves is not None
    say("| method | pairs | right | points above the majority | rank correlation |")
    say("| --- | --- | --- | --- | --- |")
    for name, method in {"majority": _majority, **COUNTERS, "chosen within": _chosen_within}.items():
        say(_row(name, certain, [_left_out(certain, method)]))
    with_curves = {"Bubble-Up": _bubble, "SMiTe": _smite, "sensitivity, pressure, products": predict_unseen}
    for name, of_curves in with_curves.items():
        say(_row(name, certain, [of_curves(every, curves)[~every.spans]]))
    for few in (1, 2, 4):
        draws = [_with_measured(every, certain, few, seed) for seed in range(DRAWS)]
        say(_row(f"collaborative filtering, {few} measured", certain, draws))
