from __future__ import annotations

import signal

import pytest

from gangd.agent.conversation import PROBE_SPREAD_NS, PROBE_STEADY_NS
from gangd.agent.freeze_verifier import DYING_NS
from gangd.freezer.holder import StepKey, StepState
from gangd.wire.messages import (
    AccessRefused,
    Bounds,
    ControllerIdentity,
    ExemptJobs,
    Hello,
    Report,
    Resend,
    ThawNow,
)
from gangd.wire.wire_frames import encode
from tests.fixtures.gang_simulated import MS, SECOND, SimulatedAgent

ONE, TWO = StepKey(1, "0"), StepKey(2, "0")


@pytest.fixture
def agent() -> SimulatedAgent:
    agent = SimulatedAgent(ONE, TWO)
    agent.join()
    return agent


def test_alternates_as_published(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=2 * SECOND)
    numbers = sorted(agent.held_in)[:-1]
    assert len(numbers) > 15
    for number in numbers:
        assert agent.held_in[number] == ({1} if number % 2 == 0 else {2}), number


def test_acts_at_the_controllers_instants(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=SECOND)
    slices = [each for report in agent.reports for each in report.slices]
    assert len(slices) > 5
    for each in slices:
        start_ns = agent.zero_ns + each.number * agent.quantum_ns
        assert 0 <= each.applied_ns - start_ns <= MS
        assert each.skew_us <= 1000


def test_reports_every_slice_once_and_in_order(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=2 * SECOND)
    numbers = [each.number for report in agent.reports for each in report.slices]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    held = {each.number: set(each.held) for report in agent.reports for each in report.slices}
    assert all(held[number] == agent.held_in[number] for number in numbers)


def test_only_differences_are_written(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (1,), (2,), (2,), run_ns=2 * SECOND)
    assert len(agent.freezer.writes) <= 2 * 2 * 10 // 2 + 4
    assert all(
        one != other for one, other in zip(agent.freezer.writes, agent.freezer.writes[1:], strict=False)
    )


def test_silence_thaws_everything_within_the_lease(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=SECOND)
    agent.talking = False
    agent.run(1_900 * MS)
    assert agent.held()
    agent.run(200 * MS)
    assert agent.holds_nothing(5 * SECOND)
    agent.talking = True
    agent.rotate((1,), (2,), run_ns=SECOND)
    assert agent.held()


def test_message_that_was_stuck_on_the_way_renews_nothing(agent: SimulatedAgent) -> None:
    from gangd.wire.messages import Beat

    agent.rotate((1,), (2,), run_ns=SECOND)
    agent.talking = False
    agent.run(3 * SECOND)
    sent_ns = agent.controller_ns() - 2_500 * MS
    agent.say(Beat(**agent.head(sent_ns), horizon=10_000))  # type: ignore[arg-type]
    agent.run(200 * MS)
    assert agent.held() == set()


def deadly_signal(agent: SimulatedAgent, key: StepKey) -> None:
    """A look found one, and the agent acts on it."""
    agent.memory.on_signals(key, 1 << (signal.SIGTERM - 1), stopped=False, now_ns=agent.now_ns, ours=True)
    agent.node.act(agent.now_ns)


def test_dying_job_is_thawed_at_once_and_not_held_for_now(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=SECOND)
    deadly_signal(agent, ONE)
    agent.held_in.clear()
    agent.run(SECOND)
    assert all(1 not in held for held in agent.held_in.values())
    assert any(2 in held for held in agent.held_in.values())
    assert (1,) in [report.dying for report in agent.reports]


def test_job_of_which_only_a_helper_was_killed_is_held_again(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=SECOND)
    deadly_signal(agent, ONE)
    agent.run(DYING_NS)
    assert any(1 in held for held in agent.held_while(SECOND))
    assert agent.reports[-1].dying == ()


