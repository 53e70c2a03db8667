"""What agents say: taken off the socket, and kept until it is judged.

What agents say, taken off the socket: probes of the clock are answered at once, the rest in its turn.

All agents report at the same instant, soon after a slice begins, and many probe the clock then. What a probe
waits for here is in its round trip, and an agent that finds no short one trusts no clock and suspends no job.
So probes overtake reports, and few reports are judged between two looks for probes.

Who cannot judge all that comes takes it off the socket nevertheless, and keeps little of each agent
(``backlog``): what waits stays bounded, and of each node the newest counts.

``Quota``: an agent has a few messages each second; one that sends thousands is broken, or means harm. What is
beyond is dropped before it is decoded, which costs a third. After ``MOST_BEYOND`` of these the connection is
cut: to drop 30,000 a second takes a third of a core. The library takes turns among connections, so others
wait for one such message at most.

``AgentConnections``: one agent has one connection, and a second live one with its key raises an
alarm. Every answer goes back over the connection on which the question came, so no agent gets what is
another's; what is found here is that a key is in two hands. An agent that connects anew leaves its former
connection behind; what was on the way over that one may still come for a while.

Messages of agents that are not judged yet: a bounded number of each agent.

A controller that judges more slowly than agents report must not hoard what they say: what it would read a
minute later decides nothing, and the memory is missing elsewhere. So a report takes in the one before it of
the same agent that waits still, in whose place it is judged (``condensed``). What an agent says besides is
said once and answered, so it is kept as it is; who says more than ``MOST_OF_ONE`` such things before one was
judged is not listened to.

Pure: no socket, no clock.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from gangd.controller.alarms import fault_alarm
from gangd.controller.command_executor import CommandExecutor
from gangd.controller.uplink import Times, Uplink
from gangd.core.cores import CoreMap, InvalidEvent
from gangd.core.scheduler import GangScheduler
from gangd.core.scheduler_events import Alarm, NodeReport
from gangd.wire.messages import (
    MAX_FRAME_BYTES,
    MAX_JOBS_PER_LIST,
    Hello,
    JobSample,
    Ping,
    Report,
    Resend,
    SliceReport,
    UpMessage,
    WireError,
    common,
)
from gangd.wire.sockets import ControllerSockets, Received
from gangd.wire.wire_frames import decode_up

MOST_OF_ONE = 16
"""Messages of one agent that wait, after reports were taken together."""
MOST_SLICES = 64
"""Slices in a report that others were taken into: as many as an agent keeps itself."""
SAMPLED_SLICES = 2
"""Of these with samples: what a short stall holds up is not lost."""
MOST_FAULTS = 256
MOST_BYTES_OF_ONE = MAX_FRAME_BYTES
"""Of which no more is taken in once so many wait."""

SECOND_NS = 1_000_000_000
AT_ONCE, A_SECOND = 5_000, 500
"""Messages of one sender that are read: so many after a silence, and so many a second."""
MOST_BEYOND = 5_000
"""So many messages beyond its quota cost a sender the connection."""
_MOST_SENDERS = 20_000

Sender = bytes | tuple[bytes, str]


@dataclass(slots=True)
class WaitingMessage:
    """A message that waits.

    Attributes
    ----------
    taken
        As it came; of reports that were taken together the newest.
    received_ns
        When that was.
    message
        Its content; None while it is not decoded.
    """

    taken: Received
    received_ns: int
    message: UpMessage | None = None

    def said(self) -> UpMessage:
        """Return what it says; raises ``WireError`` where it is no message."""
        if self.message is None:
            self.message = decode_up(self.taken.body, self.taken.node)
        return self.message


class Backlog:
    """Messages in the order in which they are to be judged."""

    def __init__(self) -> None:
        self._queue: collections.deque[tuple[Sender, WaitingMessage]] = collections.deque()
        self._of: dict[Sender, list[WaitingMessage]] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, taken: Received, received_ns: int, message: UpMessage | None = None) -> bool:
        """Take in a message; False where too much of its sender waits, and it is dropped.

        Raises
        ------
        WireError
            It is no message, which was seen already.
        """
        one = WaitingMessage(taken, received_ns, message)
        # Over a connection whose key speaks for every node many agents may speak.
        sender = taken.connection if taken.node is not None else (taken.connection, one.said().node)
        here = self._of.get(sender)
        if here is None:
            self._of[sender] = [one]
        elif _takes_in(here[-1], one):
            return True
        elif len(here) >= MOST_OF_ONE or sum([len(one.taken.body) for one in here]) > MOST_BYTES_OF_ONE:
            return False
        else:
            here.append(one)
        self._queue.append((sender, one))
        return True

    def take(self) -> WaitingMessage:
        """Take the message whose turn it is."""
        sender, one = self._queue.popleft()
        here = self._of[sender]
        del here[0]
        if not here:
            del self._of[sender]
        return one


def condensed(older: Report, newer: Report) -> Report:
    """Return one report in the place of two of one agent: the newer, with what must not be lost of the older.

    That are jobs that were born or launched, or are dying, or ended and were not seen again, what was found,
    what went wrong, and who was held in which slices, for by that ends of jobs are moved. What jobs used is
    kept of the newest slices alone: demand is what was seen last, and judging it takes the most time.
    """
    alive = {*newer.born, *newer.launched, *_seen(newer)} if older.ended else set()
    return msgspec.structs.replace(
        newer,
        slices=_sampled_last((*older.slices, *newer.slices)[-MOST_SLICES:]),
        born=_both(older.born, newer.born),
        launched=_both(older.launched, newer.launched),
        ended=_both(tuple([job for job in older.ended if job not in alive]), newer.ended),
        dying=_both(older.dying, newer.dying),
        alone=_newest(older.alone, newer.alone),
        found=(*older.found, *newer.found)[-MAX_JOBS_PER_LIST:],
        leaks=(*older.leaks, *newer.leaks)[-MAX_JOBS_PER_LIST:],
        faults=(*older.faults, *newer.faults)[-MOST_FAULTS:],
        foreign_controllers=older.foreign_controllers + newer.foreign_controllers,
        memory=newer.memory or older.memory,
    )


def _takes_in(older: WaitingMessage, newer: WaitingMessage) -> bool:
    """Let ``older`` say what ``newer`` says as well, where that is possible."""
    try:
        before, now = older.said(), newer.said()
    except WireError:
        return False  # each is dropped, and counted, when it is judged
    if isinstance(before, Report) and isinstance(now, Report):
        if before.incarnation != now.incarnation or before.seq >= now.seq or before.version != now.version:
            return False
        older.message = condensed(before, now)
    elif isinstance(now, Hello | Resend) and type(before) is type(now):
        older.message = now
    else:
        return False
    older.taken, older.received_ns = newer.taken, newer.received_ns
    return True


def _seen(report: Report) -> set[int]:
    """Return the jobs of which a report saw a process."""
    samples = itertools.chain(report.alone, *[one.samples for one in report.slices])
    return {sample.job for sample in samples if sample.tasks}


def _sampled_last(slices: tuple[SliceReport, ...]) -> tuple[SliceReport, ...]:
    """Return slices of which the newest few that have samples keep them."""
    sampled = [place for place, one in enumerate(slices) if one.samples]
    if len(sampled) <= SAMPLED_SLICES:
        return slices
    kept = list(slices)
    for place in sampled[:-SAMPLED_SLICES]:
        kept[place] = msgspec.structs.replace(kept[place], samples=())
    return tuple(kept)


def _both(older: tuple[int, ...], newer: tuple[int, ...]) -> tuple[int, ...]:
    if not older:
        return newer
    return tuple(dict.fromkeys((*older, *newer)))[-MAX_JOBS_PER_LIST:]


def _newest(older: Iterable[JobSample], newer: Iterable[JobSample]) -> tuple[JobSample, ...]:
    by_job = {sample.job: sample for sample in older} | {sample.job: sample for sample in newer}
    return tuple(by_job.values())[-MAX_JOBS_PER_LIST:]


class Quota:
    """A bucket for each sender, which fills with time and is emptied by messages."""

    def __init__(self) -> None:
        self._left: dict[object, tuple[float, int]] = {}
        self._beyond: collections.Counter[object] = collections.Counter()

    def takes(self, sender: object, now_ns: int) -> bool:
        """Note a message; False if it is one too many."""
        left, then_ns = self._left.get(sender, (AT_ONCE, now_ns))
        left = min(AT_ONCE, left + A_SECOND * (now_ns - then_ns) / SECOND_NS)
        self._left[sender] = (max(0.0, left - 1), now_ns)
        if len(self._left) > _MOST_SENDERS:
            self._forget(now_ns)
        return left >= 1

    def admits(self, taken: Received, sockets: ControllerSockets, now_ns: int) -> bool:
        """Return whether a message is within the quota of its sender; cut the connection of a flood."""
        sender = taken.connection if taken.node is None else taken.key
        if self.takes(sender, now_ns):
            return True
        self._beyond[sender] += 1
        if self._beyond[sender] >= MOST_BEYOND:
            self._beyond.clear()
            sockets.cut(taken, f"the key of {taken.key} sends more than is read")
        return False

    def _forget(self, now_ns: int) -> None:
        filled_ns = AT_ONCE * SECOND_NS // A_SECOND
        self._left = {one: kept for one, kept in self._left.items() if now_ns - kept[1] < filled_ns}


TURN_NS = 200_000_000
"""Slices do not wait longer than this for a peer that never stops sending."""
READ_AT_ONCE = 256
"""Messages taken off the socket between two rounds of judging: an endless sender delays no other."""
BETWEEN_LOOKS = 32
"""Reports judged between two looks for probes: some 2 ms."""
LONGEST_PROBE_BYTES = 256

GHOST_NS = 5_000_000_000
"""A connection that speaks so long after another has taken its place is alive."""
_MOST_FORMER = 8


class Intake:
    """Takes messages, judges them, and has carried out what follows.

    Parameters
    ----------
    unknown
        Called when an agent says hello whose node Slurm is not known to have.
    resend
        Called with a node that needs its whole plan.

    Attributes
    ----------
    heard
        Nodes that have reported slices; the caller empties it.
    on_report
        Called with each report that the core took.
    caught_up_ns
        When nothing was left to take last: reports sent before then were read.
    """

    def __init__(
        self,
        sockets: ControllerSockets,
        cores: CoreMap,
        scheduler: GangScheduler,
        uplink: Uplink,
        orders: CommandExecutor,
        unknown: Callable[[], None],
        resend: Callable[[str], None],
        clock: Callable[[], int],
    ) -> None:
        self.heard: set[str] = set()
        self.caught_up_ns = clock()
        self.on_report: Callable[[NodeReport], None] = lambda _: None
        self._sockets = sockets
        self._cores = cores
        self._scheduler = scheduler
        self._uplink = uplink
        self._orders = orders
        self._unknown = unknown
        self._resend = resend
        self._clock = clock
        self._lines = AgentConnections()
        self._quota = Quota()
        self._waiting = Backlog()

    @property
    def has_more(self) -> bool:
        """Whether messages wait here that were not judged yet."""
        return bool(self._waiting)

    def take(self) -> None:
        """Take and judge what has come, for a turn at most."""
        until_ns = self._clock() + TURN_NS
        while True:
            more = self._collect(until_ns)
            for _ in range(min(BETWEEN_LOOKS, len(self._waiting))):
                waits = self._waiting.take()
                self._try(waits.taken, waits.received_ns, waits.message)
            if not (more or self._waiting):
                self.caught_up_ns = self._clock()
                return
            if self._clock() > until_ns:
                return

    def _collect(self, until_ns: int) -> bool:
        """Take some of what waits in the socket, and answer probes; False if nothing is left there."""
        for _ in range(READ_AT_ONCE):
            try:
                taken = self._sockets.receive()
                if taken is None:
                    return False
                received_ns = self._clock()
                if self._is_read(taken, received_ns):
                    self._sort(taken, received_ns)
                if received_ns > until_ns:
                    break
            except WireError as error:
                self._orders.drop(error.kind, str(error))
        return True

    def _sort(self, taken: Received, received_ns: int) -> None:
        """Answer a probe; let everything else wait for its turn."""
        message = None
        if len(taken.body) <= LONGEST_PROBE_BYTES:
            message = decode_up(taken.body, taken.node)
            if isinstance(message, Ping):
                self._judge(taken, received_ns, message)
                return
        if not self._waiting.put(taken, received_ns, message):
            self._orders.on_flood(taken.key)

    def _is_read(self, taken: Received, received_ns: int) -> bool:
        if self._quota.admits(taken, self._sockets, received_ns):
            return True
        self._orders.on_flood(taken.key)
        return False

    def _try(self, taken: Received, received_ns: int, message: UpMessage | None) -> None:
        try:
            self._judge(taken, received_ns, message or decode_up(taken.body, taken.node))
        except WireError as error:
            self._orders.drop(error.kind, str(error))
        except InvalidEvent as error:
            self._orders.drop("invalid_event", str(error))

    def _judge(self, taken: Received, received_ns: int, message: UpMessage) -> None:
        node = message.node
        if node in self._cores and self._lines.is_double(node, taken.connection, received_ns):
            text = f"two connections speak with the key of {node}: stop one agent, or make a new key"
            self._orders.alarm(Alarm("key", node, text))
        settings = self._scheduler.settings
        pace = self._scheduler.pace
        times = Times(pace.quantum_ns, settings.lease_ns, pace.lookahead)
        state = self._scheduler.agent_state(node)
        reaction = self._uplink.on_message(message, received_ns, self._clock(), times, state)
        for reply in reaction.replies:
            self._orders.reply(taken.connection, reply, common(message.version))
        if reaction.alarm is not None:
            self._orders.alarm(Alarm("agent", node, reaction.alarm))
        for fault in reaction.faults:
            alarm = fault_alarm(node, fault)
            if alarm is not None:
                self._orders.alarm(alarm)
        if reaction.unknown:
            self._unknown()
        if reaction.foreign:
            self._orders.on_foreign(node, reaction.foreign)
        if reaction.resend:
            self._resend(node)
            self._orders.flush()
        for event in reaction.events:
            if isinstance(event, NodeReport) and event.slices:
                self.heard.add(event.node)
            self._orders.tell(event)
            if isinstance(event, NodeReport):
                self.on_report(event)


class AgentConnections:
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
            if len(former) > _MOST_FORMER:
                del former[next(iter(former))]
        return False
