"""Fits a model of one kind on all certain records of a PAIRS folder."""

from __future__ import annotations

import hashlib

import numpy as np
from scipy.spatial.distance import cdist

from analysis.quantiles import quantiles
from foundation.version import VERSION
from predictor.dataset import PairKind, Pairs
from predictor.model.linear_models import Fitted, Scaling, cluster, cut_of, fit_danger, fit_loss, one_thread
from predictor.model.model_judges import COST, accuracy_of_unseen, check_enough, judge_unseen
from predictor.model.pair_records import records_of
from predictor.model.stored_model import (
    MODEL_VERSION,
    ApplicationCluster,
    Data,
    Linear,
    Model,
    ModelledApplication,
    UnseenVictims,
)


@one_thread()
def fit_model(
    pairs: Pairs, kind: PairKind, *, threshold: float | None = None, cost: float = COST, seed: int = 0
) -> Model:
    """Fit a model.

    Parameters
    ----------
    pairs
        What was measured.
    kind
        How the two share.
    threshold
        t; None: the ideal of the kind, see ``threshold_of``.
    cost
        What a missed danger weighs against a needless warning: it decides the cut.
    seed
        Of folds and of the starts of k-means.

    Raises
    ------
    InputError
        There are too few records, or all are of one class.
    """
    records = records_of(pairs, kind, threshold)
    certain = records.where(~records.spans)
    check_enough(certain)
    unseen = judge_unseen(certain)
    never_seen, majority = accuracy_of_unseen(certain, unseen, seed)
    scaling = Scaling.of(certain)
    groups = cluster(certain, seed=seed)
    features = certain.features
    scaled = (features.values - scaling.means) / scaling.scales
    nearest = cdist(scaled, groups.centres).argmin(axis=1)
    return Model(
        version=MODEL_VERSION,
        osub=VERSION,
        kind=kind,
        host=pairs.about.host,
        data=Data(
            records=len(certain),
            applications=len(certain.places),
            left_out=len(records) - len(certain),
            started=pairs.about.started,
            ended=pairs.about.ended,
            digest=_digest(pairs),
        ),
        threshold=certain.threshold,
        cut=cut_of(cost),
        counters=list(features.counters),
        floors=list(features.floors),
        means=scaling.means.tolist(),
        scales=scaling.scales.tolist(),
        danger=_linear(fit_danger(certain)),
        loss=_linear(fit_loss(certain)),
        half_width=float(quantiles(np.abs(unseen.errors), (0.9,))[0]),
        applications={
            name: ModelledApplication(
                family=family, counters=scaled[place].round(6).tolist(), cluster=int(nearest[place])
            )
            for place, (name, family) in enumerate(zip(features.applications, records.families, strict=True))
        },
        clusters=[
            ApplicationCluster(
                centre=groups.centres[number].round(6).tolist(),
                dangerous=bool(groups.dangerous[number]),
                median_loss=float(np.nan_to_num(groups.median_loss[number])),
            )
            for number in range(len(groups.centres))
        ],
        unseen=UnseenVictims(
            accuracy=never_seen.accuracy,
            majority=majority,
            margin_low=never_seen.margin_low,
            margin_high=never_seen.margin_high,
        ),
    )


def _linear(fitted: Fitted) -> Linear:
    half = len(fitted.weights) // 2
    return Linear(
        constant=fitted.constant,
        victim=fitted.weights[:half].tolist(),
        opponent=fitted.weights[half:].tolist(),
    )


def _digest(pairs: Pairs) -> str:
    """Return what tells these records and counters from any others."""
    digest = hashlib.sha256()
    for frame in (pairs.pairs, pairs.counters):
        digest.update(frame.write_csv().encode())
    return digest.hexdigest()
