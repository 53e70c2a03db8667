"""How long predictions take: ``pytest -m benchmark -s tests/benchmarks/test_pairing_figures.py``.

One pair by name, and the matrix of 100 applications, from the model that comes with osub.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import pytest

from predictor.data import MODEL
from predictor.model import read_model
from tests.fixtures.voice import say

pytestmark = pytest.mark.benchmark


def middle_ms(call: Callable[[], object], times: int) -> tuple[float, float]:
    """Return the median and the worst of so many calls, in ms."""
    took = []
    for _ in range(times):
        began_s = time.perf_counter()
        call()
        took.append(1e3 * (time.perf_counter() - began_s))
    return statistics.median(took), max(took)


def test_a_pair_and_a_matrix() -> None:
    model = read_model(MODEL)
    names = sorted(model.applications)
    hundred = [names[number % len(names)] for number in range(100)]
    pair = middle_ms(lambda: model.forecast(names[0], names[1]), 2_000)
    matrix = middle_ms(lambda: model.matrix(model.counters_of(hundred), model.counters_of(hundred)), 200)
    reading = middle_ms(lambda: read_model(MODEL), 50)
    fresh = np.random.default_rng(1).normal(size=(100, len(model.counters)))
    new = middle_ms(lambda: model.matrix(fresh, fresh), 200)
    say(
        f"one pair {pair[0]:.3f} ms (at most {pair[1]:.2f}); 100 x 100 by name {matrix[0]:.2f} ms "
        f"({matrix[1]:.2f}), of new counters {new[0]:.2f}; reading the model {reading[0]:.2f}  "
        f"[load {os.getloadavg()[0]:.1f}]"
    )
