"""The agent's agenda, and agents that live by it, on hosts that stand still for any time at any moment."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from gangd.agent.agenda import WHILE_HELD, Agenda, AgendaItem, Rest
from gangd.freezer.holder import Did, HoldOutcome, StepKey
from gangd.wire.messages import Hello, Ping, Report
from tests.fixtures.gang_simulated import MS, SECOND, SimulatedAgent

TIMES = st.integers(0, 1000)
ITEMS = st.sampled_from(AgendaItem)


@st.composite
def acts(draw: st.DrawFn) -> list[tuple[str, AgendaItem, int, int]]:
    kinds = st.sampled_from(("set", "sooner", "strike", "take"))
    return draw(st.lists(st.tuples(kinds, ITEMS, TIMES, TIMES), max_size=40))


@given(acts=acts(), holding=st.booleans())
def test_it_knows_what_was_put_down_last_and_the_soonest_of_all(
    acts: list[tuple[str, AgendaItem, int, int]], holding: bool
) -> None:
    agenda, model = Agenda(), dict[AgendaItem, tuple[int, int]]()
    for kind, item, at_ns, slack_ns in acts:
        if kind == "set":
            agenda.set(item, at_ns, at_ns + slack_ns)
            model[item] = (at_ns, at_ns + slack_ns)
        elif kind == "sooner":
            agenda.sooner(item, at_ns)
            from_ns, by_ns = model.get(item, (2**62, 2**62))
            model[item] = (min(from_ns, at_ns), min(by_ns, at_ns))
        elif kind == "strike":
            agenda.strike(item)
            model.pop(item, None)
        else:
            is_due = item in model and at_ns >= model[item][0]
            assert agenda.take(item, at_ns) is is_due
            if is_due:
                del model[item]
        for one in AgendaItem:
            down = model.get(one)
            assert agenda.at(one) == (None if down is None else down[0])
            assert agenda.may(one, at_ns) is (down is not None and at_ns >= down[0])
            assert agenda.must(one, at_ns) is (down is not None and at_ns >= down[1])
    waits = [by_ns for one, (_, by_ns) in model.items() if holding or one not in WHILE_HELD]
    assert agenda.due_ns(holding=holding) == min(waits, default=None)


@given(
    every=st.dictionaries(ITEMS, st.tuples(st.integers(1, 50), st.integers(0, 30)), min_size=1),
    oversleeps=st.lists(st.one_of(st.just(0), st.integers(0, 500)), min_size=1, max_size=60),
)
def test_who_sleeps_until_it_is_due_does_all_in_time_and_nothing_bursts(
    every: dict[AgendaItem, tuple[int, int]], oversleeps: list[int]
) -> None:
    agenda, now_ns = Agenda(), 0
    for item, (_, slack_ns) in every.items():
        agenda.set(item, 0, slack_ns)
    for oversleep_ns in oversleeps:
        due_ns = agenda.due_ns(holding=True)
        assert due_ns is not None
        by_ns = {item: (agenda.at(item) or 0) + every[item][1] for item in every}
        now_ns = max(now_ns, due_ns) + oversleep_ns
        assert min(by_ns.values()) + oversleep_ns >= now_ns or oversleep_ns, "nothing was overslept"
        done = Counter(item for item in (*AgendaItem, *AgendaItem) if agenda.take(item, now_ns))
        assert set(done.values()) == {1}, "however often it was missed"
        assert done.keys() >= {item for item in every if now_ns >= by_ns[item]}
        for item in done:
            agenda.set(item, now_ns + every[item][0], now_ns + sum(every[item]))


@given(steps=st.lists(st.tuples(st.sampled_from(Rest), TIMES, st.booleans()), max_size=30))
def test_a_rest_wakes_no_one_and_can_be_cut_short_only(steps: list[tuple[Rest, int, bool]]) -> None:
    agenda, until = Agenda(), dict.fromkeys(Rest, 0)
    for rest, at_ns, cut in steps:
        (agenda.wake if cut else agenda.rest)(rest, at_ns)
        until[rest] = min(until[rest], at_ns) if cut else at_ns
        assert all(agenda.rests_until(one) == until[one] for one in Rest)
        assert agenda.rested(rest, until[rest])
        assert not agenda.rested(rest, until[rest] - 1)
        assert agenda.due_ns(holding=True) is None


ONE, TWO = StepKey(1, "0"), StepKey(2, "0")
PAUSES = st.lists(
    st.tuples(st.integers(1, 400), st.one_of(st.just(0), st.integers(0, 5_000)), st.booleans()),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(pauses=PAUSES)
def test_a_host_that_stays_stopped_neither_bursts_nor_holds_beyond_the_lease(
    pauses: list[tuple[int, int, bool]],
) -> None:
    agent = SimulatedAgent(ONE, TWO)
    agent.join()
    agent.rotate((1,), (2,))
    heard_ns = agent.now_ns
    for runs_ms, still_ms, talking in pauses:
        agent.talking = talking
        for _ in range(runs_ms):
            agent.run(MS)
            if talking and agent.now_ns % (100 * MS) == 0:
                heard_ns = agent.now_ns
            assert not agent.held() or agent.now_ns < heard_ns + 2 * SECOND + MS
        agent.sent.clear()
        agent.now_ns += still_ms * MS
        agent.run(MS)
        said = Counter(type(message) for message in agent.sent)
        assert all(said[kind] <= 1 for kind in (Ping, Hello, Report)), said


def test_what_cannot_be_let_go_is_tried_again_at_leisure() -> None:
    agent = SimulatedAgent(ONE)
    agent.join()
    agent.rotate((1,), (1,), run_ns=SECOND)
    assert agent.held() == {1}
    stuck = agent.freezer.release
    tries = 0

    def refuse(key: StepKey) -> object:
        nonlocal tries
        tries += 1
        return HoldOutcome(key, Did.FAILED, "no")

    agent.freezer.release = refuse  # type: ignore[assignment,method-assign]
    agent.talking = False
    agent.run(3 * SECOND)
    assert agent.held() == {1}
    before = tries
    agent.run(SECOND)
    assert 10 <= tries - before <= 100
    agent.freezer.release = stuck  # type: ignore[method-assign]
    agent.run(100 * MS)
    assert agent.held() == set()
