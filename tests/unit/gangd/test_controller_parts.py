from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foundation.errors import ClusterError, HostError, InputError, UsageError
from foundation.records import SliceRecord
from foundation.slurm import FakeSlurm, JobSnapshot, Partition, SubmitRequest, UnreadableJob
from foundation.slurm import JobState as SlurmState
from gangd.agent.mind import REPORT_NS
from gangd.controller.alarms import AlarmBoard, alarms_of
from gangd.controller.lead.keeper import Keeper
from gangd.controller.nodes.uplink import COMING_OVER_NS, Times, UnknownAgentError, Uplink
from gangd.controller.orders import Orders
from gangd.controller.site.controller_config import Config, Saying, load_config
from gangd.controller.site.examine_slurm import check_slurm
from gangd.controller.site.job_policy import Policy, Rule, Rules
from gangd.controller.site.slurm_view import ClusterView
from gangd.controller.slice_record.slicefiles import NAME
from gangd.controller.slice_record.slicelog import SliceLog, read_slices
from gangd.core import (
    AgentJoined,
    AgentLost,
    AgentState,
    CoreMap,
    Hold,
    JobState,
    NodeReport,
    Place,
    Sample,
    Settings,
    SliceRow,
    SliceUse,
)
from gangd.core.terms.gang_settings import LEAST_LEASE_NS
from gangd.core.terms.timebase import Timebase
from gangd.wire import (
    Controller,
    Farewell,
    FoundState,
    Hello,
    JobSample,
    Ping,
    Pong,
    Refused,
    Report,
    Resend,
    SlicePlan,
    SliceReport,
    Welcome,
    decode_down,
    encode_down,
)
from gangd.wire.doorkeeper import Denied
from gangd.wire.wire_faults import ReplayedError

MAIN = Rules({"main": Rule(weight=4.0)})
SHORT = Settings(freeze_cap_ns=5_000_000_000)


def request(name: str = "job", **more: Any) -> SubmitRequest:
    return SubmitRequest(script="#!/bin/sh\n", name=name, **more)


def partition(**more: Any) -> Partition:
    fields = {"name": "main", "nodes": ("n1",), "multiplicity": 2, "forced": True}
    rest = {"is_default": True, "is_up": True, "preempt_mode": "OFF"}
    return Partition(**{**fields, **rest, **more})


# View


def test_jobs_with_cores_become_views_and_stay_the_same_objects() -> None:
    slurm = FakeSlurm(nodes=2, cores=2, multiplicity=2, start_time=1000.0)
    for nodes in (2, 1, 2):
        slurm.submit(request(nodes=nodes, tasks_per_node=2, time_limit_minutes=3))
    cores = CoreMap()
    view = ClusterView(cores, Policy())
    view.know_nodes(slurm.nodes())
    first = view.views(slurm.jobs())
    assert [(one.job, cores.unpack(one.cores)) for one in first] == [
        (1, {"n1": [0, 1], "n2": [0, 1]}),
        (2, {"n1": [0, 1]}),
    ], "the third waits"
    assert (first[0].start_s, first[0].end_s) == (1000.0, 1180.0)
    assert all(one is other for one, other in zip(first, view.views(slurm.jobs()), strict=True))
    slurm.suspend(1)
    second = view.views(slurm.jobs())
    assert second[0].state is JobState.SUSPENDED
    assert second[1] is first[1]


def test_a_job_without_limit_has_no_end() -> None:
    slurm = FakeSlurm()
    slurm.submit(request())
    view = ClusterView(CoreMap({"n1": 1, "n2": 1}), Policy())
    assert view.views(slurm.jobs())[0].end_s is None


def test_partition_weights_and_opt_outs_apply() -> None:
    slurm = FakeSlurm(nodes=3)
    for comment, constraint in (
        ("nice gangd=off", None),
        (None, "fast&nogang"),
        ("gangd=offline", "nogangs"),
    ):
        slurm.submit(request(comment=comment, constraint=constraint))
    jobs = [
        replace(job, features=feature)
        for job, feature in zip(slurm.jobs().jobs, (None, "fast&nogang", "nogangs"), strict=True)
    ]
    policy = Policy(MAIN, 1.0, frozenset({"gangd=off"}), frozenset({"nogang"}))
    view = ClusterView(CoreMap({"n1": 1, "n2": 1, "n3": 1}), policy)
    views = view.views(JobSnapshot(tuple(jobs)))
    assert [one.opt_out for one in views] == [True, True, False]
    assert {one.weight for one in views} == {4.0}


