"""What a sweep's table says: choices ranked under each scenario, as means over repeats with intervals.

A choice is what a user or a site can set, such as M or a policy. A scenario is what they cannot, such as
C_o, the nodes' speeds or the trace: choices are compared under the same scenario only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analysis.claims import Estimate, estimate, student_t
from osub.sweep.spec import REPEATS, is_choice

SHOWN = (
    ("wait_mean_s", "mean wait (s)"),
    ("wait_p95_s", "95% wait (s)"),
    ("degradation_mean", "mean degradation"),
    ("slowdown_mean", "mean slowdown"),
)
_WAIT, _COST = "wait_mean_s", "degradation_mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The choices of a sweep under one scenario.

    Parameters
    ----------
    name
        Such as ``overhead 1.2``; empty where the sweep has one scenario.
    choices
        Names of what was chosen, in the order of the file.
    table
        A row for each choice: its mean figures over repeats, ``<figure>_low`` and ``<figure>_high`` (null
        for one run), and ``runs``.
    points
        The same before they were averaged.
    """

    name: str
    choices: tuple[str, ...]
    table: pl.DataFrame
    points: pl.DataFrame

    def rows(self, most: int) -> tuple[list[str], list[list[str]]]:
        """Return head and rows of the best choices, from little waiting to little harm."""
        front = pareto(self.table).head(most)
        shown = [(name, label) for name, label in SHOWN if name in front.columns]
        head = [*self.choices, *(label for _, label in shown), *(["runs"] if self.is_repeated else [])]
        rows = [
            [
                *(_value(row[name]) for name in self.choices),
                *(interval(row[name], row[f"{name}_low"], row[f"{name}_high"]) for name, _ in shown),
                *([str(row["runs"])] if self.is_repeated else []),
            ]
            for row in front.iter_rows(named=True)
        ]
        return head, rows

    @property
    def is_repeated(self) -> bool:
        """Whether a choice ran more than once."""
        return self.points.height > self.table.height

    def answer(self) -> tuple[str, str] | None:
        """Return the choice of least waiting, and words on it and on that of least harm; None for none."""
        front = pareto(self.table)
        if front.is_empty():
            return None
        least, mild = (front.row(at, named=True) for at in (0, -1))
        rival = self._rival()
        unsure = "" if rival is None else f"; not clearly less than {rival}"
        milder = "" if front.height == 1 else f"; least harm: {self._figures(mild)}"
        return self._choice(least), f"least waiting: {self._figures(least)}{unsure}{milder}."

    def _rival(self) -> str | None:
        """Return the next choice where its waiting is more by no more than repeats differ; None for none.

        Both have the same repeats, so the interval is that of the differences repeat by repeat. Choices that
        ran once have no interval, and nothing is said.
        """
        ordered = self.table.drop_nulls(_WAIT).sort(_WAIT, maintain_order=True)
        repeats = [name for name in self.points.columns if name not in (*self.choices, _WAIT)]
        if ordered.height < 2 or not repeats:
            return None
        best, second = (self._points_of(ordered.row(at, named=True)) for at in (0, 1))
        both = best.join(second, on=repeats, suffix="_other", nulls_equal=True).drop_nulls()
        if both.height < 2:
            return None
        low = estimate((both[f"{_WAIT}_other"] - both[_WAIT]).to_list()).low
        return None if low is None or low > 0 else self._choice(ordered.row(1, named=True))

    def _points_of(self, row: dict[str, object]) -> pl.DataFrame:
        same = [
            pl.col(name).eq_missing(pl.lit(row[name], dtype=self.points.schema[name]))
            for name in self.choices
        ]
        return self.points.filter(*same).drop(self.choices)

    def _choice(self, row: dict[str, object]) -> str:
        return ", ".join(f"{name} {_value(row[name])}" for name in self.choices) or "the only choice"

    def _figures(self, row: dict[str, object]) -> str:
        parts = [
            f"{label} {interval(row[name], row[f'{name}_low'], row[f'{name}_high'])}"
            for name, label in SHOWN
            if name in (_WAIT, _COST)
        ]
        return f"{self._choice(row)} ({', '.join(parts)})"


