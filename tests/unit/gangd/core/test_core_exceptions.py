from __future__ import annotations

from dataclasses import replace

from gangd.core import (
    AgentJoined,
    AgentLost,
    AgentState,
    Alarm,
    AskSlurm,
    Exempt,
    ExemptKind,
    GangJobState,
    GangState,
    JobView,
    NodeReport,
    Publish,
    SlurmSnapshot,
    Tick,
)
from gangd.core.gang import KEPT_NS, MOST_A_NODE, Gang, Launches
from tests.fixtures.core_bench import MS, QUANTUM, WALL_S, Bench, only, shared


def test_a_new_job_is_not_held_during_its_launch_grace() -> None:
    bench = Bench(grace_ns=1000 * MS)
    bench.job(1)
    bench.job(2)
    for _ in range(4):
        assert only(bench.tick(), Publish) == []
    assert bench.state(1) is GangState.NEW
    assert only(bench.tick(), Publish)


def test_the_grace_ends_when_the_tasks_run_on_all_nodes() -> None:
    bench = Bench(grace_ns=5000 * MS)
    bench.job(1)
    bench.job(2)
    bench.tick()
    for job, node in ((1, "n0"), (1, "n1"), (2, "n0")):
        bench.tell(NodeReport(bench.now_ns, node, launched=(job,)))
    assert bench.state(1) is GangState.BUSY
    assert bench.state(2) is GangState.NEW
    bench.tick()
    assert bench.owners(0, 8) == [{1, 2}] * 8
    bench.tell(NodeReport(bench.now_ns, "n1", launched=(2,)))
    assert bench.scheduler.restless
    [publish] = only(bench.tick(), Publish)
    assert sorted(map(sorted, bench.owners(publish.first_slice, 2))) == [[1], [2]]


def test_tasks_may_run_before_slurm_reports_of_their_job() -> None:
    bench = Bench(grace_ns=5000 * MS)
    bench.job(1)
    bench.tick()
    for node in bench.names:
        bench.tell(NodeReport(bench.now_ns, node, launched=(1, 2)))
    bench.job(2)
    bench.snapshot()
    assert bench.state(2) is GangState.BUSY


def test_tasks_of_an_earlier_run_of_a_job_say_nothing_of_this_one() -> None:
    bench = Bench(grace_ns=5000 * MS)
    bench.job(1)
    bench.job(2)
    bench.tick()
    for node in bench.names:
        bench.tell(NodeReport(bench.now_ns, node, launched=(1, 2)))
    bench.tick()
    bench.jobs[2] = replace(bench.jobs[2], start_s=77.0)
    bench.tick()
    assert bench.state(2) is GangState.NEW


def test_a_node_may_speak_of_the_tasks_on_itself_only() -> None:
    bench = Bench(grace_ns=5000 * MS)
    bench.job(1, {"n0": (0,)})
    bench.job(2, {"n0": (0,)})
    bench.tick()
    bench.tell(NodeReport(bench.now_ns, "n1", launched=(1, 2)))
    bench.tick()
    assert bench.state(1) is bench.state(2) is GangState.NEW


def test_what_is_remembered_of_launches_is_bounded() -> None:
    launches = Launches()
    for job in range(1, 2 * MOST_A_NODE):
        launches.note(0, job, job)
    gang = Gang(
        MOST_A_NODE + 1, 0, {MOST_A_NODE + 1: JobView(MOST_A_NODE + 1, 1, Bench().map.pack({"n0": (0,)}))}, 0
    )
    assert not launches.complete(gang)
    launches.clear(KEPT_NS + 2 * MOST_A_NODE)
    launches.note(0, MOST_A_NODE + 1, 0)
    assert launches.complete(gang)


def test_a_cancelled_job_is_exempt_at_once_and_for_good() -> None:
    bench = shared()
    bench.tick()
    bench.jobs[2] = replace(bench.jobs[2], state=GangJobState.TERMINATING)
    [exempt] = only(bench.snapshot(), Exempt)
    assert (exempt.member.gang, exempt.kind, exempt.on) == (2, ExemptKind.TERMINATING, True)
    bench.tick()
    bench.jobs[2] = replace(bench.jobs[2], state=GangJobState.RUNNING)
    bench.tick()
    assert bench.state(2) is GangState.TERMINATING
    assert bench.scheduler.owners(20) == {1, 2}
    del bench.jobs[2]
    assert [exempt.on for exempt in only(bench.snapshot(), Exempt)] == [False]