@pytest.mark.parametrize(
    ("comment", "most", "weight"),
    [
        ("gangd-weight=0.5", 1.0, 2.0),
        ("polite, gangd-weight=0.25", 1.0, 1.0),
        ("gangd-weight=8", 1.0, 4.0),
        ("gangd-weight=8", 2.0, 8.0),
        ("gangd-weight=2 gangd-weight=2.0,gangd-weight=02", 2.0, 8.0),
        ("gangd-weight=much", 2.0, 4.0),
        ("gangd-weight=-1", 2.0, 4.0),
        ("gangd-weight=nan", 2.0, 4.0),
        ("gangd-weight=1e-9", 2.0, 1 / 1024),
    ],
)
def test_a_job_asks_for_weight_as_far_as_it_may(comment: str, most: float, weight: float) -> None:
    slurm = FakeSlurm()
    slurm.submit(request(comment=comment))
    view = ClusterView(CoreMap({"n1": 1}), Policy(MAIN, most))
    assert view.views(slurm.jobs())[0].weight == weight


@pytest.mark.parametrize(
    ("comment", "allowed", "way"),
    [
        (None, (), Hold.YIELD),
        ("gangd-hold=freeze", (), Hold.YIELD),
        ("gangd-hold=freeze", (Hold.FREEZE,), Hold.FREEZE),
        ("mine, gangd-hold=freeze", (Hold.FREEZE, Hold.YIELD), Hold.FREEZE),
        ("gangd-hold=freeze gangd-hold=yield", (Hold.FREEZE, Hold.YIELD), Hold.YIELD),
        ("gangd-hold=sleep xgangd-hold=freeze", (Hold.FREEZE,), Hold.YIELD),
    ],
)
def test_a_job_is_held_as_its_partition_says_or_as_it_asks_if_it_may(
    comment: str | None, allowed: tuple[Hold, ...], way: Hold
) -> None:
    slurm = FakeSlurm()
    slurm.submit(request(comment=comment))
    policy = Policy(Rules({"main": Rule(Hold.YIELD)}), hold=Hold.FREEZE, job_holds=frozenset(allowed))
    assert ClusterView(CoreMap({"n1": 1}), policy).views(slurm.jobs())[0].hold is way
    elsewhere = replace(policy, rules=Rules({"other": Rule(Hold.YIELD)}), job_holds=frozenset())
    assert ClusterView(CoreMap({"n1": 1}), elsewhere).views(slurm.jobs())[0].hold is Hold.FREEZE


def test_components_of_a_heterogeneous_job_get_one_gang() -> None:
    slurm = FakeSlurm(nodes=2)
    slurm.submit(request())
    slurm.submit(request())
    jobs = [replace(job, het_job_id=1) for job in slurm.jobs().jobs]
    view = ClusterView(CoreMap({"n1": 1, "n2": 1}), Policy())
    assert [one.gang for one in view.views(JobSnapshot(tuple(jobs)))] == [1, 1]


def test_a_job_on_an_unknown_node_is_left_out_and_named() -> None:
    slurm = FakeSlurm(nodes=2)
    slurm.submit(request(nodes=2))
    slurm.submit(request())
    view = ClusterView(CoreMap({"n1": 1}), Policy())
    assert view.views(slurm.jobs()) == ()
    assert view.unusable == (1,)


def test_a_job_that_cannot_be_read_is_held_no_more_and_not_forgotten() -> None:
    slurm = FakeSlurm(nodes=2)
    for _ in range(2):
        slurm.submit(request())
    view = ClusterView(CoreMap({"n1": 1, "n2": 1}), Policy())
    first = view.views(slurm.jobs())
    assert [one.opt_out for one in first] == [False, False]
    for unreadable in (2, None):
        snapshot = JobSnapshot(slurm.jobs().jobs[:1], (UnreadableJob(unreadable, "no state"),))
        assert view.views(snapshot) == (first[0], replace(first[1], opt_out=True))
        view.set_policy(Policy())
        assert view.views(snapshot) == (first[0], replace(first[1], opt_out=True))
        assert view.views(slurm.jobs()) == first, "it can be read again"
    assert view.views(JobSnapshot((), (UnreadableJob(3, "no state"),))) == (), "nothing is known of it"


