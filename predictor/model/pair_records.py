"""The records that a model is fitted on and judged by: pairs of one kind, with the features of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.claims import Estimate
from foundation.errors import InputError
from predictor.dataset import STRESSOR, PairKind, Pairs, harmful_loss, ideal_loss

Floats = npt.NDArray[np.float64]

FLOORS: Mapping[str, float] = {"instruction": 1e-6, "second": 1e-2}
"""What is added before the logarithm, by what a value is per: one miss in a million instructions, one fault
in a hundred seconds. Below that, counters of a short run are noise."""

_FLAT = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Counters of A applications, K each.

    Parameters
    ----------
    applications
        Their names, ascending.
    counters
        Names of the counters, such as ``cachegrind:l2_data_misses``.
    floors
        What is added to each before the logarithm.
    values
        Shape (A, K): decimal logarithms of value + floor.
    left_out
        Applications that lack a counter, with the name of the first.
    """

    applications: tuple[str, ...]
    counters: tuple[str, ...]
    floors: tuple[float, ...]
    values: Floats
    left_out: Mapping[str, str]

    def of(self, names: Sequence[str]) -> Floats:
        """Return the rows of some applications, by name; all must be known."""
        place = {name: index for index, name in enumerate(self.applications)}
        return self.values[[place[name] for name in names]]


OF_THE_HOST = ("os:run_delay", "os:switches_involuntary")
"""What a run alone has of these tells what else the host did, not what the application is."""


CPU = "os:cpu"
_CPU_PARTS = ("os:cpu_user", "os:cpu_system")
"""CPU seconds a second: the share of a core that a program uses alone. One that sleeps loses less to others,
in whichever mode it computes; so their sum is the counter."""


def with_cpu(values: Mapping[str, float]) -> dict[str, float]:
    """Return an application's counters, by name, as a model knows them: with ``CPU`` for its two parts."""
    if not all(part in values for part in _CPU_PARTS):
        return dict(values)
    rest = {name: value for name, value in values.items() if name not in _CPU_PARTS}
    return rest | {CPU: sum(values[part] for part in _CPU_PARTS)}


def logarithms(values: Floats, floors: Sequence[float]) -> Floats:
    """Return values of counters as a model sees them; shapes (..., K) and (K,)."""
    scaled: Floats = np.log10(values + np.asarray(floors))
    return scaled


def probability(odds: Floats) -> Floats:
    """Return 1 / (1 + exp(-odds)) (equation 4.8)."""
    likely: Floats = 1.0 / (1.0 + np.exp(-np.clip(odds, -500.0, 500.0)))
    return likely


def features_of(counters: pl.DataFrame, applications: Sequence[str]) -> Features:
    """Return the counters of applications that all counters were measured of.

    A counter that is the same for all tells nothing and is left out, as are those ``OF_THE_HOST``. An
    application that lacks a counter which most others have is left out, and said.

    Parameters
    ----------
    counters
        The table of a PAIRS folder.
    applications
        Whose counters are wanted.

    Raises
    ------
    InputError
        No two applications have a counter in common.
    """
    known = counters.filter(pl.col("application").is_in(list(applications)) & pl.col("value").is_not_null())
    known = known.with_columns(name=pl.col("source") + ":" + pl.col("counter"))
    known = _with_cpu(known.filter(~pl.col("name").is_in(OF_THE_HOST)))
    often = known.group_by("name", "per").len().sort("name", "per")
    most = int(often["len"].max() or 0)  # type: ignore[arg-type]  # of numbers
    kept = often.filter(2 * pl.col("len") > most)
    names = kept["name"].to_list()
    if most < 2 or len(set(names)) != len(names):
        raise InputError(
            "no counters that several applications have in common: count them with "
            "`osub predict measure --counters os,cachegrind`"
        )
    table = known.filter(pl.col("name").is_in(names)).pivot(
        on="name", index="application", values="value", on_columns=names
    )
    left_out = dict.fromkeys(set(applications) - set(table["application"]), "no counters")
    for row in table.iter_rows(named=True):
        lacking = [name for name in names if row[name] is None]
        if lacking:
            left_out[row["application"]] = lacking[0]
    table = table.filter(~pl.col("application").is_in(list(left_out))).sort("application")
    floors = [FLOORS[per] for per in kept["per"]]
    values = logarithms(table.select(names).to_numpy().astype(np.float64), floors)
    differ = values.std(axis=0) > _FLAT if len(values) else np.zeros(len(names), dtype=bool)
    if table.height < 2 or not differ.any():
        raise InputError("fewer than two applications have counters that differ: count more applications")
    return Features(
        applications=tuple(table["application"]),
        counters=tuple(name for name, keep in zip(names, differ, strict=True) if keep),
        floors=tuple(floor for floor, keep in zip(floors, differ, strict=True) if keep),
        values=values[:, differ],
        left_out=dict(sorted(left_out.items())),
    )


def _with_cpu(known: pl.DataFrame) -> pl.DataFrame:
    """Return rows of counters (application, name, per, value), as ``with_cpu`` has them."""
    rows = known.select("application", "name", "per", "value")
    is_part = pl.col("name").is_in(_CPU_PARTS)
    parts = rows.filter(is_part)
    whole = parts.group_by("application").agg(
        pl.lit(CPU).alias("name"), pl.col("per").first(), pl.col("value").sum(), pl.len().alias("parts")
    )
    whole = whole.filter(pl.col("parts") == len(_CPU_PARTS)).drop("parts")
    both = pl.col("application").is_in(whole["application"].to_list())
    return pl.concat((rows.filter(~(is_part & both)), whole))


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
    return (harmful_loss if kind is PairKind.CORES else ideal_loss)(kind, multiplicity)


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """What two applications lose to each other as measured: E_v by victim and opponent."""

    kind: PairKind
    losses: Mapping[tuple[str, str], Estimate]

    @property
    def threshold(self) -> float:
        """The loss beyond which they are kept apart."""
        return harmful_loss(self.kind)

    @property
    def is_harmful(self) -> bool | None:
        """Whether an interval lies above the threshold; None: none does, and one spans it or is missing."""
        verdicts = [
            None
            if found.low is None or found.high is None or found.low <= self.threshold < found.high
            else found.mean > self.threshold
            for found in self.losses.values()
        ]
        return True if True in verdicts else None if None in verdicts else False


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
