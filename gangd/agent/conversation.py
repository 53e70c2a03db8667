"""The agent's conversation with its controllers; no socket and no clock inside.

What the agent says to its controller and understands of its answers; no socket and no clock inside.

One controller is obeyed, and one more may be *coming*: a later one that speaks while the lease of the former
still runs. The plan of the former is kept up to its lease, until the later one's clock is known and its first
slice begins; so a restart that is quick enough, or a standby that takes over, thaws nothing. From then on
nothing that the former says is believed, and its lease ends by itself. Each has a *line* over which it speaks
(an agent may know several controllers); what is said goes to the line of the later one.

The agent greets (``Hello``) once a second until it is welcomed, and again when a later controller speaks or
when nothing valid has come for a lease, or for ``SILENCE_NS`` where that is longer. It probes the clock, each
probe soon after the answer to the one before, until the offset can be trusted, then once a second or, while
the controller speaks, with the next report after that. A clock that keeps step is asked for every three
seconds or so, by each node at times of its own and not with its report: thousands of probes that come with
thousands of reports wait for these, and what they wait is the error of the clock. Unanswered probes are
repeated at leisure, or a thousand agents would drown a controller that has just started. Plans that come
before the offset is known wait: without it their age is unknown. A missed plan is asked for
again. Everything that is not understood is dropped and counted.

What an agent knows of one controller: its schedule, its clock, and over which line it speaks.
"""

from __future__ import annotations

import collections
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from gangd.agent.agenda import Agenda, AgendaItem, Rest
from gangd.clock import Offset, OffsetEstimate
from gangd.wire.messages import (
    OLDEST,
    VERSION,
    AccessRefused,
    ControllerIdentity,
    DownMessage,
    ForeignControllerError,
    Hello,
    Message,
    MissedPlanError,
    Ping,
    Pong,
    Resend,
    ThawNow,
    Welcome,
    WireError,
    common,
)
from gangd.wire.slice_schedule import SliceSchedule, is_later
from gangd.wire.wire_frames import decode_down, decode_reply

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