def test_states_that_end_a_job_are_terminating() -> None:
    slurm = FakeSlurm()
    slurm.submit(request())
    view = ClusterView(CoreMap({"n1": 1}), Policy())
    [job] = slurm.jobs().jobs
    for state, expected in (
        (SlurmState.COMPLETING, JobState.TERMINATING),
        (SlurmState.STOPPED, JobState.RUNNING),
        (SlurmState.CONFIGURING, JobState.RUNNING),
    ):
        [seen] = view.views(JobSnapshot((replace(job, state=state),)))
        assert seen.state is expected
        assert seen.opt_out is (state is SlurmState.STOPPED)


# Preflight


@pytest.mark.parametrize(
    ("config", "partitions"),
    [
        ({"PreemptMode": "GANG,SUSPEND"}, [partition()]),
        ({"PreemptMode": "REQUEUE,GANG"}, [partition()]),
        ({"PreemptMode": "OFF"}, [partition(), partition(name="low", preempt_mode="SUSPEND")]),
    ],
)
def test_slurms_own_gang_scheduler_is_not_borne(config: dict[str, str], partitions: list[Partition]) -> None:
    with pytest.raises(ClusterError, match="fight over freezes"):
        check_slurm(config, partitions, SHORT)


def test_a_freeze_that_slurm_would_not_bear_is_refused() -> None:
    with pytest.raises(ClusterError, match="half of Slurm's MessageTimeout of 8 s"):
        check_slurm({"MessageTimeout": "8 sec"}, [partition()], SHORT)
    with pytest.raises(ClusterError, match="make quantum_ms shorter"):
        check_slurm(
            {"MessageTimeout": "10 sec"},
            [partition(multiplicity=4)],
            Settings(quantum_ns=2_000_000_000, freeze_cap_ns=5_000_000_000),
        )


def test_what_yields_is_never_frozen_for_too_long() -> None:
    slurm = {"MessageTimeout": "10 sec", "SelectTypeParameters": "CR_CORE_MEMORY"}
    partitions = [partition(multiplicity=4)]
    config = Config(hold="yield", quantum_ms=2000)
    assert check_slurm(slurm, partitions, config.settings(), config.may_freeze) == ()
    for other in (
        Config(hold="freeze", quantum_ms=2000),
        Config(hold="yield", quantum_ms=2000, job_holds=("freeze",)),
    ):
        with pytest.raises(ClusterError, match="make quantum_ms shorter"):
            check_slurm(slurm, partitions, other.settings(), other.may_freeze)


def test_newcomers_yield_where_any_job_does() -> None:
    assert Config().bounds().newcomers_yield
    assert not Config(hold="freeze").bounds().newcomers_yield
    assert Config(hold="freeze", partitions={"main": Saying(hold="yield")}).bounds().newcomers_yield


def test_an_unknown_way_of_holding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gangd.toml"
    for text in ('hold = "sleep"', 'job_holds = ["sleep"]', '[partitions.main]\nhold = "sleep"'):
        file.write_text(text + "\n")
        with pytest.raises(UsageError):
            load_config(file)
    file.write_text('hold = "yield"\njob_holds = ["freeze"]\n[partitions.big]\nhold = "freeze"\n')
    config = load_config(file)
    assert (config.hold, config.may_freeze("big"), config.may_freeze("other")) == ("yield", True, True)


def test_cores_shared_without_memory_as_a_resource_deserve_a_warning() -> None:
    config = {"MessageTimeout": "10 sec", "SelectTypeParameters": "CR_CORE,CR_LLN"}
    [warning] = check_slurm(config, [partition()], SHORT)
    assert "CR_Core_Memory" in warning
    config["SelectTypeParameters"] = "CR_CORE_MEMORY,CR_LLN"
    assert check_slurm(config, [partition()], SHORT) == ()
    [warning] = check_slurm(config, [partition(multiplicity=1)], SHORT)
    assert "nothing to do" in warning


# Uplink

CONTROLLER = Controller(b"c" * 16, 1)
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


def anywhere(node: str, job: int) -> Place:
    return Place.HERE


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
    assert isinstance(reaction.replies[0], Refused)


