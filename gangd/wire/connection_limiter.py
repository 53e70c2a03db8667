"""Connection limit: pure, from the library's events of connections and the authenticator's keys.

The owner of a connection is unknown before its key has been seen, and a peer can open thousands and
say nothing. So they are counted by where they come from (``packetfilter.origin_of``). An origin may have
``CONNECTIONS`` connections, and ``CONNECTIONS_A_KEY`` more for each key of the allow-list that was seen from
it; as many it may open within ``PACE_NS``. One that takes more is shut out for a second, and for twice as
long each time it does so again within ``MEMORY_NS``: up to a minute, and to seconds if an agent's key was
seen from it, for that one must be able to come back. If new keys have come from it meanwhile, it is a host of
many agents that all begin at once, and a second is enough. Established connections are kept: agents keep
their plans.

When all origins together come near the number of files that this process may open, all are shut out until
some connections are closed: open connections must not suffer for new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SECOND_NS = 1_000_000_000
CONNECTIONS = 64
CONNECTIONS_A_KEY = 8
CONNECTIONS_NOWHERE = 2_000
PACE_NS = 10 * SECOND_NS
FIRST_NS = SECOND_NS
LONGEST_NS = 64 * SECOND_NS
LONGEST_WITH_KEYS_NS = 4 * SECOND_NS
MEMORY_NS = 300 * SECOND_NS
A_FEW = 8
MOST_ORIGINS = 50_000
MOST_SHARING = 10_000
NOWHERE = ""
"""Origin of connections that were gone before anybody could look where they came from."""


@dataclass(slots=True)
class _Origin:
    since_ns: int
    open: int = 0
    lately: int = 0
    before: int = 0
    keys: set[str] = field(default_factory=set)
    keys_then: int = 0
    shut_until_ns: int = 0
    shut_for_ns: int = 0
    times: int = 0
    denied: int = 0

    def pace(self, now_ns: int) -> int:
        """Count connections that were opened in the last ten to twenty seconds."""
        if now_ns >= self.since_ns + PACE_NS:
            fresh = now_ns < self.since_ns + 2 * PACE_NS
            self.before, self.lately, self.since_ns = self.lately if fresh else 0, 0, now_ns
        return self.lately + self.before

    @property
    def limit(self) -> int:
        """How many connections it may have."""
        return CONNECTIONS + CONNECTIONS_A_KEY * len(self.keys)


@dataclass(frozen=True, slots=True)
class ShutOut:
    """An origin is shut out: why, for how long, and how often it was."""

    origin: str
    why: str
    for_ns: int
    times: int


@dataclass(frozen=True, slots=True)
class Denied:
    """A key that is not on the allow-list was tried from an origin, so often by now; ``owner`` had it."""

    origin: str
    times: int
    owner: str | None = None


class ConnectionLimiter:
    """Counts, and says who is shut out.

    Parameters
    ----------
    most
        Connections that this process can bear in all.

    Attributes
    ----------
    open
        Connections that are open.
    is_full
        Whether everybody is shut out.
    """

    def __init__(self, most: int) -> None:
        self.open = 0
        self.is_full = False
        self._most = most
        self._origins: dict[str, _Origin] = {}
        self._of: dict[tuple[str, int], str] = {}
        self._shut: set[str] = set()

    def opened(self, connection: tuple[str, int], origin: str, now_ns: int) -> ShutOut | None:
        """Note a connection; returns the news if it is one too many."""
        self.closed(connection)  # a number that is used again: its end was not reported
        known = self._origin(origin, now_ns)
        self._of[connection] = origin
        self.open += 1
        known.open += 1
        taken = max(known.pace(now_ns) + 1, known.open)
        known.lately += 1
        self.is_full = self.is_full or self.open >= self._most
        limit = CONNECTIONS_NOWHERE if origin == NOWHERE else known.limit
        if taken <= limit or origin in self._shut:
            return None
        if origin == NOWHERE:
            origin = self._likeliest(now_ns)
            return self.shut_out(origin, f"{taken} connections that were gone at once", now_ns)
        return self.shut_out(origin, f"{taken} connections, limit {limit}", now_ns)

    def closed(self, connection: tuple[str, int]) -> None:
        """Note that a connection is closed."""
        origin = self._of.pop(connection, None)
        if origin is None:
            return
        self.open -= 1
        self._origins[origin].open -= 1
        if self.open < self._most * 3 // 4:
            self.is_full = False

    def admitted(self, origin: str, key: str, now_ns: int, *, shared: bool = False) -> None:
        """Note that a key of the allow-list has come from an origin, perhaps one that many agents share."""
        keys = self._origin(origin, now_ns).keys
        keys.add(f"{key} {len(keys)}" if shared and len(keys) < MOST_SHARING else key)

    def denied(self, origin: str, now_ns: int, owner: str | None = None) -> Denied | None:
        """Note that another key has; returns the news, the more seldom the more often it does."""
        known = self._origin(origin, now_ns)
        known.denied += 1
        return Denied(origin, known.denied, owner) if known.denied.bit_count() == 1 else None

    def shut_out(self, origin: str, why: str, now_ns: int) -> ShutOut | None:
        """Shut an origin out; None if it is already."""
        if origin in self._shut:
            return None
        known = self._origin(origin, now_ns)
        again = known.times and now_ns < known.shut_until_ns + MEMORY_NS
        grows = again and len(known.keys) <= known.keys_then and origin != NOWHERE
        longest_ns = LONGEST_WITH_KEYS_NS if known.keys else LONGEST_NS
        known.shut_for_ns = min(2 * known.shut_for_ns, longest_ns) if grows else FIRST_NS
        known.shut_until_ns = now_ns + known.shut_for_ns
        known.keys_then = len(known.keys)
        known.times += 1
        self._shut.add(origin)
        return ShutOut(origin, why, known.shut_for_ns, known.times)

    def shut(self, now_ns: int) -> frozenset[str]:
        """Return the origins that are shut out now; those that have waited long enough are let in again."""
        for origin in [one for one in self._shut if now_ns >= self._origins[one].shut_until_ns]:
            self._shut.remove(origin)
            known = self._origins[origin]
            known.lately = known.before = 0  # what it opened before is paid for
        return frozenset(self._shut)

    def due_ns(self) -> int | None:
        """When the next origin is let in again; None if no origin is shut out."""
        return min((self._origins[one].shut_until_ns for one in self._shut), default=None)

    def forget(self, now_ns: int) -> None:
        """Forget origins of which nothing was heard for long."""
        for name, known in list(self._origins.items()):
            quiet_ns = max(known.shut_until_ns, known.since_ns)
            if not known.open and name not in self._shut and now_ns > quiet_ns + MEMORY_NS:
                del self._origins[name]

    def _likeliest(self, now_ns: int) -> str:
        """Guess which origin opens connections that end before they are looked at: some are seen.

        The origin that opened most of late, if that is more than agents do; else none is more likely, and
        all origins wait for a second.
        """
        paces = {name: one.pace(now_ns) for name, one in self._origins.items() if name != NOWHERE}
        likeliest = max(paces, key=lambda name: paces[name], default=NOWHERE)
        self._origins[NOWHERE].lately = self._origins[NOWHERE].before = 0
        return likeliest if paces.get(likeliest, 0) > A_FEW else NOWHERE

    def _origin(self, name: str, now_ns: int) -> _Origin:
        known = self._origins.get(name)
        if known is None:
            if len(self._origins) >= MOST_ORIGINS:
                self._drop_idle()
            known = self._origins[name] = _Origin(now_ns)
        return known

    def _drop_idle(self) -> None:
        """Forget every origin of which nothing is left but that it was there: there are very many."""
        self._origins = {
            name: one
            for name, one in self._origins.items()
            if one.open or one.keys or name in self._shut or name == NOWHERE
        }
