"""``easy-ncs`` on worlds worked out by hand: nodes of one core, two slots each, no overhead."""

from __future__ import annotations

from pathlib import Path

import pytest

import osub
from tests.unit.simulator.test_instants import trace_of

LONG_S = 1000


def places(
    folder: Path, system: str, jobs: list[tuple[int, int, int, int]], policy: str = "easy-ncs"
) -> dict[int, tuple[float, list[str]]]:
    """Simulate (submit, run, processors, request), and return when and where each job starts."""
    run = osub.simulate(
        trace_of(folder, jobs), system, policy=policy, placement="thesis", multiplicity=2, overhead=1.0
    )
    return {
        number: (start_s, [part["node"] for part in placement])
        for number, start_s, placement in run.jobs.select("trace_job", "start_s", "placement").iter_rows()
    }


def waiting_for_two_nodes(candidate_s: int) -> list[tuple[int, int, int, int]]:
    """Return jobs of which 1 and 3 fill nodes 1 and 2 up to 200 s, and 2 leaves node 3 at 5 s.

    Job 4 is the head, for all three nodes, job 5 the candidate.
    """
    return [
        (0, 100, 2, 100),
        (0, 5, 1, 5),
        (0, LONG_S, 2, LONG_S),
        (9, LONG_S, 3, LONG_S),
        (10, candidate_s, 1, candidate_s),
    ]


@pytest.mark.parametrize(
    ("candidate_s", "policy", "starts_s"),
    [
        (190, "easy-ncs", 10),
        (191, "easy-ncs", 200),  # beside it the head would share the node, and be slower for it
        (191, "easy-elsewhere", 10),  # the head would start at 200 s all the same
    ],
)
def test_a_node_of_the_head_is_refused_to_who_would_slow_it(
    tmp_path: Path, candidate_s: int, policy: str, starts_s: float
) -> None:
    found = places(tmp_path, "N3C1", waiting_for_two_nodes(candidate_s), policy)
    assert found[4] == (200, ["n1", "n2", "n3"])
    assert found[5] == (starts_s, ["n3"])


def head_of_three_of_four(guest_s: int, candidate_s: int, procs: int = 1) -> list[tuple[int, int, int, int]]:
    """Return jobs of which 1, 4 and 5 fill nodes 1 and 2 up to 200 s; 2 leaves node 3 at 5 s, 3 is on node 4.

    Job 6 is the head, for three nodes: 3, 1 and 2. Job 7, the candidate, has the choice of node 3 and node 4.
    """
    return [
        (0, 100, 2, 100),
        (0, 5, 1, 5),
        (0, guest_s, 1, guest_s),
        (0, LONG_S, 1, LONG_S),
        (0, LONG_S, 1, LONG_S),
        (9, LONG_S, 3, LONG_S),
        (10, candidate_s, procs, candidate_s),
    ]


@pytest.mark.parametrize(
    ("candidate_s", "node"),
    [
        (95, "n3"),  # on node 4, at half the speed, it would end at 200 s, too
        (96, "n4"),  # on node 3 it would end at 106 s, on node 4 at 202 s: node 3 is taken back
    ],
)
def test_a_node_of_the_head_is_taken_back_from_who_would_end_late_on_another(
    tmp_path: Path, candidate_s: int, node: str
) -> None:
    found = places(tmp_path, "N4C1", head_of_three_of_four(LONG_S, candidate_s))
    assert found[6] == (200, ["n1", "n2", "n3"])
    assert found[7] == (10, [node])


@pytest.mark.parametrize(
    ("guest_s", "starts_s"),
    [
        (LONG_S, 10),
        (100, 100),  # job 3 would end before the head starts, at half its speed later than planned
    ],
)
def test_a_victim_that_ends_by_the_heads_start_is_not_slowed(
    tmp_path: Path, guest_s: int, starts_s: float
) -> None:
    found = places(tmp_path, "N4C1", head_of_three_of_four(guest_s, 95, procs=2))
    assert found[7] == (starts_s, ["n3", "n4"])
