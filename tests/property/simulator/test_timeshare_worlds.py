"""The time-sharing loop in random worlds: fair rates, memory, conservation, and equality with batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.timeshare import timeshare_pool as noise_of_nodes
from simulator.timeshare.timeshare_pool import Noise, run
from simulator.timeshare.timeshare_state import WHOLE, SharingConfig, TimeshareDemands
from tests.fixtures.tier import choose, examples
from tests.property.simulator.timeshare_reference import Watch, fair_rates


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSUB_JIT", "0")
    monkeypatch.setattr(noise_of_nodes, "PIECE", 5)  # a world takes several pieces


@st.composite
def worlds(draw: st.DrawFn) -> tuple[TimeshareDemands, int]:
    nodes = draw(st.integers(1, 40))
    count = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    crowd = draw(st.integers(1, 400))
    widths = np.minimum(nodes, np.ceil(nodes ** rng.random(count))).astype(np.int64)
    run_us = rng.integers(0, 100, count) * 1_000_000
    demands = TimeshareDemands(
        submit_us=np.sort(rng.integers(0, crowd, count)) * 1_000_000,
        run_us=run_us,
        request_us=run_us + rng.integers(0, 200, count) * 500_000,
        nodes=widths,
        memory=rng.integers(1, draw(st.sampled_from([20, 300, 1000])) + 1, count),
    )
    return demands, nodes


@settings(max_examples=choose(10, 40, 400))
@given(
    world=worlds(),
    spmd=st.booleans(),
    cap=st.sampled_from([0, 0, 1, 3]),
    in_order=st.booleans(),
    tick_s=st.sampled_from([0, 0, 10]),
    noise=st.sampled_from([0.0, 0.0, 0.05]),
)
def test_rates_are_max_min_fair_and_time_is_conserved(
    world: tuple[TimeshareDemands, int], spmd: bool, cap: int, in_order: bool, tick_s: int, noise: float
) -> None:
    jobs, nodes = world
    manner = SharingConfig(spmd=spmd, cap=cap, in_order=in_order, tick_us=tick_s * 1_000_000)
    watch = Watch()
    course = run(jobs, nodes, manner, Noise(probability=noise, seed=3), after_instant=watch)
    assert (course.start_us >= jobs.submit_us).all()
    assert (course.end_us >= course.start_us + (jobs.run_us if not tick_s else 0)).all()
    wanted = int((jobs.nodes * jobs.run_us).sum()) * WHOLE
    late_us = tick_s * 1_000_000 or 1
    assert wanted <= watch.node_us + 1 <= wanted + int(jobs.nodes.sum()) * WHOLE * late_us + 1
    assert course.most <= (cap or len(jobs.run_us))


@settings(max_examples=choose(8, 40, 400))
@given(world=worlds(), noise=st.sampled_from([0.0, 0.05]))
def test_capped_at_one_job_a_node_time_sharing_is_its_batch(
    world: tuple[TimeshareDemands, int], noise: float
) -> None:
    jobs, nodes = world
    shared = run(jobs, nodes, SharingConfig(cap=1, in_order=True), Noise(probability=noise))
    batch = run(jobs, nodes, SharingConfig(batch=True, backfills=False), Noise(probability=noise))
    assert (shared.start_us == batch.start_us).all()
    assert (shared.end_us == batch.end_us).all()
    assert (shared.node == batch.node).all()


@examples(40)
@given(world=worlds())
def test_a_job_that_backfills_never_delays_the_head_beyond_its_promise(
    world: tuple[TimeshareDemands, int],
) -> None:
    jobs, nodes = world
    backfilled = run(jobs, nodes, SharingConfig(batch=True))
    assert (backfilled.end_us == backfilled.start_us + jobs.run_us).all()
    assert backfilled.most <= 1


def test_the_papers_example_a_quarter_and_three_quarters() -> None:
    jobs = {0: [0, 1], 1: [0], 2: [1], 3: [1], 4: [1]}
    rates = fair_rates(jobs, [WHOLE, WHOLE], spmd=True)
    assert rates[0] == WHOLE // 4
    assert rates[1] == WHOLE * 3 // 4


@pytest.mark.long
@examples(30)
@given(world=worlds(), spmd=st.booleans(), batch=st.booleans(), noise=st.sampled_from([0.0, 0.05]))
def test_compiled_and_plain_give_the_same(
    world: tuple[TimeshareDemands, int], spmd: bool, batch: bool, noise: float
) -> None:
    jobs, nodes = world
    found = []
    for word in ("0", "1"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OSUB_JIT", word)
            found.append(run(jobs, nodes, SharingConfig(batch=batch, spmd=spmd), Noise(probability=noise)))
    plain, compiled = found
    assert (plain.start_us == compiled.start_us).all()
    assert (plain.end_us == compiled.end_us).all()
    assert (plain.node == compiled.node).all()
    assert (plain.load == compiled.load).all()
    assert (plain.progress == compiled.progress).all()
