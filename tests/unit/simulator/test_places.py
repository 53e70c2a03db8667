"""Systems, placements and job sizes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import InputError, UsageError
from foundation.records import PlacementArrays
from simulator.model import job_sizes
from simulator.model.system import System, multiple_queues, nodes_of_share
from simulator.setting_choices import setting_of
from simulator.simulation_spec import SimulationSpec
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
    assert (places.offsets.tolist(), places.first.tolist()) == ([0, 1, 4, 4], [0, 3, 4, 6])
    assert (places.count.tolist(), len(places.sets)) == ([3, 1, 1, 2], 2)


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
    ("first", "count", "message"),
    [
        ([0, 2], [3, 1], "has a node twice"),
        ([2, 0], [1, 3], "has a node twice"),
        ([0, 7], [3, 2], "leave the nodes"),
        ([0, 4], [3, 0], "are empty"),
        ([0, 4], [3], "are empty"),
    ],
)
def test_ranges_that_cannot_be_are_refused(first: list[int], count: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        arrays(first, count, [0, 2]).check("here")


@pytest.mark.parametrize(
    "text", ["", "150", "N150", "C12", "n150c12", "N0C12", "N150C0", "N150C12 ", "N1.5C2", "N-1C2"]
)
def test_what_is_no_system_is_reported(text: str) -> None:
    with pytest.raises(UsageError, match="is not a system"):
        System.parse(text)


def test_a_system_reads_and_writes_the_same() -> None:
    assert System.parse("N150C12") == System(150, 12)
    assert str(System(150, 12)) == "N150C12"


@pytest.mark.parametrize(
    ("share", "nodes"),
    [
        ("1%", 2),
        ("3%", 5),
        ("5%", 8),
        ("7%", 11),
        ("10%", 15),
        ("12%", 18),
        ("0.1%", 1),
        ("0.05", 8),
        ("0.3%", 1),
    ],
)
def test_a_share_is_the_nearest_whole_number_of_nodes_halves_up_and_at_least_one(
    share: str, nodes: int
) -> None:
    assert nodes_of_share(System(150, 12), share) == nodes


@pytest.mark.parametrize("share", ["", "%", "five", "0", "0%", "100%", "1", "-5%", "nan", "inf"])
def test_what_is_no_share_is_reported(share: str) -> None:
    with pytest.raises(UsageError, match="is not a share"):
        nodes_of_share(System(150, 12), share)


def test_interactive_jobs_get_the_first_nodes() -> None:
    queues = multiple_queues(System(12, 12), 2, multiplicity=1, multiplicity_interactive=4)
    assert (queues.interactive.first, queues.interactive.nodes, queues.interactive.multiplicity) == (0, 2, 4)
    assert (queues.batch.first, queues.batch.nodes, queues.batch.multiplicity) == (2, 10, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (SimulationSpec(system="N4C4", policy="sjf"), "unknown policy 'sjf'"),
        (SimulationSpec(system="N4C4", placement="best"), "unknown placement 'best'"),
        (SimulationSpec(system="N4C4", multiplicity=9), "multiplicity of 9"),
        (SimulationSpec(system="N4C4", multiplicity=0), "multiplicity of 0"),
        (SimulationSpec(system="N4C4", queues="pq"), "unknown queues 'pq'"),
        (SimulationSpec(system="N4C4", queues="mq"), "needs either"),
        (SimulationSpec(system="N4C4", queues="mq", interactive_nodes=4), "choose 1 to 3"),
        (
            SimulationSpec(system="N4C4", queues="mq", interactive_nodes=1, interactive_share="5%"),
            "needs either",
        ),
        (
            SimulationSpec(system="N4C4", queues="mq", interactive_nodes=1, multiplicity_interactive=9),
            "multiplicity of 9",
        ),
        (SimulationSpec(system="N4C4", interactive_nodes=1), "go with queues mq"),
        (SimulationSpec(system="N4C4", overhead="0.9"), "C_o is at least 1"),
        (SimulationSpec(system="N4C4", overhead="much"), "is not an overhead"),
        (SimulationSpec(system="N4C4", memory_gib=0), "must be positive"),
        (SimulationSpec(system="N4C4", node_noise=0.5), "node noise"),
    ],
)
def test_settings_that_cannot_be_are_reported(words: SimulationSpec, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        setting_of(words)


@pytest.mark.parametrize(
    ("asked", "share", "least", "most"),
    [
        (1, 0.950, 1, 16),
        (4, 0.950, 2, 16),
        (8, 0.965, 2, 16),
        (32, 0.995, 8, 128),
        (128, 0.995, 8, 128),
        (256, 0.995, 8, 256),
        (1024, 0.995, 8, 1024),
    ],
)
def test_requests_become_the_sizes_that_are_known(asked: int, share: float, least: int, most: int) -> None:
    sizes = job_sizes.Amdahl().sizes(asked, 4392)
    assert float(job_sizes.parallel_share(asked, Fraction(8, 10))) == share
    assert (sizes.least, sizes.preferred, sizes.most) == (least, asked, most)
    assert sizes.rates[asked - 1] == job_sizes.ASKED


CONVERSIONS = st.one_of(
    st.builds(
        job_sizes.Amdahl,
        st.lists(st.fractions(Fraction(1, 100), 1, max_denominator=100), min_size=3, max_size=3).map(
            lambda found: job_sizes.Efficiencies(
                **dict(zip(("most", "preferred", "least"), sorted(found), strict=True))
            )
        ),
    ),
    st.builds(
        job_sizes.Downey,
        average=st.integers(1, 2000),
        sigma=st.floats(0, 5, allow_nan=False, allow_infinity=False),
    ),
    st.builds(job_sizes.Fractions, st.fractions(Fraction(1, 1000), 1), st.fractions(1, 1000)),
)


@examples(300)
@given(conversion=CONVERSIONS, nodes=st.integers(1, 5000), asked=st.integers(1, 5000))
def test_the_request_lies_between_the_sizes_and_they_in_the_system(
    conversion: job_sizes.SizeConversion, nodes: int, asked: int
) -> None:
    asked = min(asked, nodes)
    sizes = conversion.sizes(asked, nodes)
    assert 1 <= sizes.least <= sizes.preferred == asked <= sizes.most <= nodes
    assert len(sizes.rates) == sizes.most
    assert list(sizes.rates) == sorted(sizes.rates)


@examples(100)
@given(asked=st.integers(1, 3000), sigma=st.floats(0, 4, allow_nan=False))
def test_with_downeys_model_more_nodes_are_never_more_efficient(asked: int, sigma: float) -> None:
    sizes = job_sizes.Downey(average=1, sigma=sigma).sizes(asked, 10_000)
    if sizes.most > asked and sizes.least < asked:
        ratio = sizes.rates[-1] / sizes.rates[sizes.least - 1]
        assert ratio <= sizes.most / sizes.least * 1.01


def test_downeys_model_lets_large_jobs_grow_that_amdahls_only_lets_shrink() -> None:
    assert (job_sizes.Amdahl().sizes(256, 4392).most, job_sizes.Downey().sizes(256, 4392).most) == (256, 512)
    assert (
        job_sizes.downey_speedup(256, 511, 1.0) / 256 > 0.8 >= job_sizes.downey_speedup(256, 510, 1.0) / 256
    )


@pytest.mark.parametrize(
    "thresholds", [{"least": Fraction(1, 2)}, {"most": Fraction(9, 10)}, {"preferred": Fraction(1)}]
)
def test_efficiencies_that_do_not_fall_contradict_each_other(thresholds: dict[str, Fraction]) -> None:
    with pytest.raises(UsageError, match="contradict each other"):
        job_sizes.Efficiencies(**thresholds)


def test_fractions_that_leave_the_request_out_are_refused() -> None:
    with pytest.raises(UsageError, match="the request lies between"):
        job_sizes.Fractions(Fraction(2), Fraction(3))
