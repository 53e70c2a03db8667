from __future__ import annotations

from dataclasses import replace

import pytest

from gangd.agent.decide import HoldLimits, Situation, StepView, Why, decide
from gangd.agent.freeze_verifier import DYING_NS
from gangd.agent.steps import NEWCOMER_NS
from gangd.freezer.holder import StepKey
from gangd.freezer.membership import LEFT, STRAY
from gangd.wire.messages import Bounds, ExemptJobs, Report, SliceReport
from tests.fixtures.gang_simulated import MS, SECOND, SimulatedAgent

ONE, TWO, NEW = StepKey(1, "0"), StepKey(2, "0"), StepKey(3, "0")
NEWCOMERS = Bounds(5 * SECOND, 200 * MS, newcomers_yield=True)


@pytest.fixture
def agent() -> SimulatedAgent:
    agent = SimulatedAgent(ONE, TWO, yielding=(1, 2))
    agent.freezer.members |= {ONE: (100,), TWO: (200,)}
    agent.join()
    return agent


def slices(agent: SimulatedAgent) -> list[SliceReport]:
    return [each for report in agent.reports for each in report.slices]


def test_jobs_that_yield_take_turns_and_nothing_is_frozen(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=2 * SECOND)
    numbers = sorted(agent.held_in)[:-1]
    assert len(numbers) > 15
    for number in numbers:
        assert agent.held_in[number] == ({1} if number % 2 == 0 else {2}), number
    assert agent.freezer.writes == []
    for each in slices(agent):
        assert (each.held, each.yielding) == ((), (1,) if each.number % 2 == 0 else (2,))


def test_a_job_that_a_plan_holds_from_its_first_slice_on_is_never_frozen(agent: SimulatedAgent) -> None:
    agent.yielding = (1, 2, 3)
    agent.rotate((1,), (2,), run_ns=SECOND)
    agent.freezer.steps.add(NEW)
    agent.freezer.members[NEW] = (300,)
    agent.node.look(agent.now_ns)
    agent.rotate((3, 1), (3, 2))
    agent.held_in.clear()
    agent.run(SECOND)
    assert agent.freezer.writes == []
    first = agent.tracks[0].first_slice
    assert all(3 in held for number, held in agent.held_in.items() if number >= first + 1)


def test_both_ways_at_once_in_one_switch() -> None:
    agent = SimulatedAgent(ONE, TWO, yielding=(2,))
    agent.freezer.members |= {ONE: (100,), TWO: (200,)}
    agent.join()
    agent.rotate((1,), (2,), run_ns=2 * SECOND)
    assert {held for each in slices(agent) for held in each.held} == {1}
    assert {held for each in slices(agent) for held in each.yielding} == {2}
    assert agent.freezer.writes
    assert agent.yielder.writes
    assert {key.job for _, key in agent.freezer.writes} == {1}
    assert {job for _, job in agent.yielder.writes} == {2}


def test_silence_gives_everybody_his_priority_back(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,), run_ns=SECOND)
    agent.talking = False
    agent.run(2_100 * MS)
    assert agent.yielder.low == set()
    agent.talking = True
    agent.rotate((1,), (2,), run_ns=SECOND)
    assert agent.yielder.low


def test_a_job_is_held_the_new_way_when_the_plan_says_so(agent: SimulatedAgent) -> None:
    agent.rotate((1,), run_ns=SECOND)
    assert agent.yielder.low == {1}
    agent.yielding = ()
    agent.rotate((1,), run_ns=SECOND)
    assert (agent.yielder.low, agent.freezer.frozen) == (set(), {ONE})
    agent.yielding = (1,)
    agent.rotate((1,), run_ns=SECOND)
    assert (agent.yielder.low, agent.freezer.frozen) == ({1}, set())


def test_where_no_one_can_yield_jobs_are_frozen() -> None:
    agent = SimulatedAgent(ONE, TWO, yielding=(1, 2))
    agent.node.ways = type(agent.node.ways)()
    agent.join()
    agent.rotate((1,), (2,), run_ns=SECOND)
    assert agent.freezer.writes
    assert agent.yielder.writes == []
    assert any(each.held for each in slices(agent))


