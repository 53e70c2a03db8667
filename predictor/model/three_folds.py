"""Records judged as the thesis judges them: three folds at random, backward selection in each (4.3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictor.model.linear_models import at_random, one_thread
from predictor.model.model_judges import FOLDS
from predictor.model.pair_records import Records
from predictor.model.stepwise import fit_stepwise


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
