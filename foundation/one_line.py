"""Others' words in our messages: one line, of characters that can be printed, not too long."""

from __future__ import annotations

MOST_CHARACTERS = 200
LONGEST_MESSAGE = 4_000


def one_line(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text as one line: control characters and line ends become ``?``, a long end is cut."""
    shown = text if len(text) <= most else text[: most - 3] + "..."
    return shown if shown.isprintable() else "".join(one if one.isprintable() else "?" for one in shown)
