"""An agent under a long lease: it says at once what is news, and is silent about all else."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.agent.report_buffer import SAME_SAMPLES, Sender, SliceBook, added_up
from gangd.freezer.holder import StepKey
from gangd.wire import Hello, JobSample, SliceReport
from tests.fixtures.gang_simulated import MS, SECOND, SimulatedAgent, compute, computing_agent
from tests.fixtures.tier import examples

ONE, TWO = StepKey(1, "0"), StepKey(2, "0")
SENDER = Sender("a", bytes(16), None, 0, 0)


@pytest.fixture(params=[(250, ()), (250, (ONE,)), (1000, ())], ids=["busy", "one idle", "long slices"])
def steady(request: pytest.FixtureRequest) -> tuple[SimulatedAgent, tuple[StepKey, ...]]:
    """Two jobs that have done the same for long, under a lease of 12 s."""
    quantum_ms, idle = request.param
    agent = computing_agent(ONE, TWO, lease_ns=12 * SECOND, quantum_ns=quantum_ms * MS)
    agent.rotate((1,), (2,))
    compute(agent, 30 * SECOND, *idle)
    return agent, idle


def test_without_news_an_agent_reports_twice_in_a_lease_and_leaves_no_slice_out(
    steady: tuple[SimulatedAgent, tuple[StepKey, ...]],
) -> None:
    agent, idle = steady
    agent.sent.clear()
    reported = compute(agent, 60 * SECOND, *idle)
    assert 9 <= len(reported) <= 13
    assert max(later - earlier for earlier, later in pairwise(reported)) < 7 * SECOND
    slices = [each for report in agent.reports for each in report.slices]
    numbers = [each.number for each in slices]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(numbers) * agent.quantum_ns >= 50 * SECOND
    used_us = {job: sum(s.cpu_us for each in slices for s in each.samples if s.job == job) for job in (1, 2)}
    spans_us = {
        job: sum(s.span_us for each in slices for s in each.samples if s.job == job) for job in (1, 2)
    }
    for job in (1, 2):
        assert 22 <= spans_us[job] / 1e6 <= 32
        wanted = 0 if idle and job == 1 else spans_us[job]
        assert abs(used_us[job] - wanted) <= 0.02 * spans_us[job]
    assert all(sum(len(each.samples) for each in report.slices) <= 2 for report in agent.reports)
    assert not [message for message in agent.sent if isinstance(message, Hello)]


def test_job_that_falls_idle_is_reported_at_the_next_look_and_at_those_after_it(
    steady: tuple[SimulatedAgent, tuple[StepKey, ...]],
) -> None:
    agent, idle = steady
    other = () if idle else (ONE,)
    looks_ns = max(agent.quantum_ns, 900 * MS) + agent.quantum_ns
    began_ns = agent.now_ns
    reported = compute(agent, 16 * SECOND, *other)
    assert reported[0] - began_ns <= 2 * looks_ns
    assert len([at_ns for at_ns in reported if at_ns - began_ns <= 10 * SECOND]) >= 6
    told = [sample for report in agent.reports for each in report.slices for sample in each.samples]
    assert any(sample.job == 1 and (sample.cpu_us > 0) is bool(idle) for sample in told[-8:])


def test_job_that_ends_is_reported_at_once(steady: tuple[SimulatedAgent, tuple[StepKey, ...]]) -> None:
    agent, idle = steady
    agent.freezer.steps.discard(ONE)
    agent.sent.clear()
    agent.node.look(agent.now_ns)
    compute(agent, 50 * MS, *idle)
    assert [report.ended for report in agent.reports] == [(1,)]


def test_fault_is_reported_within_a_second(steady: tuple[SimulatedAgent, tuple[StepKey, ...]]) -> None:
    agent, idle = steady
    agent.sent.clear()
    agent.book.on_fault("leak", "a task ran")
    compute(agent, 2 * SECOND, *idle)
    assert any(report.faults for report in agent.reports)


def test_node_without_shared_jobs_is_silent_too() -> None:
    agent = computing_agent(ONE, TWO, lease_ns=12 * SECOND)
    agent.rotate()
    agent.run(5 * SECOND, step_ns=5 * MS)
    agent.sent.clear()
    agent.run(60 * SECOND, step_ns=5 * MS)
    assert 10 <= len(agent.reports) <= 14
    assert not [message for message in agent.sent if isinstance(message, Hello)]


def test_agent_that_hears_nothing_for_a_lease_says_hello() -> None:
    agent = computing_agent(ONE, TWO, lease_ns=6 * SECOND)
    agent.rotate((1,), (2,))
    compute(agent, 3 * SECOND)
    agent.talking, agent.answering = False, False
    agent.sent.clear()
    compute(agent, 4 * SECOND)
    assert not [message for message in agent.sent if isinstance(message, Hello)]
    compute(agent, 6 * SECOND)
    assert [message for message in agent.sent if isinstance(message, Hello)]


def test_what_is_the_same_is_news_no_more_and_what_differs_is() -> None:
    book = SliceBook()
    for place in range(SAME_SAMPLES + 1):
        book.on_sample(JobSample(7, 500_000 + 100 * place, 0, 1_000_000, 1))
        assert book.has_news is (place < SAME_SAMPLES)
    book.on_sample(JobSample(7, 540_000, 0, 1_000_000, 1))
    assert not book.has_news
    book.on_sample(JobSample(7, 0, 0, 0, 1))  # too short to tell
    assert not book.has_news
    book.on_sample(JobSample(7, 320_000, 0, 1_000_000, 1))
    assert book.has_news
    book.on_ended(frozenset({7}))
    assert book.has_urgent()
    book.report(SENDER, 0)
    assert not book.has_news


def test_demand_that_creeps_away_is_news() -> None:
    book = SliceBook()
    for _ in range(SAME_SAMPLES + 1):
        book.on_alone(JobSample(7, 0, 0, 1_000_000, 1))
    crept = []
    for step in range(9):
        book.on_alone(JobSample(7, 10_000 * step, 0, 1_000_000, 1))
        crept.append(book.has_news)
    assert crept.index(True) == 7


SAMPLES = st.lists(st.sets(st.integers(1, 5)), max_size=24)


@examples(100)
@given(SAMPLES, st.integers(0, 2))
def test_what_is_added_up_is_what_was_used(jobs: list[set[int]], apart: int) -> None:
    slices = [
        SliceReport(
            number,
            1,
            0,
            0,
            0,
            (),
            tuple([JobSample(job, 2**number, job, 10, number) for job in sorted(here)]),
        )
        for number, here in enumerate(jobs)
    ]
    told = added_up(slices, apart)
    assert [one.number for one in told] == [one.number for one in slices]
    for job in range(1, 6):
        before = [sample for one in slices for sample in one.samples if sample.job == job]
        after = [(one.number, sample) for one in told for sample in one.samples if sample.job == job]
        assert sum(sample.cpu_us for _, sample in after) == sum(sample.cpu_us for sample in before)
        assert sum(sample.span_us for _, sample in after) == sum(sample.span_us for sample in before)
        assert len(after) == min(len(before), 1 + apart)
        assert [sample for _, sample in after][1:] == before[len(before) - len(after) + 1 :]
        assert [number for number, _ in after] == [sample.tasks for sample in before][
            len(before) - len(after) :
        ]
