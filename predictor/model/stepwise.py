"""The thesis's logistic regression: unpenalised, backward selection by AIC, with p-values."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import statsmodels.api as sm
from statsmodels.tools.sm_exceptions import PerfectSeparationError

from predictor.model.counter_features import Floats
from predictor.model.linear_models import Scaling, probability
from predictor.model.pair_records import Flags, Places, Records

_ALIKE = 0.95
_STEEP = 30.0


@dataclass(frozen=True, slots=True, eq=False)
class Stepwise:
    """What selection kept: columns of the design (victim's counters, then the opponent's), and their weights.

    ``separated``: a fit on the way parted the classes without an error, so weights have no finite best value.
    """

    columns: tuple[int, ...]
    constant: float
    weights: Floats
    p_values: Floats
    separated: bool
    scaling: Scaling

    def probabilities(self, records: Records) -> Floats:
        """Return Pr(E_v > t) of each record."""
        design = self.scaling.design(records)[:, list(self.columns)]
        return probability(self.constant + design @ self.weights)


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    aic: float
    params: Floats
    p_values: Floats
    separated: bool


def fit_stepwise(records: Records) -> Stepwise:
    """Fit all counters, then drop one after the other while AIC falls.

    Of counters that are almost the same (correlation above 0.95) the first is kept: together they have no
    weights of their own.
    """
    scaling = Scaling.of(records)
    design, dangerous = scaling.design(records), records.dangerous
    columns = _different(design)
    if dangerous.all() or not dangerous.any():
        odds = float(np.log((dangerous.sum() + 1) / ((~dangerous).sum() + 1)))
        return Stepwise((), odds, np.zeros(0), np.zeros(0), separated=False, scaling=scaling)
    present = _fit(design, dangerous, columns)
    separated = present.separated
    while columns:
        trials = [
            (_fit(design, dangerous, [column for column in columns if column != other]), other)
            for other in _weakest(present, columns)
        ]
        best, dropped = min(trials, key=lambda trial: trial[0].aic)
        separated |= best.separated
        if best.aic > present.aic:
            break
        present, columns = best, [column for column in columns if column != dropped]
    return Stepwise(
        tuple(columns), float(present.params[0]), present.params[1:], present.p_values[1:], separated, scaling
    )


def _weakest(present: _Fit, columns: list[int]) -> list[int]:
    """Return the columns with the highest p-values: one of them is what AIC would drop."""
    order = np.argsort(-np.nan_to_num(present.p_values[1:], nan=1.0), kind="stable")
    return [columns[place] for place in order[:3]]


def _different(design: Floats) -> list[int]:
    """Return columns that vary, none of which is almost another."""
    kept: list[int] = []
    for column in range(design.shape[1]):
        values = design[:, column]
        if values.std() < 1e-9:
            continue
        if all(abs(np.corrcoef(values, design[:, other])[0, 1]) < _ALIKE for other in kept):
            kept.append(column)
    return kept


def _fit(design: Floats, dangerous: Flags, columns: list[int] | Places) -> _Fit:
    """Fit some columns; a fit that parts the classes ends where it is, and says so."""
    table = sm.add_constant(design[:, list(columns)], has_constant="add")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = sm.GLM(dangerous.astype(float), table, family=sm.families.Binomial()).fit(maxiter=50)
        except (PerfectSeparationError, np.linalg.LinAlgError, ValueError):
            return _Fit(np.inf, np.zeros(len(columns) + 1), np.ones(len(columns) + 1), separated=True)
        steep = bool(np.abs(found.params).max() > _STEEP)
        return _Fit(float(found.aic), np.asarray(found.params), np.asarray(found.pvalues), steep)
