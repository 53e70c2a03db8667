"""How records are split into what a model is fitted on and what it is judged by.

At random, as the thesis does, an application occurs on both sides, and so does its pair turned round.
Grouped by pair, (A, B) and (B, A) are on one side. Grouped by application, the victims that are judged, and
all records with them, were never seen: that is what a new application is, and the one that counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from predictor.model.pair_records import Flags, Places, Records


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Which records are fitted on and which judged."""

    train: Flags
    test: Flags
    dangerous: Flags

    @property
    def is_usable(self) -> bool:
        """Whether something can be fitted, and something judged."""
        return bool(self.test.any()) and int(self.train.sum()) > 3


def at_random(records: Records, folds: int, seed: int) -> Iterator[Split]:
    """Yield folds of records drawn at random."""
    yield from _folds(records, np.arange(len(records)), folds, seed)


def by_pair(records: Records, folds: int, seed: int) -> Iterator[Split]:
    """Yield folds that have both orders of a pair on one side."""
    least = np.minimum(records.victim, records.opponent)
    most = np.maximum(records.victim, records.opponent)
    yield from _folds(records, least * (most.max(initial=0) + 1) + most, folds, seed)


def by_application(records: Records, folds: int, seed: int) -> Iterator[Split]:
    """Yield folds whose victims occur in no record that is fitted on, neither as victim nor as opponent."""
    yield from _unseen(records, records.places, folds, seed)


def each_application(records: Records, folds: int, seed: int) -> Iterator[Split]:
    """Yield a fold for each victim, fitted on records without it; ``folds`` and ``seed`` decide nothing."""
    del folds, seed
    yield from _unseen(records, records.places, len(records.places), 0)


def each_family(records: Records, folds: int, seed: int) -> Iterator[Split]:
    """Yield a fold for each family: its members are judged by models that have seen none of them."""
    del folds, seed
    families = np.unique(np.array(records.families), return_inverse=True)[1]
    yield from _unseen(records, families[records.places], len(set(families[records.places].tolist())), 0)


def _unseen(records: Records, groups: Places, folds: int, seed: int) -> Iterator[Split]:
    """Yield folds of groups of applications, ``groups`` being that of each of ``records.places``."""
    kinds, which = np.unique(groups, return_inverse=True)
    fold = dict(zip(records.places.tolist(), _fold_of(kinds, folds, seed)[which].tolist(), strict=True))
    own = np.array([fold[place] for place in records.victim.tolist()], dtype=np.intp)
    other = np.array([fold[place] for place in records.opponent.tolist()], dtype=np.intp)
    for number in range(folds):
        yield Split((own != number) & (other != number), own == number, records.dangerous)


def _folds(records: Records, groups: Places, folds: int, seed: int) -> Iterator[Split]:
    kinds, which = np.unique(groups, return_inverse=True)
    fold = _fold_of(kinds, folds, seed)[which]
    for number in range(folds):
        yield Split(fold != number, fold == number, records.dangerous)


def _fold_of(things: Places, folds: int, seed: int) -> Places:
    """Return the fold of each thing: as many in each as can be."""
    fold = np.empty(len(things), dtype=np.intp)
    fold[np.random.default_rng(seed).permutation(len(things))] = np.arange(len(things)) % folds
    return fold
