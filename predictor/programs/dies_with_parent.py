"""Command prefix that ends a program together with its parent."""

from __future__ import annotations

import shutil


def with_parent() -> list[str]:
    """Return the words before a command that end it with its parent, which may be killed.

    A frozen program without a parent would stay for ever. Without ``setpriv`` there are none.
    """
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL"] if found else []
