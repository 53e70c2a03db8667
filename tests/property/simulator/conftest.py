"""What these tests simulate is compiled, however small it is; a quick run compiles nothing.

What runs as plain Python counts from the start of its tables, as what is compiled has to.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.tables_from_start import tables_from_start
from tests.fixtures.tier import choose


@pytest.fixture(autouse=True, scope="module")
def compiled() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OSUB_JIT", choose("0", "1", "1"))
        with tables_from_start():
            yield


@pytest.fixture(scope="module")
def plain() -> Iterator[None]:
    """Run the kernels in plain Python: a compiled one is held against it in the validation tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OSUB_JIT", "0")
        yield
