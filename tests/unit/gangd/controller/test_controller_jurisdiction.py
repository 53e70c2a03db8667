from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from gangd.controller.intake import GHOST_NS, AgentConnections
from gangd.controller.uplink import own_words
from gangd.core import NodePresence
from gangd.wire import AgentFault, FoundState, JobSample, Leak, Report, SliceReport
from gangd.wire.messages import printable
from tests.fixtures.core_bench import Bench

PLACES = {1: NodePresence.HERE, 2: NodePresence.ELSEWHERE, 3: NodePresence.LEFT, 4: NodePresence.UNKNOWN}


def report(**more: Any) -> Report:
    fields: dict[str, Any] = {"incarnation": b"a" * 16, "follows": None, "seq": 1}
    return Report(node="n1", offset_ns=0, rtt_us=0, **(fields | more))


def sample(job: int) -> JobSample:
    return JobSample(job, 1, 2, 3, 4)


ALL = (1, 2, 3, 4)
EVERYTHING: dict[str, Any] = {
    "slices": (SliceReport(7, 1, 0, 0, 0, ALL, tuple(map(sample, ALL)), ALL),),
    "alone": tuple(map(sample, ALL)),
    "ended": ALL,
    "dying": ALL,
    "found": tuple(FoundState(job, "frozen", "thawed") for job in ALL),
    "leaks": tuple(Leak(job, 5) for job in ALL),
    "faults": (AgentFault("kind", 1, "text"), *(AgentFault("kind", 1, "text", job) for job in ALL)),
}
OWN: dict[str, Any] = {
    "slices": (SliceReport(7, 1, 0, 0, 0, (1, 4), (sample(1), sample(4)), (1, 4)),),
    "alone": (sample(1), sample(4)),
    "ended": (1, 4),
    "dying": (1, 4),
    "found": (FoundState(1, "frozen", "thawed"), FoundState(4, "frozen", "thawed")),
    "leaks": (Leak(1, 5), Leak(4, 5)),
    "faults": (
        AgentFault("kind", 1, "text"),
        AgentFault("kind", 1, "text", 1),
        AgentFault("kind", 1, "text", 4),
    ),
}


@pytest.mark.parametrize("what", list(EVERYTHING))
def test_nothing_is_taken_of_jobs_that_are_elsewhere(what: str) -> None:
    kept, foreign = own_words(report(**{what: EVERYTHING[what]}), PLACES.__getitem__)
    assert kept == report(**{what: OWN[what]})
    assert foreign == {2}


def test_it_is_decided_of_every_field_whether_it_speaks_of_jobs() -> None:
    of_no_job = {"version", "node", "incarnation", "follows", "seq", "offset_ns", "rtt_us"}
    of_no_job |= {"foreign_controllers"}
    questions = {"born", "launched"}
    assert EVERYTHING.keys() | of_no_job | questions == set(Report.__struct_fields__)
    inside = {"number", "epoch", "applied_ns", "skew_us", "freeze_us"} | {"held", "samples", "yielding"}
    assert inside == set(SliceReport.__struct_fields__)


def test_a_report_of_own_jobs_is_left_as_it_is() -> None:
    whole = report(**EVERYTHING)
    kept, foreign = own_words(whole, lambda job: NodePresence.HERE)
    assert kept is whole
    assert foreign == frozenset()


@pytest.mark.parametrize("elsewhere", [2, 3, 4])
def test_asking_for_all_at_once_says_what_asking_one_by_one_says(elsewhere: int) -> None:
    bench = Bench(nodes=2)
    bench.job(1, {"n0": (0,), "n1": (0,)})
    bench.job(2, {"n0": (0,)})
    bench.job(3, {"n1": (1,)})
    bench.snapshot()
    core, asked = bench.scheduler, set[int]()

    def where(job: int) -> NodePresence:
        asked.add(job)
        return core.place("n1", job)

    kept, foreign = own_words(report(ended=(1, 3)), where, partial(core.is_home, "n1"))
    assert (kept, foreign, asked) == (report(ended=(1, 3)), frozenset(), set())
    told = own_words(report(ended=(1, elsewhere)), where, partial(core.is_home, "n1"))
    assert told == own_words(report(ended=(1, elsewhere)), where)
    assert core.is_home("n1", {1, elsewhere}) is (elsewhere == 3)


def test_that_a_job_has_begun_may_be_reported_of_any() -> None:
    kept, foreign = own_words(report(born=ALL), PLACES.__getitem__)
    assert kept.born == ALL
    assert foreign == frozenset()


def test_a_node_that_a_job_has_left_reports_nothing_and_is_no_liar() -> None:
    bench = Bench()
    bench.job(1, {"n0": (0,)})
    bench.job(5, {"n0": (0,), "n1": (0,)})
    bench.tick()
    scheduler = bench.scheduler
    assert [scheduler.place(node, 5) for node in ("n0", "n1")] == [NodePresence.HERE, NodePresence.HERE]
    assert scheduler.place("n1", 1) is NodePresence.ELSEWHERE
    assert scheduler.place("n1", 99) is NodePresence.UNKNOWN
    bench.job(5, {"n0": (0,)})
    bench.tick()
    assert [scheduler.place(node, 5) for node in ("n0", "n1")] == [NodePresence.HERE, NodePresence.LEFT]
    bench.job(5, {"n1": (0,)})
    bench.tick()
    assert [scheduler.place(node, 5) for node in ("n0", "n1")] == [NodePresence.LEFT, NodePresence.HERE]
    del bench.jobs[5]
    bench.tick()
    bench.job(5, {"n0": (0,)})
    bench.tick()
    assert scheduler.place("n1", 5) is NodePresence.ELSEWHERE, "another job of that number was never there"


def test_a_connection_that_speaks_long_after_it_was_replaced_is_a_second_one() -> None:
    lines = AgentConnections()
    assert not lines.is_double("n1", b"a", 0)
    assert not lines.is_double("n1", b"b", 10)
    assert not lines.is_double("n1", b"a", 10 + GHOST_NS - 1), "it was on the way"
    assert not lines.is_double("n2", b"a", 10 + GHOST_NS)
    assert lines.is_double("n1", b"a", 10 + GHOST_NS)
    assert not lines.is_double("n1", b"b", 11 + GHOST_NS)


def test_no_more_connections_are_remembered_than_are_of_use() -> None:
    lines = AgentConnections()
    for number in range(100):
        assert not lines.is_double("n1", b"%d" % number, number)
    assert len(lines._former["n1"]) < 10


def test_a_peers_text_is_printed_without_what_moves_a_cursor() -> None:
    assert printable("n1: ok, ü") == "n1: ok, ü"
    assert printable("a\x1b[2J\nb\u202e") == "a?[2J?b?"
