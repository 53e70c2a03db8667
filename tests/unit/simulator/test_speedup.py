"""Speed-up functions against values that can be checked by hand, and against the models' own properties."""

from __future__ import annotations

import pytest

from foundation.errors import UsageError
from simulator.model.job_sizes import ASKED, amdahl, downey, from_table, linear


def test_linear_rates_are_exact() -> None:
    assert linear(4) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("parallel", "nodes", "efficiency"), [(0.95, 4, 0.870), (0.965, 8, 0.803), (0.995, 128, 0.612)]
)
def test_amdahl_gives_the_efficiencies_that_are_known(parallel: float, nodes: int, efficiency: float) -> None:
    assert amdahl(nodes, 1, parallel)[-1] / ASKED / nodes == pytest.approx(efficiency, abs=5e-4)
    assert ASKED / amdahl(nodes, nodes, parallel)[0] / nodes == pytest.approx(efficiency, rel=1e-2)


@pytest.mark.parametrize("sigma", [0.0, 0.5, 1.0, 2.0])
def test_downey_rises_from_one_to_the_average_parallelism(sigma: float) -> None:
    rates = downey(200, 1, 16, sigma)
    assert rates[0] == ASKED
    assert list(rates) == sorted(rates)
    assert rates[-1] == 16 * ASKED


def test_downey_without_variance_is_linear_up_to_its_average() -> None:
    assert downey(8, 1, 8, 0) == tuple(nodes * ASKED for nodes in range(1, 9))


def test_both_halves_of_downeys_model_meet_at_a_variance_of_one() -> None:
    below, above = downey(64, 1, 16, 1 - 1e-9), downey(64, 1, 16, 1)
    assert max(abs(a - b) for a, b in zip(below, above, strict=True)) <= 1


@pytest.mark.parametrize("table", [[], [0.0], [1, -1], [1, 1e9], [1, float("nan")], [1e9, 1]])
def test_tables_that_cannot_be_are_refused(table: list[float]) -> None:
    with pytest.raises(UsageError):
        from_table(table, 1)


def test_models_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError):
        amdahl(4, 2, 1.5)
    with pytest.raises(UsageError):
        amdahl(4, 5, 0.5)
    with pytest.raises(UsageError):
        downey(4, 1, 0.5, 1)
