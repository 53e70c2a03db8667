"""An agent that looks seldom: slices that are switched between two looks, and a node where all is calm."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from gangd.agent.conversation import PROBE_SPREAD_NS, PROBE_STEADY_NS
from gangd.freezer.holder import StepKey
from gangd.wire import Bounds, Ping
from tests.fixtures.gang_simulated import MS, SECOND, SimulatedAgent, compute, computing_agent

ONE, TWO = StepKey(1, "0"), StepKey(2, "0")


@pytest.fixture
def hurried() -> SimulatedAgent:
    """An agent whose slices are 50 ms long, five to a look."""
    agent = SimulatedAgent(ONE, TWO)
    # Meters go by the real clock, which is slower than the simulated one: it must not be ahead at first.
    agent.now_ns = (time.monotonic_ns() // SECOND + 2) * SECOND
    agent.zero_ns = agent.controller_ns()
    agent.quantum_ns = 50 * MS
    agent.join()
    return agent


def test_short_slices_are_switched_without_a_look_at_each(hurried: SimulatedAgent) -> None:
    hurried.rotate((1,), (2,))
    hurried.run(4 * SECOND)
    numbers = sorted(hurried.held_in)[1:-1]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert all(hurried.held_in[number] == ({1} if number % 2 == 0 else {2}) for number in numbers)
    reports = [report for report in hurried.reports if report.slices]
    assert 14 <= len(reports) <= 20
    reported = [each for report in reports for each in report.slices]
    assert [each.number for each in reported] == list(range(reported[0].number, reported[-1].number + 1))
    assert all(set(each.held) == hurried.held_in[each.number] for each in reported)


def test_of_short_slices_every_job_is_sampled_in_a_slice_that_it_ran_in(hurried: SimulatedAgent) -> None:
    hurried.freezer.used_ns = {ONE: 0, TWO: 0}
    hurried.rotate((1,), (2,))
    for _ in range(4000):
        number = hurried.node.talk.timeline.slice_at(hurried.controller_ns())
        if number is not None:
            for key in (ONE, TWO):
                hurried.freezer.used_ns[key] += 0 if key in hurried.freezer.frozen else MS
        hurried.run(MS)
    slices = [each for report in hurried.reports for each in report.slices]
    samples = [(each, sample) for each in slices for sample in each.samples]
    assert {sample.job for _, sample in samples} == {1, 2}
    assert all(sample.job not in each.held for each, sample in samples)
    for job in (1, 2):
        mine = [sample for _, sample in samples if sample.job == job][1:]
        assert len(mine) >= 12
        assert all(abs(sample.cpu_us - sample.span_us) <= 2000 for sample in mine)
        # Half of the slices were its own.
        assert 0.4 <= sum(sample.span_us for sample in mine) / (len(mine) * 250_000) <= 0.6


def test_plan_that_comes_between_looks_holds_from_its_first_slice(hurried: SimulatedAgent) -> None:
    hurried.rotate((1,), (2,))
    hurried.run(SECOND)
    hurried.rotate((1,))
    first = hurried.tracks[0].first_slice
    hurried.run(SECOND)
    later = [held for number, held in hurried.held_in.items() if number > first + 1]
    assert later == [] or all(held == {1} for held in later)
    assert hurried.held() == {1}


def test_freeze_cap_holds_between_looks_too() -> None:
    agent = SimulatedAgent(ONE, TWO, bounds=Bounds(120 * MS, 0))
    agent.quantum_ns = 50 * MS
    agent.join()
    agent.rotate((1,))
    longest_ns, since_ns = 0, None
    for _ in range(3000):
        agent.run(MS)
        if agent.held() and since_ns is None:
            since_ns = agent.now_ns
        elif not agent.held():
            since_ns = None
        if since_ns is not None:
            longest_ns = max(longest_ns, agent.now_ns - since_ns)
    assert 0 < longest_ns <= 170 * MS


@pytest.fixture(params=[(), (1, 2)], ids=["freeze", "yield"])
def calm(request: pytest.FixtureRequest) -> SimulatedAgent:
    """An agent of two jobs that compute all the time, on a node where steps don't come or go unnoticed."""
    agent = computing_agent(ONE, TWO, yielding=request.param)
    agent.rotate((1,), (2,))
    compute(agent, 9 * SECOND)
    return agent


