"""Others' words in our messages: one line, of characters that can be printed, not too long.

What a job that failed said last is its own words, not those of the launchers around it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

MOST_CHARACTERS = 200
LONGEST_MESSAGE = 4_000
_LAUNCHERS = (
    "srun: ",
    "slurmstepd: ",
    "mpiexec: ",
    "[mpiexec@",
    "[proxy:",
    "Abort(",
    "===",
    "internal ABORT",
)
_OWN = ("rrba: ", "eiba: ")
_MOST_WORDS_BYTES = 1 << 16


def one_line(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text as one line: control characters and line ends become ``?``, a long end is cut."""
    shown = text if len(text) <= most else text[: most - 3] + "..."
    return shown if shown.isprintable() else "".join(one if one.isprintable() else "?" for one in shown)


def last_words(output: Path) -> str | None:
    """Return the line of a job's output that says why it failed, None where no plain file has one.

    What our applications say comes first, then what no launcher said: srun tells of each rank that it ended,
    after the rank has said why.
    """
    try:
        # A job can put anything there: nothing is followed, and nothing is waited for.
        with os.fdopen(os.open(output, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            known = os.fstat(stream.fileno())
            if not stat.S_ISREG(known.st_mode):
                return None
            stream.seek(max(0, known.st_size - _MOST_WORDS_BYTES))
            text = stream.read(_MOST_WORDS_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(_OWN)]
    others = [line for line in lines if not line.startswith(_LAUNCHERS)]
    said = own or others or lines
    return one_line(said[-1]) if said else None
