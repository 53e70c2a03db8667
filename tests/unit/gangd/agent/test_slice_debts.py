"""What a job uses in others' slices is taken from its own: who is charged, how much, and who gets it."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.agent import job_meters
from gangd.agent.job_meters import LOOSE_NS, MOST_DEBT_SHARE, JobMeters, SliceDebts
from gangd.freezer.cgroup_freezer import CgroupFreezer
from gangd.freezer.holder import StepKey
from gangd.freezer.tree import CGROUP1
from tests.fixtures.gang_host import FakeV1
from tests.fixtures.gang_simulated import MS, SECOND, SimulatedAgent
from tests.fixtures.no_ledger import NoLedger
from tests.fixtures.tier import examples

SLICE_NS = 250 * MS
ONE, TWO, THREE = (StepKey(job, "0") for job in (1, 2, 3))


def others(jobs: frozenset[int], run: int) -> frozenset[int]:
    return jobs - {run}


@examples(60)
@given(
    jobs=st.integers(2, 4),
    rates=st.lists(st.floats(0, 0.3), min_size=4, max_size=4),
    honest=st.integers(0, 3),
)
def test_an_honest_job_keeps_its_share_whatever_others_take_of_its_slices(
    jobs: int, rates: list[float], honest: int
) -> None:
    """Jobs take turns on a core; all but one use parts of the others' slices."""
    everyone, debts = frozenset(range(jobs)), SliceDebts()
    honest %= jobs
    part = [0.0 if job == honest else rates[job] / jobs for job in everyone]
    got, rounds, settled = 0.0, 120, 40
    for number in range(rounds * jobs):
        owner = number % jobs
        due = debts.due(frozenset({owner}), SLICE_NS)
        spans = [(owner, SLICE_NS - due[1] if due else SLICE_NS)]
        if due:
            (owed_to,) = everyone - due[0]
            spans.append((owed_to, due[1]))
            debts.pay(frozenset({owner}), due[0], due[1])
        for runs, span_ns in spans:
            taken = {job: round(span_ns * part[job]) for job in everyone if job != runs}
            debts.owe(others(everyone, runs), taken)
            if runs == honest and number >= settled * jobs:
                got += span_ns - sum(taken.values())
        debts.level(everyone)
    assert got / (SLICE_NS * (rounds - settled) * jobs) > 0.94 / jobs


def test_nothing_is_due_for_what_all_of_them_take_alike() -> None:
    debts, both = SliceDebts(), frozenset({1, 2})
    debts.owe(frozenset({1}), {1: 20 * MS})
    debts.owe(frozenset({2}), {2: 18 * MS})
    debts.level(both)
    assert debts.due(frozenset({1}), SLICE_NS) is None
    assert debts.due(frozenset({2}), SLICE_NS) is None
    debts.owe(frozenset({1}), {1: 20 * MS})
    assert debts
    assert debts.due(frozenset({1}), SLICE_NS) == (frozenset({1}), 22 * MS)
    assert debts.due(frozenset({2}), SLICE_NS) is None
    debts.pay(frozenset({1}), frozenset({1}), 22 * MS)
    assert not debts


def test_no_more_than_most_of_a_slice_is_due_at_once() -> None:
    debts = SliceDebts()
    debts.owe(frozenset({1}), {1: 10 * SECOND})
    assert debts.due(frozenset({1}), SLICE_NS) == (frozenset({1}), int(MOST_DEBT_SHARE * SLICE_NS))


def test_an_owner_that_owes_nothing_is_not_held_with_a_debtor() -> None:
    debts = SliceDebts()
    debts.owe(frozenset({1, 2}), {1: 50 * MS})
    assert debts.due(frozenset({1, 2}), SLICE_NS) is None
    assert debts.due(frozenset({1, 3}), SLICE_NS) == (frozenset({1, 2}), 50 * MS)


