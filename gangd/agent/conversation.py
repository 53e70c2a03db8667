"""What the agent says to its controller and understands of its answers; no socket and no clock inside.

The agent greets (``Hello``) once a second until it is welcomed, and again when a later controller speaks or
when nothing valid has come for a lease. It probes the clock, each probe soon after the answer to the one
before, until the offset can be trusted, then once a second or, while the controller speaks, with the next
report after that; unanswered probes are repeated at leisure, or a thousand agents would drown a controller
that has just started. Plans that come before the offset is known wait: without it nobody can tell how old
they are. A missed plan is asked for again. Everything that is not
understood is dropped and counted.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass

from gangd.clock.offset import Offset, OffsetEstimate
from gangd.wire import (
    ForeignControllerError,
    Hello,
    Message,
    MissedPlanError,
    Ping,
    Pong,
    Refused,
    Resend,
    Welcome,
    WireError,
    decode_down,
    decode_reply,
)
from gangd.wire.timeline import Timeline

PROBE_FAST_NS = 20_000_000
PROBE_LOST_NS = 500_000_000
PROBE_NS = 1_000_000_000
PROBE_SLACK_NS = 600_000_000
"""So long a probe waits for a report to travel with, while the controller was heard as lately."""
OFFSET_NS = 50_000_000
HELLO_NS = 1_000_000_000
REFUSED_NS = 5_000_000_000
RESEND_NS = 100_000_000
SILENCE_NS = 2_000_000_000
_WAITING = 64
GOOD_NEWS = frozenset({"welcomed", "follow", "clock_trusted"})
"""Kinds of ``Happened`` that are no faults."""


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that the caller logs or reports: a kind and a sentence."""

    kind: str
    text: str


