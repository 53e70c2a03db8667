"""The thesis's logistic regression: backward selection by AIC, and three folds at random (4.3.3)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictor.model.linear_models import FOLDS, Scaling, at_random, one_thread
from predictor.model.pair_records import Flags, Floats, Places, Records, probability

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
    import statsmodels.api as sm  # heavy, and for this alone
    from statsmodels.tools.sm_exceptions import PerfectSeparationError

    table = sm.add_constant(design[:, list(columns)], has_constant="add")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = sm.GLM(dangerous.astype(float), table, family=sm.families.Binomial()).fit(maxiter=50)
        except (PerfectSeparationError, np.linalg.LinAlgError, ValueError):
            return _Fit(np.inf, np.zeros(len(columns) + 1), np.ones(len(columns) + 1), separated=True)
        steep = bool(np.abs(found.params).max() > _STEEP)
        return _Fit(float(found.aic), np.asarray(found.params), np.asarray(found.pvalues), steep)


@dataclass(frozen=True, slots=True)
class JudgedRecord:
    """A record as Table 4.11 has it.

    Attributes
    ----------
    case
        Its number, from 1, in order of victim and opponent.
    fold
        From 1; the model that judged it was fitted on the other two.
    victim, opponent, e_v
        Which pair, and what the victim loses.
    dangerous
        b: whether E_v exceeds t.
    predicted
        pi: the probability of that.
    """

    case: int
    fold: int
    victim: str
    opponent: str
    e_v: float
    dangerous: bool
    predicted: float

    def is_wrong(self, cut: float = 0.5) -> bool:
        """Whether it was judged wrong at a cut of the probability."""
        return (self.predicted > cut) != self.dangerous


@one_thread()
def judge_in_three_folds(records: Records, seed: int = 0) -> tuple[JudgedRecord, ...]:
    """Return all records, each judged by a model of the other folds; none where a fold cannot be fitted."""
    names = records.features.applications
    found = []
    for number, split in enumerate(at_random(records, FOLDS, seed), start=1):
        if not split.is_usable:
            return ()
        likely = fit_stepwise(records.where(split.train)).probabilities(records.where(split.test))
        found += [
            JudgedRecord(
                case=int(place) + 1,
                fold=number,
                victim=names[records.victim[place]],
                opponent=names[records.opponent[place]],
                e_v=float(records.loss[place]),
                dangerous=bool(records.dangerous[place]),
                predicted=float(probability),
            )
            for place, probability in zip(np.flatnonzero(split.test), likely, strict=True)
        ]
    return tuple(sorted(found, key=lambda one: one.case))


def accuracy_of(judged: Sequence[JudgedRecord], fold: int | None = None) -> float:
    """Return the share that was judged right, of one fold or of all; NaN of none."""
    own = [one for one in judged if fold is None or one.fold == fold]
    return sum(not one.is_wrong() for one in own) / len(own) if own else float("nan")
