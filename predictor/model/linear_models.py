"""The two linear models of phase 2, log-odds of E_v > t and E_v itself, and the rules that they have to beat.

Minami's thesis (equations 4.7 and 4.8) has a logistic regression on the counters of victim and opponent,
standardised. Its unpenalised fit separates almost perfectly and is unstable (coefficients of 110); so the
model that is used has an L2 penalty, chosen on held-out applications, and the stepwise one (``stepwise``)
stands beside it. A model has to be better than the majority, than no twins, and than the nearest pair that
was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

from predictor.model.counter_features import Floats
from predictor.model.pair_records import Flags, Records
from predictor.model.record_folds import by_application

PENALTIES = (3.0, 10.0, 30.0, 100.0, 300.0)
"""What is tried: the weight of the squared coefficients beside the sum over records."""

_INNER_FOLDS = 3
_FLAT = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """Means and scales of the counters of the applications of a fold's training part; shape (K,)."""

    means: Floats
    scales: Floats

    @classmethod
    def of(cls, records: Records) -> Scaling:
        """Return those of the applications that occur; a counter that is the same for all has scale 1."""
        values = records.features.values[records.places]
        scales = values.std(axis=0)
        return cls(values.mean(axis=0), np.where(scales > _FLAT, scales, 1.0))

    def design(self, records: Records) -> Floats:
        """Return the standardised counters of victim and opponent; shape (N, 2 K)."""
        scaled: Floats = (records.design - np.tile(self.means, 2)) / np.tile(self.scales, 2)
        return scaled


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A linear model: ``constant`` + standardised counters (N, 2 K) times ``weights`` (2 K,)."""

    constant: float
    weights: Floats
    penalty: float

    def values(self, design: Floats) -> Floats:
        """Return its value for each row."""
        summed: Floats = self.constant + design @ self.weights
        return summed


def fit_danger(records: Records) -> Fitted:
    """Fit the log-odds of E_v > t; where all records are of one class its log-odds, with Laplace's rule."""
    scaling = Scaling.of(records)
    dangerous = records.dangerous
    if dangerous.all() or not dangerous.any():
        odds = np.log((dangerous.sum() + 1) / ((~dangerous).sum() + 1))
        return Fitted(float(odds), np.zeros(2 * len(scaling.means)), PENALTIES[-1])
    chosen = _best_penalty(records, _log_loss)
    fitted = _logistic(chosen).fit(scaling.design(records), dangerous)
    return Fitted(float(fitted.intercept_[0]), fitted.coef_[0], chosen)


def fit_loss(records: Records) -> Fitted:
    """Fit E_v."""
    chosen = _best_penalty(records, _squared_error)
    design = Scaling.of(records).design(records)
    fitted = Ridge(alpha=chosen).fit(design, records.loss)
    return Fitted(float(fitted.intercept_), np.asarray(fitted.coef_, dtype=np.float64), chosen)


def _logistic(penalty: float) -> LogisticRegression:
    return LogisticRegression(C=1.0 / penalty, max_iter=2000)


def _best_penalty(records: Records, judge: Callable[[Records, Records, float], Floats]) -> float:
    """Return the penalty with the least error for applications that a fit has not seen."""
    splits = [split for split in by_application(records, _INNER_FOLDS, seed=0) if split.is_usable]
    errors = [
        np.concatenate(
            [judge(records.where(split.train), records.where(split.test), penalty) for split in splits]
            or [np.zeros(1)]
        ).mean()
        for penalty in PENALTIES
    ]
    return PENALTIES[int(np.argmin(errors))]


def _squared_error(train: Records, test: Records, penalty: float) -> Floats:
    scaling = Scaling.of(train)
    fitted = Ridge(alpha=penalty).fit(scaling.design(train), train.loss)
    error: Floats = (fitted.predict(scaling.design(test)) - test.loss) ** 2
    return error


def _log_loss(train: Records, test: Records, penalty: float) -> Floats:
    dangerous = train.dangerous
    if dangerous.all() or not dangerous.any():
        return np.zeros(0)
    scaling = Scaling.of(train)
    fitted = _logistic(penalty).fit(scaling.design(train), dangerous)
    likely = np.clip(fitted.predict_proba(scaling.design(test))[:, 1], 1e-9, 1 - 1e-9)
    loss: Floats = -np.log(np.where(test.dangerous, likely, 1 - likely))
    return loss


def probability(odds: Floats) -> Floats:
    """Return 1 / (1 + exp(-odds)) (equation 4.8)."""
    likely: Floats = 1.0 / (1.0 + np.exp(-np.clip(odds, -500.0, 500.0)))
    return likely


def cut_of(cost: float) -> float:
    """Return the probability from which a warning is worth it, a missed danger weighing ``cost`` warnings."""
    return 1.0 / (1.0 + cost)


def majority(train: Records, test: Records) -> Flags:
    """Say of every record what most of the training part are."""
    return np.full(len(test), 2 * int(train.dangerous.sum()) > len(train))


def no_twins(test: Records) -> Flags:
    """Warn of pairs of one family, and of no others."""
    return test.is_twin


def nearest_loss(train: Records, test: Records) -> Floats:
    """Return the E_v of the measured pair whose counters are nearest, victim's and opponent's together."""
    scaling = Scaling.of(train)
    known, asked = scaling.design(train), scaling.design(test)
    nearest = np.empty(len(test), dtype=np.intp)
    for place, row in enumerate(asked):
        nearest[place] = np.argmin(((known - row) ** 2).sum(axis=1))
    return train.loss[nearest]
