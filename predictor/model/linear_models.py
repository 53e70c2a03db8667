"""Groups of applications by counters (phase 1), linear models of losses (phase 2), and the rules to beat.

Minami's thesis (equations 4.7 and 4.8) has a logistic regression on the counters of victim and opponent,
standardised. Its unpenalised fit separates almost perfectly and is unstable (coefficients of 110); so the
model that is used has an L2 penalty, chosen on held-out applications, and the stepwise one (``stepwise``)
is reported with it. A model has to be better than the majority, than no twins, and than the nearest pair that
was measured.

How records are split into what a model is fitted on and what it is judged by.

At random, as the thesis does, an application occurs on both sides, and so does its pair turned round.
Grouped by pair, (A, B) and (B, A) are on one side. Grouped by application, the victims that are judged, and
all records with them, were never seen: that is what a new application is, and the one that counts.

Models are fitted on one thread: there is little to compute, and threads that wait for each other spin.

On a host whose cores are shared, which is what this package is for, a library's threads wait for one that has
no core, and seconds become minutes.

K-means on standardised counters, k by silhouette, and k = 4 as the thesis has it. A cluster is dangerous
where the median of its members' measured losses as victims exceeds t; an application that was never measured
with others inherits the verdict of the nearest centre.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from predictor.model.pair_records import Features, Flags, Floats, Places, Records


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS and OpenMP to one thread while the context lasts; as a decorator, in each call."""
    with threadpool_limits(limits=1):
        yield


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


FOLDS = 3
"""As the thesis has it (4.3.3)."""
PENALTIES = (3.0, 10.0, 30.0, 100.0, 300.0)
"""What is tried: the weight of the squared coefficients against the sum over records."""

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


def cut_of(cost: float) -> float:
    """Return the probability from which a warning is worth it, a missed danger weighing ``cost`` warnings."""
    return 1.0 / (1.0 + cost)


def majority_right(records: Records) -> Floats:
    """Return which records are as most are: 1 where it is right to say so of all, else 0."""
    return np.asarray(records.dangerous == (2 * records.dangerous.sum() > len(records)), dtype=np.float64)


def no_twins(test: Records) -> Flags:
    """Warn of pairs of one family, and of no others."""
    return test.is_twin


def nearest_loss(train: Records, test: Records) -> Floats:
    """Return the E_v of the measured pair whose counters are nearest, victim's and opponent's together."""
    scaling = Scaling.of(train)
    nearest: Places = cdist(scaling.design(test), scaling.design(train)).argmin(axis=1)
    return train.loss[nearest]


THESIS_K = 4
_MOST_K = 8
_STARTS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Clustering:
    """Groups of the A applications that occur in records.

    Parameters
    ----------
    places
        The applications, places in ``features.applications``; shape (A,).
    labels
        The cluster of each; shape (A,).
    centres
        In standardised counters; shape (k, K).
    silhouette
        The mean silhouette by k that was tried.
    median_loss
        Of each cluster: the median E_v of its members as victims.
    dangerous
        Whether that exceeds t.
    points, explained
        The 2-D map: the first two principal components, shape (A, 2), and the share of the variance in each.
    """

    places: Places
    labels: Places
    centres: Floats
    silhouette: dict[int, float]
    median_loss: Floats
    dangerous: Flags
    points: Floats
    explained: tuple[float, float]

    def members(self, cluster: int) -> Places:
        """Return the applications of a cluster."""
        own: Places = self.places[self.labels == cluster]
        return own

    @property
    def dangerous_places(self) -> Places:
        """The applications that are in a dangerous cluster."""
        return self.places[self.dangerous[self.labels]]


@one_thread()
def cluster(records: Records, k: int | None = None, seed: int = 0) -> Clustering:
    """Group the applications of the records; ``k`` None: by silhouette."""
    places = records.places
    scaling = Scaling.of(records)
    scaled = (records.features.values[places] - scaling.means) / scaling.scales
    found, tried = _grouped(scaled, k, seed)
    labels = np.asarray(found.labels_, dtype=np.intp)
    losses = [records.loss[np.isin(records.victim, places[labels == own])] for own in range(labels.max() + 1)]
    medians = np.array([float(np.median(values)) if len(values) else np.nan for values in losses])
    parts = PCA(n_components=min(2, *scaled.shape)).fit(scaled)
    points = parts.transform(scaled)
    shares = [*parts.explained_variance_ratio_.tolist(), 0.0]
    return Clustering(
        places=places,
        labels=labels,
        centres=np.asarray(found.cluster_centers_, dtype=np.float64),
        silhouette=tried,
        median_loss=medians,
        dangerous=medians > records.threshold,
        points=points if points.shape[1] == 2 else np.column_stack((points, np.zeros(len(points)))),
        explained=(shares[0], shares[1]),
    )


@one_thread()
def groups_of(features: Features, k: int | None = None, seed: int = 0) -> tuple[Places, dict[int, float]]:
    """Return the group of each application of ``features``, and the mean silhouette by k that was tried."""
    values = features.values
    found, tried = _grouped((values - values.mean(axis=0)) / values.std(axis=0), k, seed)
    return np.asarray(found.labels_, dtype=np.intp), tried


def _grouped(scaled: Floats, k: int | None, seed: int) -> tuple[KMeans, dict[int, float]]:
    tried = {}
    for count in range(2, min(_MOST_K, len(scaled) - 1) + 1):
        labels = _means(scaled, count, seed).labels_
        if 1 < len(set(labels.tolist())) < len(scaled):
            tried[count] = float(silhouette_score(scaled, labels))
    chosen = k or (max(tried, key=lambda count: tried[count]) if tried else 1)
    return _means(scaled, min(chosen, len(scaled)), seed), tried


def _means(scaled: Floats, count: int, seed: int) -> KMeans:
    return KMeans(n_clusters=count, n_init=_STARTS, random_state=seed).fit(scaled)
