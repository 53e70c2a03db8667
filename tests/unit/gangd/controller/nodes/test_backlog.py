"""Of what an agent says little waits, and nothing is lost that was said once."""

from __future__ import annotations

import pytest

from gangd.controller.fanout import A_PART, ANNOUNCED_EVERY, FIRST_ROUNDS, MOST_PARTS, BeatRounds
from gangd.controller.intake import MOST_OF_ONE, MOST_SLICES, SAMPLED_SLICES, Backlog, condensed
from gangd.curve_keys import SHARED_AGENT
from gangd.wire import (
    AgentFault,
    Farewell,
    FoundState,
    Hello,
    JobSample,
    Leak,
    MalformedError,
    Message,
    Report,
    Resend,
    SliceReport,
    encode,
)
from gangd.wire.messages import MAX_FRAME_BYTES
from gangd.wire.sockets import Received

ONE = b"n1".ljust(16, b".")


def received(said: Message, node: str = "n1", *, key: str | None = None, over: bytes = b"") -> Received:
    return Received(over or node.encode(), key or node, encode(said))


def report(
    seq: int, *slices: SliceReport, node: str = "n1", incarnation: bytes = ONE, **more: object
) -> Report:
    said = {"follows": None, "offset_ns": seq, "rtt_us": 0, **more}
    return Report(node=node, incarnation=incarnation, seq=seq, slices=slices, **said)  # type: ignore[arg-type]


def sample(job: int, cpu_us: int = 1, tasks: int = 1) -> JobSample:
    return JobSample(job, cpu_us, 0, 10, tasks)


def slice_(number: int, held: tuple[int, ...] = (), *samples: JobSample) -> SliceReport:
    return SliceReport(number, 1, 0, 0, 0, held, samples)


def hello(incarnation: bytes = ONE) -> Hello:
    return Hello(
        node="n1", incarnation=incarnation, boot_id="b", pid=1, agent_version="v", freezer="recording"
    )


def said(backlog: Backlog) -> list[Message]:
    found: list[Message] = []
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
        1,
        slice_(4, (7,), sample(8)),
        born=(1,),
        launched=(2,),
        ended=(3, 4),
        dying=(5,),
        alone=(sample(20, 1), sample(21, 1)),
        found=(FoundState(9, "frozen", "thawed"),),
        leaks=(Leak(7, 5),),
        faults=(AgentFault("a", 1, ""),),
        foreign_controllers=2,
    )
    newer = report(
        2,
        slice_(5, (8,), sample(7)),
        born=(11, 1),
        launched=(12,),
        ended=(13,),
        dying=(15,),
        alone=(sample(21, 9),),
        faults=(AgentFault("b", 2, ""),),
        foreign_controllers=1,
    )
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
    assert isinstance(one, Report)
    assert [slice_.number for slice_ in one.slices] == list(range(MOST_SLICES, 2 * MOST_SLICES))
    assert all(slice_.held == (7,) for slice_ in one.slices)
    assert [bool(slice_.samples) for slice_ in one.slices[-SAMPLED_SLICES - 1 :]] == [False, True, True]


def test_a_hello_stays_between_the_reports_that_it_came_between() -> None:
    backlog = Backlog()
    for one in (report(1), report(2), hello(), report(3), report(4), hello(b"another one.....")):
        assert backlog.put(received(one), 0)
    farewell = Farewell(node="n1", incarnation=ONE, reason="")
    assert backlog.put(received(farewell), 0)
    assert said(backlog) == [report(2), hello(), report(4), hello(b"another one....."), farewell]


def test_what_is_asked_again_counts_once() -> None:
    backlog = Backlog()
    for epoch in (1, 2, 3):
        backlog.put(received(Resend(node="n1", have_epoch=epoch)), epoch)
        backlog.put(received(Resend(node="n1", have_epoch=epoch)), epoch)
    assert said(backlog) == [Resend(node="n1", have_epoch=3)]


@pytest.mark.parametrize("second", [report(1), report(3, incarnation=b"x" * 16)])
def test_what_does_not_follow_is_judged_by_itself(second: Report) -> None:
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
    with pytest.raises(MalformedError):
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
    told = []
    for _ in range(2 * (FIRST_ROUNDS + 10 * ANNOUNCED_EVERY)):
        told.append(rounds.announces)
        rounds.take(agents)
    assert rounds.parts == 2
    assert not any(told[1::2]), "once in a round at most"
    assert all(told[: 2 * FIRST_ROUNDS : 2])
    assert sum(told[2 * FIRST_ROUNDS :]) == 10
