"""Phase 1: groups of applications by their counters, and which of them should not share.

K-means on standardised counters, k by silhouette, and k = 4 as the thesis has it. A cluster is dangerous
where the median of its members' measured losses as victims exceeds t; an application that was never measured
with others inherits the verdict of the nearest centre.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score

from predictor.model.counter_features import Features, Floats
from predictor.model.linear_models import Scaling, one_thread
from predictor.model.pair_records import Flags, Places, Records

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
