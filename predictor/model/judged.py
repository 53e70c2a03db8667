"""All that can be said of measured pairs, kind by kind: models judged, or why there are none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from foundation.errors import InputError
from predictor.dataset import Kind, Pairs
from predictor.model.few_pairs import Few, few_or_error
from predictor.model.model_judges import KindReport, evaluate_kind
from predictor.model.pair_records import records_of
from predictor.model.stressor_curves import curves_of


@dataclass(slots=True)
class Judged:
    """By the name of the kind: how good models are, what few pairs say, and what is not judged."""

    reports: dict[str, KindReport] = field(default_factory=dict)
    few: dict[str, Few] = field(default_factory=dict)
    failed: dict[str, InputError] = field(default_factory=dict)


def judge(pairs: Pairs, kinds: Iterable[Kind], *, threshold: float | None, cost: float, seed: int) -> Judged:
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
    found = Judged()
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