def test_what_a_job_got_in_others_slices_is_reported_and_is_no_leak(agent: SimulatedAgent) -> None:
    agent.rotate((1,), (2,))
    for _ in range(3000):
        for key in (ONE, TWO):
            rate = 0.1 if key.job in agent.yielder.low else 0.9
            agent.freezer.used_ns[key] = agent.freezer.used_ns.get(key, 0) + int(rate * MS)
        agent.run(MS)
    own = [(each, s) for each in slices(agent) for s in each.samples if not s.held_us][4:]
    left = [(each, s) for each in slices(agent) for s in each.samples if s.held_us][4:]
    assert len(own) > 10
    assert len(left) > 10
    for each, sample in own:
        assert sample.job not in each.yielding
        assert 0.88 < sample.cpu_us / sample.span_us < 0.92
    for each, sample in left:
        assert sample.job in each.yielding
        assert sample.held_us == sample.span_us
        assert 0.08 < sample.cpu_us / sample.span_us < 0.12
    assert not [leak for report in agent.reports for leak in report.leaks]


def test_no_freeze_cap_no_grace_and_no_deadly_signals_for_what_yields() -> None:
    views = (StepView(ONE, 0, has_stepd=True), StepView(TWO, 0))
    now_ns = 60 * SECOND
    situation = Situation(
        now_ns=now_ns,
        open=True,
        planned=frozenset({1}),
        steps=views,
        ours={ONE: 0},  # for a minute
        external={ONE: now_ns - SECOND},
        stuck=frozenset({ONE}),
        yielding=frozenset({1, 2}),
    )
    verdict = decide(situation, HoldLimits(grace_ns=100 * SECOND))
    assert verdict.hold == {ONE}
    assert verdict.again_ns is None
    frozen = decide(replace(situation, yielding=frozenset()), HoldLimits(grace_ns=100 * SECOND))
    assert frozen.hold == frozenset()
    assert decide(replace(situation, open=False), HoldLimits()).spared == {ONE: Why.CLOSED}
    assert decide(replace(situation, dying=frozenset({1})), HoldLimits()).hold == {ONE}
    extern = replace(situation, steps=(StepView(StepKey(1, "extern"), 0),))
    assert decide(extern, HoldLimits()).hold
    assert not decide(extern, HoldLimits(hold_extern=False)).hold


def begun(agent: SimulatedAgent, key: StepKey = NEW) -> None:
    agent.freezer.steps.add(key)
    agent.freezer.members[key] = (300,)
    agent.node.look(agent.now_ns)


def test_a_newcomer_yields_until_the_plan_names_it() -> None:
    agent = SimulatedAgent(ONE, TWO, bounds=NEWCOMERS, yielding=(1, 2, 3))
    agent.freezer.members |= {ONE: (100,), TWO: (200,)}
    agent.join()
    agent.rotate((1,), (2,), run_ns=SECOND)
    begun(agent)
    assert 3 in agent.yielder.low
    agent.run(500 * MS)
    assert 3 in agent.yielder.low  # through every switch
    agent.rotate((1, 2))
    agent.tracks = ()
    agent.run(500 * MS)
    assert 3 in agent.yielder.low
    agent.rotate((1, 2), (3, 2), run_ns=SECOND)
    assert {3 in held for held in list(agent.held_in.values())[-4:]} == {True, False}


def test_a_newcomer_that_shares_nothing_runs_on_soon() -> None:
    agent = SimulatedAgent(ONE, bounds=NEWCOMERS)
    agent.freezer.members[ONE] = (100,)
    agent.join()
    agent.rotate((), run_ns=SECOND)
    begun(agent)
    assert agent.yielder.low == {3}  # also where no slice names anybody
    agent.run(NEWCOMER_NS - 100 * MS)
    assert agent.yielder.low == {3}
    agent.run(200 * MS)
    assert agent.yielder.low == set()


