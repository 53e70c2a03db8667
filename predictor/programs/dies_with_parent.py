"""Words that end a program with whoever started it."""

from __future__ import annotations

import shutil


def with_parent() -> list[str]:
    """Return the words before a command that end it with whoever starts it, who may be killed.

    A frozen program that nobody knows of would stay for ever. Without ``setpriv`` there are none.
    """
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL"] if found else []