class Conversation:
    """One agent's side of the protocol.

    Parameters
    ----------
    hello
        What it says of itself.

    Attributes
    ----------
    timeline
        The schedule as it is known.
    outbox
        Messages to send, oldest first; the caller empties it.
    events
        What happened since the caller last emptied it.
    foreign
        Messages of other controllers dropped since the caller last set it to 0.
    """

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self.node = hello.node
        self.timeline = Timeline(hello.node)
        self.outbox: collections.deque[Message] = collections.deque()
        self.events: list[Happened] = []
        self.foreign = 0
        self._clock = OffsetEstimate()
        self._offset: Offset | None = None
        self._offset_until_ns = 0
        self._was_trusted = False
        self._waiting: collections.deque[tuple[tuple[bytes, ...], int]] = collections.deque(maxlen=_WAITING)
        self._welcome: bytes | None = None
        self._hello_ns = 0
        self._hello_open = False
        self._probe_ns = 0
        self._resend_ns = 0
        self._heard_ns: int | None = None

    def offset(self, now_ns: int) -> Offset | None:
        """Return the controller's clock minus ours and its bound, if it can be trusted now."""
        if now_ns >= self._offset_until_ns:
            self._offset = self._clock.at(now_ns) if self._clock.trusted(now_ns) else None
            self._offset_until_ns = now_ns + OFFSET_NS
        return self._offset

    def follows(self) -> bytes | None:
        """Incarnation of the controller that is obeyed."""
        known = self.timeline.controller
        return None if known is None else known.incarnation

    def on_down(self, frames: Sequence[bytes], now_ns: int) -> bool:
        """Take in the frames of a SUB socket; returns whether schedule, exemptions or lease may differ."""
        offset = self.offset(now_ns)
        if offset is None:
            self._waiting.append((tuple(frames), now_ns))
            return False
        return self._accept(frames, now_ns, offset.offset_ns, now_ns)

    def on_reply(self, body: bytes, now_ns: int) -> bool:
        """Take in an answer of the controller; returns as ``on_down``."""
        try:
            reply = decode_reply(body, self.node)
        except WireError as error:
            self._note(error.kind, str(error))
            return False
        if isinstance(reply, Pong):
            return self._on_pong(reply, now_ns)
        if isinstance(reply, Welcome):
            self._welcome = reply.controller.incarnation
            self.timeline.greet(reply.controller, now_ns)
            self._heard_ns = now_ns
            self._note("welcomed", f"by controller {reply.controller.incarnation.hex()[:12]}")
        elif isinstance(reply, Refused):
            # Who was welcome says hello again at once; who was not may be refused for long. Reports are
            # refused, too: not each refusal may put off the next hello, or one that was lost is the last.
            if self._welcome is not None:
                self._hello_ns = now_ns
            elif self._hello_open:
                self._hello_ns = now_ns + REFUSED_NS
            self._welcome, self._hello_open = None, False
            self._note("refused", reply.reason)
        return False

    def on_time(self, now_ns: int, *, reporting: bool = False) -> None:
        """Put into the outbox what is due; ``reporting`` if a report leaves at the same time."""
        if now_ns >= (self._probe_ns if reporting else self._probe_due_ns()):
            self._probe_ns = now_ns + (PROBE_NS if self._clock.trusted(now_ns) else PROBE_LOST_NS)
            self.outbox.append(Ping(node=self.node, agent_ns=now_ns))
        if now_ns >= self._hello_ns and self._is_stranger(now_ns):
            self._hello_ns, self._hello_open = now_ns + HELLO_NS, True
            self.outbox.append(self.hello)

    def due_ns(self, now_ns: int) -> int:
        """When ``on_time`` has something to say again."""
        hello_ns = max(self._hello_ns, now_ns) if self._is_stranger(now_ns) else now_ns + SILENCE_NS
        return min(self._probe_due_ns(), hello_ns)

    def _probe_due_ns(self) -> int:
        """When to probe the clock even if nothing else is to be said."""
        if self._heard_ns is None or not self._was_trusted:
            return self._probe_ns
        return max(self._probe_ns, min(self._probe_ns, self._heard_ns) + PROBE_SLACK_NS)

    def _is_stranger(self, now_ns: int) -> bool:
        """Whether the controller that speaks may not know us (any more)."""
        known = self.follows()
        silent = self._heard_ns is None or now_ns - self._heard_ns > SILENCE_NS
        return silent or self._welcome is None or (known is not None and known != self._welcome)

    def _on_pong(self, pong: Pong, now_ns: int) -> bool:
        jumps = self._clock.jumps
        self._offset_until_ns = 0
        self._clock = self._clock.on_probe(pong.agent_ns, pong.received_ns, pong.sent_ns, now_ns)
        trusted = self._clock.trusted(now_ns)
        if self._clock.jumps != jumps:
            self._note(
                "clock_jump", "the controller's clock, or ours, has jumped; the new offset is in force"
            )
        if not trusted:
            self._probe_ns = min(self._probe_ns, now_ns + PROBE_FAST_NS)
        if trusted is not self._was_trusted:
            self._was_trusted = trusted
            offset = self._clock.at(now_ns)
            self._note(
                "clock_trusted" if trusted else "clock_doubted",
                "" if offset is None else f"offset {offset.offset_ns} ns, bound {offset.bound_ns} ns",
            )
        return self._take_waiting(now_ns) if trusted else False

    def _take_waiting(self, now_ns: int) -> bool:
        changed = False
        while self._waiting and (offset := self.offset(now_ns)) is not None:
            frames, arrival_ns = self._waiting.popleft()
            changed = self._accept(frames, arrival_ns, offset.offset_ns, now_ns) or changed
        return changed

    def _accept(self, frames: Sequence[bytes], arrival_ns: int, offset_ns: int, now_ns: int) -> bool:
        follows = self.follows()
        try:
            self.timeline.accept(decode_down(frames, self.node), arrival_ns, offset_ns)
        except WireError as error:
            if isinstance(error, ForeignControllerError):
                self.foreign += 1
            if isinstance(error, MissedPlanError):
                self._ask_again(now_ns)
            self._note(error.kind, str(error))
            if self.follows() == follows:
                return isinstance(error, MissedPlanError)
            self._doubt_clock(follows, now_ns)
            return True
        self._heard_ns = now_ns
        if self.follows() != follows:
            self._note("follow", f"controller {(self.follows() or b'').hex()[:12]}")
            self._doubt_clock(follows, now_ns)
        return True

    def _doubt_clock(self, earlier: bytes | None, now_ns: int) -> None:
        """Probe anew before anything is held for a later controller: it may have another clock."""
        if earlier is None:
            return
        self._clock = OffsetEstimate(jumps=self._clock.jumps)
        self._offset, self._offset_until_ns, self._was_trusted = None, 0, False
        self._probe_ns = now_ns

    def _ask_again(self, now_ns: int) -> None:
        if now_ns >= self._resend_ns:
            self._resend_ns = now_ns + RESEND_NS
            self.outbox.append(Resend(node=self.node, have_epoch=self.timeline.epoch))

    def _note(self, kind: str, text: str) -> None:
        self.events.append(Happened(kind, text))
