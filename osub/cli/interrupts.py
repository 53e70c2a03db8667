"""Words at Ctrl-C on what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruption_says(words: Callable[[], str]) -> Iterator[None]:
    """Have Ctrl-C end a command with words on what is kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(words()) from None
