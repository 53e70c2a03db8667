"""What was measured and what models make of it, as the claims and tables want it."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from predictor.data import FOLDER
from predictor.dataset import STRESSOR, PairKind, Pairs, read_pairs
from predictor.model.model_judges import KindReport, curves_of, evaluate_kind
from predictor.model.pair_records import records_of

MIMIC = "mimic."
SOLVERS = ("lu", "bt", "sp", "mg", "jacobi", "ft", "cg", "ep")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredPairs:
    """The pairs, and the report on the models of those on one core."""

    pairs: Pairs
    report: KindReport

    def of_kind(self, kind: PairKind) -> pl.DataFrame:
        """Return the pairs of a kind; it may be empty."""
        frame = self.pairs.pairs
        return frame.filter(pl.col("kind") == str(kind))

    @property
    def single(self) -> list[str]:
        """Applications of one rank; stressors are none."""
        return self._named(pl.col("ranks") == 1)

    @property
    def coupled(self) -> list[str]:
        """Applications of several ranks."""
        return self._named(pl.col("ranks") > 1)

    @property
    def shared(self) -> pl.DataFrame:
        """The pairs of applications of one rank on one core."""
        names = self.single
        return self.of_kind(PairKind.TIMESLICE).filter(
            pl.col("victim").is_in(names) & pl.col("opponent").is_in(names)
        )

    def batch(self) -> pl.DataFrame:
        """Return the pairs of which neither sleeps."""
        sleeps = pl.col("victim").str.starts_with(MIMIC) | pl.col("opponent").str.starts_with(MIMIC)
        return self.shared.filter(~sleeps)

    def _named(self, which: pl.Expr) -> list[str]:
        frame = self.pairs.applications.filter((pl.col("family") != STRESSOR) & which)
        return frame["application"].to_list()

    def twins(self, column: str) -> dict[str, Floats]:
        """Return, for each mimic and its batch twin as opponents, the differences of a column by victim."""
        frame = self.shared.filter(~pl.col("victim").str.starts_with(MIMIC))
        names = {name for name in frame["opponent"].unique() if name.startswith(MIMIC)}
        found: dict[str, Floats] = {}
        for name in sorted(names):
            mimic, batch = (
                frame.filter(pl.col("opponent") == one).select("victim", column)
                for one in (name, name.removeprefix(MIMIC))
            )
            both = mimic.join(batch, on="victim", suffix="_batch").drop_nulls()
            if both.height:
                found[name] = (both[column] - both[f"{column}_batch"]).to_numpy()
        return found


@functools.cache
def look_at(seed: int = 1) -> MeasuredPairs:
    """Read the pairs that come with osub, and judge models of them: once, for that takes a while."""
    pairs = read_pairs(FOLDER)
    records, curves = records_of(pairs, PairKind.TIMESLICE), curves_of(pairs, PairKind.TIMESLICE)
    return MeasuredPairs(pairs, evaluate_kind(records, curves=curves, seed=seed))


def family(name: str) -> str:
    """Return the family of an application by its name, such as ``lu`` of ``lu.W``."""
    return name.removeprefix(MIMIC).split(".")[0]


def share(values: Iterable[float], most: float) -> float:
    """Return the share of values that are at most so large."""
    every = np.fromiter(values, dtype=np.float64)
    return float((every <= most).mean()) if len(every) else float("nan")
