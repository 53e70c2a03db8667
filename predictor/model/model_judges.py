"""How good models and stressor curves are, on applications not seen before and on folds as in the thesis.

Every accuracy comes with an interval by bootstrap over victims: records of one victim say much the same, and
an interval over records would be too narrow.

A stressor presses one resource (cache, memory, branches, kernel) as hard as its dial says. What a victim
loses to it, over the dial, is the victim's sensitivity; what the stressor loses to an opponent is the
opponent's pressure (Bubble-Up, Mars et al., MICRO 2011). A pair's loss is then a weighted sum over resources
of the victim's sensitivity, the opponent's pressure, and their product (SMiTe, Zhang et al., MICRO 2014, has
the product); weights are fitted on pairs of other applications.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from scipy.stats import spearmanr
from sklearn.linear_model import RidgeCV

from analysis.quantiles import quantiles
from foundation.errors import InputError
from foundation.units import counted
from predictor.dataset import STRESSOR, PairKind, Pairs
from predictor.model.linear_models import (
    FOLDS,
    PENALTIES,
    THESIS_K,
    Clustering,
    Scaling,
    Split,
    at_random,
    by_application,
    by_pair,
    cluster,
    cut_of,
    each_application,
    each_family,
    fit_danger,
    fit_loss,
    majority_right,
    nearest_loss,
    no_twins,
    one_thread,
)
from predictor.model.pair_records import Flags, Floats, Places, Records, probability
from predictor.model.stepwise import fit_stepwise

_FLAT = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Sensitivity and pressure of applications over K stressors, that press R resources.

    Parameters
    ----------
    stressors
        Names of the K stressors, ascending: ``stress.memory.25``.
    sensitivity
        By application, shape (K,): its E_v with each stressor.
    pressure
        By application, shape (K,): the E_v of each stressor with it.
    """

    stressors: tuple[str, ...]
    sensitivity: dict[str, Floats]
    pressure: dict[str, Floats]

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the R resources."""
        return tuple(sorted({_resource(name) for name in self.stressors}))

    def design(self, records: Records) -> tuple[Floats, Flags]:
        """Return what a pair's loss is fitted on, shape (N, 3 R), and which records have it (N,)."""
        names = records.features.applications
        own = self._means(self.sensitivity, names)[records.victim]
        other = self._means(self.pressure, names)[records.opponent]
        whole: Floats = np.hstack((own, other, own * other))
        known: Flags = np.asarray(~np.isnan(whole).any(axis=1), dtype=np.bool_)
        return whole, known

    def _means(self, levels: dict[str, Floats], names: Sequence[str]) -> Floats:
        """Return the mean over each resource's dial, shape (A, R); NaN without curves."""
        empty = np.full(len(self.stressors), np.nan)
        every = np.array([levels.get(name, empty) for name in names])
        which = np.array([self.resources.index(_resource(name)) for name in self.stressors])
        return np.column_stack(
            [every[:, which == number].mean(axis=1) for number in range(len(self.resources))]
        )


def curves_of(pairs: Pairs, kind: PairKind) -> Curves | None:
    """Return the curves of the applications that were measured with all stressors; None where none was."""
    stressors = pairs.applications.filter(pl.col("family") == STRESSOR)["application"].to_list()
    own = pairs.pairs.filter(pl.col("kind") == str(kind))
    known = sorted({*own["victim"], *own["opponent"]} & set(stressors))

    def levels(who: str, partner: str) -> dict[str, Floats]:
        rows = own.filter(pl.col(partner).is_in(known) & ~pl.col(who).is_in(stressors))
        found: dict[str, Floats] = {}
        for (name,), part in rows.group_by([who], maintain_order=True):
            losses = dict(zip(part[partner], part["e_v"], strict=True))
            if losses.keys() == set(known):
                found[str(name)] = np.array([losses[each] for each in known])
        return found

    found = Curves(tuple(known), levels("victim", "opponent"), levels("opponent", "victim"))
    return found if found.sensitivity.keys() & found.pressure.keys() else None


def predict_unseen(records: Records, curves: Curves) -> Floats:
    """Return the loss of each record, its victim in none that was fitted on; shape (N,), NaN: no curves."""
    design, known = curves.design(records)
    predicted = np.full(len(records), np.nan)
    for place in np.unique(records.victim):
        own = (records.victim == place) & known
        rest = known & (records.victim != place) & (records.opponent != place)
        if own.any() and rest.any():
            means = design[rest].mean(axis=0)
            spread = design[rest].std(axis=0)
            scales = np.where(spread > _FLAT, spread, 1.0)
            fitted = RidgeCV(alphas=PENALTIES).fit((design[rest] - means) / scales, records.loss[rest])
            predicted[own] = fitted.predict((design[own] - means) / scales)
    return predicted


