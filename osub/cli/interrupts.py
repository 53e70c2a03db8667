"""Signals that ask a command to end, for as long as it does something that must end well."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from foundation.interruption import ENDING


@contextmanager
def on_signals(tell: Callable[[int], object]) -> Iterator[None]:
    """Have SIGINT, SIGTERM and SIGHUP tell their numbers, and do nothing else, while the context lasts."""
    before = {
        number: signal.signal(number, lambda number, _: tell(number))
        for number in ENDING
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def interruption_says(words: Callable[[], str]) -> Iterator[None]:
    """Have Ctrl-C end a command with words on what is kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(words()) from None
