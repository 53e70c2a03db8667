from __future__ import annotations

from itertools import pairwise

import pytest

from gangd.agent.report_buffer import MAX_SLICES
from gangd.wire.slice_schedule import (
    CALM_NS,
    LOOK_NS,
    is_look,
    looks_a_calm_look,
    next_look,
    silence_ns,
    silence_of,
    slices_a_look,
)

MS = 1_000_000


@pytest.mark.parametrize(
    ("quantum_ms", "slices"), [(5000, 1), (250, 1), (125, 3), (100, 3), (50, 5), (20, 13)]
)
def test_short_slices_share_a_look(quantum_ms: int, slices: int) -> None:
    assert slices_a_look(quantum_ms * MS) == slices


@pytest.mark.parametrize("quantum_ms", [20, 50, 100, 250])
def test_looks_are_about_as_far_apart_as_they_should(quantum_ms: int) -> None:
    looks = [number for number in range(2000) if is_look(number, quantum_ms * MS)]
    gaps_ns = [(later - earlier) * quantum_ms * MS for earlier, later in pairwise(looks)]
    assert max(gaps_ns) <= LOOK_NS + 2 * quantum_ms * MS


@pytest.mark.parametrize("quantum_ms", [20, 50, 100])
@pytest.mark.parametrize("turns", range(2, 9))
def test_of_jobs_that_take_turns_each_is_looked_at_while_it_is_held(quantum_ms: int, turns: int) -> None:
    looks = [number for number in range(13 * 13 * 8 + 13) if is_look(number, quantum_ms * MS)]
    assert {number % turns for number in looks} == set(range(turns))


def test_next_look_is_the_first_from_there_on() -> None:
    for number in range(200):
        look = next_look(number, 50 * MS)
        assert look >= number
        assert is_look(look, 50 * MS)
        assert not any(is_look(between, 50 * MS) for between in range(number, look))


@pytest.mark.parametrize(
    ("quantum_ms", "looks"), [(5000, 1), (1000, 1), (300, 3), (250, 3), (100, 3), (50, 3), (20, 3)]
)
def test_calm_node_leaves_out_looks(quantum_ms: int, looks: int) -> None:
    assert looks_a_calm_look(quantum_ms * MS) == looks


@pytest.mark.parametrize("quantum_ms", [20, 50, 100, 250, 1000])
def test_looks_of_a_calm_node_are_looks_and_never_far_apart(quantum_ms: int) -> None:
    quantum_ns = quantum_ms * MS
    calm = [number for number in range(2000) if is_look(number, quantum_ns, calm=True)]
    assert all(is_look(number, quantum_ns) for number in calm)
    gaps_ns = [(later - earlier) * quantum_ns for earlier, later in pairwise(calm)]
    assert max(gaps_ns) <= max(CALM_NS, quantum_ns) + 2 * quantum_ns


@pytest.mark.parametrize("quantum_ms", [20, 50, 100, 250])
@pytest.mark.parametrize("turns", range(2, 9))
def test_of_jobs_that_take_turns_each_is_seen_held_on_a_calm_node(quantum_ms: int, turns: int) -> None:
    calm = [number for number in range(6 * 13 * 13 * 8) if is_look(number, quantum_ms * MS, calm=True)]
    assert {number % turns for number in calm} == set(range(turns))


@pytest.mark.parametrize("lease_ms", [1_500, 2_000])
def test_under_a_short_lease_no_agent_is_silent(lease_ms: int) -> None:
    assert silence_ns(lease_ms * MS, 250 * MS) == 0


@pytest.mark.parametrize("quantum_ms", [20, 50, 250, 1000, 5000])
@pytest.mark.parametrize("lease_ms", [2_001, 5_000, 12_500, 60_000])
def test_lease_has_space_for_two_reports_of_a_silent_node(lease_ms: int, quantum_ms: int) -> None:
    lease_ns, quantum_ns = lease_ms * MS, quantum_ms * MS
    looks = [number for number in range(60_000 // quantum_ms * 4) if is_look(number, quantum_ns, calm=True)]
    reported = [
        later for earlier, later in pairwise(looks) if ends_silence(earlier, later, lease_ns, quantum_ns)
    ]
    gaps = [later - earlier for earlier, later in pairwise(reported)]
    look_ns = max(CALM_NS, quantum_ns) + 2 * quantum_ns
    assert max(gaps) * quantum_ns <= silence_ns(lease_ns, quantum_ns) + look_ns
    assert max(gaps) * quantum_ns < lease_ns or look_ns >= lease_ns
    assert max(gaps) <= MAX_SLICES


def ends_silence(earlier: int, later: int, lease_ns: int, quantum_ns: int) -> bool:
    return silence_of(earlier, lease_ns, quantum_ns) != silence_of(later, lease_ns, quantum_ns)