def test_a_report_becomes_an_event() -> None:
    link = uplink()
    one = SliceReport(4, 1, 1_000_000_099, 12, 34, (8,), (JobSample(7, 1, 2, 3, 4),))
    found = (FoundState(5, "thawed", "frozen"),)
    reaction = link.on_message(
        report(slices=(one,), ended=(3,), dying=(6,), found=found), 9, 10, TIMES, JOINED
    )
    use = SliceUse(4, 12, 34, (8,), (Sample(7, 1, 2, 3, 4),))
    assert reaction.events == (NodeReport(10, "n1", (use,), (3,), (6,), (5,), rtt_us=7),)
    assert link.agents["n1"].skew_us == 12


def test_an_agent_that_only_tries_holds_nobody() -> None:
    link = Uplink(CONTROLLER, CoreMap({"n1": 1}), TIMEBASE, anywhere)
    link.on_message(msgspec.structs.replace(hello(), dry_run=True), 0, 0, TIMES, AgentState.UNKNOWN)
    one = SliceReport(4, 1, 1_000_000_099, 12, 34, (8,), (JobSample(7, 1, 2, 3, 4),))
    [event] = link.on_message(report(slices=(one,)), 9, 10, TIMES, JOINED).events
    assert isinstance(event, NodeReport)
    assert [(use.held, use.samples) for use in event.slices] == [((), (Sample(7, 1, 2, 3, 4),))]


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


def test_an_agent_whose_rival_fell_silent_is_told_to_say_hello() -> None:
    link = uplink()
    link.on_message(hello(incarnation=b"z" * 16, pid=2), 0, 0, TIMES, JOINED)
    reaction = link.on_message(report(), 0, 0, TIMES, AgentState.LOST)
    assert [type(reply) for reply in reaction.replies] == [Refused]
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


# Record


def row(number: int, start_ns: int) -> SliceRow:
    return SliceRow(number, start_ns, 250_000_000, 7, "n1", "run", 1500, -3, 40)


def test_recorded_slices_are_read_in_the_time_of_a_run(tmp_path: Path) -> None:
    log = SliceLog(tmp_path, wall_ms=1_000_000_000.0, monotonic_ns=5_000_000_000)
    log.append([row(1, 4_000_000_000), row(2, 6_500_000_000)])
    log.close()
    assert list(read_slices(tmp_path, 1_000_000.0, {8})) == []
    assert list(read_slices(tmp_path, 1_000_000.0, {7})) == [
        SliceRecord(
            slice=2,
            start_s=1.5,
            length_s=0.25,
            job=7,
            node="n1",
            role="run",
            cpu_s=0.0015,
            skew_us=-3.0,
            freeze_us=40.0,
        )
    ]


def test_a_restarted_controller_goes_on_in_the_same_record(tmp_path: Path) -> None:
    for wall_ms, start_ns in ((1_000_000.0, 0), (2_000_000.0, 1_000_000_000)):
        log = SliceLog(tmp_path, wall_ms, start_ns)
        log.append([row(0, start_ns)])
        log.close()
    assert [record.start_s for record in read_slices(tmp_path, 1000.0)] == [0.0, 1000.0]


def test_a_torn_line_is_skipped_and_a_foreign_file_refused(tmp_path: Path) -> None:
    log = SliceLog(tmp_path, 0.0, 0)
    log.append([row(0, 0)])
    log.close()
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes() + b'[1, 2, "to')
    assert len(list(read_slices(path, 0.0))) == 1
    later = SliceLog(tmp_path, 5000.0, 0)
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
    first = Keeper(tmp_path)
    one = first.begin(1000)
    with pytest.raises(HostError, match="another gangd"):
        Keeper(tmp_path)
    first.state.limits = {"7": {"base_s": 1.0}}
    first.save()
    first.close()
    second = Keeper(tmp_path)
    assert second.state.limits == {"7": {"base_s": 1.0}}
    other = second.begin(10)
    assert other.started_ns > one.started_ns, "although the clock was set back"
    assert other.incarnation != one.incarnation
    second.close()


def test_a_damaged_state_file_is_worth_none(tmp_path: Path) -> None:
    (tmp_path / "controller.json").write_text("{ not json")
    keeper = Keeper(tmp_path)
    assert keeper.state.limits == {}
    keeper.close()


