"""What an agent knows of one controller: its schedule, its clock, and over which line it speaks."""

from __future__ import annotations

import collections

from gangd.clock.offset import Offset, OffsetEstimate
from gangd.wire import ControllerIdentity, DownMessage
from gangd.wire.slice_schedule import SliceSchedule

OFFSET_NS = 50_000_000
_WAITING = 64


class ControllerSession:
    """One controller, as one agent knows it.

    Parameters
    ----------
    timeline
        The schedule as it is known.
    controller
        The controller that speaks; None while none has.
    since_ns
        When the first word came: a round trip that began before is with another clock.
    line
        Over which line; None while that is not known.

    Attributes
    ----------
    waiting
        Messages, and when they came, that cannot be judged before the clock is known.
    was_trusted
        Whether the clock was trusted when it was looked at last.
    """

    def __init__(
        self,
        timeline: SliceSchedule,
        controller: ControllerIdentity | None,
        since_ns: int,
        line: int | None = None,
    ) -> None:
        self.timeline = timeline
        self.controller = controller
        self.since_ns = since_ns
        self.line = line
        self.clock = OffsetEstimate()
        self.waiting: collections.deque[tuple[DownMessage, int]] = collections.deque(maxlen=_WAITING)
        self.was_trusted = False
        self._offset: Offset | None = None
        self._offset_until_ns = 0

    def offset(self, now_ns: int) -> Offset | None:
        """Return the controller's clock minus ours and its bound, if it can be trusted now."""
        if now_ns >= self._offset_until_ns:
            self._offset = self.clock.at(now_ns) if self.clock.trusted(now_ns) else None
            self._offset_until_ns = now_ns + OFFSET_NS
        return self._offset

    def on_probe(self, sent_ns: int, received_ns: int, answered_ns: int, returned_ns: int) -> None:
        """Take in a round trip."""
        self._offset_until_ns = 0
        self.clock = self.clock.on_probe(sent_ns, received_ns, answered_ns, returned_ns)

    def doubt(self, now_ns: int) -> None:
        """Forget the clock: another one may answer from now on."""
        self.clock = OffsetEstimate(jumps=self.clock.jumps)
        self.since_ns = now_ns
        self._offset, self._offset_until_ns, self.was_trusted = None, 0, False

    def ready_ns(self, now_ns: int) -> int | None:
        """Return when its first slice begins, on our clock; None while that, or its lease, is lacking."""
        offset, first = self.offset(now_ns), self.timeline.first_slice()
        if offset is None or first is None or self.timeline.lease_over(now_ns):
            return None
        start_ns = self.timeline.start_ns(first)
        return None if start_ns is None else start_ns - offset.offset_ns
