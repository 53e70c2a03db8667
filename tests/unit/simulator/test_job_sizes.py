"""The sizes of malleable jobs: those that are known, and what holds for all."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import UsageError
from simulator.model.job_sizes import (
    ASKED,
    Amdahl,
    Downey,
    Efficiencies,
    Fractions,
    SizeConversion,
    downey_speedup,
    parallel_share,
)
from tests.fixtures.tier import examples


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
    sizes = Amdahl().sizes(asked, 4392)
    assert float(parallel_share(asked, Fraction(8, 10))) == share
    assert (sizes.least, sizes.preferred, sizes.most) == (least, asked, most)
    assert sizes.rates[asked - 1] == ASKED


CONVERSIONS = st.one_of(
    st.builds(
        Amdahl,
        st.lists(st.fractions(Fraction(1, 100), 1, max_denominator=100), min_size=3, max_size=3).map(
            lambda found: Efficiencies(
                **dict(zip(("most", "preferred", "least"), sorted(found), strict=True))
            )
        ),
    ),
    st.builds(
        Downey, average=st.integers(1, 2000), sigma=st.floats(0, 5, allow_nan=False, allow_infinity=False)
    ),
    st.builds(Fractions, st.fractions(Fraction(1, 1000), 1), st.fractions(1, 1000)),
)


@examples(300)
@given(conversion=CONVERSIONS, nodes=st.integers(1, 5000), asked=st.integers(1, 5000))
def test_the_request_lies_between_the_sizes_and_they_in_the_system(
    conversion: SizeConversion, nodes: int, asked: int
) -> None:
    asked = min(asked, nodes)
    sizes = conversion.sizes(asked, nodes)
    assert 1 <= sizes.least <= sizes.preferred == asked <= sizes.most <= nodes
    assert len(sizes.rates) == sizes.most
    assert list(sizes.rates) == sorted(sizes.rates)


@examples(100)
@given(asked=st.integers(1, 3000), sigma=st.floats(0, 4, allow_nan=False))
def test_with_downeys_model_more_nodes_are_never_more_efficient(asked: int, sigma: float) -> None:
    sizes = Downey(average=1, sigma=sigma).sizes(asked, 10_000)
    if sizes.most > asked and sizes.least < asked:
        ratio = sizes.rates[-1] / sizes.rates[sizes.least - 1]
        assert ratio <= sizes.most / sizes.least * 1.01


def test_downeys_model_lets_large_jobs_grow_that_amdahls_only_lets_shrink() -> None:
    assert (Amdahl().sizes(256, 4392).most, Downey().sizes(256, 4392).most) == (256, 512)
    assert downey_speedup(256, 511, 1.0) / 256 > 0.8 >= downey_speedup(256, 510, 1.0) / 256


@pytest.mark.parametrize(
    "thresholds", [{"least": Fraction(1, 2)}, {"most": Fraction(9, 10)}, {"preferred": Fraction(1)}]
)
def test_efficiencies_that_do_not_fall_contradict_each_other(thresholds: dict[str, Fraction]) -> None:
    with pytest.raises(UsageError, match="contradict each other"):
        Efficiencies(**thresholds)


def test_fractions_that_leave_the_request_out_are_refused() -> None:
    with pytest.raises(UsageError, match="the request lies between"):
        Fractions(Fraction(2), Fraction(3))
