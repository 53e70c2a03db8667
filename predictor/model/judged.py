"""All that can be said of measured pairs, kind by kind: models judged, or what few pairs say without a model.

Of pairs that are too few for a model of danger, no threshold is fitted and no danger predicted. Applications
that were counted are grouped, whether they were measured with others or not; and the loss of each pair,
both ways, is predicted from all other pairs. How well that orders them is a rank correlation. With it
comes that of each counter of the victim, for which nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foundation.errors import InputError
from foundation.units import counted
from predictor.dataset import STRESSOR, PairKind, Pairs
from predictor.model.linear_models import THESIS_K, Scaling, fit_loss, groups_of, one_thread
from predictor.model.model_judges import (
    KindReport,
    curves_of,
    evaluate_kind,
    is_enough,
    rank_interval,
    rank_of,
)
from predictor.model.pair_records import Places, Records, features_of, records_of

_FEWEST_PAIRS = 4


@dataclass(slots=True)
class JudgedModels:
    """By the name of the kind: how good models are, what few pairs say, and what is not judged."""

    reports: dict[str, KindReport] = field(default_factory=dict)
    few: dict[str, Few] = field(default_factory=dict)
    failed: dict[str, InputError] = field(default_factory=dict)


def judge(
    pairs: Pairs, kinds: Iterable[PairKind], *, threshold: float | None, cost: float, seed: int
) -> JudgedModels:
    """Judge each kind by itself.

    Parameters
    ----------
    threshold
        t: a loss above it is dangerous; None: the kind's ideal.
    cost
        Needless warnings that a missed danger is worth.
    seed
        Of folds and bootstrap.

    Raises
    ------
    InputError
        Nothing can be said of any of them.
    """
    found = JudgedModels()
    for kind in kinds:
        name = str(kind)
        try:
            records = records_of(pairs, kind, threshold)
            found.reports[name] = evaluate_kind(records, curves=curves_of(pairs, kind), cost=cost, seed=seed)
        except InputError as error:
            said = few_or_error(pairs, kind, error, threshold, seed)
            if isinstance(said, Few):
                found.few[name] = said
            else:
                found.failed[name] = said
    if not found.reports and not found.few:
        raise next(iter(found.failed.values()), InputError("the folder has no pairs"))
    return found


@dataclass(frozen=True, slots=True)
class Few:
    """What can be said of few pairs.

    Parameters
    ----------
    records, certain
        Ordered pairs, and those of them whose interval does not have t in it.
    counters
        What applications are grouped by.
    groups, four
        Names of applications by group; k by silhouette, and the thesis's four.
    silhouette
        The mean silhouette by k that was tried.
    rank_correlation, low, high
        Of predicted and measured E_v, and its 95 % interval, pairs being drawn with replacement.
    by_counter
        Of the victim's counter and measured E_v.
    """

    records: int
    certain: int
    counters: tuple[str, ...]
    groups: list[list[str]]
    four: list[list[str]]
    silhouette: dict[int, float]
    rank_correlation: float
    low: float
    high: float
    by_counter: dict[str, float]

    def lines(self, kind: str) -> list[str]:
        """Return it in words, for a kind of sharing."""
        by_counter = sorted(self.by_counter.items(), key=lambda item: -abs(item[1]))
        finding = (
            f"{kind}: {counted(self.certain, 'certain pair')}, of {self.records}, are too few for a model of "
            "danger. Each predicted from the rest, losses have a rank correlation of "
            f"{self.rank_correlation:.2f} [{self.low:.2f}, {self.high:.2f}] with those measured; the "
            "victim's counters, of which nothing is fitted, "
            f"{', '.join(f'{name} {rank:.2f}' for name, rank in by_counter)}."
        )
        groups = [f"  {', '.join(group)}" for group in self.groups]
        return [finding, "Groups by these counters:", *groups]

    def to_json(self) -> dict[str, Any]:
        """Return what ``osub predict evaluate --json`` says of it."""
        return {
            "records": self.records,
            "certain": self.certain,
            "applications": sum(map(len, self.groups)),
            "counters": list(self.counters),
            "rank_correlation": self.rank_correlation,
            "rank_interval": [self.low, self.high],
            "rank_by_counter": self.by_counter,
            "groups": self.groups,
            "four_groups": self.four,
            "silhouette": {str(k): value for k, value in self.silhouette.items()},
        }


@one_thread()
def few_of(pairs: Pairs, kind: PairKind, threshold: float | None = None, seed: int = 0) -> Few | None:
    """Return what can be said of the pairs of a kind; None where a model is to be had, or next to nothing.

    Raises
    ------
    InputError
        There are none of that kind, or no counters.
    """
    records = records_of(pairs, kind, threshold)
    which = _pair_of(records)
    certain = records.where(~records.spans)
    if is_enough(certain) or which.max(initial=-1) + 1 < _FEWEST_PAIRS:
        return None
    names = pairs.applications.filter(pairs.applications["family"] != STRESSOR)["application"].to_list()
    features = features_of(pairs.counters, names)
    labels, silhouette = groups_of(features, seed=seed)
    four, _ = groups_of(features, min(THESIS_K, len(features.applications)), seed)
    predicted = np.zeros(len(records))
    for pair in range(which.max() + 1):
        rest = records.where(which != pair)
        design = Scaling.of(rest).design(records.where(which == pair))
        predicted[which == pair] = fit_loss(rest).values(design)
    low, high = rank_interval(predicted, records.loss, which, seed)
    return Few(
        records=len(records),
        certain=len(certain),
        counters=features.counters,
        groups=_named(features.applications, labels),
        four=_named(features.applications, four),
        silhouette=silhouette,
        rank_correlation=rank_of(predicted, records.loss),
        low=low,
        high=high,
        by_counter={
            name: rank_of(values[records.victim], records.loss)
            for name, values in zip(records.features.counters, records.features.values.T, strict=True)
        },
    )


def few_or_error(
    pairs: Pairs, kind: PairKind, error: InputError, threshold: float | None, seed: int
) -> Few | InputError:
    """Return what can be said of pairs which a model was not to be had of, or why nothing can."""
    try:
        return few_of(pairs, kind, threshold, seed) or error
    except InputError:
        return error


def _pair_of(records: Records) -> Places:
    """Return of each record the number of its unordered pair, from 0."""
    ends = np.sort(np.column_stack((records.victim, records.opponent)), axis=1)
    return np.asarray(np.unique(ends, axis=0, return_inverse=True)[1], dtype=np.intp).reshape(-1)


def _named(names: tuple[str, ...], labels: Places) -> list[list[str]]:
    groups = [
        [name for name, label in zip(names, labels, strict=True) if label == own] for own in np.unique(labels)
    ]
    return sorted(groups, key=lambda group: (-len(group), group))
