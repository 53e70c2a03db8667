"""Signals that ask a command to end, for as long as it does something that must end well."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def told_of_signals(tell: Callable[[int], object]) -> Iterator[None]:
    """Have SIGINT and SIGTERM tell their numbers, and do nothing else, while the context lasts."""
    with _handled((signal.SIGINT, signal.SIGTERM), lambda number, _: tell(number)):
        yield


@contextmanager
def ended_as_by_ctrl_c(*numbers: signal.Signals) -> Iterator[None]:
    """Have signals (SIGTERM, if none is named) end what goes on as Ctrl-C does: it cleans up first."""
    with _handled(numbers or (signal.SIGTERM,), signal.default_int_handler):
        yield


@contextmanager
def interruption_says(words: Callable[[], str]) -> Iterator[None]:
    """Have Ctrl-C end a command with words on what is kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(words()) from None


@contextmanager
def _handled(
    numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], object]
) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
