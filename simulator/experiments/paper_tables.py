"""Tables of an experiment, ours next to the thesis's."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

ABSENT = "-"
NOTABLE = 0.2
"""Differences beyond this share of the thesis's number are marked."""


class ExperimentTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table with its name, such as ``Table 5.3(a)``, what it shows, columns, rows of texts, and notes."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()


def percent(share: float) -> str:
    """Return a share as the thesis prints it."""
    return f"{100 * share:.2g}%" if share < 0.1 else f"{100 * share:.0f}%"


def hours(value: float) -> str:
    """Return hours, whole."""
    return f"{value:.0f}"


def number(value: float) -> str:
    """Return a number with three digits at least."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def against(ours: float, thesis: float | None) -> str:
    """Return how far ours is from the thesis's number, marked if that is much."""
    if thesis is None:
        return ABSENT
    if ours == thesis:
        return "="
    if thesis == 0:
        return f"{ours:+.2g} *"
    off = ours / thesis - 1
    return f"{off:+.0%}" + (" *" if abs(off) > NOTABLE else "")