@pytest.mark.parametrize("what", ["a deadly signal", "an external thaw"])
def test_step_that_ends_leaves_its_job_to_be_held(agent: SimulatedAgent, what: str) -> None:
    side = StepKey(1, "1")
    agent.freezer.members |= {ONE: (100,), side: (101,)}
    agent.freezer.steps.add(side)
    agent.rotate((1,), (2,), run_ns=SECOND)
    if what == "a deadly signal":
        deadly_signal(agent, side)
    else:
        agent.memory.on_state(side, StepState.THAWED, agent.now_ns, ours=True, settled=True)
        agent.node.act(agent.now_ns)
    agent.run(SECOND // 2)
    agent.freezer.steps.discard(side)
    agent.run(SECOND)
    assert any(1 in held for held in agent.held_while(SECOND))


def test_job_that_runs_anew_is_held_although_it_was_killed_before(agent: SimulatedAgent) -> None:
    agent.freezer.members[ONE] = (100,)
    agent.rotate((1,), (2,), run_ns=SECOND)
    agent.freezer.steps.discard(ONE)
    agent.run(SECOND)
    agent.rotate(
        (1,), (2,), exempt=ExemptJobs(never_freeze=(1,))
    )  # Slurm says so after the last process is gone
    agent.run(2 * SECOND)
    agent.freezer.steps.add(ONE)
    agent.run(2 * SECOND)
    assert agent.held() <= {2}
    agent.rotate((1,), (2,), exempt=ExemptJobs())
    assert any(1 in held for held in agent.held_while(SECOND))


@pytest.mark.parametrize("exempt", [ExemptJobs(never_freeze=(1,)), ExemptJobs(opt_out=(1,))])
def test_exempt_job_is_thawed_at_once_and_not_held(agent: SimulatedAgent, exempt: ExemptJobs) -> None:
    agent.rotate((1,), (1,), run_ns=SECOND)
    assert agent.held() == {1}
    agent.rotate((1,), (1,), exempt=exempt)
    assert agent.holds_nothing(SECOND)


def test_suspended_job_is_left_as_it_is(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (1,), run_ns=SECOND)
    agent.rotate((1,), (1,), exempt=ExemptJobs(suspended=(1,)))
    agent.freezer.writes.clear()
    agent.run(SECOND)
    agent.talking = False
    agent.run(5 * SECOND)
    assert (agent.held(), agent.freezer.writes) == ({1}, [])


def test_thaw_now_of_one_job_latches_it(agent: SimulatedAgent) -> None:
    agent.freezer.members[ONE] = (100,)
    agent.rotate((1,), (1,), run_ns=SECOND)
    agent.thaw_now((1,))
    assert agent.holds_nothing(SECOND)


def test_thaw_now_of_all_voids_the_plan(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=SECOND)
    agent.thaw_now(None)
    assert agent.held() == set()
    agent.talking = False
    agent.run(SECOND)
    assert agent.held() == set()


def test_step_born_while_its_job_is_held_is_held_after_the_grace() -> None:
    agent = SimulatedAgent(ONE, bounds=Bounds(5 * SECOND, 200 * MS))
    agent.join()
    agent.rotate((1,), (1,), run_ns=SECOND)
    late = StepKey(1, "5")
    agent.freezer.steps.add(late)
    agent.run(150 * MS)
    assert late not in agent.freezer.frozen
    agent.run(300 * MS)
    assert late in agent.freezer.frozen


@pytest.mark.parametrize("yields", [True, False])
def test_step_with_slurmstepd_is_never_frozen_and_reported_where_it_cannot_yield(yields: bool) -> None:
    agent = SimulatedAgent(ONE, TWO)
    agent.freezer.members[ONE] = (999, 5)
    agent.freezer.members[TWO] = (6,)
    if not yields:
        agent.node.ways = type(agent.node.ways)()
    agent.join()
    agent.rotate((1, 2), (1, 2), run_ns=4 * SECOND)
    assert agent.freezer.frozen == {TWO}
    assert agent.held() == ({1, 2} if yields else {2})
    assert yields is not any(
        fault.kind == "spared_slurmstepd" for report in agent.reports for fault in report.faults
    )


def test_long_hold_ends_for_the_rest_of_the_slice() -> None:
    agent = SimulatedAgent(ONE, bounds=Bounds(350 * MS, 0))
    agent.join()
    agent.rotate((1,), (1,), run_ns=3 * SECOND)
    assert {1} in list(agent.held_in.values())
    assert sum(what == "thaw" for what, _ in agent.freezer.writes) >= 5


def test_nothing_is_held_without_a_guardian(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=SECOND)
    agent.node.guarded = False
    agent.node.act(agent.now_ns)
    assert agent.holds_nothing(SECOND)
    agent.node.guarded = True
    agent.run(SECOND)
    assert agent.held()


def test_clock_jump_thaws_until_the_new_offset_is_sure(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=SECOND)
    agent.skew_ns += 3 * SECOND
    agent.talking = False
    agent.run((PROBE_STEADY_NS + PROBE_SPREAD_NS) + 100 * MS)
    assert any(event.kind == "clock_jump" for event in agent.node.talk.events)
    agent.zero_ns = agent.controller_ns()
    agent.talking = True
    agent.controller = ControllerIdentity(b"d" * 16, 2)
    agent.rotate((1,), (2,))
    agent.held_in.clear()
    agent.run(SECOND)
    assert agent.held()


@pytest.mark.parametrize("jump_ns", [3 * SECOND, 20 * MS, -300 * MS])
def test_a_word_that_comes_too_early_or_late_reports_of_a_clock_that_jumped(
    agent: SimulatedAgent, jump_ns: int
) -> None:
    agent.rotate((1,), (2,), run_ns=3 * SECOND)
    agent.skew_ns += jump_ns
    agent.run(1_200 * MS)  # a second after the probe before at most, then three, soon one after the other
    assert any(event.kind == "clock_jump" for event in agent.node.talk.events)
    assert (offset := agent.node.talk.offset(agent.now_ns)) is not None
    assert offset.offset_ns == agent.skew_ns


def test_missed_plan_thaws_and_is_asked_for_again(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=SECOND)
    agent.epoch += 1  # a plan that never arrives, then beats that build on it
    agent.run(200 * MS)
    assert agent.held() == set()
    assert any(isinstance(message, Resend) for message in agent.sent)
    agent.rotate((1,), (2,), run_ns=SECOND)
    assert agent.held()


def test_later_controller_is_greeted_and_followed(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (1,), run_ns=SECOND)
    hellos = sum(isinstance(message, Hello) for message in agent.sent)
    agent.controller = ControllerIdentity(b"d" * 16, 2)
    agent.rotate((2,), (2,))
    assert agent.held() == {1}, "the former plan is kept until the later one's first slice"
    agent.run(2 * SECOND)
    assert agent.held() == {2}
    assert sum(isinstance(message, Hello) for message in agent.sent) > hellos
    assert agent.reports[-1].follows == b"d" * 16


def test_clock_of_a_later_controller_is_probed_anew(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (1,), run_ns=SECOND)
    assert agent.node.talk.offset(agent.now_ns) is not None
    agent.controller = ControllerIdentity(b"d" * 16, 2)
    agent.skew_ns += 7 * SECOND  # it is on another host
    agent.zero_ns = agent.controller_ns()
    agent.rotate((2,), (1,))
    agent.held_in.clear()
    agent.run(SECOND)
    offset = agent.node.talk.offset(agent.now_ns)
    assert offset is not None
    assert offset.offset_ns == agent.skew_ns
    assert [agent.held_in[number] for number in (3, 4, 5, 6)] == [{1}, {2}, {1}, {2}]


def test_a_quick_change_of_controllers_thaws_nothing(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (1,), run_ns=SECOND)
    agent.talking = False
    agent.run(500 * MS)
    agent.controller, agent.zero_ns, agent.epoch = ControllerIdentity(b"d" * 16, 2), agent.controller_ns(), 0
    agent.say(ThawNow(**{**agent.head(), "node": None}, jobs=(), reason="it begins"))  # type: ignore[arg-type]
    for _ in range(300):
        agent.run(MS)
        assert agent.held() == {1}
    assert agent.reports[-1].follows == b"d" * 16
    agent.talking = True
    agent.rotate((1,), (1,))
    for _ in range(2000):
        agent.run(MS)
        assert agent.held() == {1}
    assert agent.node.talk.timeline.controller == agent.controller


def test_a_former_plan_is_kept_up_to_its_lease_and_the_former_cannot_renew_it(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (1,), run_ns=SECOND)
    former = agent.controller
    agent.controller = ControllerIdentity(b"d" * 16, 2)
    agent.say(ThawNow(**{**agent.head(), "node": None}, jobs=(), reason="it begins"))  # type: ignore[arg-type]
    agent.controller = former  # it speaks on, as one that was stopped and wakes up
    agent.run(1_800 * MS)
    assert agent.held() == {1}
    agent.run(300 * MS)
    assert agent.holds_nothing(3 * SECOND)
    assert any(report.foreign_controllers for report in agent.reports)


@pytest.mark.parametrize("jobs", [None, (1,)])
def test_a_later_controller_can_have_all_thawed_at_once(
    agent: SimulatedAgent, jobs: tuple[int, ...] | None
) -> None:
    agent.freezer.members[ONE] = (100,)
    agent.rotate((1,), (1,), run_ns=SECOND)
    agent.controller = ControllerIdentity(b"d" * 16, 2)
    agent.thaw_now(jobs)
    assert agent.held() == set()
    agent.rotate((1,), (1,), run_ns=2 * SECOND)
    assert agent.held() == (set() if jobs else {1})


def test_slices_of_a_later_controller_count_anew_although_its_plan_comes_first(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=10 * SECOND)
    agent.controller, agent.zero_ns, agent.epoch = ControllerIdentity(b"d" * 16, 2), agent.controller_ns(), 0
    agent.rotate((1,), (2,))
    agent.held_in.clear()
    agent.answering = False  # the clock is known again when the plan is in force already
    agent.run(SECOND)
    agent.answering = True
    agent.run(2 * SECOND)
    assert [agent.held_in[number] for number in (20, 21, 22, 23)] == [{1}, {2}, {1}, {2}]


def test_agent_that_was_welcome_and_is_refused_says_hello_again(agent: SimulatedAgent) -> None:
    agent.run(SECOND)
    hellos = sum(isinstance(message, Hello) for message in agent.sent)
    agent.node.talk.on_reply(
        encode(AccessRefused(node=agent.node.talk.node, reason="another is silent")), agent.now_ns
    )
    agent.run(100 * MS)
    assert sum(isinstance(message, Hello) for message in agent.sent) == hellos + 1


def test_agent_whose_hello_was_lost_says_it_again_although_its_reports_are_refused() -> None:
    agent = SimulatedAgent(ONE)
    agent.answering = False
    agent.run(10 * MS)
    assert sum(isinstance(message, Hello) for message in agent.sent) == 1
    for _ in range(16):
        refused = AccessRefused(node="a", reason="another agent of this node said hello and is silent now")
        agent.node.talk.on_reply(encode(refused), agent.now_ns)
        agent.run(500 * MS)
    hellos = sum(isinstance(message, Hello) for message in agent.sent)
    assert hellos == 5, "after half a second, then twice as late each time"


def test_agent_reports_to_a_controller_that_has_welcomed_it_and_keeps_its_news_until_then() -> None:
    agent = SimulatedAgent(ONE)
    agent.answering = False
    agent.run(SECOND)
    agent.node.book.on_fault("no_step", "before the welcome", 1)
    agent.run(5 * SECOND)
    assert agent.reports == []
    agent.answering = True
    agent.run(3 * SECOND)
    assert [fault.kind for report in agent.reports for fault in report.faults].count("no_step") == 1
    agent.rotate((1,), (), run_ns=SECOND)
    agent.answering = False
    agent.controller, agent.epoch = ControllerIdentity(b"d" * 16, 2), 0
    agent.rotate((1,), ())
    agent.sent.clear()
    agent.run(5 * SECOND)
    assert any(isinstance(message, Hello) for message in agent.sent)
    assert not any(isinstance(message, Report | Resend) for message in agent.sent)
    agent.answering = True
    agent.run(3 * SECOND)
    assert {report.follows for report in agent.reports} == {b"d" * 16}


def test_plan_that_comes_before_the_clock_is_known_waits() -> None:
    agent = SimulatedAgent(ONE)
    agent.rotate((1,), (1,))
    assert agent.node.talk.timeline.epoch is None
    agent.run(SECOND)
    assert agent.held() == {1}


def test_ended_job_is_reported_and_its_latch_ends(agent: SimulatedAgent) -> None:
    agent.freezer.members[ONE] = (100,)
    agent.rotate((1,), (2,), run_ns=SECOND)
    deadly_signal(agent, ONE)
    agent.freezer.steps.discard(ONE)
    agent.run(SECOND)
    assert (1,) in [report.ended for report in agent.reports]
    assert agent.memory.dying_at(agent.now_ns) == frozenset()


def test_leaving_thaws_everything(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (1,), run_ns=SECOND)
    agent.node.leave()
    assert agent.holds_nothing(SECOND)


def test_node_without_shared_jobs_reports_once_a_second_and_writes_nothing(agent: SimulatedAgent) -> None:
    agent.rotate()
    agent.sent.clear()
    agent.run(5 * SECOND)
    assert 4 <= len(agent.reports) <= 6
    assert agent.freezer.writes == []


def test_rotation_that_ends_thaws_what_was_held(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (1,), run_ns=SECOND)
    agent.rotate(run_ns=500 * MS)
    assert agent.held() == set()


def test_late_switch_is_counted(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=SECOND)
    assert not [fault for report in agent.reports for fault in report.faults if fault.kind == "late_switch"]
    agent.now_ns += 3 * agent.quantum_ns // 2  # the host stood still
    agent.run(SECOND)
    faults = [fault for report in agent.reports for fault in report.faults if fault.kind == "late_switch"]
    assert sum(fault.count for fault in faults) == 1