@pytest.mark.parametrize("why", ["the site freezes", "it is alone", "it is spared", "it was there before"])
def test_who_is_no_newcomer_begins_as_ever(why: str) -> None:
    bounds = Bounds(5 * SECOND, 0) if why == "the site freezes" else NEWCOMERS
    agent = SimulatedAgent(*(() if why == "it is alone" else (ONE,)), bounds=bounds)
    agent.freezer.members[ONE] = (100,)
    if why == "it was there before":
        agent.freezer.steps.add(NEW)
        agent.freezer.members[NEW] = (300,)
    agent.join()
    agent.rotate((), exempt=ExemptJobs(opt_out=(3,)) if why == "it is spared" else None, run_ns=SECOND)
    begun(agent)
    agent.run(SECOND)
    assert 3 not in agent.yielder.low


def test_jobs_that_no_slice_names_are_sampled_too(agent: SimulatedAgent) -> None:
    for turn in range(40):
        agent.freezer.used_ns[ONE] = turn * 90 * MS
        agent.run(100 * MS)
    alone = [sample for report in agent.reports for sample in report.alone if sample.job == 1]
    assert len(alone) >= 2
    for sample in alone[1:]:
        assert 0.7 < sample.cpu_us / sample.span_us < 1.0
    assert isinstance(agent.reports[-1], Report)


def test_what_shares_cores_with_a_job_that_yields_is_weighed_against_it(agent: SimulatedAgent) -> None:
    agent.yielding = (1,)
    agent.freezer.steps.add(NEW)
    agent.freezer.members[NEW] = (300,)
    agent.rotate((1,), (2,), exempt=ExemptJobs(opt_out=(3,)), run_ns=SECOND)
    assert agent.yielder.gathered.keys() == {1, 2, 3}
    assert [3 in agent.held_in[number] for number in sorted(agent.held_in)[-6:]].count(True) == 2
    agent.freezer.steps -= {ONE, TWO}
    agent.rotate((), run_ns=2 * SECOND)
    assert agent.yielder.gathered.keys() == set()  # no cores are shared: back to where they were


@pytest.fixture
def frozen() -> SimulatedAgent:
    """Jobs 1 and 2 are frozen by turns."""
    agent = SimulatedAgent(ONE, TWO)
    agent.freezer.members |= {ONE: (100,), TWO: (200,)}
    agent.join()
    agent.rotate((1,), (2,), run_ns=2 * SECOND)
    assert agent.yielder.gathered.keys() == {1, 2}
    assert agent.yielder.writes == []
    assert agent.held() == agent.held_in[max(agent.held_in)]
    return agent


def is_others(agent: SimulatedAgent, job: int) -> bool:
    """Whether the slice is one in which the first or second job is planned to be held, and has begun."""
    number, since_ns = divmod(agent.controller_ns() - agent.zero_ns, agent.quantum_ns)
    return number % 2 == job - 1 and since_ns >= 20 * MS


def in_others_slices(agent: SimulatedAgent, job: int) -> tuple[set[bool], set[bool]]:
    """Whether a job yields, and is frozen, in slices in which it is planned to be held, for a second."""
    yields, freezes = set(), set()
    for _ in range(1000):
        agent.run(MS)
        if is_others(agent, job):
            yields.add(job in agent.yielder.low)
            freezes.add(job in {key.job for key in agent.freezer.frozen})
    assert not [found for report in agent.reports for found in report.found], (
        "our own writes are not external"
    )
    return yields, freezes


@pytest.mark.parametrize("exempt", [ExemptJobs(opt_out=(1,)), ExemptJobs(never_freeze=(1,))])
def test_a_job_that_must_not_be_frozen_yields_in_the_slices_of_others(
    frozen: SimulatedAgent, exempt: ExemptJobs
) -> None:
    frozen.rotate((1,), (2,), exempt=exempt, run_ns=SECOND)
    assert in_others_slices(frozen, 1) == ({True}, {False})
    assert in_others_slices(frozen, 2) == ({False}, {True})


def test_a_dying_job_yields_while_it_dies_and_is_frozen_again_if_it_does_not(frozen: SimulatedAgent) -> None:
    frozen.memory.on_signals(ONE, 1 << 14, stopped=False, now_ns=frozen.now_ns, ours=True)
    frozen.run(SECOND)
    assert in_others_slices(frozen, 1) == ({True}, {False})
    frozen.run(DYING_NS)
    assert in_others_slices(frozen, 1) == ({False}, {True})


