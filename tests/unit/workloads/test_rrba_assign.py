from __future__ import annotations

import random
from collections import Counter

import pytest

from foundation.errors import UsageError
from workloads.rrba.calibration_kinds import kind_of, target_of
from workloads.rrba.drawn_applications import draw_arguments, legal_applications


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (1, ["lu", "bt", "mg", "sp"]),
        (2, ["lu", "mg"]),
        (4, ["lu", "bt", "mg", "sp"]),
        (9, ["lu", "bt", "sp"]),
        (3, []),
    ],
)
def test_only_applications_that_run_on_the_ranks_are_drawn(ranks: int, expected: list[str]) -> None:
    assert legal_applications(ranks) == expected


def test_draw_is_repeated_by_its_seed_and_takes_all_in_turn() -> None:
    first, again = (
        [draw_arguments(4, 2.5, rng, grid_class="W").split() for _ in range(200)]
        for rng in (random.Random(3), random.Random(3))
    )
    assert first == again
    kinds = Counter(kind_of(words, 4, 1).name for words in first)
    assert set(kinds) == {"lu.W", "bt.W", "mg.W", "sp.W"}
    assert min(kinds.values()) > 30
    assert {target_of(words) for words in first} == {2.5}


def test_ranks_that_suit_none_run_what_runs_on_any() -> None:
    assert draw_arguments(3, 10.0, random.Random(1), grid_class="W") == "--app jacobi --target-s 10"


def test_class_that_an_application_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="lu has no class 'D'"):
        legal_applications(1, grid_class="D")
