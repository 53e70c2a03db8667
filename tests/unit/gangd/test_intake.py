"""Probes of the clock are answered before reports are judged, however many wait."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from gangd.controller.intake import BETWEEN_LOOKS, Intake
from gangd.controller.nodes.uplink import Uplink
from gangd.controller.orders import Orders
from gangd.core import AgentJoined, Alarm, CoreMap, GangScheduler, NodeReport, Settings
from gangd.wire import Controller, Hello, Message, Ping, Pong, Report, encode
from gangd.wire.sockets import ControllerSockets, Received

NODES = [f"n{number}" for number in range(100)]


class Told:
    """What the intake would have carried out, in its order; a message comes when so much has been done."""

    def __init__(self) -> None:
        self.waiting: deque[Received] = deque()
        self.later: dict[int, Received] = {}
        self.did: list[str] = []
        self.dropped: list[str] = []
        self.now_ns = 0

    # The sockets

    def receive(self) -> Received | None:
        """Return the next message."""
        due = self.later.pop(len(self.did), None)
        if due is not None:
            self.waiting.append(due)
        return self.waiting.popleft() if self.waiting else None

    # Orders

    def reply(self, connection: bytes, reply: Message, version: int) -> None:
        if isinstance(reply, Pong):
            self.did.append(f"pong {reply.node}")

    def tell(self, event: object) -> None:
        if isinstance(event, NodeReport):
            self.did.append(f"report {event.node}")

    def drop(self, kind: str, text: str) -> None:
        self.dropped.append(kind)

    def alarm(self, alarm: Alarm) -> None: ...

    def on_foreign(self, *_: Any) -> None: ...

    def on_flood(self, *_: Any) -> None: ...

    def flush(self) -> None: ...

    def clock(self) -> int:
        self.now_ns += 1
        return self.now_ns


def stage() -> tuple[Told, Intake]:
    told, cores = Told(), CoreMap(dict.fromkeys(NODES, 1))
    scheduler = GangScheduler(Settings(quantum_ns=10**9), 0, cores)
    uplink = Uplink(Controller(b"c" * 16, 1), cores, scheduler.time, scheduler.place)
    intake = Intake(
        cast("ControllerSockets", told),
        cores,
        scheduler,
        uplink,
        cast("Orders", told),
        lambda: None,
        lambda _: None,
        told.clock,
    )
    for node in NODES:
        scheduler.handle(AgentJoined(0, node))
        told.waiting.append(message(hello(node)))
    intake.take()
    told.did.clear()
    return told, intake


def message(said: Hello | Ping | Report) -> Received:
    return Received(said.node.encode(), said.node, encode(said))


def hello(node: str) -> Hello:
    return Hello(
        node=node,
        incarnation=node.encode().ljust(16, b"."),
        boot_id="b",
        pid=1,
        agent_version="v",
        freezer="f",
    )


def report(node: str) -> Report:
    incarnation = node.encode().ljust(16, b".")
    return Report(node=node, incarnation=incarnation, follows=None, seq=1, offset_ns=0, rtt_us=0, slices=())


def ping(node: str) -> Ping:
    return Ping(node=node, agent_ns=5)


def test_probes_overtake_the_reports_that_came_before_them() -> None:
    told, intake = stage()
    told.waiting.extend(message(report(node)) for node in NODES[:50])
    told.waiting.extend(message(ping(node)) for node in NODES[50:53])
    intake.take()
    assert told.did == [f"pong {node}" for node in NODES[50:53]] + [f"report {node}" for node in NODES[:50]]
    assert not intake.has_more


def test_a_probe_that_comes_while_reports_are_judged_waits_for_few_of_them() -> None:
    told, intake = stage()
    told.waiting.extend(message(report(node)) for node in NODES)
    told.later[BETWEEN_LOOKS] = message(ping(NODES[0]))
    intake.take()
    assert told.did.index(f"pong {NODES[0]}") == BETWEEN_LOOKS
    assert len(told.did) == len(NODES) + 1


def test_what_is_no_message_is_counted_and_harms_nobody() -> None:
    told, intake = stage()
    told.waiting.append(Received(b"x", NODES[0], b"\xff" * 20))
    told.waiting.append(Received(b"x", NODES[0], b"\xff" * 2000))
    told.waiting.append(message(ping(NODES[1])))
    told.waiting.append(message(report(NODES[2])))
    intake.take()
    assert told.did == [f"pong {NODES[1]}", f"report {NODES[2]}"]
    assert told.dropped == ["malformed", "malformed"]


def test_who_never_stops_talking_is_listened_to_for_a_turn() -> None:
    told, intake = stage()
    told.waiting.extend(message(report(node)) for node in NODES)

    def slow() -> int:
        told.now_ns += 20_000_000
        return told.now_ns

    intake._clock = slow
    intake.take()
    assert len(told.did) < len(NODES)
    assert intake.has_more or told.waiting
    intake._clock = told.clock
    intake.take()
    assert sorted(told.did) == sorted(f"report {node}" for node in NODES)