def test_node_where_all_goes_on_as_it_has_looks_seldom_and_misses_no_slice(calm: SimulatedAgent) -> None:
    calm.held_in.clear()
    calm.sent.clear()
    reported = compute(calm, 9 * SECOND)
    assert 11 <= len(reported) <= 14
    slices = [each for report in calm.reports for each in report.slices]
    numbers = [each.number for each in slices]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(numbers) >= 32
    assert all(held == ({1} if number % 2 == 0 else {2}) for number, held in calm.held_in.items())
    assert {sample.job for each in slices for sample in each.samples} == {1, 2}


@pytest.mark.parametrize("what", ["idle", "new step", "no notices"])
def test_node_where_something_changes_looks_after_each_slice(calm: SimulatedAgent, what: str) -> None:
    idle: tuple[StepKey, ...] = ()
    if what == "idle":
        idle = (ONE,)
    elif what == "new step":
        calm.freezer.steps.add(StepKey(1, "1"))
        calm.node.look(calm.now_ns)
    else:
        calm.node.is_notified = False
    compute(calm, SECOND, *idle)
    assert len(compute(calm, 2 * SECOND, *idle)) in (7, 8, 9)


def test_plan_that_comes_on_a_calm_node_holds_from_its_first_slice(calm: SimulatedAgent) -> None:
    calm.rotate((1,))
    first = calm.tracks[0].first_slice
    calm.held_in.clear()
    compute(calm, 2 * SECOND)
    assert all(held == {1} for number, held in calm.held_in.items() if number >= first)
    assert len(calm.held_in) >= 1


def test_calm_node_that_no_one_looks_for_finds_a_step_all_the_same(calm: SimulatedAgent) -> None:
    late = StepKey(2, "7")
    calm.freezer.steps.add(late)  # and its notice was lost
    compute(calm, 3 * SECOND)
    calm.rotate((2,))
    compute(calm, SECOND)
    assert late in calm.gate.held


def probed_ns(agent: SimulatedAgent, span_ns: int) -> list[int]:
    """When the clock is probed."""
    probed = []
    for _ in range(span_ns // (5 * MS)):
        before = sum(isinstance(message, Ping) for message in agent.sent)
        compute(agent, 5 * MS)
        if sum(isinstance(message, Ping) for message in agent.sent) > before:
            probed.append(agent.now_ns)
    return probed


def test_a_clock_that_keeps_step_is_probed_seldom_and_at_times_of_its_own(calm: SimulatedAgent) -> None:
    calm.sent.clear()
    probed = probed_ns(calm, 30 * SECOND)
    apart = {later - earlier for earlier, later in pairwise(probed)}
    assert len(apart) <= 2, "to a step of the simulation"
    assert PROBE_STEADY_NS <= min(apart) <= max(apart) <= PROBE_STEADY_NS + PROBE_SPREAD_NS + 5 * MS
    assert min(apart) % calm.quantum_ns, "nor at the same place in a slice again and again"
    assert calm.node.talk.offset(calm.now_ns) is not None


def test_a_clock_that_drifts_is_probed_along_with_reports(calm: SimulatedAgent) -> None:
    calm.drift_ppm = 100
    compute(calm, 5 * SECOND)
    calm.sent.clear()
    compute(calm, 9 * SECOND)
    kinds = [type(message).__name__ for message in calm.sent]
    probes = [place for place, kind in enumerate(kinds) if kind == "Ping"]
    assert 5 <= len(probes) <= 9
    assert all(kinds[place + 1] == "Report" for place in probes[:-1])


def test_a_probe_that_is_not_answered_is_repeated_after_a_second(calm: SimulatedAgent) -> None:
    probed_ns(calm, 4 * SECOND)
    calm.answering = False
    probed = probed_ns(calm, 6 * SECOND)
    assert len(probed) >= 3
    assert all(later - earlier <= SECOND + 5 * MS for earlier, later in pairwise(probed))
