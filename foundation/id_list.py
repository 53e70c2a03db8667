"""Lists of numbers such as ``0-3,7``: cores, CPUs, hosts, jobs, by one strict grammar with bounds.

Such a text comes out of a file, another program or a user's hand, and a few characters can mean billions of
numbers. So the text is checked against the grammar, and its ids are counted, before any list is built.
ClusterShell's ``RangeSet`` reads more (steps, padding that counts), and takes 30 us a number: ten million are
minutes, which ``range`` has in half a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

LONGEST_TEXT = 1 << 20
RANGES_PATTERN = r"[0-9]{1,9}(?:-[0-9]{1,9})?+(?:,[0-9]{1,9}(?:-[0-9]{1,9})?+)*+"
"""What a list looks like; of a range that ends before it begins the parser tells."""
_RANGES = re.compile(RANGES_PATTERN)


def spans_of(text: str) -> list[range]:
    """Return the range that each item of a list denotes, in the text's order.

    Raises
    ------
    ValueError
        The text is no list; the message begins with its place in a sentence (``it ...``).
    """
    if len(text) > LONGEST_TEXT or _RANGES.fullmatch(text) is None:
        raise ValueError("it is made of other things than numbers and ranges")
    spans = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        spans.append(range(int(first), int(last or first) + 1))
        if not spans[-1]:
            raise ValueError(f"{part} ends before it begins")
    return spans


def read_ids(text: str, below: int, most: int | None = None) -> tuple[int, ...]:
    """Return the numbers in a list, ascending, each once.

    Parameters
    ----------
    text
        The list; numbers may be padded with zeros, and come in any order and more than once.
    below
        What every number must be less than.
    most
        How many numbers the items may stand for, each counted; ``below`` if None.

    Raises
    ------
    ValueError
        The text is no list, or a number is too large; the message as of ``spans_of``.
    """
    spans = spans_of(text)
    if max(span[-1] for span in spans) >= below:
        raise ValueError(f"it goes beyond the {below} ids that there are")
    if sum(map(len, spans)) > (below if most is None else most):
        raise ValueError(f"it denotes more than {below if most is None else most} ids")
    return tuple(sorted({number for span in spans for number in span}))


def write_ids(ids: Iterable[int]) -> str:
    """Return numbers as a list: ``(0, 1, 2, 7)`` is ``0-2,7``; nothing for none."""
    ordered = sorted(set(ids))
    if not ordered:
        return ""
    breaks = [0, *(place + 1 for place, (a, b) in enumerate(pairwise(ordered)) if b != a + 1), len(ordered)]
    return ",".join(
        str(ordered[a]) if b == a + 1 else f"{ordered[a]}-{ordered[b - 1]}" for a, b in pairwise(breaks)
    )