def test_what_is_owed_for_slices_of_jobs_that_are_gone_is_forgotten() -> None:
    debts = SliceDebts()
    debts.owe(frozenset({1, 2}), {1: 50 * MS})
    debts.keep(frozenset({1, 3}))
    assert not debts


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the next reading of a job's processes finds that they have waited."""
    found: list[int] = [0]
    monkeypatch.setattr(job_meters, "_delay_since", lambda process: found[0])
    return found


def metered() -> JobMeters:
    """Job 1 runs and job 2 is frozen, both read at 0."""
    meters = JobMeters()
    meters.track({1: (os.getpid(),), 2: ()}, 0)
    meters.sample(1, 0, 0)
    meters.on_held(frozenset({2}), frozenset(), 0, {2: 0})
    return meters


@pytest.mark.parametrize(("waited_ms", "charged_ms"), [(0, 0), (10, 10), (200, 40)])
def test_a_held_job_is_charged_for_what_the_owner_waited_for(
    delays: list[int], waited_ms: int, charged_ms: int
) -> None:
    meters = metered()
    meters.on_held(frozenset({1}), frozenset(), SLICE_NS, {2: 40 * MS})
    delays[0] = waited_ms * MS
    meters.sample(1, 210 * MS, SLICE_NS + 8 * MS)
    assert (meters.charge({1}, {2}), meters.charge({1}, {2})) == ({2: charged_ms * MS}, {})


def test_what_an_owner_that_was_not_read_has_lost_is_charged_later(delays: list[int]) -> None:
    meters = metered()
    meters.on_held(frozenset({1}), frozenset(), SLICE_NS, {2: 30 * MS})
    assert meters.charge({1}, {2}) == {}
    delays[0] = 100 * MS
    meters.sample(1, 150 * MS, SLICE_NS + 8 * MS)
    assert meters.charge({1}, {2}) == {2: 30 * MS}


def test_what_launches_cost_is_charged_in_slices_of_others_only(delays: list[int]) -> None:
    meters = metered()
    meters.on_launch(2, 7 * MS, 2 * MS)
    meters.on_held(frozenset({1}), frozenset(), SLICE_NS, {2: 0})
    meters.on_launch(2, 17 * MS, 2 * MS)
    delays[0] = 50 * MS
    meters.sample(1, 200 * MS, SLICE_NS + 8 * MS)
    assert meters.charge({1}, {2}) == {2: 9 * MS}


@pytest.mark.parametrize(("launches", "charged"), [(False, {}), (True, {2: 60 * MS})])
def test_a_job_that_yields_owes_for_what_it_used_while_it_launched(
    delays: list[int], launches: bool, charged: dict[int, int]
) -> None:
    """What a group that yields uses was left to it, however long the owner's many processes waited."""
    meters = JobMeters()
    meters.track({1: (os.getpid(),), 2: ()}, 0)
    meters.sample(1, 0, 0)
    meters.on_held(frozenset({2}), frozenset({1, 2}), 0, {1: 0, 2: 0})
    if launches:
        meters.on_launch(2, 0, 0)
    meters.on_held(frozenset({1}), frozenset({1, 2}), SLICE_NS, {1: 170 * MS, 2: 60 * MS})
    delays[0] = 900 * MS
    meters.sample(1, 170 * MS, SLICE_NS + 8 * MS)
    assert meters.charge({1}, {2}) == charged


@pytest.mark.parametrize(
    ("yielding", "daemons_ms", "owed"),
    [(frozenset({2}), 7, {2: 9 * MS}), (frozenset({2}), 0, {}), (frozenset(), 7, {})],
)
def test_what_launches_cost_a_job_that_takes_no_turns_is_owed_once(
    yielding: frozenset[int], daemons_ms: int, owed: dict[int, int]
) -> None:
    """What would be frozen to pay owes nothing, nor does a job for which only the agent computed."""
    meters = JobMeters()
    meters.track({1: (os.getpid(),), 2: ()}, 0)
    meters.on_held(frozenset(), yielding, 0, {})
    meters.on_launch(2, daemons_ms * MS, 2 * MS)
    assert (meters.charge_launches({1, 2, 3}), meters.charge_launches({1, 2, 3})) == (owed, {})


