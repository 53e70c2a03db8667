"""Sets of hosts as Batsim and evalys write them: ``0-3 7``, intervals with both ends, blanks between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from foundation.id_list import spans_of


def format_intervals(intervals: Iterable[tuple[int, int]]) -> str:
    """Return intervals (first, last), ascending and apart, in canonical form: those that touch become one."""
    joined: list[tuple[int, int]] = []
    for first, last in intervals:
        if joined and first == joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in joined)


def parse_intervals(text: str) -> list[tuple[int, int]]:
    """Return the intervals of a text, ascending and apart, whatever their order in it.

    Raises
    ------
    ValueError
        The text is no such set.
    """
    found = sorted(_each(text))
    merged: list[tuple[int, int]] = []
    for first, last in found:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _each(text: str) -> Iterator[tuple[int, int]]:
    for part in text.replace(",", " ").split():
        try:
            (span,) = spans_of(part)
        except ValueError as error:
            raise ValueError(f"{part[:40]!r} is no interval such as 0-3: {error}") from error
        yield span[0], span[-1]
