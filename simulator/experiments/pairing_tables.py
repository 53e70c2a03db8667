"""Measured pairs of applications, and tables 4.7 to 4.11 of the thesis with them.

What was measured and what models make of it, as the claims and tables want it.

Tables 4.7 to 4.11 of the thesis, with ours.
"""

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
from predictor.model.pair_records import Records, records_of
from predictor.model.stepwise import JudgedRecord, accuracy_of, judge_in_three_folds
from simulator.experiment_page import ExperimentTable
from simulator.experiments.claim_study import published_rows

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


UNFIT = "chase"
"""The family that replaces cg, which the thesis leaves out of its second set: both read at random."""


@dataclass(frozen=True, slots=True, eq=False)
class Folds:
    """The two sets of records, each judged in three folds: all, and those without the unfit family."""

    all: tuple[JudgedRecord, ...]
    fit: tuple[JudgedRecord, ...]
    applications: tuple[int, int]


@functools.cache
def folds_of(found: MeasuredPairs) -> Folds:
    """Judge both sets as the thesis does: once, for that takes a while."""
    records = found.report.records
    fit = without_unfit(records)
    return Folds(
        judge_in_three_folds(records, 1), judge_in_three_folds(fit, 1), (len(records.places), len(fit.places))
    )


def without_unfit(records: Records) -> Records:
    """Return the records without the family that replaces cg, asleep or awake."""
    names = records.features.applications
    places = [place for place, name in enumerate(names) if family(name) == UNFIT]
    return records.without(np.array(places, dtype=np.intp))


def tables(found: MeasuredPairs, folds: Folds) -> list[ExperimentTable]:
    """Return Tables 4.7 to 4.11."""
    return [_shares(found), _interactive(found), _weights(found), _accuracies(folds), _wrong(folds)]


def _shares(found: MeasuredPairs) -> ExperimentTable:
    batch = found.batch()
    total = (batch["e_v"] + batch["e_o"]).drop_nulls().to_numpy()
    columns = (batch["e_v"].to_numpy(), batch["e_o"].drop_nulls().to_numpy(), total)

    def row(name: str, slack: float) -> tuple[str, ...]:
        most = (0.5 + slack, 0.5 + slack, 1.0 + 2 * slack)
        shares = (f"{share(values, bound):.0%}" for values, bound in zip(columns, most, strict=True))
        return (name, str(batch.height), *shares)

    return ExperimentTable(
        name="Table 4.7",
        title="share of pairs of batch jobs that lose no more than the half",
        columns=("", "records", "E_v <= 0.5", "E_o <= 0.5", "E <= 1"),
        rows=[
            row("ours", 0.0),
            row("ours, up to 0.05 over it", 0.05),
            ("thesis", "800", "92%", "89%", "92%"),
        ],
        notes=(
            "The thesis's pairs share a core as hardware threads, ours take turns: 0.5 is the best of two.",
        ),
    )


def _interactive(found: MeasuredPairs) -> ExperimentTable:
    e_v, e_o = found.twins("e_v"), found.twins("e_o")
    both = {name: e_v[name] + e_o[name] for name in e_v if len(e_v[name]) == len(e_o.get(name, ()))}
    lines = [
        (
            name.removeprefix("mimic."),
            str(len(e_v[name])),
            *map(_mean_median, (e_v[name], e_o[name], both[name])),
        )
        for name in both
    ]
    if both:
        every = [np.concatenate([one[name] for name in both]) for one in (e_v, e_o, both)]
        lines.append(("all of ours", str(len(every[0])), *map(_mean_median, every)))
    lines.append(("thesis", "-", "+0.04 / +0.02", "+0.15 / +0.16", "+0.19 / +0.19"))
    return ExperimentTable(
        name="Table 4.8",
        title="what changes where the opponent sleeps between its steps, mean / median over victims",
        columns=("opponent", "victims", "E_v", "E_o", "E"),
        rows=lines,
    )


def _mean_median(values: Floats) -> str:
    return f"{values.mean():+.2f} / {np.median(values):+.2f}"


def _weights(found: MeasuredPairs) -> ExperimentTable:
    report = found.report
    lines = [
        (*name.split(" ", 1), f"{report.weights[name]:.3g}", f"{p:.2g}") for name, p in report.kept.items()
    ]
    lines += [(f"thesis: {side}", counter, weight, "-") for side, counter, weight in published_rows("4.9")]
    parted = " A fit on the way parted the classes without an error." if report.separated else ""
    return ExperimentTable(
        name="Table 4.9",
        title="counters that backward selection keeps, and their weights",
        columns=("of", "counter", "weight", "p"),
        rows=[tuple(line) for line in lines],
        notes=(f"Ours: all certain records, counters standardised; the thesis: its set without cg.{parted}",),
    )


def _accuracies(folds: Folds) -> ExperimentTable:
    thesis = (("96%", "92%", "93%"), ("98%", "96%", "98%"))
    what = ("all", f"without {UNFIT}")
    theirs = ("all", "without cg")
    lines: list[tuple[str, ...]] = []
    for name, other, judged, count, printed, size in zip(
        what, theirs, (folds.all, folds.fit), folds.applications, thesis, ("800, 29", "591, 25"), strict=True
    ):
        dangers = sum(one.dangerous for one in judged)
        majority = max(dangers, len(judged) - dangers) / len(judged) if judged else float("nan")
        own = (f"{accuracy_of(judged, fold):.0%}" for fold in (1, 2, 3))
        lines.append((name, f"{len(judged)}, {count}", *own, f"{majority:.0%}"))
        lines.append((f"thesis, {other}", size, *printed, "92%" if name == "all" else "-"))
    return ExperimentTable(
        name="Table 4.10",
        title="accuracy of three folds drawn at random, backward selection in each",
        columns=("records", "how many, of applications", "fold 1", "fold 2", "fold 3", "majority"),
        rows=lines,
        notes=(
            "Certain records only: no interval has the half in it.",
            "A victim of one fold occurs in the others: nothing is said of an application never measured.",
        ),
    )


def _wrong(folds: Folds) -> ExperimentTable:
    wrong = sorted((one for one in folds.fit if one.is_wrong()), key=lambda one: (one.fold, one.case))
    lines: list[tuple[str, ...]] = [
        (
            str(one.case),
            str(one.fold),
            one.victim,
            one.opponent,
            f"{one.e_v:.2f}",
            str(int(one.dangerous)),
            f"{one.predicted:.2f}",
        )
        for one in wrong
    ]
    lines += [(f"thesis: {case}", *rest) for case, *rest in published_rows("4.11")]
    missed = sum(one.dangerous for one in wrong)
    return ExperimentTable(
        name="Table 4.11",
        title=f"pairs judged wrong, of {len(folds.fit)} without {UNFIT}",
        columns=("case", "fold", "victim", "opponent", "E_v", "b", "pi"),
        rows=lines,
        notes=(f"Ours: {missed} dangers missed, {len(wrong) - missed} needless; thesis: 4 and 9 of 591.",),
    )
