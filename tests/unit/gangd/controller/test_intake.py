"""Probes of the clock are answered before reports are judged, and however much is said little waits."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import msgspec
import pytest

from gangd.controller.command_executor import CommandExecutor
from gangd.controller.intake import AT_ONCE, BETWEEN_LOOKS, GHOST_NS, MOST_BEYOND, TURN_NS, Intake
from gangd.controller.uplink import Uplink
from gangd.core.cores import CoreMap
from gangd.core.gang_settings import CoreSettings
from gangd.core.scheduler import GangScheduler
from gangd.core.scheduler_events import AgentJoined, Alarm, NodeReport
from gangd.wire.messages import ControllerIdentity, Farewell, Hello, Message, Ping, Pong, Report
from gangd.wire.sockets import ControllerSockets, Received
from gangd.wire.wire_frames import encode

NODES = [f"n{number}" for number in range(100)]


class RecordingLoop:
    """What the intake would have carried out, in its order; a message comes when so much has been done."""

    def __init__(self) -> None:
        self.waiting: deque[Received] = deque()
        self.later: dict[int, Received] = {}
        self.did: list[str] = []
        self.dropped: list[str] = []
        self.alarms: dict[str, str] = {}
        self.cuts: list[str] = []
        self.ended: list[int] = []
        self.now_ns = self.judging_ns = 0

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
        self.now_ns += self.judging_ns
        if isinstance(event, NodeReport):
            self.did.append(f"report {event.node}")
            self.ended += event.ended

    def drop(self, kind: str, text: str) -> None:
        self.dropped.append(kind)
        self.alarms[kind] = text

    def alarm(self, alarm: Alarm) -> None:
        self.alarms[alarm.kind] = alarm.text

    def cut(self, taken: Received, why: str) -> None:
        self.cuts.append(why)

    def on_foreign(self, *_: Any) -> None: ...

    def on_flood(self, *_: Any) -> None: ...

    def flush(self) -> None: ...

    def clock(self) -> int:
        self.now_ns += 1
        return self.now_ns


def stage() -> tuple[RecordingLoop, Intake]:
    seen, cores = RecordingLoop(), CoreMap(dict.fromkeys(NODES, 1))
    scheduler = GangScheduler(CoreSettings(quantum_ns=10**9), 0, cores)
    uplink = Uplink(ControllerIdentity(b"c" * 16, 1), cores, scheduler.time, scheduler.place)
    intake = Intake(
        cast("ControllerSockets", seen), cores, scheduler, uplink, cast("CommandExecutor", seen),
        lambda: None, lambda _: None, seen.clock,
    )  # fmt: skip
    for node in NODES:
        scheduler.handle(AgentJoined(0, node))
        seen.waiting.append(message(hello(node)))
    intake.take()
    seen.did.clear()
    return seen, intake


def message(said: Hello | Ping | Report) -> Received:
    return Received(said.node.encode(), said.node, encode(said))


def hello(node: str, incarnation: bytes | None = None) -> Hello:
    return Hello(
        node=node, incarnation=incarnation or node.encode().ljust(16, b"."), boot_id="b", pid=1,
        agent_version="v", freezer="f",
    )  # fmt: skip


def report(node: str, seq: int = 1, ended: tuple[int, ...] = ()) -> Report:
    incarnation = node.encode().ljust(16, b".")
    return Report(
        node=node, incarnation=incarnation, follows=None, seq=seq, offset_ns=0, rtt_us=0, ended=ended
    )


def ping(node: str) -> Ping:
    return Ping(node=node, agent_ns=5)


def test_probes_overtake_the_reports_that_came_before_them() -> None:
    loop, intake = stage()
    loop.waiting.extend(message(report(node)) for node in NODES[:50])
    loop.waiting.extend(message(ping(node)) for node in NODES[50:53])
    intake.take()
    assert loop.did == [f"pong {node}" for node in NODES[50:53]] + [f"report {node}" for node in NODES[:50]]
    assert not intake.has_more


def test_a_probe_that_comes_while_reports_are_judged_waits_for_few_of_them() -> None:
    loop, intake = stage()
    loop.waiting.extend(message(report(node)) for node in NODES)
    loop.later[BETWEEN_LOOKS] = message(ping(NODES[0]))
    intake.take()
    assert loop.did.index(f"pong {NODES[0]}") == BETWEEN_LOOKS
    assert len(loop.did) == len(NODES) + 1


def test_what_is_no_message_is_counted_and_harms_no_one() -> None:
    loop, intake = stage()
    loop.waiting.append(Received(b"x", NODES[0], b"\xff" * 20))
    loop.waiting.append(Received(b"x", NODES[0], b"\xff" * 2000))
    loop.waiting.append(message(ping(NODES[1])))
    loop.waiting.append(message(report(NODES[2])))
    intake.take()
    assert loop.did == [f"pong {NODES[1]}", f"report {NODES[2]}"]
    assert loop.dropped == ["malformed", "malformed"]


def test_who_never_stops_talking_is_listened_to_for_a_turn() -> None:
    loop, intake = stage()
    loop.waiting.extend(message(report(node)) for node in NODES)

    def slow() -> int:
        loop.now_ns += 20_000_000
        return loop.now_ns

    intake._clock = slow
    intake.take()
    assert len(loop.did) < len(NODES)
    assert intake.has_more or loop.waiting
    intake._clock = loop.clock
    intake.take()
    assert sorted(loop.did) == sorted(f"report {node}" for node in NODES)


def test_of_what_is_said_faster_than_it_is_judged_little_waits_and_the_newest_counts() -> None:
    loop, intake = stage()
    loop.judging_ns = 10_000_000
    rounds, most, longest_ns = 200, 0, 0
    seen: dict[str, int] = {}
    for seq in range(1, rounds + 1):  # each round takes five times as long to judge as a turn lasts
        loop.waiting.extend(message(report(node, seq)) for node in NODES)
        loop.waiting.append(message(ping(NODES[seq % len(NODES)])))
        if seq == rounds // 2:
            loop.waiting.append(message(hello(NODES[7], b"restarted.......")))
        began_ns = loop.now_ns
        intake.take()
        longest_ns = max(longest_ns, loop.now_ns - began_ns)
        most = max(most, len(intake._waiting))
        seen.update({node: agent.seq for node, agent in intake._uplink.agents.items()})
        assert max(seen.values()) >= seq - 2 * len(NODES) // BETWEEN_LOOKS, "what is judged is new"
    assert most <= 2 * len(NODES)
    assert longest_ns <= TURN_NS + BETWEEN_LOOKS * loop.judging_ns, "leases are renewed between turns"
    assert loop.did.count(f"pong {NODES[1]}") == rounds // len(NODES), "whatever waits"
    while intake.has_more:
        intake.take()
    agents = intake._uplink.agents
    assert agents[NODES[7]].hello.incarnation == b"restarted......."
    assert {agents[node].seq for node in NODES if node != NODES[7]} == {rounds}
    assert set(loop.dropped) <= {"unknown_agent"}, "of the agent that was there before"


def test_what_is_said_once_is_heard_of_reports_that_were_never_judged_by_themselves() -> None:
    loop, intake = stage()
    loop.waiting.extend(message(report(NODES[0], seq, ended=(seq,))) for seq in range(1, 6))
    intake.take()
    assert (loop.did, loop.ended) == ([f"report {NODES[0]}"], [1, 2, 3, 4, 5])


FORMER_AGENT, FORMER_CONTROLLER = b"former agent....", b"former control.."
REPLAYED = {
    "a report that was heard before": (report("n1", 3), "replayed"),
    "a report of a former agent": (
        msgspec.structs.replace(report("n1", 90, ended=(7,)), incarnation=FORMER_AGENT),
        "unknown_agent",
    ),
    "the farewell of a former agent": (
        Farewell(node="n1", incarnation=FORMER_AGENT, reason="stopped"),
        "unknown_agent",
    ),
    "a report to a former controller": (
        msgspec.structs.replace(report("n1", 4), follows=FORMER_CONTROLLER),
        "replayed",
    ),
    "a report in another node's name": (report("n2", 90, ended=(7,)), "wrong_node"),
}  # recorded from an earlier agent or controller, and sent over another connection with the node's key


@pytest.mark.parametrize(("replayed", "kind"), REPLAYED.values(), ids=REPLAYED.keys())
def test_recorded_frames_with_a_nodes_key_are_dropped_counted_and_an_alarm_names_the_node(
    replayed: Report | Farewell, kind: str
) -> None:
    loop, intake = stage()
    loop.waiting.extend(message(report("n1", seq)) for seq in range(1, 6))
    intake.take()
    loop.did.clear()
    loop.waiting.append(Received(b"thief", "n1", encode(replayed)))
    intake.take()
    assert loop.dropped == [kind]
    assert "n1" in loop.alarms[kind]
    assert (loop.did, loop.ended) == ([], [])
    loop.now_ns += GHOST_NS
    loop.waiting.append(message(report("n1", 6)))
    intake.take()
    assert loop.did == ["report n1"], "the agent is heard all along"
    if kind != "wrong_node":
        assert "two connections speak with the key of n1" in loop.alarms["key"]


def test_who_sends_far_more_than_is_read_is_cut() -> None:
    loop, intake = stage()

    def send(count: int) -> None:
        loop.waiting.extend([message(ping("n1"))] * count)
        while loop.waiting:
            intake.take()

    send(AT_ONCE + MOST_BEYOND // 2)
    assert loop.cuts == []
    send(MOST_BEYOND)
    assert loop.cuts == ["the key of n1 sends more than is read"]
    send(MOST_BEYOND)
    assert len(loop.cuts) == 2
    loop.waiting.append(message(ping("n2")))
    intake.take()
    assert loop.did[-1] == "pong n2"