def test_a_stopped_job_yields_while_it_is_left_alone(frozen: SimulatedAgent) -> None:
    frozen.memory.on_signals(ONE, 0, stopped=True, now_ns=frozen.now_ns, ours=False)
    frozen.run(SECOND)
    assert in_others_slices(frozen, 1) == ({True}, {False})


def test_a_job_yields_with_its_strays_while_it_has_any(frozen: SimulatedAgent) -> None:
    stray = StepKey(1, STRAY)
    frozen.freezer.steps.add(stray)
    frozen.freezer.members[stray] = (101,)
    frozen.node.look(frozen.now_ns)
    frozen.run(2 * SECOND)
    assert in_others_slices(frozen, 1) == ({True}, {False})
    assert frozen.yielder.gathered[1] == (100, 101)
    assert frozen.node.table.members() == {100, 200}
    frozen.freezer.steps.discard(stray)
    frozen.run(2 * SECOND)
    assert in_others_slices(frozen, 1) == ({False}, {True})


@pytest.mark.parametrize("tracks", [((1,), (2,)), ((1,),), ()])
def test_what_an_ended_job_left_behind_yields_in_all_slices(tracks: tuple[tuple[int, ...], ...]) -> None:
    left = StepKey(3, LEFT)
    agent = SimulatedAgent(ONE, TWO, left, bounds=Bounds(5 * SECOND, 0))
    agent.freezer.members |= {ONE: (100,), TWO: (200,), left: (300,)}
    agent.join()
    agent.rotate(*tracks, run_ns=2 * SECOND)
    for _ in range(1000):
        agent.run(MS)
        assert 3 in agent.yielder.low
    assert left not in agent.freezer.frozen
    assert agent.node.table.members() == {100, 200}
    agent.freezer.steps.discard(left)
    agent.run(2 * SECOND)
    assert 3 not in agent.yielder.low


def test_what_a_job_left_behind_yields_in_others_slices_while_the_plan_names_the_job() -> None:
    left = StepKey(2, LEFT)  # between two steps of an allocation
    agent = SimulatedAgent(ONE, left, bounds=Bounds(5 * SECOND, 0))
    agent.freezer.members |= {ONE: (100,), left: (200,)}
    agent.join()
    agent.rotate((1,), (2,), run_ns=SECOND)
    assert in_others_slices(agent, 2) == ({True}, {False})
    assert len({2 in agent.held_in[slice_number] for slice_number in list(agent.held_in)[-4:]}) == 2


def test_control_files_of_a_job_that_yields_for_a_moment_stay_watched(
    frozen: SimulatedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen.freezer, "control_files", lambda key: (f"file of {key.job}",))
    frozen.rotate((1,), (2,), exempt=ExemptJobs(opt_out=(1,)), run_ns=SECOND)
    assert frozen.node.ways.yielding == {1}
    assert frozen.gate.holder.control_files(ONE) == ("file of 1",)
    frozen.yielding = (1,)
    frozen.rotate((1,), (2,), run_ns=SECOND)
    assert frozen.gate.holder.control_files(ONE) == ()


def test_steps_that_begin_one_after_the_other_get_a_job_nothing(frozen: SimulatedAgent) -> None:
    frozen.bounds = Bounds(5 * SECOND, 200 * MS)
    frozen.rotate((1,), (2,), run_ns=SECOND)
    for number in range(1, 11):
        frozen.freezer.steps.add(StepKey(1, str(number)))
        frozen.freezer.members[StepKey(1, str(number))] = (100 + number,)
        frozen.node.look(frozen.now_ns)
        for _ in range(100):
            frozen.run(MS)
            assert 1 in frozen.held() or not is_others(frozen, 1)
        frozen.freezer.steps.discard(StepKey(1, str(number)))
    frozen.run(SECOND)
    assert in_others_slices(frozen, 1) == ({False}, {True})


def test_jobs_that_no_plan_names_weigh_as_one_each(frozen: SimulatedAgent) -> None:
    frozen.rotate((), exempt=ExemptJobs(opt_out=(1,)), run_ns=2 * SECOND)
    assert frozen.held() == set()
    assert frozen.yielder.gathered.keys() == {1, 2}
