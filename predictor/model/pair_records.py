"""The records that a model is fitted on and judged by: ordered pairs of one kind, with counters of both."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from foundation.errors import InputError
from predictor.dataset import STRESSOR, PairKind, Pairs
from predictor.model.counter_features import Features, Floats, features_of

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """N ordered pairs of one kind.

    Parameters
    ----------
    kind
        How the two shared.
    threshold
        t: a pair whose E_v exceeds it is dangerous.
    features
        Counters of the applications.
    families
        Family of each application of ``features``.
    victim, opponent
        Shape (N,): places in ``features.applications``.
    loss
        Shape (N,): E_v.
    low, high
        Shape (N,): its 95 % interval; NaN where there was one trial.
    """

    kind: PairKind
    threshold: float
    features: Features
    families: tuple[str, ...]
    victim: Places
    opponent: Places
    loss: Floats
    low: Floats
    high: Floats

    def __len__(self) -> int:
        return len(self.loss)

    @property
    def dangerous(self) -> Flags:
        """Whether E_v exceeds t; at t exactly it does not."""
        return self.loss > self.threshold

    @property
    def spans(self) -> Flags:
        """Whether the interval has t in it, so that the trials do not tell."""
        return (self.low <= self.threshold) & (self.high >= self.threshold)

    @property
    def is_twin(self) -> Flags:
        """Whether both applications are of one family."""
        family = np.array(self.families)
        alike: Flags = family[self.victim] == family[self.opponent]
        return alike

    @property
    def design(self) -> Floats:
        """Counters of victim and opponent side by side; shape (N, 2 K)."""
        values = self.features.values
        return np.hstack((values[self.victim], values[self.opponent]))

    @property
    def places(self) -> Places:
        """Applications that occur."""
        return np.union1d(self.victim, self.opponent)

    def where(self, chosen: Flags) -> Records:
        """Return some of the records."""
        return replace(
            self,
            victim=self.victim[chosen],
            opponent=self.opponent[chosen],
            loss=self.loss[chosen],
            low=self.low[chosen],
            high=self.high[chosen],
        )

    def without(self, places: Places) -> Records:
        """Return the records in which none of these applications is."""
        return self.where(~np.isin(self.victim, places) & ~np.isin(self.opponent, places))


def threshold_of(kind: PairKind, multiplicity: int = 2) -> float:
    """Return the default of t: 1 - 1/M, the loss that sharing a core alone costs.

    With cores of one's own the ideal is 0. Measured losses there scatter about it, so t is a twentieth:
    what co-located jobs may cost before it is called harm.
    """
    return 0.05 if kind is PairKind.CORES else 1.0 - 1.0 / multiplicity


def records_of(pairs: Pairs, kind: PairKind, threshold: float | None = None) -> Records:
    """Return the records of one kind; stressors are no applications, and not among them.

    Raises
    ------
    InputError
        There are none, or too few applications have counters.
    """
    apps = pairs.applications.filter(pl.col("family") != STRESSOR)
    names = apps["application"].to_list()
    own = pairs.pairs.filter(
        (pl.col("kind") == str(kind)) & pl.col("victim").is_in(names) & pl.col("opponent").is_in(names)
    )
    if not own.height:
        raise InputError(
            f"no pairs of kind {kind}: measured are {', '.join(map(str, pairs.about.kinds)) or 'none'}"
        )
    occurring = sorted({*own["victim"], *own["opponent"]})
    features = features_of(pairs.counters, occurring)
    own = own.filter(
        pl.col("victim").is_in(features.applications) & pl.col("opponent").is_in(features.applications)
    ).sort("victim", "opponent")
    place = {name: index for index, name in enumerate(features.applications)}
    family = dict(zip(apps["application"], apps["family"], strict=True))

    def numbers(column: str) -> Floats:
        return own[column].fill_null(float("nan")).to_numpy().astype(np.float64)

    return Records(
        kind=kind,
        threshold=threshold_of(kind) if threshold is None else threshold,
        features=features,
        families=tuple(family[name] for name in features.applications),
        victim=np.array([place[name] for name in own["victim"]], dtype=np.intp),
        opponent=np.array([place[name] for name in own["opponent"]], dtype=np.intp),
        loss=numbers("e_v"),
        low=numbers("e_v_low"),
        high=numbers("e_v_high"),
    )
