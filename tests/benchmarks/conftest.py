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


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fair shares", "tests/benchmarks/test_fair_shares.py")
    group.addoption("--seconds", type=float, default=60.0, help="length of a trial (%(default)s)")
    group.addoption("--tricks", default="", help="tricks to measure, by comma (all)")
    group.addoption("--modes", default="freeze,yield,signals", help="hold modes to measure (%(default)s)")
    group.addoption("--shield", action="store_true", help="weigh the jobs above other work of the host")
    group.addoption("--gangd", default="", help="settings of gangd to measure with, by comma (none)")
    group.addoption("--machine", action="store_true", help="measure in a machine with systemd and cgroup v2")
