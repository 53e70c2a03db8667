"""Agents and controllers of adjacent protocol versions: the one before as it was, one after as it may be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangd.agent.agenda import Agenda
from gangd.agent.conversation import OLDER_EVERY, Conversation
from gangd.wire import messages as wire
from gangd.wire.messages import NEWEST, OLDEST, VERSION, ExemptJobs, common
from gangd.wire.wire_frames import decode_down, decode_reply, decode_up, encode, encode_down
from tests.fixtures import wire3
from tests.fixtures.gang_loop import ScriptedAgent, Stage, played

CONTROLLER = wire.ControllerIdentity(b"c" * 16, 7)
LEASE_NS = 2_000_000_000
HEAD: dict[str, Any] = {"controller": CONTROLLER, "epoch": 3, "seq": 9, "sent_ns": 5, "lease_ns": LEASE_NS}
TRACK = wire.Track(
    1, 10, True, (wire.SliceSets((1,), (2,)), wire.SliceSets((2,), (1,))), (wire.JobHold(1, "yield"),)
)
PLAN = wire.SlicePlan(
    **HEAD, node="n1", first_slice=10, first_start_ns=0, quantum_ns=250_000_000, horizon=10,
    bounds=wire.Bounds(5_000_000_000, 200_000_000, newcomers_yield=True), tracks=(TRACK,),
    exempt=ExemptJobs((4,), (5,), (6,)), cores=(wire.JobCores(1, 2), wire.JobCores(4, 1)),
)  # fmt: skip
CHANGE = wire.PlanChange(
    **HEAD, node="n1", base_epoch=2, first_slice=11, horizon=11, tracks=(TRACK,), drop=(7,),
    cores=(wire.JobCores(1, 2),),
)  # fmt: skip
DOWN: list[wire.DownMessage] = [
    PLAN,
    CHANGE,
    wire.Beat(**HEAD, node="n1", horizon=12),
    wire.ThawNow(**{**HEAD, "epoch": 0}, node=None, jobs=(), reason="announcement"),
    wire.ThawNow(**HEAD, node="n1", jobs=None, reason="the controller leaves"),
]
HELLO = wire.Hello(node="n1", incarnation=b"a" * 16, boot_id="b", pid=1, agent_version="1", freezer="cgroup2")
SAMPLE = wire.JobSample(1, 2, 3, 4, 5, 6)
REPORT = wire.Report(
    node="n1", incarnation=b"a" * 16, follows=b"c" * 16, seq=1, offset_ns=-3, rtt_us=4,
    slices=(wire.SliceReport(9, 3, 5, 6, 7, (1,), (SAMPLE,), (2,)),),
    born=(1,), launched=(1,), ended=(2,), dying=(3,),
    alone=(SAMPLE,), found=(wire.FoundState(1, "frozen", "thawed"),), leaks=(wire.Leak(1, 2),),
    faults=(wire.AgentFault("late_switch", 1, "late", 1),), foreign_controllers=1,
)  # fmt: skip
UP: list[wire.UpMessage] = [
    HELLO,
    REPORT,
    wire.Ping(node="n1", agent_ns=1),
    wire.Resend(node="n1", have_epoch=None),
    wire.Farewell(node="n1", incarnation=b"a" * 16, reason="bye"),
]
REPLIES: list[wire.ReplyMessage] = [
    wire.Welcome(
        controller=CONTROLLER, node="n1", now_ns=1, quantum_ns=250_000_000, lease_ns=LEASE_NS, lookahead=2
    ),
    wire.AccessRefused(node="n1", reason="no"),
    wire.Pong(node="n1", agent_ns=1, received_ns=2, sent_ns=3),
]


def raw(message: object) -> Any:
    return msgspec.to_builtins(message)


def pack(fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


def test_the_version_before_is_the_one_that_is_kept_as_it_was() -> None:
    assert (OLDEST, wire3.VERSION, VERSION, NEWEST) == (3, 3, 4, 5)
    assert [common(theirs) for theirs in (3, 4, 5)] == [3, 4, 4]


def without_cores(message: wire.DownMessage) -> wire.DownMessage:
    """What version 3 has of a message."""
    if isinstance(message, wire.SlicePlan | wire.PlanChange):
        return msgspec.structs.replace(message, cores=msgspec.UNSET)
    return message


@pytest.mark.parametrize("message", DOWN, ids=lambda one: type(one).__name__)
def test_an_agent_of_the_version_before_understands_what_it_receives(message: wire.DownMessage) -> None:
    text = wire3.decode_down(encode_down(message, OLDEST), "n1")
    known = without_cores(message)
    assert {**raw(text), "version": VERSION} == raw(known)
    assert decode_down(wire3.encode_down(text), "n1") == msgspec.structs.replace(known, version=OLDEST)
    with pytest.raises(wire3.VersionError):
        wire3.decode_down(encode_down(message), "n1")


@pytest.mark.parametrize("message", [*UP, *REPLIES], ids=lambda one: type(one).__name__)
def test_each_side_of_either_version_understands_the_other(message: wire.Message) -> None:
    old, new = wire3.decode_reply, decode_reply
    if message in UP:
        old, new = wire3.decode_up, decode_up  # type: ignore[assignment]
    said = old(encode(message, OLDEST), "n1")
    assert {**raw(said), "version": VERSION} == raw(message)
    assert new(wire3.encode(said), "n1") == msgspec.structs.replace(message, version=OLDEST)


@pytest.mark.parametrize("message", UP, ids=lambda one: type(one).__name__)
def test_what_an_agent_of_the_version_after_adds_is_ignored(message: wire.UpMessage) -> None:
    fields = msgspec.msgpack.decode(encode(message, NEWEST))
    fields["temperature"] = [{"cpu": 90}]
    for row in fields.get("slices", ()):
        row.append("more")
        for sample in row[6]:
            sample.append(7)
    assert decode_up(pack(fields), "n1") == msgspec.structs.replace(message, version=NEWEST)


@pytest.mark.parametrize("message", [*DOWN, *REPLIES], ids=lambda one: type(one).__name__)
def test_what_a_controller_adds_is_refused_for_it_may_change_who_is_frozen(message: wire.Message) -> None:
    fields = {**msgspec.msgpack.decode(encode(message)), "freeze_also": [1]}
    with pytest.raises(wire.MalformedError, match="freeze_also"):
        read(message, fields)
    del fields["freeze_also"]
    with pytest.raises(wire.VersionError, match="upgrade the older one"):
        read(message, {**fields, "version": NEWEST})


def read(message: wire.Message, fields: dict[str, Any]) -> object:
    if isinstance(message, wire.DownMessage):
        return decode_down([encode_down(message)[0], pack(fields)], "n1")
    return decode_reply(pack(fields), "n1")


def test_a_track_with_more_than_is_known_is_refused() -> None:
    fields = msgspec.msgpack.decode(encode(PLAN))
    fields["tracks"][0].append([1])
    with pytest.raises(wire.MalformedError):
        read(PLAN, fields)


@pytest.mark.parametrize("version", [OLDEST - 1, NEWEST + 1])
def test_two_versions_apart_no_peer_is_understood(version: int) -> None:
    for message in UP:
        with pytest.raises(wire.VersionError):
            decode_up(pack({**msgspec.msgpack.decode(encode(message)), "version": version}), "n1")


class OldAgent(ScriptedAgent):
    """An agent of the version before: it says what that version says, and understands nothing else."""

    def encoded(self, message: wire.Message) -> bytes:
        body = encode(message, OLDEST)
        wire3.decode_up(body, self.node)
        return body

    def understood(self, frames: list[bytes]) -> list[bytes]:
        wire3.decode_down(frames, self.node)
        return frames


@played(nodes=["n1"])
def test_agents_of_two_versions_take_turns_under_one_controller(stage: Stage, one: ScriptedAgent) -> None:
    two = OldAgent("n2", stage.keys, stage.sockets.publish_endpoint, stage.sockets.report_endpoint)
    stage.agents.append(two)
    stage.welcome(one, two)
    stage.until(lambda: bool(one.timeline.held(one.timeline.horizon)))
    first = one.timeline.horizon
    stage.until(lambda: min(one.timeline.horizon, two.timeline.horizon) > first + 20)
    turns = [[agent.timeline.held(first + ahead) for ahead in range(2, 8)] for agent in (one, two)]
    assert turns[0] == turns[1]
    assert set().union(*turns[0]) == {1, 2}
    stage.until_status(lambda status: status.shared_jobs == 2)
    assert {node.node: node.protocol for node in stage.known().nodes} == {"n1": VERSION, "n2": OLDEST}
    assert not stage.known().dropped.get("version")


def test_an_agent_finds_the_version_of_a_controller_of_the_version_before() -> None:
    talk = Conversation(HELLO, Agenda())
    now_ns, welcomed_ns = 10**12, None
    for _ in range(1000):
        now_ns += 10_000_000
        talk.on_time(now_ns)
        while talk.outbox:
            message = talk.outbox.popleft()
            try:
                said = wire3.decode_up(encode(message, talk.speaks), "n1")
            except wire3.VersionError:
                continue
            if type(said).__name__ == "Hello":
                welcomed_ns = welcomed_ns or now_ns
                assert not talk.on_reply(encode(REPLIES[0], OLDEST), now_ns)
    assert welcomed_ns is not None
    assert welcomed_ns - 10**12 <= (OLDER_EVERY + 1) * 1_000_000_000
    assert talk.speaks == OLDEST
    assert any(event.kind == "welcomed" for event in talk.events)