def test_agents_see_a_kill_before_slurm_says_so() -> None:
    bench = shared()
    bench.tick()
    commands = bench.tell(NodeReport(bench.now_ns, "n1", dying=(2,)))
    assert [exempt.kind for exempt in only(commands, Exempt)] == [ExemptKind.FREE]
    assert only(commands, AskSlurm)
    bench.slice += 1
    bench.jobs[2] = replace(bench.jobs[2], state=GangJobState.TERMINATING)
    told = [(exempt.kind, exempt.on) for exempt in only(bench.snapshot(), Exempt)]
    assert told == [(ExemptKind.FREE, False), (ExemptKind.TERMINATING, True)]


def test_a_kill_of_a_part_of_a_job_is_over_when_agents_cease_to_say_so() -> None:
    bench = shared()
    bench.tick()
    lease = bench.scheduler.settings.lease_ns // QUANTUM
    for _ in range(3 * lease):
        bench.slice += 1
        asked = only(bench.tell(NodeReport(bench.now_ns, "n1", dying=(2,))), AskSlurm)
        assert bool(asked) == (bench.slice == 2), "it asks once"
        bench.snapshot()  # Slurm says RUNNING
        assert bench.state(2) is GangState.FOREIGN
    bench.slice += lease
    bench.snapshot()
    assert bench.state(2) is GangState.FOREIGN
    bench.slice += 1
    [exempt] = only(bench.snapshot(), Exempt)
    assert (exempt.kind, exempt.on) == (ExemptKind.FREE, False)
    assert bench.state(2) is GangState.BUSY


def test_a_job_that_slurm_suspended_is_left_alone_until_it_runs() -> None:
    bench = shared()
    bench.tick()
    bench.jobs[2] = replace(bench.jobs[2], state=GangJobState.SUSPENDED)
    [exempt] = only(bench.snapshot(), Exempt)
    assert (exempt.kind, exempt.on) == (ExemptKind.SUSPENDED, True)
    bench.tick()
    assert bench.scheduler.owners(20) == {1, 2}
    bench.jobs[2] = replace(bench.jobs[2], state=GangJobState.RUNNING)
    [exempt] = only(bench.snapshot(), Exempt)
    assert (exempt.kind, exempt.on) == (ExemptKind.SUSPENDED, False)
    assert bench.state(2) is GangState.BUSY


def test_a_strange_freeze_state_stops_slicing_until_slurm_was_asked_again() -> None:
    bench = shared()
    bench.tick()
    asked_before = bench.now_ns
    bench.slice += 1
    commands = bench.tell(NodeReport(bench.now_ns, "n1", strange=(1,)))
    assert only(commands, AskSlurm)
    assert [alarm.subject for alarm in only(commands, Alarm)] == ["1"]
    assert [exempt.kind for exempt in only(commands, Exempt)] == [ExemptKind.FREE]
    views = tuple(bench.jobs.values())
    bench.tell(SlurmSnapshot(bench.now_ns, asked_before, WALL_S, views))
    assert bench.state(1) is GangState.FOREIGN
    bench.slice += 1
    bench.snapshot()
    assert bench.state(1) is GangState.BUSY


def test_alarm_of_a_strange_freeze_says_what_was_done_and_by_whose_hand() -> None:
    bench = shared()
    bench.tick()
    bench.slice += 1
    report = NodeReport(bench.now_ns, "n0", strange=(1, 2), acts=("stopping", "unheard of"))
    stopping, other = only(bench.tell(report), Alarm)
    assert [(alarm.job, alarm.nodes) for alarm in (stopping, other)] == [(1, ("n0",)), (2, ("n0",))]
    assert "SIGTSTP" in stopping.text
    assert other.text == only(bench.tell(NodeReport(bench.now_ns, "n0", strange=(2,))), Alarm)[0].text


def test_alarm_of_a_strange_freeze_names_the_job_and_every_node_that_found_it() -> None:
    bench = shared()
    bench.tick()
    bench.slice += 1
    bench.tell(NodeReport(bench.now_ns, "n0", strange=(2,)))
    (alarm,) = only(bench.tell(NodeReport(bench.now_ns, "n1", strange=(2,))), Alarm)
    assert (alarm.kind, alarm.subject) == ("foreign freeze", "2")
    assert (alarm.job, alarm.nodes) == (2, ("n0", "n1"))
    (alarm,) = only(bench.tell(NodeReport(bench.now_ns, "n1", strange=(1,))), Alarm)
    assert (alarm.job, alarm.nodes) == (1, ("n1",))
    bench.slice += 1
    bench.snapshot()  # Slurm has explained the first
    (alarm,) = only(bench.tell(NodeReport(bench.now_ns, "n1", strange=(2,))), Alarm)
    assert alarm.nodes == ("n1",)


def test_a_strange_freeze_that_turns_out_to_be_slurms_is_left_to_slurm() -> None:
    bench = shared()
    bench.tick()
    bench.slice += 1
    bench.tell(NodeReport(bench.now_ns, "n1", strange=(1,)))
    bench.slice += 1
    bench.jobs[1] = replace(bench.jobs[1], state=GangJobState.SUSPENDED)
    told = [(exempt.kind, exempt.on) for exempt in only(bench.snapshot(), Exempt)]
    assert told == [(ExemptKind.FREE, False), (ExemptKind.SUSPENDED, True)]
    assert bench.state(1) is GangState.FOREIGN


