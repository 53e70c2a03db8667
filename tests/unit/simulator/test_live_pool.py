"""The hybrid mechanisms on nodes whose jobs another program starts: what is decided, step by step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulator.hybrid.hybrid_family import Hybrid
from simulator.hybrid.hybrid_state import LEAVING, OVER, RUNNING, WAITING
from simulator.hybrid.live_pool import LiveJob, LiveOrders, LivePool
from simulator.simulation import cleaning_of
from simulator.simulation_session import SimulationSession
from simulator.simulation_spec import SimulationSpec
from tests.fixtures.swf_jobs import write_jobs

S = 1_000_000
RIGID, MALLEABLE, LATE, DEMAND = range(4)
KINDS = """\
trace_job,kind,min_nodes,setup_s,checkpoint_every_s,checkpoint_s,notice_s,predicted_s
1,rigid,,0,20,0,,
2,malleable,1,0,,,,
3,rigid,,0,,,,
4,ondemand,,,,,{notice},{predicted}
"""


def pool_of(
    folder: Path, mechanism: str, *, notice: object = "", predicted: object = "", asked: int = 2
) -> LivePool:
    """Return a pool of four nodes: rigid and malleable jobs of 2 nodes, a rigid one of 1, one on demand."""
    jobs = [(1, 0, 100, 2), (2, 0, 100, 2), (3, 0, 50, 1), (4, 40, 30, asked)]
    trace, kinds = folder / "t.swf", folder / "kinds.csv"
    write_jobs(trace, jobs)
    kinds.write_text(KINDS.format(notice=notice, predicted=predicted))
    spec = SimulationSpec(
        trace=trace,
        system="N4C1",
        policy=f"hybrid-{mechanism}",
        settings=[f"jobs={kinds}", "warning=10", "release=20"],
        interactive_queue=-1,
    )
    session = SimulationSession(trace, spec, cleaning_of(spec))
    policy = session.setting.rules.policy
    assert isinstance(policy, Hybrid)
    jobs_of = session.workload.pool_jobs(np.arange(4), with_memory=False)
    return LivePool(jobs_of, 4, policy.mechanism)


def running(*nodes: int, since_s: int = 0, attempt: int = 0) -> LiveJob:
    return LiveJob(RUNNING, attempt, since_s * S, nodes)


BUSY = {RIGID: running(0, 1), MALLEABLE: running(2, 3)}
NONE = LiveOrders(preempt={}, shrink={}, reserved={})


def test_without_on_demand_jobs_nothing_is_ordered(tmp_path: Path) -> None:
    assert pool_of(tmp_path, "cua-paa").step(10 * S, BUSY) == NONE


def test_a_job_that_comes_preempts_the_cheapest_victims(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, "n-paa")
    pool.step(10 * S, BUSY)
    orders = pool.step(35 * S, BUSY | {DEMAND: LiveJob(WAITING)})
    # The malleable one loses nothing, the rigid one 15 s of work on two nodes.
    assert (orders.preempt, orders.reserved) == ({MALLEABLE: True}, {DEMAND: frozenset({2, 3})})
    again = pool.step(36 * S, BUSY | {DEMAND: LiveJob(WAITING)})
    assert (again.preempt, again.reserved) == ({}, orders.reserved)


def test_a_rigid_victim_goes_at_once_and_loses_what_it_has_not_saved(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, "n-paa")
    live = {RIGID: running(0, 1), LATE: running(2)}
    pool.step(10 * S, live)
    orders = pool.step(35 * S, live | {DEMAND: LiveJob(WAITING)})
    assert orders.preempt == {RIGID: False}
    assert pool.lost_us == {RIGID: [15 * S]}
    assert orders.reserved == {DEMAND: frozenset({1, 3})}
    gone = {RIGID: LiveJob(WAITING, 1), LATE: running(2), DEMAND: LiveJob(WAITING)}
    assert pool.step(36 * S, gone).reserved == orders.reserved


def test_a_malleable_job_shrinks_and_one_that_cannot_is_preempted(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, "n-spaa", asked=1)
    pool.step(10 * S, BUSY)
    orders = pool.step(35 * S, BUSY | {DEMAND: LiveJob(WAITING)})
    assert (orders.preempt, orders.shrink) == ({}, {MALLEABLE: (2,)})
    assert orders.reserved == {DEMAND: frozenset({3})}
    pool.meet_again(MALLEABLE, rigid=True)
    later = [pool.step(at * S, BUSY | {DEMAND: LiveJob(WAITING)}) for at in (36, 37)]
    assert [one.shrink for one in later] == [{}, {}]
    assert any(MALLEABLE in one.preempt for one in later)


def test_a_notice_reserves_all_nodes_until_enough_are_collected(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, "cua-paa", notice=20, predicted=40)
    live = BUSY | {LATE: LiveJob(WAITING)}
    assert pool.step(19 * S, live).reserved == {}
    assert pool.step(21 * S, live).reserved == {DEMAND: frozenset(range(4))}
    ended = live | {RIGID: LiveJob(OVER)}
    assert pool.step(30 * S, ended).reserved == {DEMAND: frozenset({0, 1})}
    came = pool.step(40 * S, ended | {DEMAND: LiveJob(WAITING)})
    assert (came.preempt, came.reserved) == ({}, {DEMAND: frozenset({0, 1})})
    assert pool.step(41 * S, ended | {DEMAND: running(0, 1, since_s=41)}).reserved == {}


def test_the_reservation_of_a_job_that_never_comes_ends(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, "cua-paa", notice=20, predicted=30)
    assert pool.step(21 * S, BUSY).reserved
    assert pool.step(49 * S, BUSY).reserved
    assert pool.step(51 * S, BUSY) == NONE


def test_plans_preempt_after_a_checkpoint_before_the_predicted_arrival(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, "cup-paa", notice=10, predicted=35, asked=2)
    live = {RIGID: running(0, 1), LATE: running(2), DEMAND: LiveJob(WAITING)}
    first = {RIGID: running(0, 1), LATE: running(2)}
    assert pool.step(11 * S, first).preempt == {}
    assert (pool.step(20 * S, first).preempt, pool.lost_us) == ({RIGID: False}, {RIGID: [0]})
    assert pool.step(36 * S, live | {RIGID: LiveJob(WAITING, 1)}).preempt == {}


def test_nodes_go_back_to_the_job_that_was_preempted(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, "n-paa")
    pool.step(10 * S, BUSY)
    pool.step(35 * S, BUSY | {DEMAND: LiveJob(WAITING)})
    lent = {RIGID: running(0, 1), MALLEABLE: LiveJob(WAITING, 1)}
    runs = pool.step(46 * S, lent | {DEMAND: running(2, 3, since_s=46)})
    assert runs.reserved == {DEMAND: frozenset({2, 3})}
    back = pool.step(70 * S, lent | {DEMAND: LiveJob(OVER)})
    assert back.reserved == {MALLEABLE: frozenset({2, 3})}
    again = lent | {MALLEABLE: running(2, 3, since_s=71, attempt=1), DEMAND: LiveJob(OVER)}
    assert (pool.step(72 * S, again), pool.world.jobs[MALLEABLE].left) == (NONE, 65 * 2 * S)


def test_a_victim_that_completes_is_no_new_run_of_it(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, "n-paa")
    live = {RIGID: running(0, 1), LATE: running(2), DEMAND: LiveJob(WAITING)}
    pool.step(10 * S, {RIGID: running(0, 1), LATE: running(2)})
    pool.step(35 * S, live)
    leaves = live | {RIGID: LiveJob(LEAVING, 1, 0, (0, 1))}
    orders = [pool.step(at * S, leaves) for at in (36, 41, 42)]
    assert [one.preempt for one in orders] == [{}, {}, {}]
    assert {nodes for one in orders for nodes in one.reserved.values()} == {frozenset({1, 3})}


def test_nodes_are_not_kept_for_long_for_a_job_that_does_not_start(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, "n-paa")
    pool.step(10 * S, BUSY)
    pool.step(35 * S, BUSY | {DEMAND: LiveJob(WAITING)})
    lent = {RIGID: running(0, 1), MALLEABLE: LiveJob(WAITING, 1)}
    pool.step(46 * S, lent | {DEMAND: running(2, 3, since_s=46)})
    assert pool.step(70 * S, lent | {DEMAND: LiveJob(OVER)}).reserved
    assert pool.step(91 * S, lent | {DEMAND: LiveJob(OVER)}) == NONE


def test_a_victim_that_ended_meanwhile_lends_nothing(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, "n-paa")
    pool.step(10 * S, BUSY)
    pool.step(35 * S, BUSY | {DEMAND: LiveJob(WAITING)})
    gone = {RIGID: running(0, 1), MALLEABLE: LiveJob(OVER)}
    assert pool.step(46 * S, gone | {DEMAND: LiveJob(WAITING)}).reserved == {DEMAND: frozenset({2, 3})}
    pool.step(50 * S, gone | {DEMAND: running(2, 3, since_s=47)})
    assert pool.step(80 * S, gone | {DEMAND: LiveJob(OVER)}) == NONE


def test_another_job_that_took_the_nodes_is_preempted_after_a_while(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, "n-paa")
    live = {RIGID: running(0, 1)}
    pool.step(30 * S, live)
    assert pool.step(35 * S, live | {DEMAND: LiveJob(WAITING)}).preempt == {}
    taken = live | {MALLEABLE: running(2, 3, since_s=36), DEMAND: LiveJob(WAITING)}
    orders = [pool.step(at * S, taken) for at in (36, 41, 42)]
    assert [one.preempt for one in orders] == [{}, {}, {MALLEABLE: True}]


def test_too_few_nodes_are_collected_for_a_job_that_waits(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, "n-paa", asked=2)
    live = {DEMAND: LiveJob(WAITING)}
    assert pool.step(41 * S, live, away={0, 1, 2}).reserved == {DEMAND: frozenset(range(4))}
    assert pool.step(43 * S, live, away={0, 1}).reserved == {DEMAND: frozenset({2, 3})}


@pytest.mark.parametrize("mechanism", ["share", "n-paa"])
def test_a_job_that_starts_by_itself_needs_no_order(tmp_path: Path, mechanism: str) -> None:
    pool = pool_of(tmp_path, mechanism)
    assert pool.step(40 * S, {RIGID: running(0, 1), DEMAND: running(2, 3, since_s=40)}) == NONE