PROBE_FAST_NS = 20_000_000
PROBE_LOST_NS = 500_000_000
PROBE_NS = 1_000_000_000
PROBE_STEADY_NS, PROBE_SPREAD_NS = 2_500_000_000, 1_000_000_000
"""Between probes of a clock that keeps step; and how much more by the node's name: no two stay together."""
PROBE_SLACK_NS = 600_000_000
"""So long a probe waits for a report to travel with, while the controller was heard as lately."""
LONG_WAY_NS = 250_000_000
"""A message that came later than this after it was sent, or before, tells of a clock that jumped."""
HELLO_NS = 1_000_000_000
HELLO_UNSENT_NS = 50_000_000
OLDER_EVERY = 3
"""Of so many hellos without an answer one is in the version before: the controller may be older."""
REFUSED_NS = 500_000_000
REFUSED_MOST_NS = 5_000_000_000
"""Who is refused asks again after the first, then twice as late each time: Slurm soon knows a new node."""
RESEND_NS = 100_000_000
SILENCE_NS = 2_000_000_000
GOOD_NEWS = frozenset({"welcomed", "follow", "clock_trusted", "hand_over"})
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
    agenda
        Says when to probe, to greet and to hand over; no other code sets these.

    Attributes
    ----------
    outbox
        Messages to send, oldest first; the caller empties it.
    events
        What happened since the caller last emptied it.
    speaks
        The version of the protocol in which to say what is in the outbox.
    foreign
        Messages of other controllers dropped since the caller last set it to 0.
    """

    def __init__(self, hello: Hello, agenda: Agenda) -> None:
        self.hello = hello
        self.node = hello.node
        self.outbox: collections.deque[Message] = collections.deque()
        self.events: list[Happened] = []
        self.foreign = 0
        self._acting = ControllerSession(SliceSchedule(hello.node), None, 0)
        self._coming: ControllerSession | None = None
        self._steady_ns = PROBE_STEADY_NS + zlib.crc32(hello.node.encode()) % PROBE_SPREAD_NS
        self._welcome: bytes | None = None
        self._greetings = 0
        self.speaks = VERSION
        self._hello_open = False
        self._refused_ns = REFUSED_NS
        self._probed_ns = 0
        self._heard_ns: int | None = None
        self._agenda = agenda
        agenda.set(AgendaItem.PROBE, 0)
        self._plan_ahead(0)

    @property
    def timeline(self) -> SliceSchedule:
        """The schedule that is obeyed."""
        return self._acting.timeline

    @property
    def line(self) -> int | None:
        """Over which line to speak; None: over all, for none is known to listen."""
        return self._newest.line

    @property
    def _newest(self) -> ControllerSession:
        return self._acting if self._coming is None else self._coming

    def offset(self, now_ns: int) -> Offset | None:
        """Return the obeyed controller's clock minus ours and its bound, if it can be trusted now."""
        return self._acting.offset(now_ns)

    @property
    def is_welcome(self) -> bool:
        """Whether the controller that is spoken to has welcomed us: it refuses what it hears before."""
        return self._welcome is not None and self._welcome == self.follows()

    def follows(self) -> bytes | None:
        """Incarnation of the controller that is obeyed, or will be."""
        known = self._newest.controller
        return None if known is None else known.incarnation

    def on_down(self, frames: Sequence[bytes], now_ns: int, line: int = 0) -> bool:
        """Take in the frames of a SUB socket; returns whether schedule, exemptions or lease may differ."""
        changed = self._on_down(frames, now_ns, line)
        self._plan_ahead(now_ns)
        return changed

    def _on_down(self, frames: Sequence[bytes], now_ns: int, line: int) -> bool:
        try:
            message = decode_down(frames, self.node)
        except WireError as error:
            self._note(error.kind, str(error))
            return False
        session = self._session_of(message.controller, now_ns, line)
        if session is None:
            self.foreign += 1
            self._note(ForeignControllerError.kind, f"{self.node}: an earlier controller is still speaking")
            return False
        changed = session is self._coming and self._obey_at_once(message)
        offset = session.offset(now_ns)
        if offset is None:
            session.waiting.append((message, now_ns))
        else:
            session.line = line
            self._doubt_way(session, message.sent_ns, now_ns, offset)
            changed = self._accept(session, message, now_ns, offset.offset_ns, now_ns) or changed
        return self.hand_over(now_ns) or changed

    def on_reply(self, body: bytes, now_ns: int, line: int = 0) -> bool:
        """Take in an answer of the controller; returns as ``on_down``."""
        changed = self._on_reply(body, now_ns, line)
        self._plan_ahead(now_ns)
        return changed

    def _on_reply(self, body: bytes, now_ns: int, line: int) -> bool:
        if self.line not in (None, line):
            return False  # of one that we do not speak with any more
        try:
            reply = decode_reply(body, self.node)
        except WireError as error:
            self._note(error.kind, str(error))
            return False
        if isinstance(reply, Pong):
            return self._on_pong(reply, now_ns)
        if isinstance(reply, Welcome):
            return self._on_welcome(reply, now_ns, line)
        if isinstance(reply, AccessRefused):
            # Who was welcome says hello again at once; who was not may be refused for long. Reports are
            # refused, too: not each refusal may put off the next hello, or one that was lost is the last.
            self._greetings = 0  # it was understood
            if self._welcome is not None:
                self._agenda.rest(Rest.HELLO, now_ns)
            elif self._hello_open:
                self._agenda.rest(Rest.HELLO, now_ns + self._refused_ns)
                self._refused_ns = min(2 * self._refused_ns, REFUSED_MOST_NS)
            self._welcome, self._hello_open = None, False
            self._note("refused", reply.reason)
        return False

    def connect_anew(self, now_ns: int) -> None:
        """Begin to speak over other lines: no controller is known there yet."""
        self._acting.line = None
        if self._coming is not None:
            self._coming.line = None
        self._welcome = None
        self._agenda.rest(Rest.HELLO, 0)
        self._agenda.set(AgendaItem.PROBE, 0)
        self._plan_ahead(now_ns)

    def _on_welcome(self, welcome: Welcome, now_ns: int, line: int) -> bool:
        session = self._session_of(welcome.controller, now_ns, line)
        if session is None:
            return False
        self._welcome, self._greetings = welcome.controller.incarnation, 0
        self._refused_ns = REFUSED_NS
        self.speaks = common(welcome.version)
        session.timeline.greet(welcome.controller, now_ns)
        session.line = line
        self._heard_ns = now_ns
        self._note("welcomed", f"by controller {welcome.controller.incarnation.hex()[:12]}")
        return self.hand_over(now_ns)

    def on_unsent(self, message: Message, now_ns: int) -> None:
        """Note that no connection took a message: a hello is worth another attempt soon."""
        if isinstance(message, Hello):
            self._agenda.wake(Rest.HELLO, now_ns + HELLO_UNSENT_NS)
            self._greetings = 0
            self._plan_ahead(now_ns)

    def on_time(self, now_ns: int, *, reporting: bool = False) -> None:
        """Put into the outbox what is due; ``reporting`` if a report leaves at the same time."""
        if self._coming is None and self._is_silent(now_ns):
            self._acting.line = None
        if (self._agenda.may if reporting else self._agenda.must)(AgendaItem.PROBE, now_ns):
            trusted = self._newest.clock.trusted(now_ns)
            self._agenda.set(AgendaItem.PROBE, now_ns + (PROBE_NS if trusted else PROBE_LOST_NS))
            self._probed_ns = now_ns
            self.outbox.append(Ping(node=self.node, agent_ns=now_ns))
        if self._agenda.take(AgendaItem.HELLO, now_ns):
            self._agenda.rest(Rest.HELLO, now_ns + HELLO_NS)
            self._hello_open = True
            self._greetings += 1
            self.speaks = VERSION if self._greetings % OLDER_EVERY else OLDEST
            self.outbox.append(self.hello)
        self._plan_ahead(now_ns)

    def hand_over(self, now_ns: int) -> bool:
        """Obey the later controller from now on, if it is time: its first slice begins, or no lease runs."""
        coming = self._coming
        if coming is None:
            return False
        ready_ns = coming.ready_ns(now_ns)
        if (ready_ns is None or now_ns < ready_ns) and not self._acting.timeline.lease_over(now_ns):
            return False
        self._acting, self._coming = coming, None
        self._note("follow", f"controller {(self.follows() or b'').hex()[:12]}")
        self._plan_ahead(now_ns)
        return True

    def _session_of(self, controller: ControllerIdentity, now_ns: int, line: int) -> ControllerSession | None:
        """Return who is meant by what a controller says; None for one whose time is over."""
        acting, coming = self._acting, self._coming
        if coming is not None:
            if controller == coming.controller:
                return coming
            if coming.controller is None or not is_later(controller, coming.controller):
                return None
        elif acting.controller is None or controller == acting.controller:
            acting.controller = controller
            return acting
        elif not is_later(controller, acting.controller) and not acting.timeline.lease_over(now_ns):
            return None
        self._coming = ControllerSession(acting.timeline.successor(), controller, now_ns, line)
        self._heard_ns = now_ns
        self._agenda.set(AgendaItem.PROBE, now_ns)
        self._agenda.rest(Rest.HELLO, now_ns)
        text = (
            f"controller {controller.incarnation.hex()[:12]} speaks; the former plan is kept up to its lease"
        )
        self._note("hand_over", text)
        return self._coming

    def _obey_at_once(self, message: DownMessage) -> bool:
        if not isinstance(message, ThawNow):
            return False
        if message.jobs is None:
            self._acting.timeline.give_up()
        elif message.jobs:
            self._acting.timeline.latch(message.jobs)
        return message.jobs != ()

    def _plan_ahead(self, now_ns: int) -> None:
        """Put down when to probe, to greet and to hand over, as things stand now."""
        probe_ns = self._agenda.at(AgendaItem.PROBE) or 0
        self._agenda.set(AgendaItem.PROBE, probe_ns, self._probe_by_ns(probe_ns))
        hello_ns = self._agenda.rests_until(Rest.HELLO)
        if not self._is_unfamiliar(now_ns) and self._heard_ns is not None:
            hello_ns = max(hello_ns, self._heard_ns + self._silence_ns() + 1)
        self._agenda.set(AgendaItem.HELLO, hello_ns)
        self._agenda.strike(AgendaItem.HAND_OVER)
        if self._coming is not None:
            ready_ns = self._coming.ready_ns(now_ns)
            over_ns = self._acting.timeline.lease_until_ns or now_ns
            self._agenda.set(AgendaItem.HAND_OVER, over_ns if ready_ns is None else min(over_ns, ready_ns))

    def _probe_by_ns(self, probe_ns: int) -> int:
        """When to probe the clock even if nothing else is to be said."""
        if self._heard_ns is None or not self._newest.was_trusted or self._newest.clock.steady:
            return probe_ns
        return max(probe_ns, min(probe_ns, self._heard_ns) + PROBE_SLACK_NS)

    def _is_silent(self, now_ns: int) -> bool:
        return self._heard_ns is None or now_ns - self._heard_ns > self._silence_ns()

    def _silence_ns(self) -> int:
        return max(SILENCE_NS, self._newest.timeline.lease_ns)

    def _is_unfamiliar(self, now_ns: int) -> bool:
        """Whether the controller that speaks may not know us (any more)."""
        return self._is_silent(now_ns) or not self.is_welcome

    def _on_pong(self, pong: Pong, now_ns: int) -> bool:
        session = self._newest
        if pong.agent_ns < session.since_ns:  # of the former controller's clock
            return False
        jumps = session.clock.jumps
        session.on_probe(pong.agent_ns, pong.received_ns, pong.sent_ns, now_ns)
        trusted = session.clock.trusted(now_ns)
        if session.clock.jumps != jumps:
            self._note(
                "clock_jump", "the controller's clock, or ours, has jumped; the new offset is in force"
            )
        if not trusted:
            self._agenda.sooner(AgendaItem.PROBE, now_ns + PROBE_FAST_NS)
        elif session.clock.steady:
            self._agenda.set(AgendaItem.PROBE, now_ns + self._steady_ns)
        if trusted is not session.was_trusted:
            session.was_trusted = trusted
            offset = session.clock.at(now_ns)
            self._note(
                "clock_trusted" if trusted else "clock_doubted",
                "" if offset is None else f"offset {offset.offset_ns} ns, bound {offset.bound_ns} ns",
            )
        if not trusted:
            return False
        changed = self._take_waiting(session, now_ns)
        return self.hand_over(now_ns) or changed

    def _take_waiting(self, session: ControllerSession, now_ns: int) -> bool:
        changed = False
        while session.waiting and (offset := session.offset(now_ns)) is not None:
            message, arrival_ns = session.waiting.popleft()
            changed = self._accept(session, message, arrival_ns, offset.offset_ns, now_ns) or changed
        return changed

    def _accept(
        self, session: ControllerSession, message: DownMessage, arrival_ns: int, offset_ns: int, now_ns: int
    ) -> bool:
        """Let a session judge a message; returns whether what is obeyed may differ."""
        follows, acting = session.timeline.controller, session is self._acting
        try:
            session.timeline.accept(message, arrival_ns, offset_ns)
        except WireError as error:
            if isinstance(error, ForeignControllerError):
                self.foreign += 1
            if isinstance(error, MissedPlanError):
                self._ask_again(session, now_ns)
            self._note(error.kind, str(error))
            if session.timeline.controller == follows:
                return acting and isinstance(error, MissedPlanError)
            self._doubt_clock(session, follows, now_ns)
            return acting
        self._heard_ns = now_ns
        session.controller = session.timeline.controller
        if session.timeline.controller != follows and acting:
            self._note("follow", f"controller {(self.follows() or b'').hex()[:12]}")
            self._doubt_clock(session, follows, now_ns)
        return acting

    def _doubt_clock(
        self, session: ControllerSession, earlier: ControllerIdentity | None, now_ns: int
    ) -> None:
        """Probe anew before anything is held for a later controller: it may have another clock."""
        session.controller = session.timeline.controller
        if earlier is None:
            return
        session.doubt(now_ns)
        self._agenda.set(AgendaItem.PROBE, now_ns)

    def _doubt_way(self, session: ControllerSession, sent_ns: int, now_ns: int, offset: Offset) -> None:
        """Probe the clock that a message makes doubtful: by it, it came before it was sent, or long after."""
        way_ns = now_ns + offset.offset_ns - sent_ns
        if session is self._newest and not -offset.bound_ns <= way_ns <= LONG_WAY_NS:
            self._agenda.sooner(AgendaItem.PROBE, max(now_ns, self._probed_ns + PROBE_NS))

    def _ask_again(self, session: ControllerSession, now_ns: int) -> None:
        # A welcome comes with the plan.
        if self.is_welcome and self._agenda.rested(Rest.RESEND, now_ns):
            self._agenda.rest(Rest.RESEND, now_ns + RESEND_NS)
            self.outbox.append(Resend(node=self.node, have_epoch=session.timeline.epoch))

    def _note(self, kind: str, text: str) -> None:
        self.events.append(Happened(kind, text))
