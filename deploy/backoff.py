"""How long to wait before a daemon that ended is started again, and how its end is said. Pure."""

from __future__ import annotations

import signal

FIRST_S = 0.5
LONGEST_S = 30.0
LONG_LIFE_S = 60.0


class Backoff:
    """Doubles the wait from restart to restart, up to ``LONGEST_S``; after a long life it begins anew."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def after(self, lived_s: float) -> float:
        """Return for how many seconds to wait after the end of a daemon that lived so long."""
        if lived_s >= LONG_LIFE_S:
            self._next_s = FIRST_S
        wait_s, self._next_s = self._next_s, min(2 * self._next_s, LONGEST_S)
        return wait_s


def ended_by(code: int | None) -> str:
    """Return an exit code in words: negative is a signal, as ``subprocess`` has it; None is not known."""
    if code is None:
        return "unknown"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
