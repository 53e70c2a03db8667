"""What a model has to be better than: the majority, no twins, the nearest pair that was measured, curves."""

from __future__ import annotations

import numpy as np

from predictor.model.counter_features import Floats
from predictor.model.linear_models import Scaling
from predictor.model.pair_records import Flags, Records


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
