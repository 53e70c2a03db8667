"""Parts of the controller: jurisdiction, reservations, pairing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import HostError, InputError, TrustError
from foundation.records import SliceRecord
from foundation.slurm import (
    JobSnapshot,
    NodeCores,
    Reservation,
    SlurmJob,
    SlurmJobState,
    SlurmNode,
    SubmitRequest,
)
from foundation.slurm.site_configuration import read_reservations
from gangd.controller.alarms import AlarmBoard, alarms_of, fault_alarm, worded
from gangd.controller.command_executor import CommandExecutor
from gangd.controller.intake import GHOST_NS, AgentConnections
from gangd.controller.job_policy import HELD_SLICES, PairRule, Policy, read_pairs
from gangd.controller.orders import ActiveOrder, OrderTarget
from gangd.controller.slicefiles import NAME
from gangd.controller.slicelog import SliceLog, read_slices
from gangd.controller.slurm_view import ClusterView, latest_end
from gangd.controller.state_directory import StateDirectory
from gangd.controller.uplink import own_words
from gangd.core.cores import CoreMap
from gangd.core.gang import NodePresence
from gangd.core.scheduler_events import Alarm, HoldMode, JobView, NodeReport, SliceRow, SliceUse
from gangd.wire import messages as wire
from gangd.wire.connection_limiter import Denied
from gangd.wire.messages import printable
from tests.fixtures.core_bench import Bench
from tests.fixtures.fake_slurm import FakeSlurm
from tests.fixtures.tier import examples

# Record


def row(number: int, start_ns: int) -> SliceRow:
    return SliceRow(number, start_ns, 250_000_000, 7, "n1", "run", 1500, -3, 40)


def test_recorded_slices_are_read_in_the_time_of_a_run(tmp_path: Path) -> None:
    log = SliceLog(tmp_path, wall_ms=1_000_000_000.0, monotonic_ns=5_000_000_000, clock=lambda: 5_000_000_000)
    log.append([row(1, 4_000_000_000), row(2, 6_500_000_000)])
    log.close()
    assert list(read_slices(tmp_path, 1_000_000.0, {8})) == []
    assert list(read_slices(tmp_path, 1_000_000.0, {7})) == [
        SliceRecord(
            slice=2, start_s=1.5, length_s=0.25, job=7, node="n1", role="run", cpu_s=0.0015,
            skew_us=-3.0, freeze_us=40.0,
        )
    ]  # fmt: skip


def test_a_restarted_controller_goes_on_in_the_same_record(tmp_path: Path) -> None:
    for wall_ms, start_ns in ((1_000_000.0, 0), (2_000_000.0, 1_000_000_000)):
        log = SliceLog(tmp_path, wall_ms, start_ns, clock=lambda: 0)
        log.append([row(0, start_ns)])
        log.close()
    assert [record.start_s for record in read_slices(tmp_path, 1000.0)] == [0.0, 1000.0]


def test_a_torn_line_is_skipped_and_a_foreign_file_refused(tmp_path: Path) -> None:
    log = SliceLog(tmp_path, 0.0, 0, clock=lambda: 0)  # whatever the host's uptime, no file is a day old
    log.append([row(0, 0)])
    log.close()
    (path := tmp_path / NAME).write_bytes(path.read_bytes() + b'[1, 2, "to')
    assert len(list(read_slices(path, 0.0))) == 1
    later = SliceLog(tmp_path, 5000.0, 0, clock=lambda: 0)
    later.append([row(9, 0)])
    later.close()
    assert [(record.slice, record.start_s) for record in read_slices(path, 0.0)] == [(0, 0.0), (9, 5.0)]
    path.write_bytes(msgspec.json.encode((0, 0, 1, 7, "n1", "run", None, 0, 0)))
    with pytest.raises(InputError, match="anchor"):
        list(read_slices(path, 0.0))
    with pytest.raises(InputError, match="cannot read"):
        list(read_slices(tmp_path / "missing", 0.0))


# Keeper


def test_a_second_controller_is_kept_away_and_a_later_one_starts_later(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path)
    one = first.begin(1000)
    with pytest.raises(HostError, match="another gangd"):
        StateDirectory(tmp_path)
    first.state.limits = {"7": {"base_s": 1.0}}
    first.save()
    first.close()
    second = StateDirectory(tmp_path)
    assert second.state.limits == {"7": {"base_s": 1.0}}
    other = second.begin(10)
    assert other.started_ns > one.started_ns, "although the clock was set back"
    assert other.incarnation != one.incarnation
    second.close()


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (b"{ not json", []),
        (b"", []),
        (b'{"version":2,"orders":[GOOD]}', ["n1"]),
        (b'{"limits":{"7":{"base_s":"x"}},"orders":[{"what":"dance"},GOOD]}', ["n1"]),
        (b'{"orders":{}}', []),
    ],
)
def test_a_damaged_state_file_is_kept_aside_with_what_orders_it_has(
    tmp_path: Path, content: bytes, kept: list[str]
) -> None:
    good = ActiveOrder(what="pause", target=OrderTarget("node", "n1"), since_s=1.0, uid=0, by="root")
    content = content.replace(b"GOOD", msgspec.json.encode(good))
    (tmp_path / "controller.json").write_bytes(content)
    keeper = StateDirectory(tmp_path)
    assert keeper.state.limits == {}
    assert [order.target.name for order in keeper.state.orders] == kept
    assert (tmp_path / "controller.damaged-1.json").read_bytes() == content
    assert keeper.damaged is not None
    keeper.begin(1)
    keeper.close()
    (tmp_path / "controller.json").write_bytes(content)
    again = StateDirectory(tmp_path)
    assert (tmp_path / "controller.damaged-2.json").read_bytes() == content, "an earlier one stays"
    again.close()
    (tmp_path / "controller.json").unlink(missing_ok=True)
    later = StateDirectory(tmp_path)
    assert later.damaged is not None, "also after a restart"
    for path in tmp_path.glob("controller.damaged-*"):
        path.unlink()
    assert later.damaged is None
    later.close()


# Orders


def test_a_refusal_to_move_the_end_of_a_job_that_runs_is_an_alarm() -> None:
    nothing: Any = None
    orders = CommandExecutor(nothing, nothing, nothing, nothing, None, lambda: 7)
    orders.on_moved({1: 5.0}, {2: "Job is not running for job 2", 3: "Invalid job id specified for job 3"})
    assert orders.alarms.standing(7) == []
    orders.on_moved({}, {2: "Access/permission denied for job 2"})
    [alarm] = orders.alarms.standing(7)
    assert (alarm.kind, alarm.job) == ("limits", 2)
    assert "Access/permission denied" in alarm.text


# Alarms


def test_an_alarm_is_news_once_and_again_after_its_end() -> None:
    board = AlarmBoard()
    assert board.raise_(Alarm("slurm", "slurm", "away"), None, 0)
    assert not board.raise_(Alarm("slurm", "slurm", "still away"), None, 5)
    assert [(one.text, one.since_ns, one.count) for one in board.standing(6)] == [("still away", 0, 2)]
    assert board.clear("slurm", "slurm")
    assert not board.clear("slurm", "slurm")
    assert board.raise_(Alarm("slurm", "slurm", "away"), None, 9)
    assert board.standing(10**15) == []


def test_an_alarm_names_the_job_the_user_and_the_nodes_that_caused_it() -> None:
    board = AlarmBoard()
    stopped = Alarm("foreign freeze", "7", "it was stopped", job=7, nodes=("n1", "n2"))
    board.raise_(stopped, "alice", 0)
    board.raise_(stopped, None, 1)  # Slurm does not list it any more
    [alarm] = board.standing(2)
    assert (alarm.job, alarm.user, alarm.nodes) == (7, "alice", ("n1", "n2"))
    assert alarm.text == "job 7 of user alice on n1, n2: it was stopped"
    many = Alarm("fault", "stray", "strays", nodes=tuple(f"n{number}" for number in range(8)))
    assert worded(many) == "n0, n1, n2, n3, n4 and 3 more: strays"
    assert worded(Alarm("slurm", "slurm", "away")) == "away"


def test_faults_that_need_something_done_are_alarms_of_their_job_and_node() -> None:
    alarm = fault_alarm("n1", wire.AgentFault("freeze_failed", 3, "step 7.0 does not freeze\x1b[2J", 7))
    assert alarm is not None
    assert (alarm.kind, alarm.job, alarm.nodes) == ("fault", 7, ("n1",))
    assert "\x1b" not in alarm.text
    other = fault_alarm("n2", wire.AgentFault("freeze_failed", 1, "step 7.0 does not freeze", 7))
    assert other is not None
    assert other.subject != alarm.subject
    stray = fault_alarm("n1", wire.AgentFault("stray", 1, "2 processes of user 1000 run outside of jobs"))
    assert stray is not None
    assert (stray.job, stray.nodes) == (None, ("n1",))
    stray = fault_alarm("n1", wire.AgentFault("stray", 1, "2 processes of its user run outside of jobs", 7))
    assert stray is not None
    assert worded(stray, "alice").startswith("job 7 of user alice on n1: 2 processes of its user run outside")
    assert fault_alarm("n1", wire.AgentFault("late_switch", 9, "slice 3 began 12 ms late")) is None


def test_alarms_without_number_are_not_kept() -> None:
    board = AlarmBoard()
    for number in range(3_000):
        board.raise_(Alarm("blocked", str(number), "shut out"), None, number)
        board.raise_(Alarm("slurm", "slurm", "away"), None, number)
    standing = board.standing(3_000)
    assert len(standing) <= 1_000
    assert "slurm" in {one.kind for one in standing}, "what is seen all the time stays"
    assert "2999" in {one.subject for one in standing}


def test_of_much_at_the_limit_the_first_few_are_named() -> None:
    news = [Denied(f"10.0.0.{number}", 1) for number in range(100)]
    alarms = alarms_of(news)
    assert [alarm.subject for alarm in alarms] == [*(f"10.0.0.{number}" for number in range(10)), "others"]
    assert "90 other addresses" in alarms[-1].text
    assert alarms_of(news[:10]) == alarms[:10]


PLACES = {1: NodePresence.HERE, 2: NodePresence.ELSEWHERE, 3: NodePresence.LEFT, 4: NodePresence.UNKNOWN}


def report(**more: Any) -> wire.Report:
    fields: dict[str, Any] = {"incarnation": b"a" * 16, "follows": None, "seq": 1}
    return wire.Report(node="n1", offset_ns=0, rtt_us=0, **(fields | more))


def sample(job: int) -> wire.JobSample:
    return wire.JobSample(job, 1, 2, 3, 4)


ALL = (1, 2, 3, 4)

EVERYTHING: dict[str, Any] = {
    "slices": (wire.SliceReport(7, 1, 0, 0, 0, ALL, tuple(map(sample, ALL)), ALL),),
    "alone": tuple(map(sample, ALL)),
    "ended": ALL,
    "dying": ALL,
    "found": tuple(wire.FoundState(job, "frozen", "thawed") for job in ALL),
    "leaks": tuple(wire.Leak(job, 5) for job in ALL),
    "faults": (wire.AgentFault("kind", 1, "text"), *(wire.AgentFault("kind", 1, "text", job) for job in ALL)),
    "memory": wire.ReportedMemory(9, 0.5, 7, tuple(wire.ReportedJobMemory(job, 1, 2) for job in ALL)),
}

OWN: dict[str, Any] = {
    "slices": (wire.SliceReport(7, 1, 0, 0, 0, (1, 4), (sample(1), sample(4)), (1, 4)),),
    "alone": (sample(1), sample(4)),
    "ended": (1, 4),
    "dying": (1, 4),
    "found": (wire.FoundState(1, "frozen", "thawed"), wire.FoundState(4, "frozen", "thawed")),
    "leaks": (wire.Leak(1, 5), wire.Leak(4, 5)),
    "faults": (
        wire.AgentFault("kind", 1, "text"),
        wire.AgentFault("kind", 1, "text", 1),
        wire.AgentFault("kind", 1, "text", 4),
    ),
    "memory": wire.ReportedMemory(
        9, 0.5, 7, (wire.ReportedJobMemory(1, 1, 2), wire.ReportedJobMemory(4, 1, 2))
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
    assert EVERYTHING.keys() | of_no_job | questions == set(wire.Report.__struct_fields__)
    inside = {"number", "epoch", "applied_ns", "skew_us", "freeze_us"} | {"held", "samples", "yielding"}
    assert inside == set(wire.SliceReport.__struct_fields__)


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
    reported = own_words(report(ended=(1, elsewhere)), where, partial(core.is_home, "n1"))
    assert reported == own_words(report(ended=(1, elsewhere)), where)
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


JOB = SlurmJob(
    job_id=1, name="x", user="u", uid=1, partition="main", state=SlurmJobState.RUNNING,
    reason="None", num_nodes=2, cores=(NodeCores("n1", (0,)), NodeCores("n2", (0,))),
    start_time=100, end_time=1000, time_limit_s=900,
)  # fmt: skip


def reserved(name: str, start_s: int, end_s: int, *nodes: str) -> Reservation:
    return Reservation(name, start_s, end_s, frozenset(nodes))


@pytest.mark.parametrize(
    ("reservations", "latest_s"),
    [
        ([], None),
        ([reserved("other", 2000, 3000, "n3")], None),
        ([reserved("maint", 2000, 3000, "n2", "n3")], 2000),
        ([reserved("later", 5000, 6000, "n1"), reserved("maint", 2000, 3000, "n2")], 2000),
        ([reserved("mine", 50, 4000, "n1", "n2")], 4000),
        ([reserved("mine", 50, 4000, "n1", "n2"), reserved("maint", 2000, 3000, "n2")], 2000),
        ([reserved("began", 500, 3000, "n1")], 500),
    ],
)
def test_a_job_ends_before_reservations_of_its_nodes_but_may_use_its_own_up(
    reservations: list[Reservation], latest_s: float | None
) -> None:
    assert latest_end(replace(JOB, reservation="mine"), reservations) == latest_s


def test_jobs_that_were_known_learn_of_a_new_reservation() -> None:
    view = ClusterView(CoreMap(), Policy())
    view.know_nodes(
        SlurmNode(
            name=name, states=frozenset(), cores=1, threads_per_core=1, memory_mib=1,
            cpus_allocated=0, features=frozenset(),
        )
        for name in ("n1", "n2")
    )  # fmt: skip
    snapshot = JobSnapshot((JOB,))
    assert [one.latest_s for one in view.views(snapshot)] == [None]
    view.know_reservations([reserved("maint", 2000, 3000, "n2")])
    assert [one.latest_s for one in view.views(snapshot)] == [2000.0]
    view.know_reservations([])
    assert [one.latest_s for one in view.views(snapshot)] == [None]


def test_what_slurm_prints_of_reservations_is_read() -> None:
    rest = "Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES TRES=cpu=4 Users=root State=INACTIVE"
    times = "StartTime=1970-01-01T00:33:20 EndTime=1970-01-01T00:50:00"
    lines = [
        f"ReservationName=maint {times} Nodes=n[1-2] {rest}",
        f"ReservationName=licence {times} Nodes=(null) {rest}",
        f"ReservationName=odd StartTime=Unknown EndTime=1970-01-01T00:50:00 Nodes=n3 {rest}",
        "No reservations in the system",
    ]
    assert read_reservations("\n".join(lines)) == [reserved("maint", 2000, 3000, "n1", "n2")]


def request(**more: Any) -> SubmitRequest:
    return SubmitRequest(script="#!/bin/sh\n", name="job", **more)


def labelled(slurm: FakeSlurm, **names: str) -> JobSnapshot:
    """Return the jobs with what operators say that each runs."""
    return JobSnapshot(
        tuple(
            replace(job, admin_comment=f"gangd-app={names[f'j{job.job_id}']}")
            if f"j{job.job_id}" in names
            else job
            for job in slurm.jobs().jobs
        )
    )


def shares(one: JobView, other: JobView) -> bool:
    return bool(set(one.cores.numbers().tolist()) & set(other.cores.numbers().tolist()))


def test_a_dangerous_pair_on_a_node_holds_a_seat_together_and_no_one_else_does() -> None:
    slurm = FakeSlurm(nodes=1, cores=4)
    for _ in range(4):
        slurm.submit(request())
    cores = CoreMap()
    rule = PairRule(frozenset({("a", "b")}))
    view = ClusterView(cores, Policy(hold=HoldMode.YIELD, pairing=rule))
    view.know_nodes(slurm.nodes())
    first, second, third, fourth = view.views(labelled(slurm, j1="a", j2="b", j3="a"))
    assert shares(first, second)
    assert shares(second, third)
    assert not shares(first, third)
    assert not any(shares(fourth, one) for one in (first, second, third))
    assert [one.hold for one in (first, second, third, fourth)] == [*[HoldMode.FREEZE] * 3, HoldMode.YIELD]
    assert cores.unpack(second.cores) == {"n1": [1]}
    assert view.views(labelled(slurm, j1="a", j2="b", j3="a")) == (first, second, third, fourth)
    # One is gone: the rest keep their seats, and who is in no danger any more yields again.
    slurm.cancel([3])
    after = {one.job: one for one in view.views(labelled(slurm, j1="a", j2="b", j4="b"))}
    assert shares(after[1], after[2])
    assert shares(after[1], after[4])
    assert not shares(after[2], after[4])
    slurm.cancel([1])
    assert [one.hold for one in view.views(labelled(slurm, j2="b", j4="b"))] == [HoldMode.YIELD] * 2
    view.set_policy(Policy(hold=HoldMode.YIELD))
    assert not shares(*view.views(labelled(slurm, j2="b", j4="a")))


def test_a_job_that_runs_on_in_others_slices_alternates_no_more() -> None:
    slurm = FakeSlurm(nodes=1, cores=4)
    for _ in range(3):
        slurm.submit(request())
    view = ClusterView(CoreMap(), Policy(pairing=PairRule(frozenset({("a", "b")}))))
    view.know_nodes(slurm.nodes())
    names = {"j1": "a", "j2": "b", "j3": "b"}

    def slices(job: int, *yields: bool) -> None:
        for number, one in enumerate(yields):
            use = SliceUse(number, 0, 0, () if one else (job,), (), (job,) if one else ())
            view.seats.report(NodeReport(number, "n1", (use,)))

    before = view.views(labelled(slurm, **names))
    assert shares(before[0], before[1])
    # A job that is launched yields, and so does one that starts a step now and then.
    slices(2, *[True] * HELD_SLICES, *[True, *[False] * 9] * 20)
    slices(1, *[False] * 200)
    assert view.views(labelled(slurm, **names)) == before
    slices(2, *[True, False, False, False, False] * 4)
    first, second, third = view.views(labelled(slurm, **names))
    assert not shares(first, second)
    assert shares(first, third)
    # A later job is judged anew.
    view.views(labelled(slurm, j1="a", j3="b"))
    assert view.views(labelled(slurm, **names)) == before


@examples(100)
@given(data=st.data())
def test_seats_part_just_the_dangerous_however_jobs_come_and_go(data: st.DataObject) -> None:
    names = "abc"
    pairs = data.draw(st.sets(st.tuples(st.sampled_from(names), st.sampled_from(names))))
    rule = PairRule(frozenset((min(pair), max(pair)) for pair in pairs))
    slurm = FakeSlurm(nodes=2, cores=4)
    view = ClusterView(CoreMap(), Policy(pairing=rule))
    view.know_nodes(slurm.nodes())
    said: dict[str, str] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        running = [job.job_id for job in slurm.jobs().jobs if job.cores]
        if data.draw(st.booleans()) and running:
            slurm.cancel([data.draw(st.sampled_from(running))])
        else:
            number = slurm.submit(request(nodes=data.draw(st.integers(1, 2))))
            if data.draw(st.booleans()):
                said[f"j{number}"] = data.draw(st.sampled_from(names))
        snapshot = labelled(slurm, **said)
        nodes = {job.job_id: set(job.nodes) for job in snapshot.jobs}
        views = view.views(snapshot)
        for place, one in enumerate(views):
            for other in views[place + 1 :]:
                name, rival = said.get(f"j{one.job}"), said.get(f"j{other.job}")
                harm = name is not None and rival is not None and rule.is_harmful(name, rival)
                assert shares(one, other) == (harm and bool(nodes[one.job] & nodes[other.job]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: no column victim, opponent, e_v"),
        ("victim,opponent\n", ":1: no column e_v"),
        ("victim,opponent,e_v\na,b,x\n", ":2: e_v"),
        ("victim,opponent,e_v\na,b,nan\n", ":2: e_v"),
        ("victim,opponent,e_v\na\n", ":2: 1 cell"),
        ("victim,opponent,e_v\n" + "a" * 200_000 + ",b,0.1\n", ":2: no CSV"),
        (b"\xff\xfe", "no text in UTF-8"),
    ],
)
def test_a_table_of_pairs_that_is_none_is_one_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    (path := tmp_path / "pairs.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message) as found:
        read_pairs(path, 0.05, "admin_comment")
    assert "\n" not in str(found.value)


def test_a_table_of_pairs_is_read_with_its_threshold_and_from_no_one_else(tmp_path: Path) -> None:
    (path := tmp_path / "pairs.csv").write_text("victim,opponent,e_v\nb,a,0.2\na,b,0.0\na,a,0.05\n")
    assert read_pairs(path, 0.05, "comment") == PairRule(frozenset({("a", "b")}), word="comment")
    path.write_text("victim,opponent,e_v\na,b,0.2\na,b,-0.1\n")
    assert read_pairs(path, 0.05, "name").losses == {("a", "b"): 0.2}, "the larger loss of two counts"
    path.chmod(0o666)
    with pytest.raises(TrustError):
        read_pairs(path, 0.05, "comment")
    with pytest.raises(InputError, match="cannot read"):
        read_pairs(tmp_path / "none.csv", 0.05, "comment")


def test_what_a_job_runs_is_said_once_and_by_operators_unless_users_may() -> None:
    slurm = FakeSlurm()
    slurm.submit(request(comment="gangd-app=a"))
    job = slurm.jobs().jobs[0]
    pairs = frozenset({("a", "b")})
    assert PairRule(pairs).application(job) is None
    assert PairRule(pairs, word="comment").application(job) == "a"
    assert PairRule(pairs).application(replace(job, admin_comment="x, gangd-app=b")) == "b"
    assert PairRule(pairs).application(replace(job, admin_comment="gangd-app=a gangd-app=b")) is None
    assert PairRule(frozenset(), word="comment").application(job) is None