def scenarios(table: pl.DataFrame, varied: Sequence[str], repeats: Sequence[str] = REPEATS) -> list[Scenario]:
    """Return the choices of a sweep by scenario, in the order of the file.

    Parameters
    ----------
    table
        A row a point, with its parameters and its figures.
    varied, repeats
        Names of what was varied, and what of it is averaged over; whatever else is no choice parts scenarios.
    """
    known = [name for name in varied if name in table.columns and name not in repeats]
    choices = tuple(name for name in known if is_choice(name))
    apart = [name for name in known if name not in choices and table[name].n_unique() > 1]
    again = [name for name in repeats if name in table.columns]
    if table.is_empty():
        return []
    parts = table.partition_by(apart, maintain_order=True) if apart else [table]
    return [
        Scenario(
            name=", ".join(f"{name} {_value(part[name][0])}" for name in apart),
            choices=choices,
            table=averaged(part, choices),
            points=part.select(*choices, *again, pl.col(f"^{_WAIT}$")),
        )
        for part in parts
    ]


def answers(found: Sequence[Scenario]) -> list[tuple[str, str]]:
    """Return (heading, words) in order: the plain answer, then that of each scenario."""
    known = [(one.name, *answer) for one in found if (answer := one.answer()) is not None]
    if not known:
        return [("No answer:", "no point has both a mean wait and a mean degradation.")]
    parts = []
    if len(known) > 1 and found[0].choices:
        each = "; ".join(f"{name}: {choice}" for name, choice, _ in known)
        parts.append(
            ("Least waiting in every scenario:", f"{known[0][1]}.")
            if len({choice for _, choice, _ in known}) == 1
            else ("The choice of least waiting depends on the scenario:", f"{each}.")
        )
    parts += [(f"{name[:1].upper()}{name[1:]}:" if name else "Answer:", words) for name, _, words in known]
    if not any(one.is_repeated for one in found):
        why = "no interval; vary seed, trial or what [repeat] names to see how sure it is."
        parts.append(("One run each:", why))
    return parts


def averaged(points: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return a row for all points that are equal in ``names``: see ``Scenario.table``."""
    figures = [name for name, _ in SHOWN if name in points.columns]
    means = points.group_by(names or pl.lit(0).alias("all"), maintain_order=True).agg(
        pl.len().alias("runs"),
        *(pl.col(name).cast(pl.Float64).mean() for name in figures),
        *(pl.col(name).cast(pl.Float64).std().alias(f"{name}_spread") for name in figures),
        *(pl.col(name).count().alias(f"{name}_count") for name in figures),
    )
    for name in figures:
        spread, count = pl.col(f"{name}_spread"), pl.col(f"{name}_count")
        within = {one: student_t(one - 1) for one in means[f"{name}_count"].unique() if one > 1}
        half = spread * count.replace_strict(within, default=None, return_dtype=pl.Float64) / count.sqrt()
        means = means.with_columns(
            (pl.col(name) - half).alias(f"{name}_low"), (pl.col(name) + half).alias(f"{name}_high")
        ).drop(f"{name}_spread", f"{name}_count")
    return means


def pareto(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows than which none has both less mean wait and less mean degradation.

    Of rows that are equal in both the first stays.
    """
    names = (_WAIT, _COST)
    if table.is_empty() or not set(names) <= set(table.columns):
        return table.clear()
    ordered = table.drop_nulls(names).sort(*names, maintain_order=True)
    least = ordered[_COST].cum_min().shift(1)
    better = (ordered[_COST] < least).fill_null(value=True)
    return ordered.filter(better)


def _value(value: object) -> str:
    """Return what a point has of what was varied; a dash where it takes none of it."""
    return "-" if value is None else str(value)


def interval(mean: object, low: object, high: object) -> str:
    """Return a mean and its interval, such as ``12 [10, 14]``; without it where there is none."""
    if (
        not isinstance(low, float)
        or not isinstance(high, float)
        or not isinstance(mean, float)
        or low == high
    ):
        return figure(mean)
    return Estimate(mean=mean, low=low, high=high, count=2).text()


def figure(value: object) -> str:
    """Return a figure with four digits, and commas where it is large; a dash for none."""
    return (
        f"{value:,.4g}"
        if isinstance(value, float) and abs(value) < 1000
        else f"{value:,.0f}"
        if isinstance(value, int | float)
        else "-"
    )
