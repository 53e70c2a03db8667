"""Plotly's script in a page that loads nothing from a network, at a third of its size.

The script is 4.9 MB of text, 1.5 MB compressed. A page holds it compressed (gzip), as text (base 85 after
RFC 1924, with a full stop for ``<``), and ``assets/figures.js`` unpacks it with what browsers have had since
2023 (``DecompressionStream``). A browser without it shows the page's texts and tables, and says so.

The script comes inside of two functions, for module loaders that a page has none of. A browser reads a
function's text once to skip it and once more to compile it, so each of them costs another reading of 4.9 MB.
They are left out, which takes a third of the time until the first figure is drawn.
"""

from __future__ import annotations

import base64
import gzip
import re
from dataclasses import dataclass
from functools import lru_cache

from plotly.offline import get_plotlyjs

LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;.=>?@^_`{|}~"
"""Python's alphabet of base 85, but no ``<``: no markup can begin in the text. Known to the page's script."""


_HEAD = re.compile(
    r"\A(?P<licence>/\*.*?\*/\s*)\(\s*function\(root, factory\) \{\s*"
    r"if \(typeof module === .object. && module\.exports\) \{[^{}]*\} else \{[^{}]*\}\s*"
    r"\} \(typeof self !== .undefined. \? self : this, \(\) => \{\s*",
    re.DOTALL,
)
_TAIL = re.compile(r"\s*window\.Plotly = Plotly;\s*return Plotly;\s*\}\)\);\s*\Z")


@dataclass(frozen=True, slots=True)
class Packed:
    """The packed script: its text, and how many bytes of what it says are the script's."""

    text: str
    length: int


@lru_cache(maxsize=1)
def packed_plotly() -> Packed:
    """Return Plotly's script as a page holds it."""
    packed = gzip.compress(unwrapped(get_plotlyjs()).encode(), 9, mtime=0)
    filled = packed + bytes(-len(packed) % 4)
    return Packed(base64.b85encode(filled).decode("ascii").replace("<", "."), len(packed))


def unwrapped(script: str) -> str:
    """Return Plotly's script without the functions around it, or as it is where it is wrapped otherwise."""
    head, tail = _HEAD.match(script), _TAIL.search(script, max(0, len(script) - 200))
    if head is None or tail is None:
        return script
    return f"{head['licence']}{script[head.end() : tail.start()]}\nwindow.Plotly = Plotly;\n"
