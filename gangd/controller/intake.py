"""What agents say, taken off the socket: probes of the clock are answered at once, the rest in its turn.

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
"""

from __future__ import annotations

from collections.abc import Callable

from gangd.controller.alarms import fault_alarm
from gangd.controller.command_executor import CommandExecutor
from gangd.controller.nodes.backlog import Backlog, Quota
from gangd.controller.nodes.uplink import Times, Uplink
from gangd.core import Alarm, CoreMap, GangScheduler, InvalidEvent, NodeReport
from gangd.wire import Ping, UpMessage, WireError, decode_up
from gangd.wire.sockets import ControllerSockets, Received
from gangd.wire.versions import common

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
