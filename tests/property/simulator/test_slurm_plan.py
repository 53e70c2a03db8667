"""What the family of Slurm's schedulers foresees, against the plainest reading of the same words."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from foundation.units import US_PER_S
from simulator.model.jobs import SimulatedJob
from simulator.policies.slurm_schedulers import BackfillPlan, PlannedNode, windows
from tests.fixtures.tier import examples

NOW_US = 50 * US_PER_S
NODES, CORES = 4, 3
Held = tuple[int, tuple[int, ...], int]  # a node, cores of it, and when they become free
MOMENTS = st.integers(1, 400).map(lambda seconds: seconds * US_PER_S)
HELD = st.tuples(
    st.integers(0, NODES - 1),
    st.sets(st.integers(0, CORES - 1), min_size=1).map(lambda cores: tuple(sorted(cores))),
    MOMENTS,
)


def job(nodes: int, cores: int) -> SimulatedJob:
    return SimulatedJob(
        index=0, number=1, nodes=nodes, cores=cores, submit_us=0, phases_us=(0, 1), requested_us=1
    )


@st.composite
def holdings(draw: st.DrawFn, multiplicity: int) -> list[Held]:
    """Draw what running jobs hold, no core more often than it may be."""
    used: Counter[tuple[int, int]] = Counter()
    kept = []
    for node, cores, ends_us in draw(st.lists(HELD, max_size=12)):
        if all(used[node, core] < multiplicity for core in cores):
            used.update((node, core) for core in cores)
            kept.append((node, cores, ends_us))
    return kept


def free_cores(held: list[Held], node: int, at_us: int, multiplicity: int) -> int:
    users = Counter(core for where, cores, ends in held if where == node and ends > at_us for core in cores)
    return sum(users[core] < multiplicity for core in range(CORES))


@examples(100)
@given(data=st.data(), multiplicity=st.integers(1, 3), at_us=st.integers(0, 500 * US_PER_S))
def test_space_is_what_is_free_once_all_that_ends_has_ended(
    data: st.DataObject, multiplicity: int, at_us: int
) -> None:
    held = data.draw(holdings(multiplicity))
    node = PlannedNode(CORES, multiplicity)
    for where, cores, ends_us in held:
        if where == 0:
            node.hold(cores, ends_us)
    assert node.free_cores(at_us) == free_cores(held, 0, at_us, multiplicity)


@examples(150)
@given(
    data=st.data(),
    multiplicity=st.integers(1, 2),
    asked=st.lists(
        st.tuples(st.integers(1, NODES), st.integers(1, CORES), st.integers(1, 300)), min_size=1, max_size=8
    ),
    resolution_s=st.sampled_from([0, 1, 60]),
)
def test_nodes_are_kept_for_one_job_at_a_time_once_they_have_space(
    data: st.DataObject, multiplicity: int, asked: list[tuple[int, int, int]], resolution_s: int
) -> None:
    held = data.draw(holdings(multiplicity))
    plan = BackfillPlan(
        NOW_US, {node: PlannedNode(CORES, multiplicity) for node in range(NODES)}, resolution_s * US_PER_S
    )
    for where, taken, ends_us in held:
        plan.hold(where, taken, ends_us)
    late = [(where, taken, max(ends_us, NOW_US + US_PER_S)) for where, taken, ends_us in held]
    step = max(1, resolution_s * US_PER_S)
    kept: list[tuple[int, int, int]] = []
    for nodes, cores, limit_s in asked:
        limit_us = limit_s * US_PER_S
        found = plan.later(job(nodes, cores), limit_us)
        assert found is not None, "every node is free in the end"
        start_us, chosen = found
        assert start_us > NOW_US
        assert len(set(chosen)) == nodes
        for node in chosen:
            assert free_cores(late, node, start_us, multiplicity) >= cores
            for other, since_us, until_us in kept:
                assert other != node or until_us <= start_us or since_us > start_us + limit_us
        plan.keep(chosen, start_us, limit_us)
        since_us = start_us // step * step
        until_us = max((start_us + limit_us) // step * step, since_us + step)
        kept += [(node, since_us, until_us) for node in chosen]


@examples(100)
@given(st.sets(MOMENTS, max_size=30).map(sorted))
def test_windows_are_ends_the_last_among_them_and_each_is_no_shorter_than_the_one_before(
    ends_us: list[int],
) -> None:
    found = list(windows(ends_us))
    assert set(found) <= set(ends_us)
    assert found[-1:] == ends_us[-1:]
    assert all(one < other for one, other in pairwise(found))
    if ends_us:
        first_us = (ends_us[0] // (30 * US_PER_S) + 2) * 30 * US_PER_S
        assert found[0] == max(end for end in ends_us if end <= first_us)


def test_windows_double() -> None:
    """The first goes to 60 s, for the half minute after the first end is 30; then to 90, 150 and 270."""
    ends_s = [10, 50, 60, 61, 90, 95, 150, 151, 269]
    assert [end // US_PER_S for end in windows([end * US_PER_S for end in ends_s])] == [60, 90, 150, 269]
