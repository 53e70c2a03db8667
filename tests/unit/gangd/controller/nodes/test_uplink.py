"""The controller's talk with an agent: who is welcome, and whose word counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangd.controller.uplink import COMING_OVER_NS, Times, UnknownAgentError, Uplink
from gangd.core import (
    AgentJoined,
    AgentLost,
    AgentState,
    CoreMap,
    CpuSample,
    NodePresence,
    NodeReport,
    SliceUse,
)
from gangd.core.slice_timing import Timebase
from gangd.wire import (
    AccessRefused,
    ControllerIdentity,
    Farewell,
    FoundState,
    Hello,
    JobSample,
    Ping,
    Pong,
    Report,
    Resend,
    SliceReport,
    Welcome,
)
from gangd.wire.messages import ReplayedError

CONTROLLER = ControllerIdentity(b"c" * 16, 1)
TIMES = Times(250_000_000, 2_000_000_000, 2)
JOINED = AgentState.JOINED
TIMEBASE = Timebase(0, 250_000_000)


def hello(node: str = "n1", incarnation: bytes = b"a" * 16, pid: int = 1) -> Hello:
    return Hello(
        node=node, incarnation=incarnation, boot_id="b", pid=pid, agent_version="1", freezer="recording"
    )


def report(seq: int = 0, **more: Any) -> Report:
    fields: dict[str, Any] = {"incarnation": b"a" * 16, "follows": b"c" * 16, "offset_ns": 5, "rtt_us": 7}
    return Report(node="n1", seq=seq, **(fields | more))


def anywhere(node: str, job: int) -> NodePresence:
    return NodePresence.HERE


def uplink() -> Uplink:
    link = Uplink(CONTROLLER, CoreMap({"n1": 1}), TIMEBASE, anywhere)
    link.on_message(hello(), 0, 0, TIMES, AgentState.UNKNOWN)
    return link


def test_an_agent_is_welcomed_and_gets_its_whole_plan() -> None:
    link = Uplink(CONTROLLER, CoreMap({"n1": 1}), TIMEBASE, anywhere)
    reaction = link.on_message(hello(), 9, 10, TIMES, AgentState.UNKNOWN)
    assert reaction.events == (AgentJoined(10, "n1"),)
    assert reaction.resend
    [welcome] = reaction.replies
    assert isinstance(welcome, Welcome)
    assert (welcome.quantum_ns, welcome.lookahead, welcome.controller) == (250_000_000, 2, CONTROLLER)


def test_a_node_that_slurm_does_not_have_is_refused() -> None:
    reaction = uplink().on_message(hello("n9"), 0, 0, TIMES, AgentState.UNKNOWN)
    assert reaction.events == ()
    assert isinstance(reaction.replies[0], AccessRefused)


def test_a_report_becomes_an_event() -> None:
    link = uplink()
    one = SliceReport(4, 1, 1_000_000_099, 12, 34, (8,), (JobSample(7, 1, 2, 3, 4),))
    found = (FoundState(5, "thawed", "frozen"),)
    reaction = link.on_message(
        report(slices=(one,), ended=(3,), dying=(6,), found=found), 9, 10, TIMES, JOINED
    )
    use = SliceUse(4, 12, 34, (8,), (CpuSample(7, 1, 2, 3, 4),))
    assert reaction.events == (NodeReport(10, "n1", (use,), (3,), (6,), (5,), rtt_us=7, acts=("frozen",)),)
    assert link.agents["n1"].skew_us == 12


def test_an_agent_that_only_tries_holds_no_one() -> None:
    link = Uplink(CONTROLLER, CoreMap({"n1": 1}), TIMEBASE, anywhere)
    link.on_message(msgspec.structs.replace(hello(), dry_run=True), 0, 0, TIMES, AgentState.UNKNOWN)
    one = SliceReport(4, 1, 1_000_000_099, 12, 34, (8,), (JobSample(7, 1, 2, 3, 4),))
    [event] = link.on_message(report(slices=(one,)), 9, 10, TIMES, JOINED).events
    assert isinstance(event, NodeReport)
    assert [(use.held, use.samples) for use in event.slices] == [((), (CpuSample(7, 1, 2, 3, 4),))]


def test_slices_of_an_earlier_controller_are_left_out() -> None:
    old, new = (SliceReport(number, 1, 1_000_000_000, 0, 0, (), ()) for number in (400, 4))
    reaction = uplink().on_message(report(slices=(old, new)), 0, 1_100_000_000, TIMES, JOINED)
    [event] = reaction.events
    assert isinstance(event, NodeReport)
    assert [use.number for use in event.slices] == [4]


def test_reports_are_taken_once() -> None:
    link = uplink()
    link.on_message(report(3), 0, 0, TIMES, JOINED)
    for seq in (3, 2):
        with pytest.raises(ReplayedError):
            link.on_message(report(seq), 0, 0, TIMES, JOINED)


def test_a_whole_plan_is_not_sent_again_at_once() -> None:
    link = uplink()
    ask = Resend(node="n1", have_epoch=None)
    times_ns = (60_000_000, 61_000_000, 109_000_000, 110_000_000, 111_000_000)
    assert [link.on_message(ask, at, at, TIMES, JOINED).resend for at in times_ns] == [
        True,
        False,
        False,
        True,
        False,
    ]
    again = link.on_message(hello(), 112_000_000, 112_000_000, TIMES, JOINED)
    assert (again.resend, len(again.replies)) == (False, 1)
    other = link.on_message(hello(incarnation=b"z" * 16), 113_000_000, 113_000_000, TIMES, JOINED)
    assert other.resend, "another agent has no plan yet"


def test_strangers_must_say_hello_first() -> None:
    link = Uplink(CONTROLLER, CoreMap({"n1": 1}), TIMEBASE, anywhere)
    for message in (report(), Resend(node="n1", have_epoch=None)):
        with pytest.raises(UnknownAgentError):
            link.on_message(message, 0, 0, TIMES, AgentState.UNKNOWN)


def test_a_restarted_agent_takes_over_and_the_old_one_is_a_stranger() -> None:
    link = uplink()
    reaction = link.on_message(hello(incarnation=b"z" * 16, pid=2), 0, 0, TIMES, JOINED)
    assert reaction.alarm is not None
    assert "agent 2 of n1 takes over from agent 1" in reaction.alarm
    with pytest.raises(UnknownAgentError):
        link.on_message(report(), 0, 0, TIMES, JOINED)
    with pytest.raises(UnknownAgentError):
        link.on_message(Farewell(node="n1", incarnation=b"a" * 16, reason=""), 0, 0, TIMES, JOINED)


def test_an_agent_whose_rival_fell_silent_is_informed_to_say_hello() -> None:
    link = uplink()
    link.on_message(hello(incarnation=b"z" * 16, pid=2), 0, 0, TIMES, JOINED)
    reaction = link.on_message(report(), 0, 0, TIMES, AgentState.LOST)
    assert [type(reply) for reply in reaction.replies] == [AccessRefused]
    assert reaction.events == ()


def test_an_agent_that_obeys_another_controller_is_lost() -> None:
    link, others = uplink(), report(follows=b"x" * 16)
    reaction = link.on_message(others, 0, 10, TIMES, JOINED)
    assert [type(event) for event in reaction.events] == [NodeReport], "it is just coming over"
    later = msgspec.structs.replace(others, seq=others.seq + 1)
    reaction = link.on_message(later, 0, COMING_OVER_NS + 10, TIMES, JOINED)
    assert [type(event) for event in reaction.events] == [AgentLost]
    assert reaction.alarm is not None
    reaction = uplink().on_message(report(foreign_controllers=3), 0, 10, TIMES, JOINED)
    assert [type(event) for event in reaction.events] == [NodeReport]
    assert reaction.alarm is not None


def test_clock_probes_are_answered_to_anybody() -> None:
    link = Uplink(CONTROLLER, CoreMap(), TIMEBASE, anywhere)
    reaction = link.on_message(Ping(node="n1", agent_ns=1), 2, 3, TIMES, AgentState.UNKNOWN)
    assert reaction.replies == (Pong(node="n1", agent_ns=1, received_ns=2, sent_ns=3),)
