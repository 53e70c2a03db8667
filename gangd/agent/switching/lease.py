"""How long anything may be held on this node."""

from __future__ import annotations

from gangd.guardian.statefile import StateFile, Word


class Lease:
    """How long anything may be held, in the state file where the guardian sees it too."""

    def __init__(self, state: StateFile | None) -> None:
        self._state = state
        self._until_ns = 0

    def until_ns(self) -> int:
        """Instant (agent's clock) at which everything must be thawed; 0 for at once."""
        return self._until_ns

    def set_until(self, until_ns: int) -> None:
        """Renew or end the lease."""
        self._until_ns = until_ns
        if self._state is not None:
            self._state.set_word(Word.LEASE_NS, until_ns)

    def paused_until_ns(self) -> int:
        """Instant before which the operator wants nothing frozen."""
        return 0 if self._state is None else self._state.word(Word.PAUSED_UNTIL_NS)

    def trips(self) -> int:
        """How often another process (guardian, operator) thawed what we hold."""
        return 0 if self._state is None else self._state.word(Word.GUARDIAN_TRIPS)

    def valid(self, now_ns: int) -> bool:
        """Whether anything may be held at ``now_ns``."""
        return now_ns < self._until_ns and now_ns >= self.paused_until_ns()
