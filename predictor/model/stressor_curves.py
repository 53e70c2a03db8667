"""Stressor curves: what pairs lose, predicted from N x K measurements with stressors in place of N x N.

A stressor presses one resource (cache, memory, branches, kernel) as hard as its dial says. What a victim
loses to it, over the dial, is the victim's sensitivity; what the stressor loses to an opponent is the
opponent's pressure (Bubble-Up, Mars et al., MICRO 2011). A pair's loss is then a weighted sum over resources
of the victim's sensitivity, the opponent's pressure, and their product (SMiTe, Zhang et al., MICRO 2014, has
the product); weights are fitted on pairs of other applications.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from sklearn.linear_model import RidgeCV

from predictor.dataset import STRESSOR, PairKind, Pairs
from predictor.model.counter_features import Floats
from predictor.model.linear_models import PENALTIES
from predictor.model.pair_records import Flags, Records

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
