"""What is raised where an invariant does not hold, and waiting that ends in it."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.fixtures.looks import looks


class Broken(Exception):
    """An invariant that does not hold; the sentence says which."""


def wait_for(condition: Callable[[], bool], within_s: float, what: str) -> float:
    """Poll until ``condition`` holds and return how long that took; raises Broken, naming ``what``."""
    began_s = time.monotonic()
    for _ in looks(within_s, least_s=0.03):
        if condition():
            return time.monotonic() - began_s
    raise Broken(f"not within {within_s:g} s: {what}")