def _resource(stressor: str) -> str:
    """Return what a stressor presses: ``stress.cache.256K`` the cache."""
    return stressor.split(".")[1] if stressor.count(".") else stressor


REPEATS = 5
COST = 7 / 3
"""What a missed danger weighs against a needless warning, by default: a cut of 0.3, the
cautious one of the thesis (4.3.3)."""

_DRAWS = 2000
_COVERAGE = 0.9
_FEWEST_RECORDS, _FEWEST_APPLICATIONS = 24, 6
Folds = Callable[[Records, int, int], Iterator[Split]]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A share of records that were judged right, its 95 % interval, and by how much it beats the majority."""

    accuracy: float
    low: float
    high: float
    margin: float
    margin_low: float
    margin_high: float


@dataclass(frozen=True, slots=True)
class Misprediction:
    """A record that was judged wrong, as in Table 4.11; ``predicted`` is the probability of danger."""

    victim: str
    opponent: str
    e_v: float
    dangerous: bool
    predicted: float


@dataclass(frozen=True, slots=True, eq=False)
class UnseenPredictions:
    """What was said of each record by models that had not seen its victim."""

    probability: Floats
    loss: Floats
    nearest: Floats
    errors: Floats


@dataclass(frozen=True, slots=True, eq=False)
class CurveReport:
    """How stressor curves did on records whose applications have them, and the model of counters on these.

    Both had not seen the victim with an application; ranks are of predicted and measured loss.
    """

    records: int
    accuracy: Accuracy
    rank_correlation: float
    rank_interval: tuple[float, float]
    mean_error: float
    model_rank_correlation: float
    model_mean_error: float
    curves: Curves


@dataclass(frozen=True, slots=True, eq=False)
class KindReport:
    """How the models of one kind did; shares are of the records that were judged.

    ``excluded`` pairs have an interval with t in it; ``included`` is the accuracy with them. ``single`` have
    one trial and no interval. ``clear`` has random folds and unseen applications without the applications of
    dangerous clusters. ``kept`` has p-values and ``weights`` weights of the counters that backward selection
    keeps of all records. ``calibration`` has bins of predicted probability: mean predicted, observed, count.
    """

    records: Records
    excluded: int
    single: int
    majority: float
    twins: Accuracy
    accuracies: dict[str, Accuracy]
    stepwise: dict[str, Accuracy]
    nearest: Accuracy
    curves: CurveReport | None
    included: Accuracy
    clear: dict[str, Accuracy]
    clear_records: int
    clear_majority: float
    false_negatives: float
    cut: float
    rank_correlation: float
    rank_interval: tuple[float, float]
    mean_error: float
    coverage: float
    half_width: float
    kept: dict[str, float]
    weights: dict[str, float]
    separated: bool
    clusters: Clustering
    four: Clustering
    unseen: UnseenPredictions
    mispredictions: list[Misprediction]
    calibration: list[tuple[float, float, int]] = field(default_factory=list)


@one_thread()
def evaluate_kind(
    records: Records, *, curves: Curves | None = None, cost: float = COST, seed: int = 0
) -> KindReport:
    """Judge the models of one kind.

    Parameters
    ----------
    records
        All of that kind, those at the boundary included.
    curves
        Of the applications with stressors, as a baseline.
    cost
        What a missed danger weighs against a needless warning.
    seed
        Of folds and bootstrap.

    Raises
    ------
    InputError
        There are too few records, or all are of one class.
    """
    certain = records.where(~records.spans)
    check_enough(certain)
    dangerous = certain.dangerous
    base = majority_right(certain)

    def judged(right: Floats, own: Records = certain, own_base: Floats = base) -> Accuracy:
        return _accuracy(right, own_base, own.victim, seed)

    drawn: dict[str, Folds] = {"random": at_random, "pair": by_pair}
    schemes = {**drawn, "application": each_application, "family": each_family}
    accuracies = {name: judged(_right(certain, folds, seed)) for name, folds in schemes.items()}
    stepwise = {
        name: judged(_right_stepwise(certain, folds, seed))
        for name, folds in {**drawn, "application": by_application}.items()
    }
    unseen = judge_unseen(certain)
    groups = cluster(certain, seed=seed)
    clear = certain.without(groups.dangerous_places)
    clear_accuracies, clear_majority = {}, 0.0
    if is_enough(clear):
        clear_base = majority_right(clear)
        clear_majority = float(clear_base.mean())
        clear_accuracies = {
            name: judged(_right(clear, folds, seed), clear, clear_base)
            for name, folds in (("random", at_random), ("application", each_application))
        }
    included = judged(_right(records, each_application, seed), records, majority_right(records))
    whole = fit_stepwise(certain)
    names = [f"{side} {name}" for side in ("victim", "opponent") for name in certain.features.counters]
    half_width = float(quantiles(np.abs(unseen.errors), (_COVERAGE,))[0])
    return KindReport(
        records=certain,
        excluded=len(records) - len(certain),
        single=int(np.isnan(certain.low).sum()),
        majority=float(base.mean()),
        twins=judged((no_twins(certain) == dangerous).astype(np.float64)),
        accuracies=accuracies,
        stepwise=stepwise,
        nearest=judged(((unseen.nearest > certain.threshold) == dangerous).astype(np.float64)),
        curves=None if curves is None else _judge_curves(records, curves, unseen, base, seed),
        included=included,
        clear=clear_accuracies,
        clear_records=len(clear),
        clear_majority=clear_majority,
        false_negatives=float(((unseen.probability <= cut_of(cost)) & dangerous).mean()),
        cut=cut_of(cost),
        rank_correlation=rank_of(unseen.loss, certain.loss),
        rank_interval=rank_interval(unseen.loss, certain.loss, certain.victim, seed),
        mean_error=float(np.abs(unseen.loss - certain.loss).mean()),
        coverage=_covered(certain, unseen, seed),
        half_width=half_width,
        kept={names[column]: float(p) for column, p in zip(whole.columns, whole.p_values, strict=True)},
        weights={names[column]: float(w) for column, w in zip(whole.columns, whole.weights, strict=True)},
        separated=whole.separated,
        clusters=groups,
        four=cluster(certain, min(THESIS_K, len(certain.places)), seed),
        unseen=unseen,
        mispredictions=_mispredictions(certain, unseen),
        calibration=_calibration(unseen.probability, dangerous),
    )


def _judge_curves(
    records: Records, curves: Curves, unseen: UnseenPredictions, base: Floats, seed: int
) -> CurveReport | None:
    """Judge curves on the certain records: a loss is fitted on whether its interval has t in it or not."""
    certain = ~records.spans
    predicted = predict_unseen(records, curves)[certain]
    known = ~np.isnan(predicted)
    if not known.any():
        return None
    own, predicted_loss, model = records.where(certain).where(known), predicted[known], unseen.loss[known]
    right = ((predicted_loss > own.threshold) == own.dangerous).astype(np.float64)
    return CurveReport(
        records=len(own),
        accuracy=_accuracy(right, base[known], own.victim, seed),
        rank_correlation=rank_of(predicted_loss, own.loss),
        rank_interval=rank_interval(predicted_loss, own.loss, own.victim, seed),
        mean_error=float(np.abs(predicted_loss - own.loss).mean()),
        model_rank_correlation=rank_of(model, own.loss),
        model_mean_error=float(np.abs(model - own.loss).mean()),
        curves=curves,
    )


def is_enough(records: Records) -> bool:
    """Say whether there are records of applications enough to fit and judge a model of danger."""
    return len(records) >= _FEWEST_RECORDS and len(records.places) >= _FEWEST_APPLICATIONS


def check_enough(records: Records) -> None:
    """Raise InputError unless there are enough records of both classes to fit and judge a model."""
    apps = len(records.places)
    if not is_enough(records):
        raise InputError(
            f"{counted(len(records), 'certain pair')} of {counted(apps, 'application')} of kind "
            f"{records.kind} are too few; {_FEWEST_RECORDS} of {_FEWEST_APPLICATIONS} are wanted: measure "
            "more with `osub predict measure`"
        )
    if records.dangerous.all() or not records.dangerous.any():
        word = "exceed" if records.dangerous.all() else "stay under"
        raise InputError(
            f"all {counted(len(records), 'certain pair')} of kind {records.kind} {word} "
            f"{records.threshold:g}: there is nothing to tell apart; choose another --threshold, or measure "
            "applications that differ more"
        )


@one_thread()
def judge_unseen(records: Records) -> UnseenPredictions:
    """Return what models say of victims that they have not seen, each of them left out in turn."""
    count = len(records)
    likely, loss, nearest = np.full(count, np.nan), np.zeros(count), np.zeros(count)
    splits = [split for split in each_application(records, FOLDS, 0) if split.is_usable]
    for split in splits:
        train, test = records.where(split.train), records.where(split.test)
        design = Scaling.of(train).design(test)
        likely[split.test] = probability(fit_danger(train).values(design))
        loss[split.test] = fit_loss(train).values(design)
        nearest[split.test] = nearest_loss(train, test)
    likely = np.nan_to_num(likely, nan=0.5)
    return UnseenPredictions(likely, loss, nearest, loss - records.loss)


def accuracy_of_unseen(records: Records, unseen: UnseenPredictions, seed: int) -> tuple[Accuracy, float]:
    """Return how often victims that models had not seen were judged right, and how often the majority is."""
    base = majority_right(records)
    right = ((unseen.probability > 0.5) == records.dangerous).astype(np.float64)
    return _accuracy(right, base, records.victim, seed), float(base.mean())


def _right(records: Records, folds: Folds, seed: int) -> Floats:
    """Return how often each record was judged right at a cut of a half."""
    right, times = np.zeros(len(records)), np.zeros(len(records))
    drawn = folds in (at_random, by_pair)
    for repeat in range(REPEATS if drawn else 1):
        for split in folds(records, FOLDS, seed + repeat):
            if not split.is_usable:
                continue
            train, test = records.where(split.train), records.where(split.test)
            odds = fit_danger(train).values(Scaling.of(train).design(test))
            right[split.test] += (odds > 0) == test.dangerous
            times[split.test] += 1
    shares: Floats = right / np.maximum(times, 1)
    return shares


def _right_stepwise(records: Records, folds: Folds, seed: int) -> Floats:
    right = np.zeros(len(records))
    for split in folds(records, FOLDS, seed):
        if split.is_usable:
            train, test = records.where(split.train), records.where(split.test)
            right[split.test] = (fit_stepwise(train).probabilities(test) > 0.5) == test.dangerous
    return right


def _accuracy(right: Floats, base: Floats, victims: np.ndarray, seed: int) -> Accuracy:
    drawn = _bootstrap(victims, seed)
    sums = drawn @ np.column_stack([np.bincount(victims, weights=values) for values in (right, base)])
    counts = drawn @ np.bincount(victims)
    shares = sums / counts[:, np.newaxis]
    low, high = quantiles(shares[:, 0], (0.025, 0.975))
    margin_low, margin_high = quantiles(shares[:, 0] - shares[:, 1], (0.025, 0.975))
    return Accuracy(
        accuracy=float(right.mean()),
        low=float(low),
        high=float(high),
        margin=float(right.mean() - base.mean()),
        margin_low=float(margin_low),
        margin_high=float(margin_high),
    )


def _bootstrap(victims: np.ndarray, seed: int) -> Floats:
    """Return how often each place is drawn, victims being drawn with replacement; shape (draws, places)."""
    occurring = np.unique(victims)
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(occurring), size=(_DRAWS, len(occurring)))
    drawn = np.zeros((_DRAWS, int(victims.max()) + 1))
    np.add.at(drawn, (np.arange(_DRAWS)[:, np.newaxis], occurring[picks]), 1.0)
    return drawn


def rank_of(predicted: Floats, measured: Floats) -> float:
    """Return Spearman's correlation, 0 where one of both is constant."""
    if np.ptp(predicted) == 0 or np.ptp(measured) == 0:
        return 0.0
    return float(spearmanr(predicted, measured).statistic)


