"""Which connection each key speaks over: one agent has one, and a second one that lives is worth an alarm.

Every answer goes back over the connection on which the question came, so nobody gets what is another's; what
is found here is that a key is in two hands. An agent that connects anew leaves its former connection behind;
what was on the way over that one may still come for a while.
"""

from __future__ import annotations

GHOST_NS = 5_000_000_000
"""A connection that speaks so long after another has taken its place is alive."""
_REMEMBERED = 8


class Lines:
    """The newest connection of each key, and the few before it."""

    def __init__(self) -> None:
        self._newest: dict[str, bytes] = {}
        self._former: dict[str, dict[bytes, int]] = {}

    def is_double(self, key: str, connection: bytes, now_ns: int) -> bool:
        """Note that a key speaks over a connection; True if it speaks over two that both live."""
        newest = self._newest.get(key)
        if newest == connection:
            return False
        former = self._former.setdefault(key, {})
        replaced_ns = former.get(connection)
        if replaced_ns is not None:
            return now_ns - replaced_ns >= GHOST_NS
        self._newest[key] = connection
        if newest is not None:
            former[newest] = now_ns
            if len(former) > _REMEMBERED:
                del former[next(iter(former))]
        return False
