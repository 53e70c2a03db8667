"""What a sweep's table says: its Pareto front, and rows for people."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

SHOWN = (
    ("wait_mean_s", "mean wait (s)"),
    ("wait_p95_s", "95% wait (s)"),
    ("degradation_mean", "mean degradation"),
    ("slowdown_mean", "mean slowdown"),
)


def pareto(table: pl.DataFrame) -> pl.DataFrame:
    """Return the points than which none has both less mean wait and less mean degradation.

    Of points that are equal in both the first stays.
    """
    names = ("wait_mean_s", "degradation_mean")
    if table.is_empty() or not set(names) <= set(table.columns):
        return table.clear()
    ordered = table.drop_nulls(names).sort(*names, maintain_order=True)
    least = ordered["degradation_mean"].cum_min().shift(1)
    better = (ordered["degradation_mean"] < least).fill_null(value=True)
    return ordered.filter(better)


def best_rows(table: pl.DataFrame, varied: Sequence[str], most: int) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the Pareto front, from little waiting to little harm."""
    front = pareto(table).head(most)
    shown = [(name, label) for name, label in SHOWN if name in front.columns]
    head = [*varied, *(label for _, label in shown)]
    rows = [
        [*(_value(row.get(name)) for name in varied), *(figure(row[name]) for name, _ in shown)]
        for row in front.iter_rows(named=True)
    ]
    return head, rows


def _value(value: object) -> str:
    """Return what a point has of what was varied; a dash where it takes none of it."""
    return "-" if value is None else str(value)


def figure(value: object) -> str:
    """Return a figure with four digits, and commas where it is large; a dash for none."""
    return (
        f"{value:,.4g}"
        if isinstance(value, float) and abs(value) < 1000
        else f"{value:,.0f}"
        if isinstance(value, int | float)
        else "-"
    )
