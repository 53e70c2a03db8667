"""What a measurement came to, in a line for each kind of sharing."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from predictor.dataset.pairs_folder import Pairs


@dataclass(frozen=True, slots=True)
class KindSummary:
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


def summaries_of(read: Pairs) -> list[KindSummary]:
    """Return a summary of each kind, figures rounded to thousandths."""
    return [
        KindSummary(
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
