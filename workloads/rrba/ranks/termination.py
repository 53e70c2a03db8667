"""SIGTERM and SIGINT while a rank is inside the message-passing library.

A rank that waits for another polls in C, and Python's signal handlers run between Python's
instructions only: a job with one held rank could not be ended but by SIGKILL. So the signal's number
goes through a pipe, which the interpreter's C handler writes at once, to a thread that sleeps on it.
The library releases the interpreter while it waits, so the thread can report and end the process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class TerminationWatch:
    """Calls ``on_signal``, in a thread of its own, with the first of ``SIGNALS`` that comes.

    To be made in the main thread, once.
    """

    def __init__(self, on_signal: Callable[[int], None]) -> None:
        self._on_signal = on_signal
        self._reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._watch, name="termination", daemon=True).start()

    def _watch(self) -> None:
        while True:
            (number,) = os.read(self._reading, 1)
            if number in SIGNALS:
                self._on_signal(number)
                return