def rank_interval(predicted: Floats, measured: Floats, groups: Places, seed: int) -> tuple[float, float]:
    """Return the 95 % interval of the rank correlation, groups of records being drawn with replacement."""
    rows = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(200):
        chosen = np.concatenate([rows[pick] for pick in rng.integers(0, len(rows), len(rows))])
        found.append(rank_of(predicted[chosen], measured[chosen]))
    low, high = quantiles(found, (0.025, 0.975))
    return float(low), float(high)


def _covered(records: Records, unseen: UnseenPredictions, seed: int) -> float:
    """Return how often a 90 % interval that other victims gave has the measured loss in it."""
    inside = np.zeros(len(records), dtype=bool)
    for split in by_application(records, FOLDS, seed):
        if split.test.any() and not split.test.all():
            width = quantiles(np.abs(unseen.errors[~split.test]), (_COVERAGE,))[0]
            inside[split.test] = np.abs(unseen.errors[split.test]) <= width
    return float(inside.mean())


def _mispredictions(records: Records, unseen: UnseenPredictions) -> list[Misprediction]:
    wrong = (unseen.probability > 0.5) != records.dangerous
    names = records.features.applications
    found = [
        Misprediction(
            names[records.victim[place]],
            names[records.opponent[place]],
            float(records.loss[place]),
            bool(records.dangerous[place]),
            float(unseen.probability[place]),
        )
        for place in np.flatnonzero(wrong)
    ]
    return sorted(found, key=lambda one: -abs(one.predicted - one.dangerous))


def _calibration(likely: Floats, dangerous: Flags, bins: int = 8) -> list[tuple[float, float, int]]:
    order = np.argsort(likely, kind="stable")
    return [
        (float(likely[own].mean()), float(dangerous[own].mean()), len(own))
        for own in np.array_split(order, bins)
        if len(own)
    ]
