"""A line that says what takes so long, for work that says nothing of itself."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from foundation.one_line import one_line

_CLEAR = "\r\x1b[K"


@contextmanager
def waiting(what: str, after_s: float = 2.0, every_s: float = 1.0) -> Iterator[None]:
    """Say on a terminal's standard error what goes on and how long, once it has gone on for ``after_s``.

    The line is written by a thread of its own and removed at the end. Where standard error is no terminal
    nothing is written.
    """
    stream = sys.stderr
    if not stream.isatty():
        yield
        return
    done = threading.Event()
    began = time.monotonic()
    shown = False

    def tell() -> None:
        nonlocal shown
        pause_s = after_s
        while not done.wait(pause_s):
            shown, pause_s = True, every_s
            stream.write(f"{_CLEAR}osub: {one_line(what, 200)}, {time.monotonic() - began:.0f} s")
            stream.flush()

    teller = threading.Thread(target=tell, name="osub-waiting", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        if shown:
            stream.write(_CLEAR)
            stream.flush()