def test_what_a_configuration_allows_the_wire_carries() -> None:
    """Settings that only the agents refuse would leave them without a plan, and nobody would know why."""
    nothing: dict[str, Any] = {"tracks": ()}
    for text in (
        "lease_ms = 1500\nfreeze_cap_ms = 250\nstep_grace_ms = 0",
        "lease_ms = 60000\nfreeze_cap_ms = 60000\nstep_grace_ms = 60000\nquantum_ms = 5000",
        "quantum_ms = 20\nlookahead = 64",
    ):
        config = msgspec.convert(msgspec.toml.decode(text.encode()), Config)
        settings = config.settings()
        plan = SlicePlan(
            controller=CONTROLLER,
            node="n1",
            epoch=1,
            seq=1,
            sent_ns=0,
            lease_ns=settings.lease_ns,
            first_slice=settings.lookahead,
            first_start_ns=0,
            quantum_ns=settings.quantum_ns,
            horizon=settings.lookahead,
            bounds=config.bounds(),
            **nothing,
        )
        assert decode_down(encode_down(plan), "n1") == plan


def test_an_agent_with_nothing_to_do_reports_well_within_the_shortest_lease() -> None:
    assert REPORT_NS * 1.5 <= LEAST_LEASE_NS


# Orders


def test_a_refusal_to_move_the_end_of_a_job_that_runs_is_an_alarm() -> None:
    nothing: Any = None
    orders = Orders(nothing, nothing, nothing, nothing, None, lambda: 7)
    orders.on_moved({1: 5.0}, {2: "Job is not running for job 2", 3: "Invalid job id specified for job 3"})
    assert orders.alarms.standing(7) == []
    orders.on_moved({}, {2: "Access/permission denied for job 2"})
    [alarm] = orders.alarms.standing(7)
    assert (alarm.kind, alarm.text) == (
        "limits",
        "Slurm does not move the end of job 2: Access/permission denied for job 2",
    )


# Alarms


def test_an_alarm_is_news_once_and_again_after_its_end() -> None:
    board = AlarmBoard()
    assert board.raise_("slurm", "slurm", "away", 0)
    assert not board.raise_("slurm", "slurm", "still away", 5)
    assert [(one.text, one.since_ns, one.count) for one in board.standing(6)] == [("still away", 0, 2)]
    assert board.clear("slurm", "slurm")
    assert not board.clear("slurm", "slurm")
    assert board.raise_("slurm", "slurm", "away", 9)
    assert board.standing(10**15) == []


def test_alarms_without_number_are_not_kept() -> None:
    board = AlarmBoard()
    for number in range(3_000):
        board.raise_("door", str(number), "shut out", number)
        board.raise_("slurm", "slurm", "away", number)
    standing = board.standing(3_000)
    assert len(standing) <= 1_000
    assert "slurm" in {one.kind for one in standing}, "what is seen all the time stays"
    assert "2999" in {one.subject for one in standing}


def test_of_much_at_the_door_the_first_few_are_named() -> None:
    news = [Denied(f"10.0.0.{number}", 1) for number in range(100)]
    alarms = alarms_of(news)
    assert [alarm.subject for alarm in alarms] == [*(f"10.0.0.{number}" for number in range(10)), "others"]
    assert "90 other addresses" in alarms[-1].text
    assert alarms_of(news[:10]) == alarms[:10]


# Configuration


def test_a_configuration_is_read_and_the_command_line_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "gangd.toml"
    path.write_text(
        'quantum_ms = 100\nkeys = "/k"\nopt_out_comments = ["x"]\n[partitions.fast]\nweight = 2\n'
    )
    config = load_config(path, quantum_ms=50.0, record=tmp_path, state=None)
    assert (config.quantum_ms, config.keys) == (50.0, Path("/k"))
    assert config.partitions == {"fast": Saying(weight=2.0)}
    assert config.settings().quantum_ns == 50_000_000
    assert config.settings().record


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quantum = 5", "unknown keys quantum; known keys are .*quantum_ms"),
        ("quantum_ms = 5", "20 ms to 5 s"),
        ("quantum_ms = 'long'", "quantum_ms"),
        ("lookahead = 0", "1 to 64"),
        ("[weights]\nfast = -1", "weights"),
        ("freeze_cap_ms = 100", "make the quantum shorter"),
        ("freeze_cap_ms = 60001", "above 60 s"),
        ("lease_ms = 100", "1500 ms to 60 s are possible"),
        ("lease_ms = 60001", "1500 ms to 60 s are possible"),
        ("step_grace_ms = 60001", "step_grace_ms"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "gangd.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        load_config(path)
