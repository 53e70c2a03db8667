"""How many messages of one sender are read: an agent has a few each second.

Who sends thousands has gone mad, or means harm. What is beyond is dropped before it is decoded, which costs a
third. The library takes turns among connections, so others wait for one message of his at most.
"""

from __future__ import annotations

SECOND_NS = 1_000_000_000
AT_ONCE = 5_000
A_SECOND = 1_000
_REMEMBERED = 20_000


class Quota:
    """A bucket for each sender, which fills with time and is emptied by messages."""

    def __init__(self) -> None:
        self._left: dict[object, tuple[float, int]] = {}

    def takes(self, sender: object, now_ns: int) -> bool:
        """Note a message; False if it is one too many."""
        left, then_ns = self._left.get(sender, (AT_ONCE, now_ns))
        left = min(AT_ONCE, left + A_SECOND * (now_ns - then_ns) / SECOND_NS)
        self._left[sender] = (max(0.0, left - 1), now_ns)
        if len(self._left) > _REMEMBERED:
            self._forget(now_ns)
        return left >= 1

    def _forget(self, now_ns: int) -> None:
        """Forget the senders whose buckets are full again."""
        filled_ns = AT_ONCE * SECOND_NS // A_SECOND
        self._left = {one: kept for one, kept in self._left.items() if now_ns - kept[1] < filled_ns}
