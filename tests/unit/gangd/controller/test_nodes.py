"""The controller's nodes: fan-out, backlog, floods, uplink."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq

from gangd.controller.fanout import A_PART, ANNOUNCED_EVERY, FIRST_ROUNDS, MOST_PARTS, BeatRounds, Fanout
from gangd.controller.intake import MOST_OF_ONE, MOST_SLICES, SAMPLED_SLICES, Backlog, condensed
from gangd.controller.uplink import COMING_OVER_NS, Times, UnknownAgentError, Uplink
from gangd.core import scheduler_events as core
from gangd.core.cores import CoreMap
from gangd.core.gang import NodePresence
from gangd.core.scheduler_events import Exempt, ExemptKind, HoldMode, Publish, TrackMember, TrackPlan
from gangd.core.slice_timing import Timebase
from gangd.core.states import AgentState
from gangd.curve_keys import SHARED_AGENT
from gangd.wire import messages as wire
from gangd.wire.messages import MAX_FRAME_BYTES, ReplayedError
from gangd.wire.messages import ExemptJobs as Listed
from gangd.wire.sockets import Received
from gangd.wire.wire_frames import encode
from tests.fixtures.gang_loop import Stage, two_jobs

CONTROLLER = wire.ControllerIdentity(b"c" * 16, 1)
BOUNDS = wire.Bounds(5_000_000_000, 200_000_000)


def test_the_end_of_a_job_that_was_killed_is_reported_with_the_next_change() -> None:
    cores = CoreMap({"n1": 1})
    fanout = Fanout(CONTROLLER, cores, Timebase(0, 250_000_000), 2_000_000_000, BOUNDS)
    fanout.resend("n1")
    fanout.messages(0, 1)
    killed = TrackMember(7, ((7, cores.pack({"n1": (0,)})),))
    fanout.exempt(Exempt(killed, ExemptKind.TERMINATING, on=True))
    [message] = fanout.messages(0, 1)
    assert isinstance(message, wire.PlanChange)
    assert message.exempt == Listed(never_freeze=(7,))
    fanout.exempt(Exempt(killed, ExemptKind.TERMINATING, on=False))
    assert fanout.messages(0, 1) == []  # worth no message of its own
    track = TrackPlan(7, 5, True, (killed,), np.ones((1, 1), dtype=np.bool_), [0], 0)  # it runs anew
    fanout.publish(Publish(5, (track,), (), rebase=False))
    [message] = fanout.messages(0, 5)
    assert isinstance(message, wire.PlanChange)
    assert message.exempt == Listed()


def test_other_bounds_are_sent_to_every_node_and_the_same_to_none() -> None:
    fanout = Fanout(CONTROLLER, CoreMap({"n1": 1, "n2": 1}), Timebase(0, 250_000_000), 2_000_000_000, BOUNDS)
    for node in ("n1", "n2"):
        fanout.resend(node)
    assert [one.bounds for one in fanout.messages(0, 1) if isinstance(one, wire.SlicePlan)] == [BOUNDS] * 2
    fanout.set_terms(3_000_000_000, BOUNDS)
    assert fanout.messages(0, 1) == []
    shorter = wire.Bounds(2_000_000_000, 0)
    fanout.set_terms(3_000_000_000, shorter)
    message = fanout.messages(0, 1)
    assert [one.bounds for one in message if isinstance(one, wire.SlicePlan)] == [shorter] * 2
    assert {one.lease_ns for one in message} == {3_000_000_000}


def test_nodes_are_informed_which_of_their_jobs_yield() -> None:
    cores = CoreMap({"n1": 1, "n2": 1})
    fanout = Fanout(CONTROLLER, cores, Timebase(0, 250_000_000), 2_000_000_000, BOUNDS)
    wide = TrackMember(7, ((7, cores.pack({"n1": (0,), "n2": (0,)})),), HoldMode.YIELD)
    frozen = TrackMember(8, ((8, cores.pack({"n1": (0,)})),))
    run = np.array([[True, False], [False, True]])
    fanout.publish(Publish(5, (TrackPlan(7, 5, True, (wide, frozen), run, [0, 1], 0),), ()))
    text = {message.node: message for message in fanout.messages(0, 5)}
    assert all(isinstance(message, wire.SlicePlan) for message in text.values())
    holds = {node: [track.holds for track in getattr(one, "tracks", ())] for node, one in text.items()}
    assert holds == {"n1": [(wire.JobHold(7, "yield"),)], "n2": [(wire.JobHold(7, "yield"),)]}


def test_nodes_are_informed_how_many_cores_their_jobs_have_there() -> None:
    cores = CoreMap({"n1": 4, "n2": 2})
    cores.add_seats("n1", 1)
    fanout = Fanout(CONTROLLER, cores, Timebase(0, 250_000_000), 2_000_000_000, BOUNDS)
    wide = TrackMember(7, ((7, cores.pack({"n1": (0, 1, 3), "n2": (0,)}, {"n1": (0,)})),))
    narrow = TrackMember(8, ((8, cores.pack({"n1": (0,)})),))
    free = TrackMember(9, ((9, cores.pack({"n2": (0, 1)})),))
    run = np.array([[True, False], [False, True]])
    fanout.publish(Publish(5, (TrackPlan(7, 5, True, (wide, narrow), run, [0, 1], 0),), ()))
    text = {message.node: message for message in fanout.messages(0, 5)}
    assert {node: set(getattr(one, "cores", ())) for node, one in text.items()} == {
        "n1": {wire.JobCores(7, 3), wire.JobCores(8, 1)},
        "n2": {wire.JobCores(7, 1)},
    }
    fanout.exempt(Exempt(free, ExemptKind.FREE, on=True))
    [message] = fanout.messages(0, 6)
    assert isinstance(message, wire.PlanChange)
    assert message.cores == (wire.JobCores(9, 2),)
    fanout.publish(Publish(8, (), (7,)))
    fanout.messages(0, 8)
    fanout.resend("n2")
    [whole] = fanout.messages(0, 9)
    assert isinstance(whole, wire.SlicePlan)
    assert whole.cores == (wire.JobCores(9, 2),)


ONE = b"n1".ljust(16, b".")


def received(said: wire.Message, node: str = "n1", *, key: str | None = None, over: bytes = b"") -> Received:
    return Received(over or node.encode(), key or node, encode(said))


def report(
    seq: int, *slices: wire.SliceReport, node: str = "n1", incarnation: bytes = ONE, **more: object
) -> wire.Report:
    said = {"follows": None, "offset_ns": seq, "rtt_us": 0, **more}
    return wire.Report(node=node, incarnation=incarnation, seq=seq, slices=slices, **said)  # type: ignore[arg-type]


def sample(job: int, cpu_us: int = 1, tasks: int = 1) -> wire.JobSample:
    return wire.JobSample(job, cpu_us, 0, 10, tasks)


def slice_(number: int, held: tuple[int, ...] = (), *samples: wire.JobSample) -> wire.SliceReport:
    return wire.SliceReport(number, 1, 0, 0, 0, held, samples)


def hello(incarnation: bytes = ONE) -> wire.Hello:
    return wire.Hello(
        node="n1", incarnation=incarnation, boot_id="b", pid=1, agent_version="v", freezer="recording"
    )


def said(backlog: Backlog) -> list[wire.Message]:
    found: list[wire.Message] = []
    while len(backlog):
        found.append(backlog.take().said())
    return found


def test_reports_that_wait_become_one_in_the_place_of_the_first() -> None:
    backlog = Backlog()
    for at_ns, one in enumerate((report(1), report(1, node="n2"), report(2), report(3))):
        assert backlog.put(received(one, one.node), at_ns)
    assert len(backlog) == 2
    first = backlog.take()
    assert (first.said(), first.received_ns) == (report(3), 3)
    assert said(backlog) == [report(1, node="n2")]


def test_an_agent_whose_report_was_judged_begins_anew() -> None:
    backlog = Backlog()
    for seq in range(1, 5):
        backlog.put(received(report(seq)), seq)
        assert backlog.take().said() == report(seq)
    assert len(backlog) == 0


def test_what_is_said_once_is_kept_of_the_older_report() -> None:
    older = report(
        1, slice_(4, (7,), sample(8)), born=(1,), launched=(2,), ended=(3, 4), dying=(5,),
        alone=(sample(20, 1), sample(21, 1)), found=(wire.FoundState(9, "frozen", "thawed"),),
        leaks=(wire.Leak(7, 5),), faults=(wire.AgentFault("a", 1, ""),), foreign_controllers=2,
    )  # fmt: skip
    newer = report(
        2, slice_(5, (8,), sample(7)), born=(11, 1), launched=(12,), ended=(13,), dying=(15,),
        alone=(sample(21, 9),), faults=(wire.AgentFault("b", 2, ""),), foreign_controllers=1,
    )  # fmt: skip
    both = condensed(older, newer)
    assert (both.seq, both.offset_ns) == (2, 2)
    assert both.slices == (*older.slices, *newer.slices)
    assert (both.born, both.launched, both.ended) == ((1, 11), (2, 12), (3, 4, 13))
    assert both.dying == (5, 15), "who is named once is let live for a lease"
    assert both.alone == (sample(20, 1), sample(21, 9))
    assert (both.found, both.leaks, both.faults) == (older.found, older.leaks, (*older.faults, *newer.faults))
    assert both.foreign_controllers == 3


def test_a_job_that_was_seen_again_has_not_ended() -> None:
    older = report(1, ended=(1, 2, 3, 4, 5))
    newer = report(2, slice_(5, (), sample(2), sample(5, tasks=0)), launched=(3,), born=(4,))
    assert condensed(older, newer).ended == (1, 5)


def test_who_was_held_is_kept_of_many_slices_and_what_was_used_of_the_newest() -> None:
    backlog = Backlog()
    for number in range(2 * MOST_SLICES):
        backlog.put(received(report(number, slice_(number, (7,), sample(8)))), number)
    [one] = said(backlog)
    assert isinstance(one, wire.Report)
    assert [slice_.number for slice_ in one.slices] == list(range(MOST_SLICES, 2 * MOST_SLICES))
    assert all(slice_.held == (7,) for slice_ in one.slices)
    assert [bool(slice_.samples) for slice_ in one.slices[-SAMPLED_SLICES - 1 :]] == [False, True, True]


def test_a_hello_stays_between_the_reports_that_it_came_between() -> None:
    backlog = Backlog()
    for one in (report(1), report(2), hello(), report(3), report(4), hello(b"another one.....")):
        assert backlog.put(received(one), 0)
    farewell = wire.Farewell(node="n1", incarnation=ONE, reason="")
    assert backlog.put(received(farewell), 0)
    assert said(backlog) == [report(2), hello(), report(4), hello(b"another one....."), farewell]


def test_what_is_asked_again_counts_once() -> None:
    backlog = Backlog()
    for epoch in (1, 2, 3):
        backlog.put(received(wire.Resend(node="n1", have_epoch=epoch)), epoch)
        backlog.put(received(wire.Resend(node="n1", have_epoch=epoch)), epoch)
    assert said(backlog) == [wire.Resend(node="n1", have_epoch=3)]


@pytest.mark.parametrize("second", [report(1), report(3, incarnation=b"x" * 16)])
def test_what_does_not_follow_is_judged_by_itself(second: wire.Report) -> None:
    backlog = Backlog()
    backlog.put(received(report(2)), 0)
    backlog.put(received(second), 0)
    assert said(backlog) == [report(2), second]


def test_who_says_much_that_cannot_be_taken_together_is_not_listened_to() -> None:
    backlog = Backlog()
    backlog.put(received(report(1, node="n2"), "n2"), 0)
    taken = [backlog.put(received(report(9, incarnation=bytes([n]) * 16)), 0) for n in range(3 * MOST_OF_ONE)]
    assert taken == [True] * MOST_OF_ONE + [False] * 2 * MOST_OF_ONE
    assert backlog.put(received(report(2, node="n2"), "n2"), 0), "others are"
    backlog.take()
    backlog.take()
    assert backlog.put(received(report(9)), 0), "and so is he again"


def test_few_messages_wait_that_are_large() -> None:
    backlog = Backlog()
    large = [Received(b"n1", "n1", bytes([number]) * MAX_FRAME_BYTES) for number in range(4)]
    assert [backlog.put(one, 0) for one in large] == [True, True, False, False]


def test_what_is_no_message_harms_no_other() -> None:
    backlog = Backlog()
    for one in (received(report(1)), Received(b"n1", "n1", b"\xff" * 500), received(report(2))):
        backlog.put(one, 0)
    assert backlog.take().said() == report(1)
    with pytest.raises(wire.MalformedError):
        backlog.take().said()
    assert backlog.take().said() == report(2)


def test_agents_that_share_a_connection_are_not_one() -> None:
    backlog = Backlog()
    for node in ("n1", "n2", "n1"):
        one = report(len(backlog) + 1, node=node)
        backlog.put(received(one, node, key=SHARED_AGENT, over=b"all"), 0)
    assert said(backlog) == [report(3), report(2, node="n2")]


@pytest.mark.parametrize("count", [0, 3, A_PART, 3 * A_PART, 4 * MOST_PARTS * A_PART])
def test_each_agent_has_its_beat_once_in_a_round(count: int) -> None:
    rounds, agents = BeatRounds(), [f"n{number}" for number in range(count)]
    for _ in range(2):
        parts = [rounds.take(agents)]
        parts += [rounds.take([*agents, "late"]) for _ in range(rounds.parts - 1)]
        assert len(parts) <= MOST_PARTS
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert sorted(node for part in parts for node in part) == sorted(agents)


def test_a_controller_that_is_known_announces_itself_seldom() -> None:
    rounds, agents = BeatRounds(), [f"n{number}" for number in range(A_PART)]
    seen = []
    for _ in range(2 * (FIRST_ROUNDS + 10 * ANNOUNCED_EVERY)):
        seen.append(rounds.announces)
        rounds.take(agents)
    assert rounds.parts == 2
    assert not any(seen[1::2]), "once in a round at most"
    assert all(seen[: 2 * FIRST_ROUNDS : 2])
    assert sum(seen[2 * FIRST_ROUNDS :]) == 10


MIB = 1 << 20
MOST_MIB = 100  # more than interpreter and libraries grow by themselves, and a small part of what is sent


def resident_mib() -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


@pytest.mark.slow
def test_jobs_take_turns_and_memory_is_bounded_while_one_key_floods(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs())
    one, two, mad = stage.agent("n1"), stage.agent("n2"), stage.agent("n77")
    stage.agents.remove(mad)
    over = threading.Event()
    sent_bytes = most_waiting = 0
    grown_mib: list[float] = []
    held: list[tuple[frozenset[int], frozenset[int]]] = []

    def flood() -> None:
        nonlocal sent_bytes
        slices = tuple(
            [wire.SliceReport(number, 1, 0, 0, 0, tuple(range(1, 400)), ()) for number in range(8)]
        )
        report = wire.Report(
            node="n77", incarnation=mad.incarnation, follows=None, seq=1, offset_ns=0, rtt_us=0, slices=slices
        )
        while not over.is_set():
            body = encode(report)
            try:
                mad.sockets.reports.send(body, zmq.NOBLOCK)
            except zmq.Again:
                time.sleep(0.001)
                continue
            report = msgspec.structs.replace(report, seq=report.seq + 1)
            sent_bytes += len(body)

    def scene() -> None:
        nonlocal most_waiting
        stage.welcome(one, two)
        stage.until(lambda: bool(one.timeline.jobs(one.timeline.horizon)))
        before_mib = resident_mib()
        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            first = one.timeline.horizon

            def goes_on() -> bool:
                nonlocal most_waiting
                most_waiting = max(most_waiting, len(stage.loop._intake._waiting))
                grown_mib.append(resident_mib() - before_mib)
                return one.timeline.horizon > first + 60 and sent_bytes > 20 * MIB

            stage.until(goes_on)
            number = min(one.timeline.horizon, two.timeline.horizon)
            held.extend(
                [(one.timeline.held(past), two.timeline.held(past)) for past in range(number - 8, number)]
            )
        finally:
            over.set()
            flooding.join()

    with stage.play(scene):
        mad.sockets.close()
    assert stage.failure is None, stage.failure
    assert most_waiting <= 3 * MOST_OF_ONE
    assert max(grown_mib) < MOST_MIB
    assert all(here == there for here, there in held)
    assert {job for here, _ in held for job in here} == {1, 2}, "they take turns"
    status = stage.status()
    assert status is not None
    assert {node.node for node in status.nodes if node.agent == "joined"} == {"n1", "n2"}


TIMES = Times(250_000_000, 2_000_000_000, 2)
JOINED = AgentState.JOINED
TIMEBASE = Timebase(0, 250_000_000)


def uplink_hello(node: str = "n1", incarnation: bytes = b"a" * 16, pid: int = 1) -> wire.Hello:
    return wire.Hello(
        node=node, incarnation=incarnation, boot_id="b", pid=pid, agent_version="1", freezer="recording"
    )


def uplink_report(seq: int = 0, **more: Any) -> wire.Report:
    fields: dict[str, Any] = {"incarnation": b"a" * 16, "follows": b"c" * 16, "offset_ns": 5, "rtt_us": 7}
    return wire.Report(node="n1", seq=seq, **(fields | more))


def anywhere(node: str, job: int) -> NodePresence:
    return NodePresence.HERE


def uplink() -> Uplink:
    link = Uplink(CONTROLLER, CoreMap({"n1": 1}), TIMEBASE, anywhere)
    link.on_message(uplink_hello(), 0, 0, TIMES, AgentState.UNKNOWN)
    return link


def test_an_agent_is_welcomed_and_gets_its_whole_plan() -> None:
    link = Uplink(CONTROLLER, CoreMap({"n1": 1}), TIMEBASE, anywhere)
    reaction = link.on_message(uplink_hello(), 9, 10, TIMES, AgentState.UNKNOWN)
    assert reaction.events == (core.AgentJoined(10, "n1"),)
    assert reaction.resend
    [welcome] = reaction.replies
    assert isinstance(welcome, wire.Welcome)
    assert (welcome.quantum_ns, welcome.lookahead, welcome.controller) == (250_000_000, 2, CONTROLLER)


def test_a_node_that_slurm_does_not_have_is_refused() -> None:
    reaction = uplink().on_message(uplink_hello("n9"), 0, 0, TIMES, AgentState.UNKNOWN)
    assert reaction.events == ()
    assert isinstance(reaction.replies[0], wire.AccessRefused)


def test_a_report_becomes_an_event() -> None:
    link = uplink()
    one = wire.SliceReport(4, 1, 1_000_000_099, 12, 34, (8,), (wire.JobSample(7, 1, 2, 3, 4),))
    found = (wire.FoundState(5, "thawed", "frozen"),)
    reaction = link.on_message(
        uplink_report(slices=(one,), ended=(3,), dying=(6,), found=found), 9, 10, TIMES, JOINED
    )
    use = core.SliceUse(4, 12, 34, (8,), (core.CpuSample(7, 1, 2, 3, 4),))
    assert reaction.events == (
        core.NodeReport(10, "n1", (use,), (3,), (6,), (5,), rtt_us=7, acts=("frozen",)),
    )
    assert link.agents["n1"].skew_us == 12


def test_an_agent_that_only_tries_holds_no_one() -> None:
    link = Uplink(CONTROLLER, CoreMap({"n1": 1}), TIMEBASE, anywhere)
    link.on_message(msgspec.structs.replace(uplink_hello(), dry_run=True), 0, 0, TIMES, AgentState.UNKNOWN)
    one = wire.SliceReport(4, 1, 1_000_000_099, 12, 34, (8,), (wire.JobSample(7, 1, 2, 3, 4),))
    [event] = link.on_message(uplink_report(slices=(one,)), 9, 10, TIMES, JOINED).events
    assert isinstance(event, core.NodeReport)
    assert [(use.held, use.samples) for use in event.slices] == [((), (core.CpuSample(7, 1, 2, 3, 4),))]


def test_slices_of_an_earlier_controller_are_left_out() -> None:
    old, new = (wire.SliceReport(number, 1, 1_000_000_000, 0, 0, (), ()) for number in (400, 4))
    reaction = uplink().on_message(uplink_report(slices=(old, new)), 0, 1_100_000_000, TIMES, JOINED)
    [event] = reaction.events
    assert isinstance(event, core.NodeReport)
    assert [use.number for use in event.slices] == [4]


def test_reports_are_taken_once() -> None:
    link = uplink()
    link.on_message(uplink_report(3), 0, 0, TIMES, JOINED)
    for seq in (3, 2):
        with pytest.raises(ReplayedError):
            link.on_message(uplink_report(seq), 0, 0, TIMES, JOINED)


def test_a_whole_plan_is_not_sent_again_at_once() -> None:
    link = uplink()
    ask = wire.Resend(node="n1", have_epoch=None)
    times_ns = (60_000_000, 61_000_000, 109_000_000, 110_000_000, 111_000_000)
    assert [link.on_message(ask, at, at, TIMES, JOINED).resend for at in times_ns] == [
        True, False, False, True, False,
    ]  # fmt: skip
    again = link.on_message(uplink_hello(), 112_000_000, 112_000_000, TIMES, JOINED)
    assert (again.resend, len(again.replies)) == (False, 1)
    other = link.on_message(uplink_hello(incarnation=b"z" * 16), 113_000_000, 113_000_000, TIMES, JOINED)
    assert other.resend, "another agent has no plan yet"


def test_strangers_must_say_hello_first() -> None:
    link = Uplink(CONTROLLER, CoreMap({"n1": 1}), TIMEBASE, anywhere)
    for message in (uplink_report(), wire.Resend(node="n1", have_epoch=None)):
        with pytest.raises(UnknownAgentError):
            link.on_message(message, 0, 0, TIMES, AgentState.UNKNOWN)


def test_a_restarted_agent_takes_over_and_the_old_one_is_refused() -> None:
    link = uplink()
    reaction = link.on_message(uplink_hello(incarnation=b"z" * 16, pid=2), 0, 0, TIMES, JOINED)
    assert reaction.alarm is not None
    assert "agent 2 of n1 takes over from agent 1" in reaction.alarm
    with pytest.raises(UnknownAgentError):
        link.on_message(uplink_report(), 0, 0, TIMES, JOINED)
    with pytest.raises(UnknownAgentError):
        link.on_message(wire.Farewell(node="n1", incarnation=b"a" * 16, reason=""), 0, 0, TIMES, JOINED)


def test_an_agent_whose_rival_fell_silent_is_informed_to_say_hello() -> None:
    link = uplink()
    link.on_message(uplink_hello(incarnation=b"z" * 16, pid=2), 0, 0, TIMES, JOINED)
    reaction = link.on_message(uplink_report(), 0, 0, TIMES, AgentState.LOST)
    assert [type(reply) for reply in reaction.replies] == [wire.AccessRefused]
    assert reaction.events == ()


def test_an_agent_that_obeys_another_controller_is_lost() -> None:
    link, others = uplink(), uplink_report(follows=b"x" * 16)
    reaction = link.on_message(others, 0, 10, TIMES, JOINED)
    assert [type(event) for event in reaction.events] == [core.NodeReport], "it is just coming over"
    later = msgspec.structs.replace(others, seq=others.seq + 1)
    reaction = link.on_message(later, 0, COMING_OVER_NS + 10, TIMES, JOINED)
    assert [type(event) for event in reaction.events] == [core.AgentLost]
    assert reaction.alarm is not None
    reaction = uplink().on_message(uplink_report(foreign_controllers=3), 0, 10, TIMES, JOINED)
    assert [type(event) for event in reaction.events] == [core.NodeReport]
    assert reaction.alarm is not None


def test_clock_probes_are_answered_to_anybody() -> None:
    link = Uplink(CONTROLLER, CoreMap(), TIMEBASE, anywhere)
    reaction = link.on_message(wire.Ping(node="n1", agent_ns=1), 2, 3, TIMES, AgentState.UNKNOWN)
    assert reaction.replies == (wire.Pong(node="n1", agent_ns=1, received_ns=2, sent_ns=3),)
