"""The table that a file of benchmarks fills and prints in the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.gang_trials import Figures


@pytest.fixture(scope="module")
def figures() -> Iterator[Figures]:
    table = Figures()
    yield table
    print(f"\n\n{table.table()}")
