"""The node agent's event queue: what is due and when. Pure; the caller passes the time.

* An item has one time. However often it was missed while the host was frozen, it is due once: nothing
  bursts afterwards, and nothing is due again before it is set again.
* An item may be done from one instant on if the loop is awake anyway, and must be done by another: the loop
  is not woken before that.
* Items for suspended jobs alone (``WHILE_HELD``) wait, and wake nothing, while no job is suspended.
* A rest wakes nothing: it says what must not be done again yet.

The switch thread has its own instants (``switching``): it has to be on time when everything here is late.
"""

from __future__ import annotations

import enum

_NEVER = 2**63


class AgendaItem(enum.IntEnum):
    """What there is to do, in the order in which a pass does it."""

    FOLDERS = 0  # look for steps, as inotify or slurmd has reported a change
    PROBE = 1  # ask the controller for its clock
    HELLO = 2  # greet the controller
    HAND_OVER = 3  # obey the controller that has come
    COLLECT = 4  # take in the switches that were made
    SETTLE = 5  # look at freezes that have not taken effect
    LOOK = 6  # look for steps, processes, external changes
    DECIDE = 7  # what is to be held changes with time alone
    SLICE = 8  # a slice begins without a switch
    LEASE = 9  # let everything go
    LEAK = 10  # see what held jobs use
    REPORT = 11  # tell the controller
    WELL = 12  # see whether guardian, switch thread and lines are well
    CENSUS = 13  # go on looking at all processes of the host
    MEMORY = 14  # see whether memory is measured that is to be


class Rest(enum.IntEnum):
    """What is not done too often."""

    REFRESH = 0  # finding steps
    SIGNALS = 1  # looking for pending signals
    ALONE = 2  # reading jobs that no slice names
    RESEND = 3  # asking for a plan that was missed
    HELLO = 4  # greeting


WHILE_HELD = frozenset({AgendaItem.LEASE, AgendaItem.LEAK})
_ALWAYS = [item for item in AgendaItem if item not in WHILE_HELD]


class Agenda:
    """Items and rests, with instants on the agent's clock (ns)."""

    def __init__(self) -> None:
        self._from = [_NEVER] * len(AgendaItem)
        self._by = [_NEVER] * len(AgendaItem)
        self._rests = [0] * len(Rest)

    def set(self, item: AgendaItem, at_ns: int, by_ns: int | None = None) -> None:
        """Put an item down, in place of what was put down of it before.

        Parameters
        ----------
        item
            What.
        at_ns
            From when on it may be done.
        by_ns
            When it has to be done; at once if None.
        """
        self._from[item] = at_ns
        self._by[item] = at_ns if by_ns is None else max(at_ns, by_ns)

    def sooner(self, item: AgendaItem, at_ns: int) -> None:
        """Put an item down, unless it has to be done by then anyway."""
        if at_ns < self._by[item]:
            self.set(item, min(at_ns, self._from[item]), at_ns)

    def strike(self, item: AgendaItem) -> None:
        """Take an item off."""
        self._from[item] = self._by[item] = _NEVER

    def at(self, item: AgendaItem) -> int | None:
        """From when on an item may be done; None if it is not on the agenda."""
        at_ns = self._from[item]
        return None if at_ns == _NEVER else at_ns

    def may(self, item: AgendaItem, now_ns: int) -> bool:
        """Whether an item may be done now."""
        return now_ns >= self._from[item]

    def must(self, item: AgendaItem, now_ns: int) -> bool:
        """Whether an item has to be done now."""
        return now_ns >= self._by[item]

    def take(self, item: AgendaItem, now_ns: int) -> bool:
        """Whether an item may be done now; if so it is struck: the caller does it."""
        if now_ns < self._from[item]:
            return False
        self.strike(item)
        return True

    def due_ns(self, *, holding: bool) -> int | None:
        """When something has to be done, at the soonest; None for never.

        ``holding``: whether anything is held.
        """
        due_ns = min(self._by) if holding else min([self._by[item] for item in _ALWAYS])
        return None if due_ns == _NEVER else due_ns

    def rest(self, rest: Rest, until_ns: int) -> None:
        """Let something rest until an instant."""
        self._rests[rest] = until_ns

    def wake(self, rest: Rest, at_ns: int) -> None:
        """End a rest at an instant, if it would last longer."""
        self._rests[rest] = min(self._rests[rest], at_ns)

    def rests_until(self, rest: Rest) -> int:
        """When a rest ends, or ended."""
        return self._rests[rest]

    def rested(self, rest: Rest, now_ns: int) -> bool:
        """Whether a rest is over."""
        return now_ns >= self._rests[rest]
