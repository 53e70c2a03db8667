"""What a measurement of pairs came to, and how far two agree: on one host at two times, or on two hosts.

A loss that comes out otherwise a day later is no property of the pair. So the measure of a measurement is to
make it twice: how many pairs lie within 0.05 of each other, and whether all of them moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.quantiles import quantiles
from foundation.errors import InputError
from predictor.dataset import PairKind, Pairs

WITHIN = (0.05, 0.10)
_DRAWS = 2000
_FURTHEST = 10
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ChangedPair:
    """A pair that came out otherwise: E_v in the first and in the second measurement."""

    victim: str
    opponent: str
    first: float
    second: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two measurements of one kind agree.

    Attributes
    ----------
    pairs
        Ordered pairs that both have.
    only_first, only_second
        Ordered pairs that one of them has.
    within
        Share of the pairs whose E_v differ by at most so much, by that difference.
    bias
        Mean of second minus first: all pairs moved alike by so much.
    deviation
        Root of the mean square of what differs.
    overlapping
        Share of pairs whose 95% intervals have a value in common, of those that have intervals in both; None
        where none has.
    rank_correlation
        Of the losses; 0 where one measurement has the same for all.
    load_first, load_second
        CPU that others took of the measured one, mean over the pairs; None where it was not measured.
    furthest
        The pairs that differ most, the furthest first.
    """

    pairs: int
    only_first: int
    only_second: int
    within: dict[float, Interval]
    bias: Interval
    deviation: float
    overlapping: float | None
    rank_correlation: float
    load_first: float | None
    load_second: float | None
    furthest: tuple[ChangedPair, ...]

    def to_json(self) -> dict[str, object]:
        """Return what ``osub predict compare --json`` says of a kind."""
        within = {f"{most:g}": asdict(share) for most, share in self.within.items()}
        return asdict(self) | {"within": within}


def kinds_in_both(first: Pairs, second: Pairs) -> list[PairKind]:
    """Return the kinds of sharing that both measurements have; raises InputError where there is none."""
    both = [kind for kind in first.about.kinds if kind in second.about.kinds]
    if not both:
        raise InputError(
            "the two folders have no kind of sharing in common: "
            f"{', '.join(first.about.kinds) or 'none'} and {', '.join(second.about.kinds) or 'none'}"
        )
    return both


def different_hosts(first: Pairs, second: Pairs) -> str | None:
    """Say it where the two were measured on different processors."""
    one, other = first.about.host.cpu_model, second.about.host.cpu_model
    return None if one == other else f"measured on different processors: {one} and {other}"


def agreement_of(
    first: Pairs, second: Pairs, kind: PairKind, within: Sequence[float] = WITHIN, seed: int = 0
) -> Agreement:
    """Compare two measurements of one kind.

    Intervals are by bootstrap over unordered pairs of applications, both orders of which are measured in the
    same windows.

    Raises
    ------
    InputError
        They have no pair of this kind in common.
    """
    frames = [each.pairs.filter(pl.col("kind") == str(kind)) for each in (first, second)]
    both = frames[0].join(frames[1], on=["victim", "opponent"], suffix="_second").sort("victim", "opponent")
    if not both.height:
        raise InputError(f"the two folders have no pair of kind {kind} in common")
    before, after = both["e_v"].to_numpy(), both["e_v_second"].to_numpy()
    change = after - before
    rows = _rows_of_pairs(both)
    drawn = np.random.default_rng(seed).integers(0, len(rows), size=(_DRAWS, len(rows)))
    order = np.argsort(-np.abs(change), kind="stable")[:_FURTHEST].tolist()
    return Agreement(
        pairs=both.height,
        only_first=frames[0].height - both.height,
        only_second=frames[1].height - both.height,
        within={
            most: _interval((np.abs(change) <= most + 1e-12).astype(np.float64), rows, drawn)
            for most in within
        },
        bias=_interval(change, rows, drawn),
        deviation=float(np.sqrt(np.mean(change**2))),
        overlapping=_overlapping(both),
        rank_correlation=_rank_correlation(both),
        load_first=_mean(both["load"]),
        load_second=_mean(both["load_second"]),
        furthest=tuple(
            ChangedPair(both["victim"][at], both["opponent"][at], float(before[at]), float(after[at]))
            for at in order
        ),
    )


def _rows_of_pairs(both: pl.DataFrame) -> list[npt.NDArray[np.intp]]:
    """Return the rows of each unordered pair."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for row, (victim, opponent) in enumerate(both.select("victim", "opponent").iter_rows()):
        numbers.setdefault((min(victim, opponent), max(victim, opponent)), []).append(row)
    return [np.array(own, dtype=np.intp) for own in numbers.values()]


def _interval(values: Floats, rows: list[npt.NDArray[np.intp]], drawn: npt.NDArray[np.int64]) -> Interval:
    sums = np.array([values[own].sum() for own in rows])
    counts = np.array([len(own) for own in rows])
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = quantiles(means, (0.025, 0.975))
    return Interval(float(values.mean()), float(low), float(high))


def _overlapping(both: pl.DataFrame) -> float | None:
    known = both.drop_nulls(["e_v_low", "e_v_high", "e_v_low_second", "e_v_high_second"])
    if not known.height:
        return None
    meets = (known["e_v_low"] <= known["e_v_high_second"]) & (known["e_v_low_second"] <= known["e_v_high"])
    return float(meets.to_numpy().mean())


def _rank_correlation(both: pl.DataFrame) -> float:
    found = both.select(pl.corr("e_v", "e_v_second", method="spearman")).item()
    return float(np.nan_to_num(found))


def _mean(series: pl.Series) -> float | None:
    found = series.mean()
    return found if isinstance(found, float) else None


@dataclass(frozen=True, slots=True)
class PairKindSummary:
    """The pairs of one kind.

    Attributes
    ----------
    pairs, applications, trials
        Ordered pairs, victims among them, and trials of all of them.
    median_width
        Of the 95% intervals of E_v; None where none is known.
    e_v_low, e_v_median, e_v_high
        The least, the median and the largest loss of a victim.
    load
        CPUs that others used of those measured, on average; None where it was not measured.
    """

    kind: str
    pairs: int
    applications: int
    trials: int
    median_width: float | None
    e_v_low: float | None
    e_v_median: float | None
    e_v_high: float | None
    load: float | None


def summaries_of(read: Pairs) -> list[PairKindSummary]:
    """Return a summary of each kind, figures rounded to thousandths."""
    return [
        PairKindSummary(
            kind=str(kind),
            pairs=group.height,
            applications=group["victim"].n_unique(),
            trials=int(group["trials"].sum()),
            median_width=_rounded((group["e_v_high"] - group["e_v_low"]).median()),
            e_v_low=_rounded(group["e_v"].min()),
            e_v_median=_rounded(group["e_v"].median()),
            e_v_high=_rounded(group["e_v"].max()),
            load=_rounded(group["load"].mean()),
        )
        for (kind,), group in read.pairs.sort(pl.all()).group_by(["kind"], maintain_order=True)
    ]


def _rounded(value: object) -> float | None:
    return round(value, 3) if isinstance(value, float) else None