def test_a_job_with_a_node_without_agent_is_held_nowhere() -> None:
    bench = Bench(joined=False)
    bench.job(1)
    bench.job(2)
    bench.tell(AgentJoined(0, "n0"))
    for _ in range(5):
        assert only(bench.tick(), Publish) == []
    assert bench.state(1) is GangState.FREE
    bench.tell(AgentJoined(bench.now_ns, "n1"))
    assert only(bench.tick(), Publish)


def test_a_silent_agent_frees_its_jobs_everywhere_until_it_is_back() -> None:
    bench = Bench(nodes=3)
    bench.job(1)
    bench.job(2)
    bench.job(3, {"n2": (0, 1)})
    bench.tick()
    bench.silent = {"n0"}
    commands = []
    for _ in range(9):
        commands += bench.tick()
    assert [(alarm.subject, alarm.cleared) for alarm in only(commands, Alarm)] == [("n0", False)]
    exempts = only(commands, Exempt)
    assert [(exempt.member.gang, exempt.kind, exempt.on) for exempt in exempts] == [
        (1, ExemptKind.FREE, True),
        (2, ExemptKind.FREE, True),
    ]
    assert bench.scheduler.owners(30) == {1, 2, 3}
    bench.silent = set()
    commands = bench.tell(NodeReport(bench.now_ns, "n0"))
    assert [exempt.on for exempt in only(commands, Exempt)] == [False, False]
    assert [alarm.cleared for alarm in only(commands, Alarm)] == [True]
    assert only(bench.tick(), Publish)


def test_an_agent_whose_words_wait_to_be_read_is_not_silent() -> None:
    """A controller that has much to read must not let everything go for it."""
    bench = shared()
    bench.tick()
    heard_ns = bench.now_ns
    bench.slice += 40
    commands = bench.tell(Tick(bench.now_ns, heard_ns))
    assert only(commands, Alarm) == []
    assert bench.scheduler.agent_state("n0") is AgentState.JOINED
    commands = bench.tell(Tick(bench.now_ns, bench.now_ns))
    assert {alarm.subject for alarm in only(commands, Alarm)} == {"n0", "n1"}
    assert bench.scheduler.agent_state("n0") is AgentState.LOST


def test_an_agent_that_says_farewell_is_lost_at_once() -> None:
    bench = shared()
    bench.tick()
    commands = bench.tell(AgentLost(bench.now_ns, "n1", "it leaves"))
    assert [exempt.kind for exempt in only(commands, Exempt)] == [ExemptKind.FREE] * 2


def test_a_job_that_opted_out_runs_and_the_others_take_turns() -> None:
    bench = shared()
    bench.job(3, opt_out=True)
    bench.tick()
    assert bench.owners(2, 2) == [{1, 3}, {2, 3}]


def test_components_of_a_heterogeneous_job_are_one_gang() -> None:
    bench = Bench()
    bench.job(10, {"n0": (0, 1)}, gang=10)
    bench.job(11, {"n1": (0, 1)}, gang=10)
    bench.job(12, {"n1": (0, 1)})
    [publish] = only(bench.tick(), Publish)
    [track] = publish.tracks
    assert [[job for job, _ in member.jobs] for member in track.members] == [[10, 11], [12]]


def test_a_requeued_job_starts_anew() -> None:
    bench = shared()
    bench.tick()
    bench.jobs[2] = replace(bench.jobs[2], state=GangJobState.TERMINATING)
    bench.tick()
    bench.jobs[2] = replace(bench.jobs[2], state=GangJobState.RUNNING, start_s=77.0)
    bench.tick()
    assert bench.state(2) is GangState.BUSY


def test_a_job_without_processes_takes_no_slice() -> None:
    bench = shared()
    bench.tick()
    bench.tell(NodeReport(bench.now_ns, "n0", ended=(2,)))
    assert bench.state(2) is GangState.BUSY
    commands = bench.tell(NodeReport(bench.now_ns, "n1", ended=(2,)))
    assert bench.state(2) is GangState.IDLE
    assert only(commands, AskSlurm)


def test_no_freeze_lasts_longer_than_the_cap() -> None:
    bench = Bench(nodes=1, cores=1, freeze_cap_ns=500 * MS)
    for number in range(1, 7):
        bench.job(number, {"n0": (0,)})
    bench.tick()
    slices = bench.owners(2, 30)
    for number in range(1, 7):
        held = "".join("x" if number not in owners else "." for owners in slices)
        assert "xxx" not in held
