"""Where jobs were, as ranges of nodes: the same nodes and cores as part by part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import InputError
from foundation.records import PlacementArrays
from simulator.state.allocations import Places
from tests.fixtures.tier import examples

PARTS = st.lists(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from([1, 2, 3])), max_size=9, unique_by=lambda part: part[0]
    ),
    max_size=12,
)


def of_lists(jobs: list[list[tuple[int, int]]], gap: int, at_once: int) -> Places:
    """Return the places of jobs given part by part, with so many unused parts behind each job."""
    node: list[int] = []
    mask: list[int] = []
    part_at: list[int] = []
    part_end: list[int] = []
    for parts in jobs:
        part_at.append(len(node))
        node += [number for number, _ in parts] + [77] * gap
        mask += [cores for _, cores in parts] + [0] * gap
        part_end.append(len(node) - gap)
    return Places.of_parts(
        np.array(part_at, dtype=np.int64),
        np.array(part_end, dtype=np.int64),
        np.array(node, dtype=np.int32),
        np.array(mask, dtype=np.int64).reshape(-1, 1),
        at_once,
    )


@examples(200)
@given(PARTS, st.integers(0, 2), st.integers(1, 30))
def test_ranges_hold_what_the_parts_held_in_their_order(
    jobs: list[list[tuple[int, int]]], gap: int, at_once: int
) -> None:
    places = of_lists(jobs, gap, at_once)
    assert len(places) == len(jobs)
    assert places.nodes.tolist() == [len(parts) for parts in jobs]
    for job, parts in enumerate(jobs):
        cores = {1: [0], 2: [1], 3: [0, 1]}
        assert list(places.cores_of(job).items()) == [(node, cores[held]) for node, held in parts]


def test_neighbours_with_the_same_cores_are_one_range() -> None:
    places = of_lists([[(0, 3), (1, 3), (2, 3)], [(3, 3), (4, 1), (6, 1), (7, 1)], []], 0, 100)
    assert places.offsets.tolist() == [0, 1, 4, 4]
    assert places.first.tolist() == [0, 3, 4, 6]
    assert places.count.tolist() == [3, 1, 1, 2]
    assert len(places.sets) == 2


def arrays(first: list[int], count: list[int], offsets: list[int]) -> PlacementArrays:
    return PlacementArrays(
        np.array(offsets, dtype=np.int64),
        np.array(first, dtype=np.int32),
        np.zeros(len(first), dtype=np.int32),
        tuple(f"n{number}" for number in range(8)),
        ("0-1",),
        np.array(count, dtype=np.int32),
    )


def test_a_column_of_ranges_names_every_node() -> None:
    placements = arrays([0, 5, 2], [3, 1, 2], [0, 2, 2, 3])
    placements.check("here")
    for column in (placements.column(), placements.reorder(np.array([0, 1, 2])).column()):
        names = [None if held is None else [entry["node"] for entry in held] for held in column]
        assert names == [["n0", "n1", "n2", "n5"], None, ["n2", "n3"]]
    turned = placements.reorder(np.array([2, 0])).column(1)
    assert [entry["node"] for entry in turned[0]] == ["n0", "n1", "n2", "n5"]


@pytest.mark.parametrize(
    ("first", "count", "told"),
    [
        ([0, 2], [3, 1], "has a node twice"),
        ([2, 0], [1, 3], "has a node twice"),
        ([0, 7], [3, 2], "leave the nodes"),
        ([0, 4], [3, 0], "are empty"),
        ([0, 4], [3], "are empty"),
    ],
)
def test_ranges_that_cannot_be_are_refused(first: list[int], count: list[int], told: str) -> None:
    with pytest.raises(InputError, match=told):
        arrays(first, count, [0, 2]).check("here")