def test_a_job_that_its_freeze_does_not_hold_yields_for_a_while() -> None:
    meters = metered()
    assert meters.loose_at(0) == frozenset()
    meters.on_held(frozenset({1}), frozenset(), SLICE_NS, {2: 60 * MS})
    assert meters.loose_at(SLICE_NS) == {2}
    assert meters.loose_at(SLICE_NS + LOOSE_NS) == frozenset()


def held_ms(agent: SimulatedAgent, span_ns: int) -> dict[int, int]:
    """For how long jobs are held."""
    held = dict.fromkeys((1, 2, 3), 0)
    for _ in range(span_ns // MS):
        agent.run(MS)
        for job in agent.held():
            held[job] += 1
    return held


def test_a_slice_of_a_debtor_ends_early_once() -> None:
    agent = SimulatedAgent(ONE, TWO)
    agent.join()
    agent.rotate((1,), (2,))
    agent.run(2 * SECOND)
    before = held_ms(agent, 2 * SECOND)
    assert abs(before[1] - before[2]) <= 20
    agent.node._turns.debts.owe(frozenset({1}), {1: 60 * MS})
    after = held_ms(agent, 2 * SECOND)
    assert 50 <= after[1] - before[1] <= 70
    assert 50 <= before[2] - after[2] <= 70


@pytest.mark.parametrize(("yielding", "held"), [((1, 2), 60), ((2,), 0), ((), 0)])
def test_a_job_that_takes_no_turns_pays_by_yielding_at_the_end_of_a_slice(
    yielding: tuple[int, ...], held: int
) -> None:
    agent = SimulatedAgent(ONE, TWO, yielding=yielding)
    agent.join()
    agent.share(1, 2)
    agent.run(SECOND)
    agent.node._turns.debts.owe(frozenset({1}), {1: 60 * MS})
    found = held_ms(agent, 2 * SECOND)
    assert abs(found[1] - held) <= 5
    assert found[2] == 0


def test_of_three_jobs_the_one_that_lost_time_gets_it() -> None:
    agent = SimulatedAgent(ONE, TWO, THREE)
    agent.join()
    agent.rotate((1, 2), (2, 3), (1, 3))
    agent.run(2 * SECOND)
    before = held_ms(agent, 3 * SECOND)
    agent.node._turns.debts.owe(frozenset({1, 3}), {1: 60 * MS})
    after = held_ms(agent, 3 * SECOND)
    assert 50 <= after[1] - before[1] <= 70
    assert 50 <= before[2] - after[2] <= 70
    assert abs(after[3] - before[3]) <= 5


def test_daemons_of_a_job_are_those_in_its_own_cgroup_to_their_end(fake_v1: FakeV1) -> None:
    procs = fake_v1.step(12, "0").parent / "cgroup.procs"
    freezer = CgroupFreezer(fake_v1.root, CGROUP1, "a", NoLedger())
    freezer.adopt(freezer.look())
    spin = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"
    with subprocess.Popen(["sh", "-c", f"read x; {spin}"], stdin=subprocess.PIPE) as daemon:
        procs.write_text(f"{daemon.pid}\n")
        seen_ns = freezer.daemon_ns(12)
        assert daemon.stdin is not None
        daemon.stdin.close()
        os.waitid(os.P_PID, daemon.pid, os.WEXITED | os.WNOWAIT)
        procs.write_text("")
        used_ns = freezer.daemon_ns(12)
        assert used_ns > seen_ns + MS  # its parent has not taken note of its end
    assert freezer.daemon_ns(12) == used_ns
    procs.unlink()
    assert (freezer.daemon_ns(12), freezer.daemon_ns(13)) == (used_ns, 0)
    freezer.close()
